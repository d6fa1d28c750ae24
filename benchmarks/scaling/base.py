"""What the measures share."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

CHUNK = 1000
"""Calls that are timed together."""


def memory() -> int:
    """Return the bytes that are resident now."""
    found: int = psutil.Process(os.getpid()).memory_info().rss
    return found


def peak() -> int:
    """Return the most bytes that were resident at one time."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def size_of(folder: Path) -> int:
    """Return the bytes of the log below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.elog"))


def chunks(call: Callable[[], object], n: int, each: int, pause: Callable[[], object]) -> list[int]:
    """Call n times; return the ns of each chunk of calls.

    Args:
        call: What is timed.
        n: How often.
        each: Calls after which `pause` is called, which is not timed: a loop that does nothing
            but log fills the queue faster than anybody can empty it.
        pause: Lets the writer catch up.
    """
    clock, spent, since = time.perf_counter_ns, [], 0
    for done in range(0, n, CHUNK):
        count = min(CHUNK, n - done)
        start = clock()
        for _ in range(count):
            call()
        spent.append((clock() - start) // count)
        since += count
        if since >= each:
            pause()
            since = 0
    pause()
    return spent


def middle(values: list[int]) -> float:
    """Return the median."""
    return float(statistics.median(values))
