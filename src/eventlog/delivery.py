"""Delivery: from a source to sinks, each at its own pace, each alone with its failures.

It is a set of tasks on an anyio loop, one for each sink. A task pulls from its subscription, gives
the batch to its sink, and moves its mark once the sink has confirmed. Nothing that one sink does
reaches another, or whoever emits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast

import anyio

from eventlog._loop import Waker, in_asyncio
from eventlog.events import Event, RunFinished, RunStarted, Status
from eventlog.exceptions import RefusedError, SinkError, SinkTimeoutError, UnavailableError
from eventlog.log.source import Source
from eventlog.sinks._thread import SinkThread
from eventlog.sinks.base import RunInfo, Sink, is_async
from eventlog.subscription import Mark, Subscription

__all__ = [
    "DEADLINES",
    "RETRY",
    "Deadlines",
    "Delivery",
    "Port",
    "PortState",
    "Retry",
    "SinkStatistics",
]

logger = logging.getLogger("eventlog")
T = TypeVar("T")

PortState = Literal["waiting", "opening", "open", "retrying", "closed", "failed"]

BATCH = 512
FLUSH_EVERY = 1.0
SUSPICIONS = 3
"""How often a batch is tried again, after a failure that is no outage, before it is halved."""


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a sink's calls may take; the delivery gives a sink up that takes longer."""

    open: float = 120.0
    write: float = 60.0
    flush: float = 60.0
    close: float = 60.0


@dataclass(frozen=True)
class Retry:
    """How long to wait before trying again: exponential, with full jitter, seconds.

    `permanent` limits how often opening is tried after a failure that is no outage.
    """

    first: float = 1.0
    most: float = 128.0
    permanent: int = 3

    def delay(self, failures: int, error: BaseException) -> float:
        """Return the pause after so many failures in a row; a tracker's own wish comes first."""
        if isinstance(error, UnavailableError) and error.retry_after is not None:
            return error.retry_after
        ceiling: float = min(self.most, self.first * 2 ** min(failures - 1, 16))
        return random.uniform(0, ceiling)  # noqa: S311 - jitter is not cryptography


DEADLINES = Deadlines()
RETRY = Retry()


@dataclass
class SinkStatistics:
    """What became of the events that were read for a sink.

    ``read = delivered + filtered + dead + in_flight``
    """

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead: int = 0
    in_flight: int = 0
    lost: int = 0
    retries: int = 0
    unsupported: dict[str, int] = field(default_factory=dict)
    state: PortState = "waiting"
    error: str | None = None
    position: int = 0


class Keeper(Protocol):
    """Keeps marks over restarts."""

    def save(self, mark: Mark, state: dict[str, Any], *, force: bool) -> None:
        """Keep a mark and the sink's state; may leave out some unless `force`."""
        ...


class _GivenUpError(Exception):
    """Delivery to this sink ends; the reason was noted."""


