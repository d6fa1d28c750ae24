"""Sinks for tests: one that keeps everything, and one that fails in the ways trackers do.

Both come in a synchronous form, which delivery calls on a thread, and in an asynchronous one, which
it awaits in its loop. Each is named ``memory`` or ``faulty``; two in a run need aliases::

    memory = MemorySink()
    sinks = {"good": memory, "bad": FaultySink(write=OSError("down"))}
    with Run("test", dir=None, sinks=sinks) as run:
        run.step(loss=0.5)
        assert memory.wait_for(2)  # RunStarted and the step
    assert memory.values("loss") == [(0, 0.5)]
    assert memory.statuses == ["finished"]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import anyio

from eventlog.events import Event, Scalar, Status
from eventlog.exceptions import RefusedError
from eventlog.sinks.base import CAPABILITIES, Confirms, RunInfo, Sink

__all__ = ["AsyncFaultySink", "AsyncMemorySink", "Call", "Fault", "FaultySink", "MemorySink"]

Method: TypeAlias = Literal["open", "write", "flush", "close"]


class Call(NamedTuple):
    """One call that a sink received.

    Attributes:
        method: open, write, flush or close.
        thread: The identity of the thread that it came on (`threading.get_ident`).
        at: When, in seconds of `time.monotonic`.
    """

    method: Method
    thread: int
    at: float


class _Memory(Sink):
    """What both forms keep."""

    name = "memory"
    capabilities = CAPABILITIES

    def __init__(self, *, confirms: Confirms = "write") -> None:
        vars(self)["confirms"] = confirms
        self.calls: list[Call] = []
        self.runs: list[RunInfo] = []
        self.batches: list[list[Event]] = []
        self.statuses: list[Status] = []
        self._changed = threading.Condition()

    @property
    def events(self) -> list[Event]:
        """All events taken so far, in order."""
        return [event for batch in tuple(self.batches) for event in batch]

    @property
    def threads(self) -> set[int]:
        """The identities of the threads that called."""
        return {call.thread for call in tuple(self.calls)}

    def of(self, *kinds: type[Event]) -> list[Event]:
        """Return the events of some types."""
        return [event for event in self.events if isinstance(event, kinds)]

    def values(self, key: str) -> list[tuple[int | None, Scalar]]:
        """Return (step, value) for each event that has a value of that name."""
        return [(event.step, event.values[key]) for event in self.events if key in event.values]

    def count(self, method: Method) -> int:
        """Return how often a method was called."""
        return sum(call.method == method for call in tuple(self.calls))

    def wait_for(self, wanted: int | Callable[[Any], object], timeout: float = 10.0) -> bool:
        """Block until the sink has so many events, or a condition holds for it.

        Args:
            wanted: A number of events, or a function of the sink, asked after each call.
            timeout: Seconds.

        Returns:
            False when that did not come in time.
        """

        def there() -> bool:
            if callable(wanted):
                return bool(wanted(self))
            return sum(map(len, self.batches)) >= wanted

        with self._changed:
            return self._changed.wait_for(there, timeout)

    def _called(self, method: Method) -> None:
        with self._changed:
            self.calls.append(Call(method, threading.get_ident(), time.monotonic()))
            self._changed.notify_all()

    def _take(self, method: Method, given: Any) -> None:
        """Keep what a call brought, once it went well."""
        with self._changed:
            if method == "open":
                self.runs.append(given)
            elif method == "write":
                self.batches.append(list(given))
            elif method == "close":
                self.statuses.append(given)
            self._changed.notify_all()


class MemorySink(_Memory):
    """Keeps all that it is given. Its methods may be asked from any thread at any time.

    Args:
        confirms: See `eventlog.Sink`.

    Attributes:
        calls: Each call, with its thread.
        runs: What `open` was told.
        batches: What `write` took.
        statuses: What `close` was told.
    """

    def open(self, run: RunInfo) -> None:
        self._called("open")
        self._take("open", run)

    def write(self, batch: Sequence[Event]) -> None:
        self._called("write")
        self._take("write", batch)

    def flush(self) -> None:
        self._called("flush")
        self._take("flush", None)

    def close(self, status: Status) -> None:
        self._called("close")
        self._take("close", status)


class AsyncMemorySink(_Memory):
    """A `MemorySink` whose methods are awaited in delivery's loop."""

    async def open(self, run: RunInfo) -> None:
        self._called("open")
        self._take("open", run)

    async def write(self, batch: Sequence[Event]) -> None:
        self._called("write")
        self._take("write", batch)

    async def flush(self) -> None:
        self._called("flush")
        self._take("flush", None)

    async def close(self, status: Status) -> None:
        self._called("close")
        self._take("close", status)


