"""Microseconds for a scalar: this sink, and DVCLive called plainly.

Run it as ``python benchmarks/scalars.py``; it ends with an error where the sink is not 20 times
cheaper than `log_metric` for each value and `next_step` for each step. All write in turns, several
times, and the best turn of each counts, so that what else the machine does falls on all. The plain
calls get few steps: with more of them, `next_step` becomes dearer from step to step.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.events import Scalar, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_dvclive import DvcliveSink

BATCH, KEYS, EVENTS, PLAIN, TURNS = 512, ("train/loss", "train/acc", "lr"), 512 * 20, 200, 5
WALL = 1_700_000_000_000_000_000


def values(step: int) -> dict[str, Scalar]:
    """Return three scalars that differ from step to step."""
    return {key: step + i / 3 for i, key in enumerate(KEYS)}


def ours(folder: str) -> tuple[Callable[[], None], int]:
    """Write batches of events, as eventlog's delivery gives them."""
    sink = DvcliveSink(dir=folder)
    sink.open(RunInfo(run_id="bench"))
    events = [
        StepEvent(step=s, values=values(s), wall=WALL + s * 10**6, seq=s) for s in range(EVENTS)
    ]
    batches = [events[i : i + BATCH] for i in range(0, EVENTS, BATCH)]

    def work() -> None:
        for batch in batches:
            sink.write(batch)
        sink.close("finished")

    return work, EVENTS


def plain(folder: str, *, next_step: bool) -> tuple[Callable[[], None], int]:
    """Log as DVCLive's quick start does, or set the step and make the summary at the end."""
    from dvclive.live import Live

    live: Any = Live(dir=folder, save_dvc_exp=False, dvcyaml=None)

    def work() -> None:
        for step in range(PLAIN):
            for key, value in values(step).items():
                live.log_metric(key, value)
            if next_step:
                live.next_step()
            else:
                live.step = step + 1
        live.end()

    return work, PLAIN


def main() -> None:
    """Measure, print, and check."""
    contestants: dict[str, Callable[[str], tuple[Callable[[], None], int]]] = {
        "eventlog-dvclive": ours,
        "Live.log_metric, next_step": lambda folder: plain(folder, next_step=True),
        "Live.log_metric, step =": lambda folder: plain(folder, next_step=False),
    }
    best = dict.fromkeys(contestants, float("inf"))
    # DVCLive, called plainly in a git repository, would make a DVC repository there
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for turn in range(TURNS):
            for name, prepare in contestants.items():
                work, events = prepare(str(Path(folder) / f"{name}-{turn}"))
                start = time.perf_counter()
                work()
                each = (time.perf_counter() - start) / events / len(KEYS) * 1e6
                best[name] = min(best[name], each)
    own = best["eventlog-dvclive"]
    for name, each in best.items():
        print(f"{name:28} {each:8.2f} us/scalar {each / own:7.1f} x")
    if best["Live.log_metric, next_step"] < 20 * own:
        sys.exit("the sink must be 20 times cheaper than log_metric and next_step")


if __name__ == "__main__":
    main()