class Port:
    """One sink with its subscription, its position and what happened to it.

    Args:
        alias: What the user calls it; unique in a delivery.
        sink: The sink.
        subscription: Where its events come from.
        info: Makes what the sink is told when it is opened.
        deadlines, retry: How long to wait, how often to try.
        keeper: Where its position is kept; None for a sink that starts afresh each time.
        flush_every: Seconds after which what was written is flushed.
        batch: Most events given to the sink at once.
        progress: Called after each flush and at the end, for whoever waits.
    """

    def __init__(
        self,
        alias: str,
        sink: Sink,
        subscription: Subscription,
        info: Callable[[], RunInfo],
        *,
        deadlines: Deadlines = DEADLINES,
        retry: Retry = RETRY,
        keeper: Keeper | None = None,
        flush_every: float = FLUSH_EVERY,
        batch: int = BATCH,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.alias = alias
        self.sink = sink
        self.subscription = subscription
        self.statistics_dead = 0
        self.dead: list[Event] = []
        self.retries = 0
        self.state: PortState = "waiting"
        self.error: str | None = None
        self.confirmed = subscription.cursor
        self.flushed_to = subscription.cursor
        self._info = info
        self._deadlines = deadlines
        self._retry = retry
        self._keeper = keeper
        self._flush_every = flush_every
        self._batch = batch
        self._progress = progress
        self._thread: SinkThread | None = None
        self._async = is_async(sink)
        self._unconfirmed: Mark | None = None
        self._flushed_at = 0.0
        self._in_flight = 0
        self._status: Status = "killed"
        self.unsupported: dict[str, int] = {}

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen here."""
        return self.state in ("closed", "failed")

    def statistics(self) -> SinkStatistics:
        """Account for what was read."""
        sub = self.subscription
        read, filtered = sub.read, sub.filtered
        in_flight = self._in_flight + sub.open
        return SinkStatistics(
            read=read,
            delivered=read - filtered - in_flight - self.statistics_dead,
            filtered=filtered,
            dead=self.statistics_dead,
            in_flight=in_flight,
            lost=sub.lost,
            retries=self.retries,
            unsupported=dict(self.unsupported),
            state=self.state,
            error=self.error,
            position=self.confirmed,
        )

    async def run(self, source: Source) -> None:
        """Deliver until the source has ended; see `Delivery`."""
        waker = Waker()
        unlisten = source.listen(waker)
        try:
            await self._open()
            await self._deliver(source, waker)
            await self._close()
        except _GivenUpError:
            pass
        finally:
            unlisten()
            self._progress()
            if self._thread is not None:
                self._thread.stop()

    async def _open(self) -> None:
        failures = 0
        self.state = "opening"
        if not self._async:
            self._thread = SinkThread(self.alias)
        while True:
            try:
                await self._call(partial(self.sink.open, self._info()), "open")
            except SinkTimeoutError as error:
                self._give_up(error)
            except Exception as error:
                failures += 1
                if not _is_outage(error) and failures >= self._retry.permanent:
                    self._give_up(error)
                await self._pause(failures, error)
            else:
                self.state = "open"
                self.error = None
                return

    async def _deliver(self, source: Source, waker: Waker) -> None:
        self._flushed_at = anyio.current_time()
        while True:
            ended = source.closed
            ready = self.subscription.pull(self._batch)
            if ready is None:
                if ended:
                    return
                await self._idle(waker)
                continue
            if ready.events:
                self._in_flight = len(ready.events)
                await self._write(ready.events)
                self._in_flight = 0
                for event in ready.events:
                    if type(event) is RunFinished:
                        self._status = event.status
                    elif type(event) is RunStarted:
                        self._status = "killed"
            self._unconfirmed = ready.mark
            due = anyio.current_time() - self._flushed_at >= self._flush_every
            if self.sink.confirms == "write":
                self._confirm()
            if ready.flush or due:
                await self._flush()
            # other tasks of this loop get their turn, also when there is always more to read
            await anyio.lowlevel.checkpoint()

    async def _idle(self, waker: Waker) -> None:
        """Wait for more; what was written is flushed when nothing comes for a while."""
        if self._unconfirmed is None:
            await waker.wait()
            return
        left = self._flushed_at + self._flush_every - anyio.current_time()
        with anyio.move_on_after(max(0.0, left)) as scope:
            await waker.wait()
        if scope.cancelled_caught:
            await self._flush()

    async def _write(self, events: list[Event]) -> None:
        """Give the sink a batch until it takes it, or its parts are known to be refused."""
        failures = 0
        while True:
            try:
                await self._call(partial(self.sink.write, events), "write")
            except SinkTimeoutError as error:
                self._give_up(error)
            except RefusedError as error:
                await self._bisect(events, error)
                return
            except Exception as error:
                failures += 1
                if not _is_outage(error) and failures >= SUSPICIONS:
                    await self._bisect(events, error)
                    return
                await self._pause(failures, error)
            else:
                self.state = "open"
                self.error = None
                return

    async def _bisect(self, events: list[Event], error: BaseException) -> None:
        if len(events) == 1:
            if not self.statistics_dead:
                logger.warning(
                    "eventlog: sink %r refuses an event for good (%s: %s); it is set aside",
                    self.alias,
                    type(error).__name__,
                    error,
                )
            self.statistics_dead += 1
            self._in_flight -= 1
            self.dead = [*self.dead[-999:], events[0]]
            return
        half = len(events) // 2
        await self._write(events[:half])
        await self._write(events[half:])

    async def _flush(self) -> None:
        self._flushed_at = anyio.current_time()
        try:
            await self._call(self.sink.flush, "flush")
        except SinkTimeoutError as error:
            self._give_up(error)
        except Exception as error:
            self._note(error)
            return
        self.flushed_to = self.subscription.cursor
        if self.sink.confirms in ("write", "flush"):
            self._confirm()
        self._progress()

    def _confirm(self, *, force: bool = False) -> None:
        mark = self._unconfirmed
        if mark is None:
            return
        self.confirmed = mark.seq
        self._unconfirmed = None
        if self._keeper is not None:
            self._keeper.save(mark, self.sink.state(), force=force)

    async def _close(self) -> None:
        if self.subscription.never_ticked:
            logger.warning(
                "eventlog: sink %r received no step or batch event: its cadence was never due",
                self.alias,
            )
        try:
            await self._call(self.sink.flush, "flush")
            await self._call(partial(self.sink.close, self._status), "close")
        except SinkTimeoutError as error:
            self._give_up(error)
        except Exception as error:
            self._note(error)
            self.state = "failed"
            return
        self.flushed_to = self.subscription.cursor
        self._confirm(force=True)
        self.state = "closed"

    async def _call(self, function: Callable[[], Any], what: str) -> None:
        deadline: float = getattr(self._deadlines, what)
        name = f"sink {self.alias!r}: {what}()"
        if self._async:
            with anyio.move_on_after(deadline) as scope:
                await _guarded(function)
            if scope.cancelled_caught:
                raise SinkTimeoutError(f"{name} took longer than {deadline:g} s")
            return
        assert self._thread is not None  # noqa: S101 - _open() started it
        await self._thread.call(function, name, deadline)

    async def _pause(self, failures: int, error: BaseException) -> None:
        self.retries += 1
        self.state = "retrying"
        self._note(error)
        await anyio.sleep(self._retry.delay(failures, error))

    def _note(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        if self.error != text:
            logger.warning("eventlog: sink %r: %s", self.alias, text)
        self.error = text

    def _give_up(self, error: BaseException) -> None:
        self._note(error)
        self.state = "failed"
        raise _GivenUpError from error


async def _guarded(function: Callable[[], Any]) -> None:
    """Await a sink's method; what would end the loop or the task becomes the sink's own error."""
    try:
        await cast(Awaitable[None], function())
    except SystemExit as error:
        raise SinkError(f"the sink raised SystemExit({error.code!r})") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task() if in_asyncio() else None
        if task is None or task.cancelling():
            raise
        raise SinkError("the sink raised a cancellation of its own") from error


def _is_outage(error: BaseException) -> bool:
    """Whether the tracker is at fault rather than the batch: then waiting may help."""
    return isinstance(error, UnavailableError | OSError)


class Delivery:
    """The ports of one source.

    Args:
        source: The log.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.ports: dict[str, Port] = {}
        self._group: anyio.abc.TaskGroup | None = None

    def add(self, port: Port) -> None:
        """Add a sink; delivery to it starts at once, or with `run`.

        Raises:
            ValueError: The alias is taken.
        """
        if port.alias in self.ports:
            raise ValueError(f"there is already a sink with the alias {port.alias!r}")
        self.ports[port.alias] = port
        if self._group is not None:
            self._group.start_soon(self._run_port, port)

    async def run(self) -> None:
        """Deliver everything to every sink until the source has ended."""
        async with anyio.create_task_group() as group:
            self._group = group
            for port in self.ports.values():
                group.start_soon(self._run_port, port)

    async def _run_port(self, port: Port) -> None:
        try:
            await port.run(self._source)
        except Exception as error:
            # a fault of ours: the other sinks go on
            logger.exception("eventlog: delivery to %r failed", port.alias)
            port.state = "failed"
            port.error = f"{type(error).__name__}: {error}"
