"""One run into all trackers at once: what each one's own reader gives is what the log holds."""

from __future__ import annotations

import importlib.util
import math
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, available_sinks, open_log
from eventlog.events import BatchEvent, EpochEvent, StepEvent
from eventlog.sinks.plain import place
from eventlog.testing.shown import FinishedRun

PLUGINS = Path(__file__).parents[2] / "plugins"
NAMES = ["aim", "clearml", "comet", "dvclive", "mlflow", "tensorboard", "wandb"]


def reader_of(name: str) -> Any:
    """Return what the plugin's own conformance tests read the tracker with."""
    path = PLUGINS / f"eventlog-{name}" / "tests" / f"test_{name}_conformance.py"
    spec = importlib.util.spec_from_file_location(f"read_back_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (kind,) = (
        found
        for found in vars(module).values()
        if isinstance(found, type) and getattr(found, "sink", None) == name
    )
    return kind()


def train(run: Run) -> None:
    for epoch in range(3):
        for step in range(20):
            for half in range(2):
                run.batch({"micro/loss": 1 / (1 + step) + half})
            run.step({"train": {"loss": math.exp(-step / 7), "correct": step * epoch}}, lr=0.1)
        run.epoch({"val/acc": 1 - 0.5**epoch})


def close_to(value: float, other: float, float32: bool) -> bool:
    if float32:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return value == other or math.isclose(value, other, rel_tol=1e-12)


@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore")
def test_every_scalar_of_the_log_is_in_each_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and place of every point, in each tracker that is installed, and nothing else."""
    readers = {name: reader_of(name) for name in NAMES if name in available_sinks()}
    places = {name: tmp_path / name for name in readers}
    sinks = {}
    for name, reader in readers.items():
        places[name].mkdir()
        for variable, value in reader.environment(places[name]).items():
            monkeypatch.setenv(variable, value)
        sinks[name] = reader.options(places[name])
    with Run("seven", dir=tmp_path / "runs", sinks=sinks, close_timeout=150) as run:
        train(run)
    report = run.close()
    assert report.complete, report
    assert run.dir is not None

    logged: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for event in open_log(run.dir).events():
        if isinstance(event, StepEvent | BatchEvent | EpochEvent):
            for key, value in event.values.items():
                logged[key].append((place(event)[1], value))
    assert {key: len(points) for key, points in logged.items()} == {
        "micro/loss": 120,
        "train/loss": 60,
        "train/correct": 60,
        "lr": 60,
        "val/acc": 3,
    }

    for name, reader in readers.items():
        handle = run.sink(name)
        finished = FinishedRun(
            places[name], run.dir, "seven", run.name, run.id, handle.url, handle.run_id
        )
        shown = reader.read(finished).scalars
        for key, points in logged.items():
            # a reader may say the axis with the name
            assert any(n == key or n.startswith(f"{key} ") for n in shown), (name, list(shown))
            (found,) = (p for n, p in shown.items() if n == key or n.startswith(f"{key} "))
            assert [at for at, _ in found] == [at for at, _ in points], (name, key)
            wrong = [
                (at, value, other)
                for (at, value), (_, other) in zip(points, found, strict=True)
                if not close_to(value, other, reader.float32)
            ]
            assert wrong == [], (name, key)
