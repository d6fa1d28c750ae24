"""Delivery: from a source to sinks, each at its own pace, each alone with its failures.

It is a set of tasks on an anyio loop, one for each sink. A task pulls from its subscription, gives
the batch to its sink, and moves its mark once the sink has confirmed. Nothing that one sink does
reaches another, or whoever emits.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import anyio

from eventlog._loop import Waker, in_asyncio
from eventlog.events import Event, RunFinished, RunStarted, Status
from eventlog.exceptions import (
    LogError,
    RefusedError,
    SinkError,
    SinkTimeoutError,
    UnavailableError,
)
from eventlog.keeping import DeadLetters, Keeper
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

PortState = Literal["waiting", "opening", "open", "retrying", "closed", "failed"]

BATCH = 512
FLUSH_EVERY = 1.0
WAIT_FOR_OTHER = 0.5
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
            return max(0.0, error.retry_after)
        ceiling: float = min(self.most, self.first * 2 ** min(failures - 1, 16))
        return _jitter.uniform(0, ceiling)


# a generator of our own: the global one belongs to the training, which may have seeded it
_jitter = random.Random()  # noqa: S311 - jitter is not cryptography

DEADLINES = Deadlines()
RETRY = Retry()


@dataclass
class SinkStatistics:
    """What became of the events that were read for a sink.

    ``read = delivered + filtered + dead + in_flight``

    Attributes:
        lost: Events that could not be had any more: not read.
        retries: How often something was tried again.
        unshown: What the sink was given and could not show, by its reason.
        refusal: Why it refused an event for good, last.
        state, error: How it is, and what went wrong last.
        position: It has confirmed everything before this seq.
    """

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead: int = 0
    in_flight: int = 0
    lost: int = 0
    retries: int = 0
    unshown: dict[str, int] = field(default_factory=dict)
    refusal: str | None = None
    state: PortState = "waiting"
    error: str | None = None
    position: int = 0


class _Counted(NamedTuple):
    """The counts of one moment."""

    read: int
    delivered: int
    filtered: int
    dead: int
    in_flight: int
    lost: int


class _GivenUpError(Exception):
    """Delivery to this sink ends; the reason was noted."""


class Port:
    """One sink with its subscription, its position and what happened to it.

    Args:
        alias: What the user calls it; unique in a delivery.
        sink: The sink.
        subscription: Where its events come from.
        info: Makes what the sink is told when it is opened, from the state that it had kept.
        deadlines, retry: How long to wait, how often to try.
        keeper: Opens where its position is kept, and goes on there; None for a sink that starts
            afresh each time.
        dead_letters: Where events go that it refuses for good; None only counts them.
        rate: Most `write` calls a second; None for no limit.
        flush_every: Seconds after which what was written is flushed.
        batch: Most events given to the sink at once.
        progress: Called after each flush and at the end, for whoever waits.
        patient: Whether another process that delivers to this sink is waited for also when the
            source has ended.
        status: What the sink is closed with when it is given no `RunFinished`; asked then.
    """

    def __init__(
        self,
        alias: str,
        sink: Sink,
        subscription: Subscription,
        info: Callable[[dict[str, Any]], RunInfo],
        *,
        deadlines: Deadlines = DEADLINES,
        retry: Retry = RETRY,
        keeper: Callable[[], Keeper] | None = None,
        dead_letters: DeadLetters | None = None,
        rate: float | None = None,
        flush_every: float = FLUSH_EVERY,
        batch: int = BATCH,
        progress: Callable[[], None] = lambda: None,
        patient: bool = True,
        status: Callable[[], Status] = lambda: "killed",
    ) -> None:
        self.alias = alias
        self.sink = sink
        self.subscription = subscription
        self.dead = 0
        self.refusal: str | None = None
        self.retries = 0
        self.state: PortState = "waiting"
        self.error: str | None = None
        self.confirmed = subscription.cursor
        self.flushed_to = subscription.cursor
        self._info = info
        self._resumed: dict[str, Any] = {}
        self._deadlines = deadlines
        self._retry = retry
        self._make_keeper = keeper
        self._keeper: Keeper | None = None
        self._dead_letters = dead_letters
        self._pause_between = 0.0 if rate is None else 1.0 / rate
        self._next_write = 0.0
        self._flush_every = flush_every
        self._batch = batch
        self._progress = progress
        self._thread: SinkThread | None = None
        self._async = is_async(sink)
        self._unconfirmed: Mark | None = None
        self._last_mark: Mark | None = None
        self._done_at = -1
        self._flushed_at = 0.0
        self._unflushed = False
        self._waker: Waker
        self._source_closed: Callable[[], bool] = lambda: False
        self._in_flight = 0
        self._stopped = False
        self._delivered = 0
        self._counted = _Counted(0, 0, 0, 0, 0, 0)
        self._patient = patient
        self._status = status
        self._told: Status | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen here."""
        return self.state in ("closed", "failed")

    def statistics(self) -> SinkStatistics:
        """Account for what was read."""
        counted = self._counted
        return SinkStatistics(
            read=counted.read,
            delivered=counted.delivered,
            filtered=counted.filtered,
            dead=counted.dead,
            in_flight=counted.in_flight,
            lost=counted.lost,
            retries=self.retries,
            unshown=dict(self.sink.unshown),
            refusal=self.refusal,
            state=self.state,
            error=self.error,
            position=self.confirmed,
        )

    def _count(self) -> None:
        """Publish the counts of now, all of one moment: others read them from other threads."""
        sub = self.subscription
        self._counted = _Counted(
            sub.read,
            self._delivered,
            sub.filtered,
            self.dead,
            self._in_flight + sub.open,
            sub.lost,
        )

    async def run(self, source: Source) -> None:
        """Deliver until the source has ended; see `Delivery`."""
        self._waker = waker = Waker()
        self._source_closed = lambda: source.closed
        unlisten = source.listen(waker)
        try:
            await self._go_on()
            if self._nothing_left(source):
                self.state = "closed"
                self.error = None
                return
            await self._open()
            await self._deliver(source, waker)
            await self._close()
        except _GivenUpError:
            pass
        finally:
            unlisten()
            self.end()

    def stop(self) -> None:
        """Give up as soon as the call that is going on has ended; in the loop."""
        self._stopped = True
        self._waker()

    def end(self) -> None:
        """Let go of the thread and the files, and say so; may be called twice."""
        self._progress()
        if self._thread is not None:
            self._thread.stop()
        if self._keeper is not None:
            self._keeper.close()
        if self._dead_letters is not None:
            try:
                self._dead_letters.close()
            except OSError as error:
                self._note(error)

    async def _go_on(self) -> None:
        """Start where the sink has been before, once no other process delivers to it."""
        while self._make_keeper is not None and self._keeper is None:
            try:
                self._keeper = self._make_keeper()
            except BlockingIOError as error:
                if self._source_closed() and not self._patient:
                    self._give_up(error)
                self._note(error)
                await anyio.sleep(WAIT_FOR_OTHER)
            except OSError as error:
                self._note(error)
                break
        checkpoint = None if self._keeper is None else self._keeper.load()
        if checkpoint is None:
            return
        mark = Mark(checkpoint.seq, checkpoint.state)
        self.subscription.restore(mark)
        self.confirmed = self.flushed_to = mark.seq
        self._resumed = checkpoint.sink
        self._last_mark = mark
        self._done_at = checkpoint.passed if checkpoint.done else -1

    def _nothing_left(self, source: Source) -> bool:
        """Whether the sink was closed after it had been given all that this source has."""
        return source.closed and self._done_at >= source.end

    async def _open(self) -> None:
        failures = 0
        self.state = "opening"
        if not self._async:
            self._thread = SinkThread(self.alias)
        while True:
            try:
                await self._call(partial(self.sink.open, self._info(self._resumed)), "open")
            except SinkTimeoutError as error:
                self._give_up(error)
            except Exception as error:
                failures += 1
                if not _is_outage(error) and failures >= self._retry.permanent:
                    self._give_up(error)
                failures = await self._pause(failures, error)
            else:
                self.state = "open"
                self.error = None
                return

    async def _deliver(self, source: Source, waker: Waker) -> None:
        self._flushed_at = anyio.current_time()
        failures = 0
        while True:
            if self._stopped:
                # what the sink has in hand was finished, and is confirmed
                await self._flush()
                self._give_up(SinkError("given up at the end of the run"))
            ended = source.closed
            try:
                ready = self.subscription.pull(self._batch)
            except OSError as error:
                # a disk that cannot be read, or no descriptor left: the events are still there
                failures = await self._pause(failures + 1, error)
                continue
            failures = self._read_again(failures)
            if ready is None:
                if ended:
                    self._count()
                    return
                await self._idle(waker)
                continue
            if ready.events:
                self._in_flight = len(ready.events)
                self._count()
                await self._write(ready.events)
                self._delivered += self._in_flight
                self._in_flight = 0
                for event in ready.events:
                    if type(event) is RunFinished:
                        self._told = event.status
                    elif type(event) is RunStarted:
                        self._told = None
            self._count()
            self._unconfirmed = ready.mark
            self._unflushed = True
            due = anyio.current_time() - self._flushed_at >= self._flush_every
            if self.sink.confirms == "write":
                self._confirm()
            if ready.flush or due:
                await self._flush()
            # other tasks of this loop get their turn, also when there is always more to read
            await anyio.lowlevel.checkpoint()

    def _read_again(self, failures: int) -> int:
        if failures:
            self.state = "open"
            self.error = None
        return 0

    async def _idle(self, waker: Waker) -> None:
        """Wait for more; what was written is flushed when nothing comes for a while."""
        if not self._unflushed:
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
            if self._pause_between:
                await anyio.sleep(max(0.0, self._next_write - anyio.current_time()))
                self._next_write = anyio.current_time() + self._pause_between
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
                failures = await self._pause(failures, error)
            else:
                self.state = "open"
                self.error = None
                return

    async def _bisect(self, events: list[Event], error: BaseException) -> None:
        if len(events) == 1:
            if not self.dead:
                logger.warning(
                    "eventlog: sink %r refuses an event for good (%s: %s); it is set aside",
                    self.alias,
                    type(error).__name__,
                    error,
                )
            self.dead += 1
            self.refusal = f"{type(error).__name__}: {error}"
            self._in_flight -= 1
            self._count()
            if self._dead_letters is not None:
                try:
                    self._dead_letters.add(events)
                except (OSError, LogError) as problem:
                    self.refusal += f" (and it could not be set aside: {problem})"
                    self._note(problem)
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
        self._unflushed = False
        if self._dead_letters is not None:
            try:
                self._dead_letters.sync()
            except OSError as error:
                self._note(error)
        if self.sink.confirms in ("write", "flush"):
            self._confirm()
        self._progress()

    def _confirm(self, *, done: bool = False) -> None:
        mark = self._unconfirmed or self._last_mark
        if mark is None or (mark is self._last_mark and not done):
            return
        self._last_mark = mark
        self.confirmed = mark.seq
        self._unconfirmed = None
        if self._keeper is not None:
            self._keeper.save(mark, self.sink.state(), done=done)

    async def _close(self) -> None:
        if self.subscription.never_ticked:
            logger.warning(
                "eventlog: sink %r received no step or batch event: its cadence was never due",
                self.alias,
            )
        try:
            await self._call(self.sink.flush, "flush")
            self.flushed_to = self.subscription.cursor
            if self.sink.confirms != "close":
                self._confirm()
            status = self._told or self._status()
            await self._call(partial(self.sink.close, status), "close")
        except SinkTimeoutError as error:
            self._give_up(error)
        except Exception as error:
            self._note(error)
            self.state = "failed"
            return
        self.flushed_to = self.subscription.cursor
        self._confirm(done=True)
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

    async def _pause(self, failures: int, error: BaseException) -> int:
        """Wait before the next try; return how many failures count from then on."""
        self.retries += 1
        self.state = "retrying"
        self._note(error)
        delay = self._retry.delay(failures, error)
        wished = isinstance(error, UnavailableError) and error.retry_after is not None
        before = self._source_closed()
        with anyio.move_on_after(delay):
            while not self._stopped and (wished or before or not self._source_closed()):
                await self._waker.wait()
            if self._stopped:
                self._give_up(error)
            # the source has ended meanwhile: nobody is to wait minutes for the last batch
            return 0
        return failures

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
        result = function()
        if inspect.isawaitable(result):  # a sink's open, flush and close may be plain
            await result
    except SystemExit as error:
        raise SinkError(f"the sink raised SystemExit({error.code!r})") from error
    except KeyboardInterrupt as error:
        if threading.current_thread() is threading.main_thread():
            raise  # the user's own
        raise SinkError("the sink raised KeyboardInterrupt") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task() if in_asyncio() else None
        if task is not None and task.cancelling():
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
        self._stop: Waker | None = None

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
        self._stop = Waker()
        async with anyio.create_task_group() as outer:
            outer.start_soon(self._wait_for_stop, self._stop)
            async with anyio.create_task_group() as group:
                self._group = group
                for port in self.ports.values():
                    group.start_soon(self._run_port, port)
            outer.cancel_scope.cancel()

    async def _wait_for_stop(self, stop: Waker) -> None:
        await stop.wait()
        for port in self.ports.values():
            port.stop()

    def stop(self) -> None:
        """Give up what is not delivered yet; from any thread. It stays in the log."""
        if self._stop is not None:
            self._stop()

    async def _run_port(self, port: Port) -> None:
        try:
            await port.run(self._source)
        except Exception as error:
            # a fault of ours: the other sinks go on
            logger.exception("eventlog: delivery to %r failed", port.alias)
            port.state = "failed"
            port.error = f"{type(error).__name__}: {error}"
            port.end()
