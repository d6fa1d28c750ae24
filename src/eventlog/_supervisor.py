"""The training process's side of the sidecar: start it, restart it, wait for it, ask it."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from eventlog.delivery import DEADLINES, RETRY, Deadlines, Retry, SinkStatistics
from eventlog.sidecar import (
    Orders,
    SidecarStatus,
    SinkReport,
    read_status,
    status_path,
)
from eventlog.sinks.plan import unkept_options

__all__ = ["Supervisor"]

logger = logging.getLogger("eventlog")

RESTARTS = 5
FIRST_PAUSE = 0.5
ANNOUNCE_EVERY = 1.0
SETTLED = 60.0
"""Seconds after which an earlier death of the process is forgotten."""


@contextlib.contextmanager
def _end_of(process: subprocess.Popen[bytes]) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for a process's end, at most so many seconds."""

    def wait(seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return True
        return False

    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # no Linux, or an old one: `wait` looks 20 times a second
        yield wait
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        yield lambda seconds: bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


class Supervisor:
    """Keeps one delivering process alive while the run goes on.

    Args:
        run_dir: The run's directory.
        rank: Whose log it follows.
        aliases: The sinks that it runs.
        attempt: With which the run begins: the process leaves later runs' attempts to theirs.
        linger: How long it may go on after the run's end.
        options: The sinks' options, by alias: secret ones are handed over in private.
        deadlines, retry: For the sinks.
        allowed: Names of their classes, where these are ``module:Class``: code that may run there.
    """

    def __init__(
        self,
        run_dir: Path,
        rank: int,
        aliases: Sequence[str],
        *,
        attempt: int,
        linger: float = 600.0,
        options: Mapping[str, Mapping[str, Any] | None] | None = None,
        deadlines: Deadlines = DEADLINES,
        retry: Retry = RETRY,
        allowed: Sequence[str] = (),
    ) -> None:
        self.aliases = tuple(aliases)
        self._run_dir = run_dir
        self._rank = rank
        self._attempt = attempt
        self._linger = linger
        self._orders = Orders(
            options={
                alias: unkept_options(given)
                for alias, given in (options or {}).items()
                if given and alias in self.aliases
            },
            deadlines=deadlines,
            retry=retry,
            allowed=list(allowed),
        ).write()
        self._tokens: set[str] = set()
        self._said: dict[str, str | None] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._status: SidecarStatus | None = None
        self._ending = threading.Event()
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventlog-sidecar", daemon=True)

    def start(self) -> None:
        """Start the process, in the background."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process's id, while there is one."""
        process = self._process
        return None if process is None else process.pid

    def _run(self) -> None:
        """Start, wait, start again; also reaps the process, so that no zombie stays."""
        failures = 0
        while True:
            begun = time.monotonic()
            code: int | OSError
            try:
                self._process = self._spawn()
            except OSError as error:
                code = error
            else:
                code = self._wait_for(self._process)
            if code in (0, 1):  # it ended by itself, and says how each sink is
                break
            failures = 1 if time.monotonic() - begun > SETTLED else failures + 1
            if failures > RESTARTS:
                logger.warning(
                    "eventlog: the sidecar died %d times (last: %s); the rest is delivered by: "
                    "eventlog replay --pending %s",
                    failures,
                    code,
                    self._run_dir,
                )
                break
            logger.warning("eventlog: the sidecar died (%s); it is started again", code)
            pause = FIRST_PAUSE * 2 ** (failures - 1)
            if self._ending.wait(pause):
                # at the end every second counts
                continue
        self._process = None
        self._gone.set()

    def _wait_for(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the process's end, and say meanwhile what is wrong with its sinks."""
        with _end_of(process) as ended:
            while not ended(ANNOUNCE_EVERY):
                self._announce()
        code = process.wait()
        self._announce()
        return code

    def _announce(self) -> None:
        """Log what goes wrong in the process, once: its own output is in a file."""
        status = self._read_status()
        for alias, report in ({} if status is None else status.sinks).items():
            if report.error is not None and self._said.get(alias) != report.error:
                logger.warning("eventlog: sink %r: %s", alias, report.error)
            self._said[alias] = report.error

    def _spawn(self) -> subprocess.Popen[bytes]:
        token = secrets.token_hex(8)
        self._tokens.add(token)
        with contextlib.suppress(OSError):
            # of a process that is over: whoever looks at the run is not to take it for this one's
            status_path(self._run_dir, self._rank).unlink()
        command = [sys.executable, "-m", "eventlog.sidecar", str(self._run_dir.absolute())]
        command += ["--rank", str(self._rank), "--linger", str(self._linger)]
        command += ["--parent", str(os.getpid()), "--attempt", str(self._attempt)]
        command += ["--token", token, "--orders"]
        for alias in self.aliases:
            command += ["--sink", alias]
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        with self._open_output() as file:
            # a session of its own: a Ctrl-C at the terminal is the trainer's affair
            process = subprocess.Popen(  # noqa: S603 - our own module, arguments as a list
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )
        assert process.stdin is not None  # noqa: S101 - it was asked for
        # a process that is dead already says so by its exit code
        with contextlib.suppress(OSError), process.stdin as pipe:
            pipe.write(self._orders)
        return process

    def _open_output(self) -> BinaryIO:
        with contextlib.suppress(OSError):
            return (self._run_dir / f"sidecar-{self._rank}.log").open("ab")
        return open(os.devnull, "ab")  # the directory was removed, or cannot be written

    def _read_status(self) -> SidecarStatus | None:
        """Return what our own process said last: another attempt's may be there, or at work."""
        status = read_status(self._run_dir, self._rank)
        if status is not None and status.token in self._tokens:
            self._status = status
        return self._status

    def report(self, alias: str) -> SinkReport:
        """Return how a sink is, as the process said last."""
        status = self._read_status()
        found = None if status is None else status.sinks.get(alias)
        if found is None:
            return SinkReport(state="failed" if self._gone.is_set() else "waiting")
        if self._gone.is_set() and found.state not in ("closed", "failed"):
            return msgspec.structs.replace(found, state="failed", error="the sidecar is gone")
        return found

    def statistics(self, alias: str) -> SinkStatistics:
        """Account for what a sink in the process was given."""
        report = self.report(alias)
        statistics = msgspec.convert(report.statistics, SinkStatistics)
        statistics.state = report.state  # type: ignore[assignment]
        statistics.error = report.error
        return statistics

    def wait_flushed(self, seq: int, deadline: float | None) -> None:
        """Wait until the sinks have flushed what is before `seq`, or the process is gone."""
        while self.lacking(seq) and not self._gone.is_set():
            if deadline is not None and time.monotonic() >= deadline:
                break
            self._gone.wait(0.02)

    def lacking(self, seq: int) -> dict[str, int]:
        """Return how many events before `seq` each sink has not flushed yet."""
        behind = {}
        for alias in self.aliases:
            report = self.report(alias)
            if report.flushed_to < seq and report.state != "closed":
                behind[alias] = seq - report.flushed_to
        return behind

    def end(self, deadline: float) -> bool:
        """Wait for the process to deliver the rest and end; False when that takes too long.

        It is left alone then, and ends by itself.
        """
        self._ending.set()
        return self._gone.wait(max(0.0, deadline - time.monotonic()))
