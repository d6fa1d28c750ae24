"""Microseconds for a number: this sink, and ``Run.track`` as Aim's quick start has it.

Run it as ``python benchmarks/scalars.py``; it ends with an error where the sink is not twice as
cheap. Both write in turns, several times, into one repository, and the best turn of each counts, so
that what else the machine does falls on both.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable

from eventlog.events import Scalar, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_aim import AimSink

BATCH, KEYS, EVENTS, TURNS = 512, ("train/loss", "train/acc", "lr"), 512 * 6, 4
WALL = 1_700_000_000_000_000_000


def values(step: int) -> dict[str, Scalar]:
    """Return three numbers that differ from step to step."""
    return {key: step + i / 3 for i, key in enumerate(KEYS)}


def ours(repo: str) -> Callable[[], None]:
    """Write batches of events, as eventlog's delivery gives them."""
    sink = AimSink(repo=repo)
    sink.open(RunInfo(run_id="bench"))
    events = [StepEvent(step=s, values=values(s), wall=WALL + s, seq=s) for s in range(EVENTS)]
    batches = [events[i : i + BATCH] for i in range(0, EVENTS, BATCH)]

    def work() -> None:
        for batch in batches:
            sink.write(batch)
        sink.flush()
        sink.close("finished")

    return work


def plainly(repo: str) -> Callable[[], None]:
    """Write as most training scripts do."""
    aim = importlib.import_module("aim")
    run = aim.Run(repo=repo, system_tracking_interval=None, capture_terminal_logs=False)
    steps = [(s, values(s)) for s in range(EVENTS)]

    def work() -> None:
        for step, numbers in steps:
            for name, value in numbers.items():
                run.track(value, name=name, step=step)
        run.close()

    return work


def main() -> None:
    """Measure, print, and check."""
    contestants = {"eventlog-aim": ours, "Run.track": plainly}
    best = dict.fromkeys(contestants, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            for name, prepare in contestants.items():
                work = prepare(folder)
                start = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - start)
                del work  # Aim has the store open as long as the run is there
    own = best["eventlog-aim"]
    for name, seconds in best.items():
        each = seconds / EVENTS / len(KEYS) * 1e6
        print(f"{name:16} {each:7.2f} us/number {seconds / own:7.1f} x")
    if best["Run.track"] < 2 * own:
        sys.exit("the sink must be twice as cheap as Run.track")


if __name__ == "__main__":
    main()
