"""What the parts of a call cost between two steps of work, where caches are cold.

    python benchmarks/between.py [--steps 16000]

After each step of a torch loop, of about 1 ms, one of the calls below is timed, chosen at random.
Each line has what the line before it has, and more; `run.step` is the last one. The first is what
measuring costs. No bar: this is where to look before `run.step` is to become cheaper.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

import eventlog
from eventlog.events import StepEvent
from peers.loop import make_step

Call = Callable[[float], None]
clock = time.monotonic_ns


class Floor(msgspec.Struct, gc=False):
    """The least that an event can be."""

    mono: int
    step: int
    values: dict[str, float]


def calls(run: eventlog.Run) -> dict[str, Call]:
    """Return the calls by what they are."""
    append = deque[Any](maxlen=10_000).append

    def floor(loss: float) -> None:
        append(Floor(clock(), 1, {"loss": loss, "accuracy": 0.9, "lr": 0.1}))

    def event(loss: float) -> None:
        append(StepEvent(clock(), 1, 0, 0, {"loss": loss, "accuracy": 0.9, "lr": 0.1}, 1))

    def log_event(values: Any = None, /, step: Any = None, **scalars: Any) -> None:
        append(StepEvent(clock(), 1, 0, 0, scalars, 1))

    def with_keywords(loss: float) -> None:
        log_event(loss=loss, accuracy=0.9, lr=0.1)

    def log_floats(values: Any = None, /, step: Any = None, **scalars: Any) -> None:
        if values is None and step is None:
            for value in scalars.values():
                if type(value) is not float:
                    return
            append(StepEvent(clock(), 1, 0, 0, scalars, 1))

    def with_types(loss: float) -> None:
        log_floats(loss=loss, accuracy=0.9, lr=0.1)

    def run_step(loss: float) -> None:
        run.step(loss=loss, accuracy=0.9, lr=0.1)

    return {
        "nothing": lambda loss: None,
        "a Struct with a dict, the clock, deque.append": floor,
        "an event in its place": event,
        "in a function that takes any names": with_keywords,
        "that looks whether all are floats": with_types,
        "run.step: counters, reserved names, room in the inbox": run_step,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16_000)
    steps: int = parser.parse_args().steps
    step = make_step((192, 64))
    table = Table("between two steps of work", "p50, us", "over nothing", "p99, us")
    with tempfile.TemporaryDirectory() as name, eventlog.Run("between", dir=name) as run:
        found = calls(run)
        times: dict[str, list[int]] = {what: [] for what in found}
        for i in range(steps + 200):
            what, call = random.choice(list(found.items()))
            loss = step()
            start = time.perf_counter_ns()
            call(loss)
            if i >= 200:
                times[what].append(time.perf_counter_ns() - start)
    base = sorted(times["nothing"])[len(times["nothing"]) // 2]
    for what, spent in times.items():
        spent.sort()
        p50, p99 = spent[len(spent) // 2], spent[int(len(spent) * 0.99)]
        table.add_row(what, f"{p50 / 1e3:.2f}", f"{(p50 - base) / 1e3:.2f}", f"{p99 / 1e3:.2f}")
    Console(width=110, file=sys.stdout).print(table)


if __name__ == "__main__":
    main()