class Fault(NamedTuple):
    """What goes wrong in a method.

    Attributes:
        error: Raised; an exception, its class, or None for a call that is only slow.
        times: In how many calls; None for all of them.
        after: How many calls go well before.
        hang: Whether the call hangs until `release` before it goes on.
        sleep: Seconds that the call takes, before it goes on.
        kept: Whether what a failing call was given is kept all the same: the tracker had it, and
            the answer was lost.
    """

    error: BaseException | type[BaseException] | None = None
    times: int | None = None
    after: int = 0
    hang: bool = False
    sleep: float = 0.0
    kept: bool = False

    def concerns(self, call: int) -> bool:
        """Whether it happens in the call of that number, counted from 0."""
        return call >= self.after and (self.times is None or call < self.after + self.times)


Faults: TypeAlias = "Fault | BaseException | type[BaseException] | Iterable[Fault] | None"


class _Faulty(_Memory):
    """What both forms of a faulty sink decide."""

    name = "faulty"

    def __init__(
        self,
        *,
        open: Faults = None,
        write: Faults = None,
        flush: Faults = None,
        close: Faults = None,
        refuse: Callable[[Event], object] | None = None,
        confirms: Confirms = "write",
    ) -> None:
        super().__init__(confirms=confirms)
        self._faults: dict[Method, tuple[Fault, ...]] = {
            "open": _as_faults(open),
            "write": _as_faults(write),
            "flush": _as_faults(flush),
            "close": _as_faults(close),
        }
        self._refuse = refuse
        self._numbers: dict[Method, int] = {}
        self._released = threading.Event()

    def release(self) -> None:
        """Let all calls that hang go on, and none hang any more."""
        self._released.set()

    def _next_fault(self, method: Method) -> Fault:
        number = self._numbers.get(method, 0)
        self._numbers[method] = number + 1
        self._called(method)
        for fault in self._faults[method]:
            if fault.concerns(number):
                return fault
        return Fault()

    def _finish(self, method: Method, fault: Fault, given: Any) -> None:
        """Fail, or take what was given."""
        if fault.error is not None:
            if fault.kept:
                self._take(method, given)
            raise fault.error
        if method == "write" and self._refuse is not None:
            refused = [event for event in given if self._refuse(event)]
            if refused:
                raise RefusedError(f"{len(refused)} of {len(given)} events are refused")
        self._take(method, given)


class FaultySink(_Faulty):
    """A `MemorySink` that fails as it is told; `calls` has the failing ones, too.

    Args:
        open, write, flush, close: What goes wrong there: an exception, always; a `Fault`, for a
            number of times, or a call that hangs or is slow; or several, of which the first that
            concerns a call happens.
        refuse: Events for which it says so raise `RefusedError` for the batch that they are in.
        confirms: See `eventlog.Sink`.
    """

    def open(self, run: RunInfo) -> None:
        self._call("open", run)

    def write(self, batch: Sequence[Event]) -> None:
        self._call("write", batch)

    def flush(self) -> None:
        self._call("flush", None)

    def close(self, status: Status) -> None:
        self._call("close", status)

    def _call(self, method: Method, given: Any) -> None:
        fault = self._next_fault(method)
        if fault.hang:
            self._released.wait()
        if fault.sleep:
            time.sleep(fault.sleep)
        self._finish(method, fault, given)


class AsyncFaultySink(_Faulty):
    """A `FaultySink` whose methods are awaited in delivery's loop."""

    async def open(self, run: RunInfo) -> None:
        await self._call("open", run)

    async def write(self, batch: Sequence[Event]) -> None:
        await self._call("write", batch)

    async def flush(self) -> None:
        await self._call("flush", None)

    async def close(self, status: Status) -> None:
        await self._call("close", status)

    async def _call(self, method: Method, given: Any) -> None:
        fault = self._next_fault(method)
        while fault.hang and not self._released.is_set():  # noqa: ASYNC110 - set by any thread
            await anyio.sleep(0.01)
        await anyio.sleep(fault.sleep)
        self._finish(method, fault, given)


def _as_faults(faults: Faults) -> tuple[Fault, ...]:
    if faults is None:
        return ()
    if isinstance(faults, Fault):
        return (faults,)
    if isinstance(faults, BaseException | type):
        return (Fault(faults),)
    return tuple(faults)
