"""A long run with everything at once: does anything grow, and is every event accounted for?

    python tests/soak/soak.py [--seconds 600] [--rate 5000]

Events are emitted at a steady rate into a run with four sinks: a copy of the log and TensorBoard in
the process, and two sinks that fail at random, one in the process and one in the sidecar. Files are
rotated, and the run is closed and resumed again and again. At the end every sink must have every
event but those that it refuses, which are with its dead letters; and memory, descriptors and
threads of both processes must not have grown from one attempt to the next.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import eventlog
from eventlog.delivery import Retry
from eventlog.events import StepEvent

sys.path.insert(0, str(Path(__file__).parent))
ATTEMPTS = 10
SLACK_MIB = 24.0
"""What the allocator of a process may keep for itself, on top of a twentieth of its memory."""


@dataclass
class Reading:
    """What a process takes.

    Attributes:
        memory: MiB.
    """

    memory: float
    descriptors: int
    threads: int


@dataclass
class Findings:
    """What became of it.

    Attributes:
        emitted: Events, over all attempts.
        wrong: What is not as it should be, in words.
        readings: By process, the last reading of each attempt.
        longest: Seconds that the longest call on the emitting thread took.
    """

    emitted: int = 0
    wrong: list[str] = field(default_factory=list)
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    longest: float = 0.0
    seconds: float = 0.0


def read_process(pid: int) -> Reading | None:
    """Return what a process takes just now; None where it is gone."""
    folder = Path("/proc") / str(pid)
    try:
        pages = int((folder / "statm").read_text().split()[1])
        return Reading(
            pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            len(os.listdir(folder / "fd")),
            len(os.listdir(folder / "task")),
        )
    except (OSError, ValueError):
        return None


def emit(run: Any, seconds: float, rate: float, findings: Findings) -> None:
    """Emit events at a rate, some of each kind, and measure how long the calls take."""
    begun = time.perf_counter()
    done = 0
    while (passed := time.perf_counter() - begun) < seconds:
        due = int(passed * rate) - done
        for _ in range(due):
            done += 1
            start = time.perf_counter()
            if done % 5000 == 0:
                run.epoch({"val/accuracy": 0.5})
            elif done % 1000 == 0:
                run.text("note", f"at {done}")
            elif done % 50 == 0:
                run.batch({"batch_loss": 0.25})
            else:
                run.step(loss=1.0 / done, accuracy=0.5, lr=1e-3)
            findings.longest = max(findings.longest, time.perf_counter() - start)
        time.sleep(0.002)


def attempt(
    folder: Path,
    run_id: str | None,
    segment_bytes: int,
    seconds: float,
    rate: float,
    found: Findings,
) -> Any:
    """Do one attempt; return the run."""
    run = eventlog.Run(
        "soak",
        dir=folder,
        resume=run_id,
        segment_bytes=segment_bytes,
        sinks={
            "copy": {"sink": "log"},
            "tensorboard": {"every": "20 steps"},
            "flaky": {"sink": "flaky_sink:FlakySink", "seed": 1},
            "apart": {"sink": "flaky_sink:FlakySink", "seed": 2, "isolate": True},
        },
        retry=Retry(first=0.01, most=0.2),
        close_timeout=300.0,
    )
    emit(run, seconds, rate, found)
    supervisor = run._supervisor
    pids = {"trainer": os.getpid(), "sidecar": None if supervisor is None else supervisor.pid}
    for name, pid in pids.items():
        reading = None if pid is None else read_process(pid)
        if reading is not None:
            found.readings.setdefault(name, []).append(reading)
    report = run.close()
    check_accounts(run, report, found)
    return run


def check_accounts(run: Any, report: Any, found: Findings) -> None:
    """Compare what was emitted with what became of it, in the log and in each sink."""
    told = run.statistics()
    found.emitted += told.log.emitted
    say = found.wrong.append
    if told.log.emitted != told.log.written or told.log.dropped or told.log.queued:
        say(f"attempt {run.attempt}: the log says {told.log}")
    if report.left or report.lost or report.failed:
        say(f"attempt {run.attempt}: at the end {report}")
    for alias, sink in told.sinks.items():
        if sink.read != sink.delivered + sink.filtered + sink.dead + sink.in_flight:
            say(f"attempt {run.attempt}: {alias} does not add up: {sink}")


def check_contents(run: Any, found: Findings) -> None:
    """Compare each sink's events with the log's, one by one."""
    refuses = importlib.import_module("flaky_sink").refuses
    log = eventlog.open_log(run.dir)
    everything: list[tuple[int, int]] = []
    refused: list[tuple[int, int]] = []
    for event in log.events():
        (refused if refuses(event) else everything).append((event.attempt, event.seq))
    total = len(everything) + len(refused)
    if total != found.emitted:
        found.wrong.append(f"{found.emitted} were emitted, {total} are in the log")
    wanted = {"copy": sorted(everything + refused), "flaky": everything, "apart": everything}
    for alias, events in wanted.items():
        there = [(e.attempt, e.seq) for e in eventlog.open_log(run.dir / alias).events()]
        if there != events:
            found.wrong.append(f"{alias} has {len(there)} events instead of {len(events)}")
        if alias != "copy":
            dead = [(e.attempt, e.seq) for e in eventlog.open_log(run.dir / "dead" / alias).events()
                    if type(e) is StepEvent]  # fmt: skip
            if dead != refused:
                found.wrong.append(f"{alias} has {len(dead)} dead letters, not {len(refused)}")
    if len(list((run.dir / "rank-0").glob("*.elog"))) < 2:
        found.wrong.append("no file was rotated")


def check_growth(found: Findings, threads_before: int) -> None:
    """Compare the attempts at the end with those after the first."""
    for name, readings in found.readings.items():
        if len(readings) < 4:
            continue
        half = (len(readings) - 1) // 2
        early, late = readings[1 : 1 + half], readings[-half:]
        for what in ("memory", "descriptors", "threads"):
            before = statistics.median(getattr(reading, what) for reading in early)
            after = statistics.median(getattr(reading, what) for reading in late)
            more = before * 0.05 + SLACK_MIB if what == "memory" else 2
            if after > before + more:
                found.wrong.append(f"{name}: {what} grew from {before:.0f} to {after:.0f}")
    deadline = time.monotonic() + 10.0
    while threading.active_count() > threads_before and time.monotonic() < deadline:
        time.sleep(0.05)  # the last of them are on their way out
    left = threading.active_count() - threads_before
    if left > 0:
        found.wrong.append(f"{left} threads are left: {threading.enumerate()}")


def soak(
    folder: Path,
    seconds: float,
    rate: float,
    attempts: int,
    segment_bytes: int,
) -> Findings:
    """Run it; return what was found."""
    found = Findings()
    threads_before = threading.active_count()
    begun = time.monotonic()
    run_id = None
    run = None
    for _ in range(attempts):
        run = attempt(folder, run_id, segment_bytes, seconds / attempts, rate, found)
        run_id = run.id
    found.seconds = time.monotonic() - begun
    check_contents(run, found)
    check_growth(found, threads_before)
    return found


def main() -> None:
    """Run it and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=5000.0, help="events a second")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS)
    parser.add_argument("--segment-bytes", type=int, default=4 * 1024 * 1024)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = soak(Path(name), given.seconds, given.rate, given.attempts, given.segment_bytes)
    table = Table("attempt", "process", "memory, MiB", "descriptors", "threads")
    for name, readings in found.readings.items():
        for number, reading in enumerate(readings, 1):
            table.add_row(
                str(number),
                name,
                f"{reading.memory:.0f}",
                str(reading.descriptors),
                str(reading.threads),
            )
    console = Console(width=100)
    console.print(table)
    console.print(
        f"{found.emitted:,} events in {found.seconds:.0f} s; the longest call took "
        f"{found.longest * 1e3:.1f} ms"
    )
    for line in found.wrong or ["all is accounted for, and nothing grew"]:
        console.print(line)
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
