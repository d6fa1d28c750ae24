"""Logs of several sizes, replays into several sinks, and several processes at once."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import eventlog
from log import Taker, read_log, seeks, tensorboard_rate, write_log
from scaling.base import size_of

EVENT = 100
"""About the bytes that an event of three floats takes in the log."""


def log_size(megabytes: int, folder: Path) -> dict[str, Any]:
    """Write a log of about so many MB, read it, and look for single events in it."""
    total = max(20_000, megabytes * 1_000_000 // EVENT // 20_000 * 20_000)
    _, write = write_log(folder, total)
    read, _ = read_log(folder)
    found = seeks(folder, total, 100)
    return {
        "events": total,
        "bytes": size_of(folder),
        "write_events_s": 1 / write,
        "read_events_s": read,
        "seek_p50_ms": found[len(found) // 2] * 1e3,
        "seek_p99_ms": found[int(len(found) * 0.99)] * 1e3,
    }


def replay(n: int, folder: Path, events: int) -> dict[str, Any]:
    """Replay a log into n sinks that take everything."""
    write_log(folder / "run", events)
    rates = []
    for _ in range(3):
        sinks: dict[str, Any] = {f"t{i}": {"sink": Taker()} for i in range(n)}
        start = time.perf_counter()
        report = eventlog.replay(folder / "run", sinks)
        rates.append(events / (time.perf_counter() - start))
        assert report.complete
    found: dict[str, Any] = {"events_s": statistics.median(rates)}
    if n == 1:
        peer = tensorboard_rate(folder / "run", folder / "tb", events)
        if peer is not None:
            found |= {"tensorboard_events_s": peer[0]}
            found["times_tensorboard"] = found["events_s"] / peer[0]
    return found


def ranks(n: int, folder: Path) -> dict[str, Any]:
    """Emit in n processes of one run, each into its own log."""
    environment = os.environ | {"WORLD_SIZE": str(n), "EVENTLOG_RUN_ID": "scale"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    command = [sys.executable, "-m", "scaling.storing", str(folder)]
    start = time.perf_counter()
    processes = [
        subprocess.Popen(
            command, env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(n)
    ]
    said = [
        json.loads(process.communicate(timeout=300)[0].splitlines()[-1]) for process in processes
    ]
    seconds = time.perf_counter() - start
    logs = sorted(folder.glob("**/rank-*/"))
    assert len([x for x in logs if list(x.glob("*.elog"))]) == n, "a rank has no log"
    return {
        "emit_ns": statistics.median(one["emit_ns"] for one in said),
        "events_s": sum(one["events"] for one in said) / max(one["seconds"] for one in said),
        "dropped": sum(one["dropped"] for one in said),
        "seconds": seconds,
    }


def one_rank(folder: Path) -> None:
    """Be one of the processes."""
    events, spent = 20_000, []
    start = time.perf_counter()
    with eventlog.Run("scale", dir=folder, sinks=[], ranks="all", close_timeout=120) as run:
        clock = time.perf_counter_ns
        for _ in range(events):
            before = clock()
            run.step(loss=0.5, accuracy=0.9, lr=0.1)
            spent.append(clock() - before)
    print(
        json.dumps(
            {
                "emit_ns": statistics.median(spent),
                "events": events,
                "seconds": time.perf_counter() - start,
                "dropped": sum(run.statistics().log.dropped.values()),
            }
        )
    )


if __name__ == "__main__":
    one_rank(Path(sys.argv[1]))
