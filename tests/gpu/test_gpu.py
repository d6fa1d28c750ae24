"""Values on a real CUDA device; left out where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, open_log
from eventlog.events import HistogramEvent, StepEvent

torch: Any = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(autouse=True)
def _warm() -> Iterator[None]:
    """Have memory pinned before a test, and let torch raise at each call that synchronises."""
    with Run("warm", dir=None) as run:
        run.step(loss=torch.ones((), device="cuda"))
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def values(run: Run, key: str) -> list[Any]:
    assert run.dir is not None
    return [e.values[key] for e in open_log(run.dir).events() if isinstance(e, StepEvent)]


def test_no_call_synchronises(tmp_path: Path) -> None:
    """torch's own check raises nowhere, on no thread, and each value is that of its moment."""
    x = torch.zeros((), device="cuda")
    with Run("p", dir=tmp_path) as run:
        for _ in range(1000):
            run.step(x=x, y=x * 2, n=x.long())
            x += 1
    assert values(run, "x") == [float(n) for n in range(1000)]
    assert values(run, "y") == [2.0 * n for n in range(1000)]
    assert values(run, "n") == list(range(1000))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "int64", "bool"])
def test_every_type_arrives(tmp_path: Path, kind: str) -> None:
    """As it is on the device."""
    value = torch.ones((), device="cuda").to(getattr(torch, kind))
    with Run("p", dir=tmp_path) as run:
        run.step(x=value)
    assert values(run, "x") == [1]


def test_arrays_arrive(tmp_path: Path) -> None:
    """A histogram's array is copied without waiting, too."""
    weights = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    with Run("p", dir=tmp_path) as run:
        run.histogram("w", weights, bins=4)
        weights.zero_()
    assert run.dir is not None
    (event,) = (e for e in open_log(run.dir).events() if isinstance(e, HistogramEvent))
    assert event.counts == [1 << 18] * 4


def test_a_graph_is_captured_while_others_log(tmp_path: Path) -> None:
    """A value logged before is resolved in the middle of a capture, which stays valid."""
    static = torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with Run("p", dir=tmp_path) as run:
        run.step(x=static)
        torch.cuda.set_sync_debug_mode("default")
        with torch.cuda.graph(graph):
            static += 1
            run.step(inside=static)  # named in a warning: it would become part of the graph
            run.flush(5)
        for _ in range(3):
            graph.replay()
            run.step(x=static)
    assert values(run, "x") == [0.0, 1.0, 2.0, 3.0]
    assert run.statistics().rejected == {"graph_capture": 1}


def test_no_device_memory_is_held(tmp_path: Path) -> None:
    """After 10,000 values no more is allocated than before."""
    before = torch.cuda.memory_allocated()
    with Run("p", dir=tmp_path) as run:
        for _ in range(10_000):
            run.step(loss=torch.ones((), device="cuda", requires_grad=True) * 2)
        run.flush(30)
        gc.collect()
        assert torch.cuda.memory_allocated() - before < 1 << 16
