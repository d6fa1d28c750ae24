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
from scaling.base import chunks, middle, size_of

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
    """Emit in n processes of one run at once, each into its own log.

    All are open before one emits, and none closes before all have written what they emitted: a
    rank that comes after rank 0 has gone looks for it for two seconds, which is none of what is
    measured here.
    """
    environment = os.environ | {"WORLD_SIZE": str(n), "EVENTLOG_RUN_ID": "scale"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    command = [sys.executable, "-m", "scaling.storing", str(folder)]
    start = time.perf_counter()
    processes = [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(n)
    ]

    def hear() -> list[Any]:
        return [json.loads(p.stdout.readline()) for p in processes if p.stdout]

    def go() -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    hear()
    opening = time.perf_counter() - start
    start = time.perf_counter()
    go()
    said = hear()
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    go()
    ended = hear()
    closing = time.perf_counter() - start
    for process in processes:
        process.communicate(timeout=60)
    logs = sorted(folder.glob("**/rank-*/"))
    assert len([x for x in logs if list(x.glob("*.elog"))]) == n, "a rank has no log"
    return {
        "emit_ns": statistics.median(one["emit_ns"] for one in said),
        "events_s": sum(one["events"] for one in said) / seconds,
        "dropped": sum(one["dropped"] for one in ended),
        "open_all_s": opening,
        "close_all_s": closing,
    }


def one_rank(folder: Path) -> None:
    """Be one of the processes."""
    events = 100_000
    with eventlog.Run("scale", dir=folder, sinks=[], ranks="all", close_timeout=120) as run:
        run.flush(120)
        print(json.dumps({"open": True}), flush=True)
        sys.stdin.readline()
        spent = chunks(
            lambda: run.step(loss=0.5, accuracy=0.9, lr=0.1),
            events,
            10_000,
            lambda: run.flush(120),
        )
        print(json.dumps({"emit_ns": middle(spent), "events": events}), flush=True)
        sys.stdin.readline()
    print(json.dumps({"dropped": sum(run.statistics().log.dropped.values())}))


if __name__ == "__main__":
    one_rank(Path(sys.argv[1]))
