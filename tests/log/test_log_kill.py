"""Processes that die: what they had emitted is in their log, up to the last moments."""

import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import Event, RunFinished, RunStarted, StepEvent
from eventlog.log import Log, open_log

PAIR = struct.Struct("<qq")
ROOM = 1 << 20
SCRIPT = """
import mmap, os, struct, sys, time
from eventlog import Run

run_dir, progress, ending = sys.argv[1:]
pair = struct.Struct("<qq")
with open(progress, "r+b") as file:
    shared = mmap.mmap(file.fileno(), 0)
run = Run("killed", dir=run_dir, config={"lr": 0.1})
n = 0
while n < 60_000:
    run.step(n=n, loss=n / 7)
    n += 1
    pair.pack_into(shared, 16 * n, n, time.monotonic_ns())
    pair.pack_into(shared, 0, n, 0)
    if ending and n == 300:
        time.sleep(0.3)
        eval(ending)
    time.sleep(0.0004)
"""
NOISE_NS = 150_000_000
"""How old an event must be: 50 ms, and what a machine with two busy cores adds to it."""


class Victim:
    """A process that emits and tells how far it is."""

    def __init__(self, directory: Path, ending: str = "") -> None:
        self.runs = directory / "runs"
        progress = directory / "progress"
        progress.write_bytes(bytes(ROOM))
        with progress.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(self.runs), str(progress), ending],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def progress(self) -> list[tuple[int, int]]:
        """Return (events emitted, monotonic ns) as far as it got."""
        count = PAIR.unpack_from(self._shared, 0)[0]
        return [PAIR.unpack_from(self._shared, 16 * n) for n in range(1, count + 1)]

    def wait_for(self, n: int) -> None:
        """Wait until it has emitted so many."""
        while PAIR.unpack_from(self._shared, 0)[0] < n:
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.001)

    def log(self) -> Log:
        """Open what it has left."""
        (run_dir,) = self.runs.glob("*/*")
        return open_log(run_dir)

    def end(self) -> tuple[int, bytes, bytes]:
        """Wait for it and return its exit code and its output."""
        out, err = self.process.communicate(timeout=30)
        self._shared.close()
        return self.process.returncode, out, err


def check(events: list[Event], least: int) -> None:
    """Check that events are whole, in order, and at least so many steps."""
    assert [e.seq for e in events] == list(range(len(events)))
    assert isinstance(events[0], RunStarted)
    assert events[0].config == {"lr": 0.1}
    steps = [e for e in events if type(e) is StepEvent]
    values: list[dict[str, Any]] = [{"n": n, "loss": n / 7} for n in range(len(steps))]
    assert [e.values for e in steps] == values
    assert [e.step for e in steps] == list(range(len(steps)))
    assert len(steps) >= least


@pytest.mark.parametrize("seed", range(5))
def test_kill_9_costs_at_most_the_last_moments(tmp_path: Path, seed: int) -> None:
    """Everything that was emitted a moment before SIGKILL is in the log, and all of it is right."""
    victim = Victim(tmp_path)
    victim.wait_for(1)
    time.sleep(random.Random(seed).uniform(0.3, 1.0))
    killed = time.monotonic_ns()
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait()
    progress = victim.progress()
    code, out, err = victim.end()
    assert (code, out, err) == (-signal.SIGKILL, b"", b"")
    due = max((n for n, at in progress if at <= killed - NOISE_NS), default=0)
    assert due > 20
    log = victim.log()
    check(list(log.events()), due)
    assert log.status() == "killed"
    assert not [d for d in log.summary().damage if d.reason != "a tail that is no block"]


def test_os_exit_costs_nothing_that_was_written(tmp_path: Path) -> None:
    """A process that leaves without any clean-up leaves its log behind."""
    victim = Victim(tmp_path, "os._exit(3)")
    code, out, err = victim.end()
    assert (code, out, err) == (3, b"", b"")
    check(list(victim.log().events()), 300)
    assert victim.log().status() == "killed"


def test_sigterm_ends_the_process_as_if_there_were_no_log(tmp_path: Path) -> None:
    """Nothing catches SIGTERM: the process dies of it, and its events are there."""
    victim = Victim(tmp_path, "os.kill(os.getpid(), 15)")
    code, out, err = victim.end()
    assert (code, out, err) == (-signal.SIGTERM, b"", b"")
    check(list(victim.log().events()), 300)


def test_an_uncaught_exception_is_how_the_run_failed(tmp_path: Path) -> None:
    """The interpreter's own end closes the run, with the error that ended it."""
    victim = Victim(tmp_path, "1 / 0")
    code, out, err = victim.end()
    assert (code, out) == (1, b"")
    assert b"ZeroDivisionError" in err
    events = list(victim.log().events())
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.status == "failed"
    assert last.error is not None
    assert "ZeroDivisionError" in last.error
    check(events, 300)


def test_a_killed_run_is_resumed_where_its_log_ends(tmp_path: Path) -> None:
    """The next process goes on with the next seq in another attempt."""
    victim = Victim(tmp_path)
    victim.wait_for(100)
    victim.process.kill()
    victim.end()
    log = victim.log()
    before = list(log.events())
    script = (
        "import sys; from eventlog import Run\n"
        "run = Run('killed', dir=sys.argv[1], resume='must')\n"
        "run.step(n=-1)\nrun.close()"
    )
    subprocess.run([sys.executable, "-c", script, str(victim.runs)], check=True, env=os.environ)
    events = list(log.events())
    assert events[: len(before)] == before
    assert [e.seq for e in events] == list(range(len(events)))
    assert {e.attempt for e in events[len(before) :]} == {2}
    assert [e.values for e in events if e.attempt == 2 and type(e) is StepEvent] == [{"n": -1}]
    assert log.status() == "finished"
