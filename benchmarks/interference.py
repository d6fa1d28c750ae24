"""What logging costs a training loop: steps a second and p99 step, alternated in one run.

    python benchmarks/interference.py [--seconds 60]

A torch loop of about 1 ms a step runs in blocks of 100 steps, in turn with: nothing; the log
alone; a sink that is heavy on Python in the training process; the same sink in the sidecar. Bars:
the log alone at least 99 % of nothing, the sidecar at least 97 % with a core free (the loop itself
takes one of the machine's cores: torch is given one thread).

Then the same loop runs beside a heavy sink that has a backlog of 10,000 events: with whole batches
one after the other, and as they are delivered in a training process, cut and with pauses.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table

import eventlog
from eventlog import _run_sinks
from eventlog._care import CARE, Care

sys.path.insert(0, str(Path(__file__).parent))
BUSY = "busy:BusySink"
BLOCK = 100


def make_step() -> Callable[[], torch.Tensor]:
    """Return a training step of about 1 ms."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 192), torch.nn.ReLU(), torch.nn.Linear(192, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    return step


def block(step: Callable[[], torch.Tensor], run: eventlog.Run | None) -> list[float]:
    """Run a block of steps; return the seconds each took."""
    times = []
    for _ in range(BLOCK):
        start = time.perf_counter()
        loss = step()
        if run is not None:
            run.step(loss=loss, lr=1e-3)
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds: float = parser.parse_args().seconds
    step = make_step()
    for _ in range(300):
        step()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sinks: dict[str, Any] = {
            "log alone": None,
            "heavy sink in the process": {"busy": {"sink": BUSY}},
            "heavy sink in the sidecar": {"busy": {"sink": BUSY, "isolate": True}},
        }
        runs: dict[str, eventlog.Run | None] = {"nothing": None}
        for what, sink in sinks.items():
            runs[what] = eventlog.Run("interference", dir=folder, sinks=sink, close_timeout=120)
        times: dict[str, list[list[float]]] = {what: [] for what in runs}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for what, run in runs.items():
                times[what].append(block(step, run))
                if run is not None:
                    # what this case has left must not be done in the time of the next one
                    run.flush(60)
        for run in runs.values():
            if run is not None:
                run.close()
    report(times)
    backlogs(step, max(1.0, seconds / 15))


def backlogs(step: Callable[[], torch.Tensor], seconds: float) -> None:
    """Measure the loop beside a sink that catches up, as it is and without any care for it."""
    base = [t for _ in range(int(seconds * 10)) for t in block(step, None)]
    table = Table(
        "a heavy sink catches up", "steps/s", "of nothing", "p99 step, ms", "longest", "events/s"
    )
    careless = Care(slice=math.inf, duty=1.0)
    for what, care in {"nothing": None, "whole batches": careless, "as it is": CARE}.items():
        times, taken, lasted = (base, 0, 1.0) if care is None else backlog(step, care, seconds)
        rate = len(times) / sum(times)
        every = sorted(times)
        table.add_row(
            what,
            f"{rate:,.0f}",
            f"{rate * sum(base) / len(base):.2f}",
            f"{every[int(len(every) * 0.99)] * 1e3:.1f}",
            f"{every[-1] * 1e3:.1f}",
            f"{taken / lasted:,.0f}",
        )
    Console(width=110).print(table)


def backlog(
    step: Callable[[], torch.Tensor], care: Care, seconds: float
) -> tuple[list[float], int, float]:
    """Return the times of steps, the events that the sink took, and in how many seconds."""
    times: list[float] = []
    taken, lasted = 0, 0.0
    with tempfile.TemporaryDirectory() as name, mock.patch.object(_run_sinks, "CARE", care):
        while lasted < seconds:
            sink: Any = importlib.import_module("busy").LateSink()
            run = eventlog.Run("backlog", dir=Path(name), sinks={"late": sink}, close_timeout=120)
            for _ in range(10_000):
                run.step(loss=1.0)
            run.sync()
            sink.go.set()
            begun = time.perf_counter()
            while time.perf_counter() - begun < 0.8 and sink.taken < 9_000:
                times += block(step, None)
            taken += sink.taken
            lasted += time.perf_counter() - begun
            run.close()
    return times, taken, lasted


def report(times: dict[str, list[list[float]]]) -> None:
    """Print the rates, as ratios of the blocks beside them."""
    table = Table("with", "steps/s", "of nothing", "quartiles", "p99 step, ms", "bar")
    bars = {"log alone": ">= 0.99", "heavy sink in the sidecar": ">= 0.97, a core free"}
    base = [sum(b) for b in times["nothing"]]
    for what, blocks in times.items():
        ratios = [n / sum(b) for n, b in zip(base, blocks, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        every = sorted(t for b in blocks for t in b)
        table.add_row(
            what,
            f"{BLOCK / statistics.median(sum(b) for b in blocks):,.0f}",
            f"{middle:.4f}",
            f"{low:.3f} - {high:.3f}",
            f"{every[int(len(every) * 0.99)] * 1e3:.2f}",
            bars.get(what, ""),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
