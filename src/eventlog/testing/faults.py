"""Sinks that fail as their options say, so that they can be named, in any process.

`FaultySink` takes exceptions and functions, and so lives in the process that made it. These take
words::

    broken = {"sink": "eventlog.testing.faults:BrokenSink", "at": "write", "fault": "down"}
    run = Run("test", sinks={"broken": broken | {"isolate": True}})

Each keeps what it took in a file that `taken` reads, and is whole again once there is a file
``mended`` beside it: what it lacks can then be brought to it, by ``eventlog replay --pending``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

import anyio

from eventlog.events import Event, Status
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import CAPABILITIES, Confirms, RunInfo, Sink
from eventlog.testing.sinks import Method

__all__ = [
    "EXIT_CODE",
    "FAULTS",
    "MENDED",
    "REFUSED",
    "STRUCK",
    "AsyncBrokenSink",
    "BrokenSink",
    "strike",
    "taken",
]

FAULTS: Final = {
    "exception": "raises RuntimeError",
    "system_exit": "raises SystemExit",
    "keyboard_interrupt": "raises KeyboardInterrupt",
    "cancellation": "raises asyncio.CancelledError",
    "panic": "raises a BaseException of its own, as a panic of a native library",
    "hang": "never returns",
    "slow": "takes a while, and returns before its deadline",
    "late": "returns after its deadline",
    "block": "blocks the loop for a while: an async method that calls time.sleep",
    "leak": "keeps memory with each call",
    "log": "logs to the current run",
    "exit": "ends its process by os._exit",
    "kill": "ends its process by SIGKILL",
    "picky": "refuses one event in a thousand for good",
    "busy": "answers 429 with Retry-After",
    "down": "meets a refused connection",
}
"""What can be wrong with a sink, by its name."""

EXIT_CODE: Final = 86
"""What a process ends with that a sink has ended by os._exit."""
REFUSED: Final = 500
"""Of each thousand events, the one that a picky sink refuses: where seq % 1000 is this."""
MENDED: Final = "mended"
STRUCK: Final = "struck"
_TOOK = "took.jsonl"
_LEAK = 16 * 1024 * 1024
_RETRY_AFTER = 0.2
_leaked: list[bytes] = []


class PanicError(BaseException):
    """What a binding to a native library raises when that panics."""


def strike(fault: str, seconds: float = 10.0) -> None:
    """Have a fault happen here; what is only slow, or takes memory, returns.

    Args:
        fault: One of `FAULTS`, but for "picky", which takes events.
        seconds: How long what is slow takes.

    Raises:
        BaseException: What the fault is.
    """
    if fault == "exception":
        raise RuntimeError("broken on purpose")
    if fault == "system_exit":
        raise SystemExit(7)
    if fault == "keyboard_interrupt":
        raise KeyboardInterrupt("nobody's")
    if fault == "panic":
        raise PanicError("a native library panicked")
    if fault == "cancellation":
        raise asyncio.CancelledError("nobody's")
    if fault == "busy":
        raise UnavailableError("429 Too Many Requests", retry_after=_RETRY_AFTER)
    if fault == "down":
        _connect_to_nobody()
    if fault == "exit":
        os._exit(EXIT_CODE)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        threading.Event().wait()
    if fault in ("slow", "late", "block"):
        time.sleep(seconds)
    if fault == "leak":
        _leaked.append(b"\1" * _LEAK)
    if fault == "log":
        _log_to_current_run()


def _log_to_current_run() -> None:
    """Log something to the run that is open in this process, if there is one."""
    # a process that has a run has imported it
    module = sys.modules.get("eventlog.run")
    run = None if module is None else module.current_run()
    if run is not None:
        run.log(echo=1.0)


def _connect_to_nobody() -> None:
    """Connect to a port that is taken, so that nobody else can listen there.

    Raises:
        ConnectionRefusedError: Always.
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        socket.create_connection(held.getsockname()).close()


def taken(directory: Path) -> Counter[tuple[int, int]]:
    """Return what a broken sink took, by (attempt, seq), and how often.

    Args:
        directory: The sink's: ``<run>/<alias>``.
    """
    found: Counter[tuple[int, int]] = Counter()
    path = directory / _TOOK
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            found.update((attempt, seq) for attempt, seq in json.loads(line))
    return found


class _Broken(Sink):
    """What both forms do."""

    name = "broken"
    capabilities = CAPABILITIES

    def __init__(
        self,
        *,
        at: Method = "write",
        fault: str = "exception",
        seconds: float = 10.0,
        confirms: Confirms = "write",
    ) -> None:
        if at not in get_args(Method):
            raise ValueError(f"at must be one of {', '.join(get_args(Method))}, not {at!r}")
        if fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}, not {fault!r}")
        vars(self)["confirms"] = confirms
        self._at = at
        self._fault = fault
        self._seconds = seconds
        self._directory = Path()

    def _strikes(self, method: Method) -> bool:
        """Whether something goes wrong in this call; a reader of the file can tell that it did."""
        if method != self._at or self._fault == "picky" or (self._directory / MENDED).exists():
            return False
        (self._directory / STRUCK).touch()
        return True

    def _settle(self, run: RunInfo) -> None:
        """Find the sink's directory.

        Raises:
            RefusedError: The run has none.
        """
        if run.directory is None:
            raise RefusedError("a run without a directory has no place for what was taken")
        self._directory = run.directory
        self._directory.mkdir(parents=True, exist_ok=True)

    def _take(self, batch: Sequence[Event]) -> None:
        """Keep what came, with one call of the system.

        Raises:
            RefusedError: An event is among it that is refused for good.
        """
        if self._fault == "picky" and any(event.seq % 1000 == REFUSED for event in batch):
            (self._directory / STRUCK).touch()
            raise RefusedError("one of these is not to my taste")
        line = json.dumps([(event.attempt, event.seq) for event in batch]) + "\n"
        flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
        file = os.open(self._directory / _TOOK, flags, 0o666)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


class BrokenSink(_Broken):
    """A sink, called on a thread, of which one method fails.

    Args:
        at: Which one.
        fault: How: one of `FAULTS`.
        seconds: How long a call takes that is slow.
        confirms: See `eventlog.Sink`.

    Raises:
        ValueError: There is no such method or fault.
    """

    def open(self, run: RunInfo) -> None:
        self._settle(run)
        self._call("open")

    def write(self, batch: Sequence[Event]) -> None:
        self._call("write")
        self._take(batch)

    def flush(self) -> None:
        self._call("flush")

    def close(self, status: Status) -> None:
        self._call("close")

    def _call(self, method: Method) -> None:
        if self._strikes(method):
            strike(self._fault, self._seconds)


class AsyncBrokenSink(_Broken):
    """A `BrokenSink` whose methods are awaited in delivery's loop."""

    async def open(self, run: RunInfo) -> None:
        self._settle(run)
        await self._call("open")

    async def write(self, batch: Sequence[Event]) -> None:
        await self._call("write")
        self._take(batch)

    async def flush(self) -> None:
        await self._call("flush")

    async def close(self, status: Status) -> None:
        await self._call("close")

    async def _call(self, method: Method) -> None:
        if not self._strikes(method):
            return
        if self._fault == "hang":
            await anyio.sleep_forever()
        if self._fault in ("slow", "late"):
            await anyio.sleep(self._seconds)
        else:
            strike(self._fault, self._seconds)
