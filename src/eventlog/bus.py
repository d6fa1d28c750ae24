"""The asynchronous core: a bus on the user's own loop, asyncio's or trio's."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import anyio
import msgspec

from eventlog._loop import Waker
from eventlog.cadence.window import Reduce
from eventlog.clock import SYSTEM_CLOCK, Clock
from eventlog.delivery import Delivery, Port, SinkStatistics
from eventlog.events import Event
from eventlog.exceptions import ClosedError
from eventlog.log.source import Source
from eventlog.log.writer import WriterStatistics
from eventlog.recorder import Recorder
from eventlog.sinks.base import RunInfo
from eventlog.sinks.select import Sinks, select_sinks
from eventlog.subscription import Every, Subscription

__all__ = ["BusStatistics", "EventBus", "EventStream"]


class BusStatistics(NamedTuple):
    """What became of everything.

    Attributes:
        log: ``emitted = written + dropped + queued``.
        sinks: By alias: ``read = delivered + filtered + dead + in_flight``.
    """

    log: WriterStatistics
    sinks: dict[str, SinkStatistics]


class EventStream(AsyncIterator[Event]):
    """The events of a subscription, one by one; ends when the source does.

    Attributes:
        subscription: Its place, and what it read, left out and lost.
    """

    def __init__(self, source: Source, subscription: Subscription) -> None:
        self.subscription = subscription
        self._source = source
        self._buffer: list[Event] = []
        self._at = 0
        self._waker = Waker()
        self._unlisten = source.listen(self._waker)

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._at >= len(self._buffer):
            self._buffer = await self.next_batch()
            self._at = 0
        self._at += 1
        return self._buffer[self._at - 1]

    async def next_batch(self) -> list[Event]:
        """Return the next events, at least one; cancelling it loses none.

        Raises:
            StopAsyncIteration: The source has ended.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            ended = self._source.closed
            ready = self.subscription.pull()
            if ready is None:
                if ended:
                    raise StopAsyncIteration
                await self._waker.wait()
            elif ready.events:
                return ready.events
            else:
                await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """Stop listening."""
        self._unlisten()


class EventBus:
    """A bus that lives as long as its ``async with`` block.

    Leaving the block writes what was emitted, delivers it to every sink, and ends the
    subscriptions' iterators once they have seen everything.

    Args:
        dir: Where the log lies; None keeps the newest events in memory only.
        sinks: See `eventlog.Run`.
        every, reduce: For sinks that do not say.
        clock: For tests.

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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._dir = None if dir is None else Path(dir)
        self._specs = select_sinks(sinks, every, reduce)
        self._sinks = [spec.make() for spec in self._specs]
        self._clock = clock
        self._run_id = uuid.uuid4().hex[:12]
        self._recorder: Recorder | None = None
        self._delivery: Delivery | None = None
        self._group: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> EventBus:
        recorder = Recorder(self._dir, run_id=self._run_id, clock=self._clock)
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
            self._delivery.add(Port(spec.alias, sink, subscription, self._info))
        recorder.start()
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._delivery.run)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._recorder is not None  # noqa: S101 - entered
        assert self._group is not None  # noqa: S101 - entered
        # the writer's last turn is a few milliseconds of work; a disk that hangs longer than
        # that gets no more of the loop's time
        self._recorder.stop(timeout=5.0)
        return await self._group.__aexit__(kind, error, traceback)

    def _info(self) -> RunInfo:
        directory = None if self._dir is None else self._dir / "sinks"
        return RunInfo(run_id=self._run_id, run_dir=self._dir, directory=directory)

    def emit(self, event: Event) -> bool:
        """Say that something happened; from any thread.

        Args:
            event: Its `mono` is the time of this call unless it has one. Its values are made
                plain: later changes of what was passed do not reach it.

        Returns:
            False when it was dropped; `statistics` says why.

        Raises:
            ClosedError: The bus is not open.
            TypeError: `event` is no event.
        """
        recorder = self._recorder
        if recorder is None:
            raise ClosedError("an EventBus is open inside its 'async with' block only")
        if not isinstance(event, Event):
            raise TypeError(f"event must be an Event, not {type(event).__name__}")
        placed = msgspec.structs.replace(
            event,
            mono=event.mono or self._clock.monotonic_ns(),
            attempt=recorder.attempt,
            wall=0,
            seq=-1,
        )
        return recorder.offer(placed, dict(event.values))

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
