"""Microseconds for a scalar: this sink, and `run.log` as W&B's quick start has it, both offline.

Run it as ``python benchmarks/scalars.py``. Both write in turns, several times, and the best turn
of each counts, so that what else the machine does falls on both. What is measured is the time of
the caller, and with it the time until wandb-core has taken all in; starting and ending a run is
left out.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.events import Scalar, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.session import SETTINGS

BATCH, KEYS, EVENTS, TURNS = 512, ("train/loss", "train/acc", "lr"), 512 * 6, 3
WALL = 1_700_000_000_000_000_000


def values(step: int) -> dict[str, Scalar]:
    """Return three scalars that differ from step to step."""
    return {key: step + i / 3 for i, key in enumerate(KEYS)}


def ours(folder: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Write batches of events, as eventlog's delivery gives them."""
    sink = WandbSink(mode="offline", dir=folder)
    sink.open(RunInfo(run_id="bench"))
    events = [StepEvent(step=s, values=values(s), wall=WALL + s, seq=s) for s in range(EVENTS)]
    batches = [events[i : i + BATCH] for i in range(0, EVENTS, BATCH)]

    def work() -> None:
        for batch in batches:
            sink.write(batch)
        sink.tracker.summary.get("lr")  # answered when all before it is taken in

    return work, lambda: sink.close("finished")


def plain(folder: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Write as the quick start does; without the extras that ours leaves out."""
    import wandb

    settings = {**SETTINGS, "x_transaction_log_flush_interval": 15.0}
    run = wandb.init(mode="offline", dir=folder, project="bench", settings=settings)
    summary: Any = run.summary
    steps = [values(s) for s in range(EVENTS)]

    def work() -> None:
        for step, scalars in enumerate(steps):
            run.log(scalars, step=step)
        summary.get("lr")

    return work, run.finish


def main() -> None:
    """Measure and print."""
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    contestants = {"eventlog-wandb": ours, "run.log": plain}
    best = dict.fromkeys(contestants, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for name, prepare in contestants.items():
                work, end = prepare(str(Path(folder) / f"{name}-{turn}"))
                start = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - start)
                end()
    own = best["eventlog-wandb"]
    for name, seconds in best.items():
        each = seconds / EVENTS / len(KEYS) * 1e6
        print(f"{name:26} {each:7.2f} us/scalar {seconds / own:7.2f} x")


if __name__ == "__main__":
    main()
