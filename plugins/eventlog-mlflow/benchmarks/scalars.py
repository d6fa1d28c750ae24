"""Microseconds for a scalar: this sink, and MLflow called as its quick start does, on SQLite.

Run it as ``python benchmarks/scalars.py``; it ends with an error where the sink is not fifty times
cheaper than `mlflow.log_metrics` for each step. All write in turns, several times, and the best
turn of each counts, so that what else the machine does falls on all.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.events import Scalar, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink

BATCH, KEYS, TURNS = 512, ("train/loss", "train/acc", "lr"), 3
EVENTS, CALLS = 512 * 10, 100
WALL = 1_700_000_000_000_000_000


def values(step: int) -> dict[str, Scalar]:
    """Return three scalars that differ from step to step."""
    return {key: step + i / 3 for i, key in enumerate(KEYS)}


def sink(folder: Path, direct: bool) -> Callable[[], int]:
    """Write batches of events, as eventlog's delivery gives them."""
    found = MlflowSink(dir=folder, direct=direct)
    found.open(RunInfo(run_id="bench", project="bench"))
    events = [
        StepEvent(step=s, values=values(s), wall=WALL + s * 10**6, seq=s) for s in range(EVENTS)
    ]
    batches = [events[i : i + BATCH] for i in range(0, EVENTS, BATCH)]

    def work() -> int:
        for batch in batches:
            found.write(batch)
        found.flush()
        return EVENTS

    return work


def plain(folder: Path) -> Callable[[], int]:
    """Write as most training scripts do."""
    import mlflow

    api: Any = mlflow
    api.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    api.set_experiment("bench")
    steps = [(s, values(s)) for s in range(CALLS)]

    def work() -> int:
        with api.start_run():
            for step, scalars in steps:
                api.log_metrics(scalars, step=step)
        return CALLS

    return work


def main() -> None:
    """Measure, print, and check."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    warnings.simplefilter("ignore")
    contestants: dict[str, Callable[[Path], Callable[[], int]]] = {
        "eventlog-mlflow": lambda folder: sink(folder, True),
        "eventlog-mlflow, direct=False": lambda folder: sink(folder, False),
        "mlflow.log_metrics": plain,
    }
    best = dict.fromkeys(contestants, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            for name, prepare in contestants.items():
                work = prepare(Path(folder))
                start = time.perf_counter()
                events = work()
                each = (time.perf_counter() - start) / events / len(KEYS) * 1e6
                best[name] = min(best[name], each)
    own = best["eventlog-mlflow"]
    for name, each in best.items():
        print(f"{name:30} {each:8.2f} us/scalar {each / own:7.1f} x")
    if best["mlflow.log_metrics"] < 50 * own:
        sys.exit("the sink must be fifty times cheaper than mlflow.log_metrics")


if __name__ == "__main__":
    main()
