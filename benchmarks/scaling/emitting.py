"""Events, sinks that are not due, values in an event, threads, images."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import eventlog
from scaling.base import chunks, memory, middle, peak, size_of

NEVER = "1000000000 steps"


def events(n: int, folder: Path) -> dict[str, Any]:
    """Emit n events of three floats, and write them."""
    run = eventlog.Run("scale", dir=folder, sinks=[])
    for _ in range(1000):
        run.step(loss=0.5, accuracy=0.9, lr=0.1)
    run.flush(60)
    before, start, used = memory(), time.perf_counter(), time.process_time()
    spent = chunks(
        lambda: run.step(loss=0.5, accuracy=0.9, lr=0.1), n, 50_000, lambda: run.flush(120)
    )
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    run.close(timeout=120)
    tenth = max(1, len(spent) // 10)
    return {
        "emit_ns": middle(spent),
        "emit_last_tenth_ns": middle(spent[-tenth:]),
        "written_ns": seconds / n * 1e9,
        "cpu_ns": cpu / n * 1e9,
        "more_memory": max(0, peak() - before),
        "bytes": size_of(folder) / (n + 1000),
    }


def subscriptions(n: int, folder: Path) -> dict[str, Any]:
    """Emit with n functions as sinks, none of which is due."""

    async def take(event: eventlog.Event) -> None:
        """Take what is always due: the first event, and the last one."""

    many: dict[str, Any] = {
        f"s{i}": {"sink": take, "every": NEVER, "types": ["step"]} for i in range(n)
    }
    run = eventlog.Run("scale", dir=folder, sinks=many, close_timeout=120)
    run.flush(120)
    events_, before, used = 20_000, memory(), time.process_time()
    spent = chunks(
        lambda: run.step(loss=0.5, accuracy=0.9, lr=0.1),
        events_,
        5000,
        lambda: run.flush(120),
    )
    cpu = time.process_time() - used
    found = {
        "emit_ns": middle(spent),
        "cpu_ns": cpu / events_ * 1e9,
        "cpu_ns_each": cpu / events_ / n * 1e9,
        "more_memory": max(0, peak() - before),
    }
    run.close()
    statistics = run.statistics().sinks.values()
    assert all(one.delivered <= 2 and not one.dead for one in statistics), "one was due"
    return found


def keys(n: int, folder: Path) -> dict[str, Any]:
    """Emit events of n values."""
    values = {f"layer{i}/norm": i / 7 for i in range(n)}
    run = eventlog.Run("scale", dir=folder, sinks=[])
    calls = max(50, min(20_000, 500_000 // n))
    clock, spent = time.perf_counter_ns, []
    start = time.perf_counter()
    for i in range(calls):
        before = clock()
        run.step(values)
        spent.append(clock() - before)
        if i % max(1, 200_000 // n) == 0:
            run.flush(120)
    run.close(timeout=120)
    return {
        "emit_ns": middle(spent),
        "emit_ns_each": middle(spent) / n,
        "all_ns_each": (time.perf_counter() - start) / calls / n * 1e9,
        "bytes_each": size_of(folder) / calls / n,
    }


def threads(n: int, folder: Path) -> dict[str, Any]:
    """Emit from n threads at once, and count what arrived."""
    run = eventlog.Run("scale", dir=folder, sinks=[])
    each, begin, spans = 160_000 // n, threading.Barrier(n), [(0.0, 0.0)] * n

    def emit(which: int) -> None:
        begin.wait()
        start = time.perf_counter()
        for _ in range(each):
            run.step(loss=0.5, accuracy=0.9, lr=0.1)
        spans[which] = start, time.perf_counter()

    workers = [threading.Thread(target=emit, args=(i,)) for i in range(n)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # from the first that began: one may have had the interpreter before the others knew
    seconds = max(end for _, end in spans) - min(start for start, _ in spans)
    run.close(timeout=120)
    assert run.dir is not None
    steps = [e.step for e in eventlog.open_log(run.dir).events(types=["step"])]
    dropped = run.statistics().log.dropped
    assert len(steps) + sum(dropped.values()) == each * n, "an event is missing, and not counted"
    return {
        "events_s": each * n / seconds,
        "thread_ns": seconds / each / n * 1e9,
        "events": each * n,
        "dropped": sum(dropped.values()),
    }


def images(side: int, folder: Path) -> dict[str, Any]:
    """Log square images of noise, which no encoder can make small."""
    import numpy as np

    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (side, side, 3), dtype=np.uint8)
    run = eventlog.Run("scale", dir=folder, sinks=[])
    clock, spent, written = time.perf_counter_ns, [], []
    for _ in range(max(5, min(200, 4_000_000 // side**2))):
        start = clock()
        run.image("noise", image)
        spent.append(clock() - start)
        run.flush(120)
        written.append(clock() - start)
    run.close(timeout=120)
    return {
        "emit_ns": middle(spent),
        "written_ns": middle(written),
        "copy_bytes": image.nbytes,
    }
