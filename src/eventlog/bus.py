"""The asynchronous core: a bus on the user's own loop, asyncio's or trio's.

The loop never waits for a disk: the log is opened, written and ended on threads. The exception is
a subscriber, or an asynchronous sink, that has fallen so far behind that its events are no longer
in memory: it reads the log's files in the loop, one block (about 64 KiB) at a time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import anyio
import msgspec

from eventlog._settings import Settings
from eventlog._stream import EventStream
from eventlog.cadence.window import Reduce
from eventlog.clock import SYSTEM_CLOCK, Clock
from eventlog.delivery import DEADLINES, Delivery, Port, SinkStatistics
from eventlog.events import Event, Status
from eventlog.exceptions import ClosedError
from eventlog.log.writer import WriterStatistics
from eventlog.recorder import Recorder
from eventlog.sinks._thread import call_apart, call_once
from eventlog.sinks.base import RunInfo
from eventlog.sinks.select import Sinks, select_sinks
from eventlog.subscription import Every, Subscription

__all__ = ["BusStatistics", "EventBus", "EventStream"]

logger = logging.getLogger("eventlog")
T = TypeVar("T")

OPEN_TIMEOUT = 30.0
CANCELLED_TIMEOUT = 5.0
"""What a cancelled block may still take to write its log and deliver it, at most."""


class BusStatistics(NamedTuple):
    """What became of everything.

    Attributes:
        log: ``emitted = written + dropped + queued``.
        sinks: By alias: ``read = delivered + filtered + dead + in_flight``.
    """

    log: WriterStatistics
    sinks: dict[str, SinkStatistics]


class EventBus:
    """A bus that lives as long as its ``async with`` block.

    Leaving the block, also by an exception, writes what was emitted, delivers it to every sink,
    and ends the subscriptions' iterators once they have seen everything. A block that itself
    waits for such an iterator calls `aclose` first.

    Args:
        dir: Where the log lies; None keeps the newest events in memory only.
        sinks: See `eventlog.Run`.
        every, reduce: For sinks that do not say.
        close_timeout: Seconds that the end may take; sinks that need longer are left, with a
            warning that says what they lack. A block that is cancelled takes 5 s at most.
        clock: For tests.

    Raises:
        SinkError: A sink is not installed, is broken, has wrong options, or cannot be imported and
            made within two minutes.
        TypeError, ValueError: An argument is none that is accepted.

    Example::

        async with EventBus() as bus:
            async with bus.subscribe(StepEvent, every="10 steps") as events:
                bus.emit(StepEvent(step=0, values={"loss": 0.5}))
                async for event in events:
                    ...
    """

    def __init__(
        self,
        *,
        dir: str | Path | None = None,
        sinks: Sinks = None,
        every: Every = None,
        reduce: Reduce = None,
        close_timeout: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._dir = None if dir is None else Path(dir)
        # a loop may be running: no file is looked for
        self._specs = select_sinks(sinks, every, reduce, Settings())
        self._sinks = [call_apart(s.make, s.making, DEADLINES.open) for s in self._specs]
        self._clock = clock
        self._run_id = uuid.uuid4().hex[:12]
        self._recorder: Recorder | None = None
        self._delivery: Delivery | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._delivered: anyio.Event | None = None
        self._delivering: anyio.CancelScope | None = None
        self._close_timeout = close_timeout
        self._status: Status = "finished"

    async def __aenter__(self) -> EventBus:
        if self._recorder is not None:
            raise ClosedError("an EventBus is entered once; make another one")
        recorder = await _on_thread(self._open, OPEN_TIMEOUT, "opening the log")
        self._recorder = recorder
        self._delivery = Delivery(recorder.source)
        for spec, sink in zip(self._specs, self._sinks, strict=True):
            subscription = Subscription(
                recorder.source,
                types=spec.types,
                every=spec.every,
                reduce=spec.reduce,
                keys=spec.keys,
                start=recorder.source.end,
            )
            port = Port(spec.alias, sink, subscription, self._info, status=lambda: self._status)
            self._delivery.add(port)
        self._delivered = anyio.Event()
        self._delivering = anyio.CancelScope(shield=True)
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._deliver, self._delivery, self._delivering, self._delivered)
        return self

    def _open(self) -> Recorder:
        if self._dir is not None:
            # once and for all: a program may change its working directory
            self._dir = self._dir.absolute()
        recorder = Recorder(self._dir, run_id=self._run_id, clock=self._clock)
        recorder.start()
        return recorder

    async def _deliver(
        self, delivery: Delivery, scope: anyio.CancelScope, delivered: anyio.Event
    ) -> None:
        try:
            # a block that is cancelled still delivers, for a while: see `_close`
            with scope:
                await delivery.run()
        finally:
            delivered.set()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._group is not None  # noqa: S101 - entered
        cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        try:
            await self._close(_status_of(error, cancelled=cancelled))
        except BaseException as closing:
            await self._group.__aexit__(type(closing), closing, closing.__traceback__)
            raise
        if cancelled:
            return await self._group.__aexit__(kind, error, traceback)
        # the group would wrap what the block raised
        await self._group.__aexit__(None, None, None)
        return None

    async def aclose(self) -> None:
        """End the bus before its block does: write and deliver everything, end the iterators.

        Raises:
            ClosedError: The bus was not open.
        """
        await self._close("finished")

    async def _close(self, status: Status) -> None:
        if self._recorder is None or self._delivery is None:
            raise ClosedError("an EventBus is open inside its 'async with' block only")
        self._status = status
        timeout = self._close_timeout
        try:
            with anyio.move_on_after(timeout):
                await self._drain(timeout)
        except anyio.get_cancelled_exc_class():
            timeout = min(timeout, CANCELLED_TIMEOUT)
            with anyio.move_on_after(timeout, shield=True):
                await self._drain(timeout)
            raise
        finally:
            self._leave_late_sinks(self._delivery, timeout)

    async def _drain(self, timeout: float) -> None:
        assert self._recorder is not None  # noqa: S101 - _close() has looked
        assert self._delivered is not None  # noqa: S101 - set with it
        await _on_thread(partial(self._recorder.stop, timeout), timeout, "ending the log")
        await self._delivered.wait()

    def _leave_late_sinks(self, delivery: Delivery, timeout: float) -> None:
        assert self._recorder is not None  # noqa: S101 - _close() has looked
        if self._delivering is not None:
            self._delivering.cancel()
        for port in delivery.ports.values():
            if not port.finished:
                logger.warning(
                    "eventlog: sink %r has not taken %d events within %g s (%s)",
                    port.alias,
                    self._recorder.source.end - port.confirmed,
                    timeout,
                    port.error or port.state,
                )

    def _info(self, state: dict[str, Any]) -> RunInfo:
        directory = None if self._dir is None else self._dir / "sinks"
        return RunInfo(run_id=self._run_id, run_dir=self._dir, directory=directory, state=state)

    def emit(self, event: Event) -> bool:
        """Say that something happened; from any thread.

        Args:
            event: Its `mono` is the time of this call unless it has one. Its values are made
                plain: later changes of what was passed do not reach it. A step, batch or epoch
                that is none becomes None.

        Returns:
            False when it was dropped; `statistics` says why. After the end it always is.

        Raises:
            ClosedError: The bus was not opened yet.
            TypeError: `event` is no event.
        """
        recorder = self._recorder
        if recorder is None:
            raise ClosedError("an EventBus is open inside its 'async with' block only")
        if not isinstance(event, Event):
            raise TypeError(f"event must be an Event, not {type(event).__name__}")
        values: Any = event.values
        if not isinstance(values, Mapping):
            raise TypeError(f"an event's values must be a mapping, not {type(values).__name__}")
        placed = msgspec.structs.replace(
            event,
            mono=event.mono or self._clock.monotonic_ns(),
            attempt=recorder.attempt,
            wall=0,
            seq=-1,
        )
        return recorder.offer(placed, values)

    @asynccontextmanager
    async def subscribe(
        self,
        *types: type[Event],
        every: Every = None,
        reduce: Reduce = None,
        keys: Collection[str] | None = None,
        start: int | None = None,
    ) -> AsyncIterator[EventStream]:
        """Iterate over events as they are written.

        Args:
            types: Event types to take; all when there are none.
            every: When step and batch events pass; or cadences by type.
            reduce: What becomes of the values between two ticks.
            keys: Glob patterns of the value names to keep.
            start: The first seq; by default everything that is written from now on, which holds
                all that is emitted from now on.
        """
        recorder = self._recorder
        if recorder is None:
            raise ClosedError("an EventBus is open inside its 'async with' block only")
        source = recorder.source
        subscription = Subscription(
            source,
            types=types or None,
            every=every,
            reduce=reduce,
            keys=keys,
            start=source.end if start is None else start,
        )
        stream = EventStream(source, subscription)
        try:
            yield stream
        finally:
            stream.close()

    def statistics(self) -> BusStatistics:
        """Account for everything that was emitted and delivered."""
        if self._recorder is None or self._delivery is None:
            raise ClosedError("an EventBus is open inside its 'async with' block only")
        ports = self._delivery.ports
        return BusStatistics(
            self._recorder.writer.statistics(),
            {alias: port.statistics() for alias, port in ports.items()},
        )


def _status_of(error: BaseException | None, *, cancelled: bool) -> Status:
    if error is None:
        return "finished"
    return "interrupted" if cancelled or isinstance(error, KeyboardInterrupt) else "failed"


async def _on_thread(function: Callable[[], T], timeout: float, what: str) -> T:
    """Run a function on a daemon thread, to its end even when this is cancelled meanwhile."""
    done: list[T] = []
    with anyio.CancelScope(shield=True):
        done.append(await call_once("bus", function, what, timeout))
    return done[0]
