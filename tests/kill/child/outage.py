"""A run of which one sink is down for a long time: how much memory that takes, as JSON."""

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from eventlog import Run, Sink
from eventlog.delivery import Retry
from eventlog.events import Event
from eventlog.exceptions import UnavailableError

DOWN_FOR = 100_000
CACHED = 65_536


def resident() -> int:
    """Return the process's resident memory, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Counting(Sink):
    """Counts what it takes, and whether that is in order; while `down` is set it takes nothing."""

    name = "counting"

    def __init__(self, how: str = "up") -> None:
        self.how = how
        self.up = threading.Event()
        self.taken = 0
        self.disorder = 0
        self.slowest = 0.0
        self.tries = 0

    def write(self, batch: Sequence[Event]) -> None:
        self.tries += 1
        if self.how == "down" and not self.up.is_set():
            raise UnavailableError("not just now")
        if self.how == "stalled":
            self.up.wait()
        for event in batch:
            self.disorder += event.seq != self.taken
            self.taken += 1
        self.slowest = max(self.slowest, time.monotonic() - batch[-1].mono / 1e9)


def until(condition: Callable[[], bool], seconds: float) -> float:
    """Wait; return how long that took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            sys.exit(f"it took longer than {seconds} s")
        time.sleep(0.005)
    return time.monotonic() - begun


good, down, stalled = Counting(), Counting("down"), Counting("stalled")
run = Run(
    "outage",
    dir=sys.argv[1],
    sinks={"good": good, "down": down, "stalled": stalled},
    retry=Retry(first=0.05, most=0.2),
    close_timeout=60,
)
emitted = 1


def emit(n: int) -> int:
    """Emit n steps; return the resident memory once the good sink has them."""
    global emitted
    for _ in range(n):
        run.step(loss=emitted / 7, rate=0.5)
        emitted += 1
        if emitted % 200 == 0:
            time.sleep(0.002)
    until(lambda: good.taken == emitted, 30)
    gc.collect()
    return resident()


first = emit(1_000)
full = emit(CACHED + 10_000)
outage = emit(DOWN_FOR)
behind = {alias: s.read for alias, s in run.statistics().sinks.items()}
down.up.set()
stalled.up.set()
peak = 0


def caught_up() -> bool:
    """Whether all sinks have all."""
    global peak
    peak = max(peak, resident())
    return down.taken == stalled.taken == emitted


seconds = until(caught_up, 60)
report = run.close()
sinks: dict[str, Any] = run.statistics().sinks
print(
    json.dumps(
        {
            "emitted": emitted + 1,
            "taken": {"good": good.taken, "down": down.taken, "stalled": stalled.taken},
            "disorder": good.disorder + down.disorder + stalled.disorder,
            "lost": sum(s.lost for s in sinks.values()),
            "tries": down.tries,
            "behind": behind,
            "cache": full - first,
            "growth": outage - full,
            "catching_up": peak - outage,
            "catch_up_seconds": seconds,
            "good_slowest": good.slowest,
            "complete": report.complete,
        }
    )
)
