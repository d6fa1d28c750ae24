"""Microseconds for a scalar: this sink beside the SDK called as its quick start does, offline.

Run it as ``python benchmarks/scalars.py``. The two take turns, and the best turn of each counts,
so that what else the machine does falls on both. The SDK's time has what its thread does until the
task is closed; its report process is off for both, which helps it.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from eventlog.events import Scalar, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_clearml import ClearmlSink

BATCH, KEYS, EVENTS, TURNS = 512, ("train/loss", "train/acc", "lr"), 512 * 10, 3
WALL = 1_700_000_000_000_000_000
OFF: dict[str, Any] = {
    "auto_connect_arg_parser": False,
    "auto_connect_frameworks": {"detect_repository": False},
    "auto_connect_streams": False,
    "auto_resource_monitoring": False,
    "reuse_last_task_id": False,
}


def values(step: int) -> dict[str, Scalar]:
    """Return three scalars that differ from step to step."""
    return {key: step + i / 3 for i, key in enumerate(KEYS)}


def ours(folder: str) -> Callable[[], None]:
    """Write batches of events, as eventlog's delivery gives them."""
    sink = ClearmlSink(offline=True, dir=folder)
    sink.open(RunInfo(run_id="bench", project="bench"))
    events = [StepEvent(step=s, values=values(s), wall=WALL + s, seq=s) for s in range(EVENTS)]
    batches = [events[i : i + BATCH] for i in range(0, EVENTS, BATCH)]

    def work() -> None:
        for batch in batches:
            sink.write(batch)
        sink.flush()
        sink.close("finished")

    return work


def plain(folder: str) -> Callable[[], None]:
    """Report each scalar to the task's logger."""
    from clearml import Task

    os.environ["CLEARML_CACHE_DIR"] = folder
    Task.set_offline(True)
    task: Any = Task.init("bench", "plain", **OFF)
    logger = task.get_logger()
    steps = [(s, values(s)) for s in range(EVENTS)]

    def work() -> None:
        for step, scalars in steps:
            for key, value in scalars.items():
                series, _, title = key.partition("/")
                logger.report_scalar(title or series, series, value, step)
        task.close()

    return work


def main() -> None:
    """Measure, and print."""
    logging.getLogger("clearml").setLevel(logging.ERROR)
    contestants = {"eventlog-clearml": ours, "Logger.report_scalar": plain}
    best = dict.fromkeys(contestants, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            for name, prepare in contestants.items():
                work = prepare(folder)
                start = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - start)
    own = best["eventlog-clearml"]
    for name, seconds in best.items():
        each = seconds / EVENTS / len(KEYS) * 1e6
        print(f"{name:24} {each:7.2f} us/scalar {seconds / own:7.1f} x")


if __name__ == "__main__":
    main()
