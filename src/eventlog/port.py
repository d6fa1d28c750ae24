"""A port: one sink with its subscription, its position, and what happened to it."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import anyio

from eventlog._calls import SinkCalls
from eventlog._care import Care, Guest
from eventlog._config import error_text
from eventlog._loop import Waker
from eventlog._terms import DEADLINES, RETRY, Deadlines, Retry, is_outage
from eventlog.events import Event, RunFinished, RunStarted, Status
from eventlog.exceptions import RefusedError, SinkError, SinkTimeoutError
from eventlog.keeping import DeadLetters, Keeper
from eventlog.log.source import Source
from eventlog.sinks._told import told_unshown
from eventlog.sinks.base import RunInfo, Sink
from eventlog.subscription import Mark, Subscription

__all__ = ["Port", "PortState", "SinkStatistics"]

logger = logging.getLogger("eventlog")

PortState = Literal["waiting", "opening", "open", "retrying", "closed", "failed"]

BATCH = 512
FLUSH_EVERY = 1.0
WAIT_FOR_OTHER = 0.5
SUSPICIONS = 3
"""How often a batch is tried again, after a failure that is no outage, before it is halved."""
SAY_AGAIN = 600.0
"""Seconds in which the same trouble of a sink is said once."""
SAID = 32
"""How many troubles are remembered for that."""
BRIEFLY = 0.1
"""The part of a pause that is made before that: halving is cheap, and tells as much as waiting."""


@dataclass
class SinkStatistics:
    """What became of the events that were read for a sink.

    ``read = delivered + filtered + dead + in_flight``

    Attributes:
        lost: Events that could not be had any more: not read.
        retries: How often something was tried again.
        unkept: How often its position, or its state, could not be kept.
        unshown: What the sink was given and could not show, by its reason.
        refusal: Why it refused an event for good, last.
        state, error: How it is, and what went wrong last.
        position: It has confirmed everything before this seq.
        calls: How many calls of its methods have ended.
        cpu: Seconds of CPU time that these took, on its thread. What its SDK does on threads and
            in processes of its own nobody knows here.
        busy: Seconds that it was in them, also waiting.
    """

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead: int = 0
    in_flight: int = 0
    lost: int = 0
    retries: int = 0
    unkept: int = 0
    unshown: dict[str, int] = field(default_factory=dict)
    refusal: str | None = None
    state: PortState = "waiting"
    error: str | None = None
    position: int = 0
    calls: int = 0
    cpu: float = 0.0
    busy: float = 0.0


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


class _StoppedError(Exception):
    """Delivery to this sink was asked to stop."""


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
        care: What it may take of this process, where that is one that trains.

    Attributes:
        written_to: Everything before this seq was taken, left out or set aside.
        flushed_to: Everything before this seq was flushed.
        confirmed: Everything before this seq is confirmed, and will not come again.
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
        care: Care | None = None,
    ) -> None:
        if rate is not None and not rate > 0:
            raise ValueError(f"sink {alias!r}: rate must be above 0, not {rate!r}")
        self.alias = alias
        self.sink = sink
        self.subscription = subscription
        self.dead = 0
        self.refusal: str | None = None
        self.retries = 0
        self.state: PortState = "waiting"
        self.error: str | None = None
        self.written_to = self.flushed_to = self.confirmed = subscription.cursor
        self._info = info
        self._resumed: dict[str, Any] = {}
        self._retry = retry
        self._make_keeper = keeper
        self._keeper: Keeper | None = None
        self._dead_letters = dead_letters
        self._pause_between = 0.0 if rate is None else 1.0 / rate
        self._next_write = 0.0
        self._flush_every = flush_every
        self._flush_at = 0.0
        self._flush_failures = 0
        self._batch = batch
        self._progress = progress
        self._calls = SinkCalls(alias, sink, deadlines)
        self._unconfirmed: Mark | None = None
        self._last_mark: Mark | None = None
        self._done_at = -1
        self._unflushed = False
        self._waker: Waker | None = None
        self._source_closed: Callable[[], bool] = lambda: False
        self._in_flight = 0
        self._taken_of_batch = 0
        self._fruitless = 0
        self._stopped = False
        self._delivered = 0
        self._counted = _Counted(0, 0, 0, 0, 0, 0)
        self._patient = patient
        self._status = status
        self._guest = None if care is None else Guest(care)
        self._rest_to = 0.0
        self._resting = False
        self._wanted = -1
        self._said: dict[str, float] = {}
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
            unkept=0 if self._keeper is None else self._keeper.failures,
            unshown=told_unshown(self.sink),
            refusal=self.refusal,
            state=self.state,
            error=self.error,
            position=self.confirmed,
            calls=self._calls.meter.calls,
            cpu=self._calls.meter.cpu,
            busy=self._calls.meter.busy,
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

    # -- from the beginning to the end ----------------------------------------------------------

    async def run(self, source: Source) -> None:
        """Deliver until the source has ended; see `eventlog.delivery.Delivery`."""
        self._waker = waker = Waker()
        self._source_closed = lambda: source.closed
        unlisten = source.listen(self._wake)
        try:
            await self._go_on()
            if self._nothing_left(source):
                self.state = "closed"
                self.error = None
                return
            await self._open()
            await self._deliver(source, waker)
            await self._close()
        except _StoppedError:
            await self._leave()
        except _GivenUpError:
            pass
        finally:
            unlisten()
            self.end()

    def stop(self) -> None:
        """Give up as soon as the call that is going on has ended; in the loop."""
        self._stopped = True
        if self._waker is not None:
            self._waker()

    def hurry(self, seq: int) -> None:
        """Rest no more until all before `seq` is flushed: somebody waits. From any thread."""
        self._wanted = seq
        if self._waker is not None:
            self._waker()

    def _wake(self) -> None:
        """Look at the source, which has more or has ended; a sink that rests looks later."""
        assert self._waker is not None  # noqa: S101 - run() made it
        if not self._resting or self._source_closed():
            self._waker()

    def _may_not_rest(self) -> bool:
        return self.flushed_to < self._wanted or self._source_closed()

    def end(self) -> None:
        """Let go of the thread and the files, and say so; may be called twice."""
        self._progress()
        self._calls.stop()
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
            self._check_stopped()
            try:
                self._keeper = self._make_keeper()
            except BlockingIOError as error:
                if self._source_closed() and not self._patient:
                    self._give_up(error)
                self._note(error)
                await self._sleep(WAIT_FOR_OTHER)
            except OSError as error:
                self._note(error)
                break
        checkpoint = None if self._keeper is None else self._keeper.load()
        if checkpoint is None:
            return
        mark = Mark(checkpoint.seq, checkpoint.state)
        self.subscription.restore(mark)
        self.written_to = self.flushed_to = self.confirmed = mark.seq
        self._resumed = checkpoint.sink
        self._last_mark = mark
        self._done_at = checkpoint.passed if checkpoint.done else -1

    def _nothing_left(self, source: Source) -> bool:
        """Whether the sink was closed after it had been given all that this source has."""
        return source.closed and self._done_at >= source.end

    async def _open(self) -> None:
        self.state = "opening"
        self._calls.start()
        await self._insist(self._call_open, "open")

    def _call_open(self) -> Any:
        info = self._info(self._resumed)
        if self._dead_letters is not None:
            self._dead_letters.run = info
        return self.sink.open(info)

    async def _deliver(self, source: Source, waker: Waker) -> None:
        self._flush_at = anyio.current_time() + self._flush_every
        failures = 0
        while True:
            self._check_stopped()
            limit = await self._next_length()
            # not before that: the end may come in the pause, and nothing wakes anybody after it
            ended = source.closed
            try:
                ready = self.subscription.pull(limit)
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
                self._taken_of_batch = 0
                self._count()
                await self._write(ready.events)
                self._delivered += self._in_flight
                self._in_flight = 0
                for event in ready.events:
                    if type(event) is RunFinished:
                        self._told = event.status
                    elif type(event) is RunStarted:
                        self._told = None
            self.written_to = self.subscription.cursor
            self._count()
            self._unconfirmed = ready.mark
            self._unflushed = True
            if self._guest is not None and self.subscription.cursor >= source.end:
                soon = anyio.current_time() + self._guest.interval
                self._rest_to = max(self._rest_to, soon)
            due = anyio.current_time() >= self._flush_at
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
        left = self._flush_at - anyio.current_time()
        with anyio.move_on_after(max(0.0, left)) as scope:
            await waker.wait()
        if scope.cancelled_caught:
            await self._flush()

    async def _close(self) -> None:
        if self.subscription.never_ticked:
            logger.warning(
                "eventlog: sink %r received no step or batch event: its cadence was never due",
                self.alias,
            )
        await self._insist(self.sink.flush, "flush")
        self._has_flushed()
        status = self._told or self._status()
        await self._insist(partial(self.sink.close, status), "close")
        self.flushed_to = self.subscription.cursor
        self._confirm(done=True)
        self.state = "closed"

    async def _leave(self) -> None:
        """Let go of the sink when asked to: what it has in hand is flushed, and so confirmed."""
        if self._unflushed and self.state == "open":
            try:
                await self._flush()
            except _GivenUpError:
                return
        if self.error is None:
            self._note(SinkError("given up at the end of the run"))
        self.state = "failed"

    # -- single calls ---------------------------------------------------------------------------

    async def _insist(self, function: Callable[[], Any], what: str) -> None:
        """Call open, or at the end flush or close, for as long as that may help."""
        failures = tries = 0
        while True:
            self._check_stopped()
            try:
                await self._calls.call(function, what)
            except SinkTimeoutError as error:
                self._give_up(error)
            except Exception as error:
                # after a sync that failed, another one tells nothing
                waiting_helps = is_outage(error) and getattr(error, "errno", None) != errno.EIO
                tries += not waiting_helps
                if tries >= self._retry.permanent or isinstance(error, RefusedError):
                    self._give_up(error)
                failures = await self._pause(failures + 1, error)
            else:
                self.state = "open"
                self.error = None
                return

    async def _next_length(self) -> int:
        """Return how many events to give the sink next, once others have had the interpreter."""
        if self._guest is None or self._source_closed():
            return self._batch
        # not once the run has ended: there is nobody then to be spared
        self._resting = True
        try:
            await self._sleep(self._rest_to - anyio.current_time(), self._may_not_rest)
        finally:
            self._resting = False
        return self._guest.most(self._batch)

    async def _write(self, events: list[Event], *, suspected: bool = False) -> None:
        """Give the sink events until it takes them, or those are known that it refuses.

        Args:
            events: A batch, or a part of one.
            suspected: Whether some event in a batch that these are a part of was to blame.
        """
        failures = tries = 0
        while True:
            if self._pause_between:
                await self._sleep(self._next_write - anyio.current_time())
                self._next_write = anyio.current_time() + self._pause_between
            self._check_stopped()
            try:
                await self._calls.call(partial(self.sink.write, events), "write")
            except SinkTimeoutError as error:
                self._give_up(error)
            except RefusedError as error:
                await self._bisect(events, error)
                return
            except Exception as error:
                if is_outage(error):
                    failures = await self._pause(failures + 1, error)
                    continue
                tries += 1
                if self._blames(events, tries, suspected=suspected):
                    await self._bisect(events, error)
                    return
                if len(events) > 1:
                    await self._pause(tries, error, BRIEFLY)
                else:
                    # a sink that takes nothing at all is down rather than picky, whatever it says
                    self._fruitless += 1
                    await self._pause(self._fruitless, error)
            else:
                if self._guest is not None:
                    self._guest.learn(len(events), self._calls.meter.last[0])
                    pause = self._guest.pause(*self._calls.meter.last)
                    self._rest_to = anyio.current_time() + pause
                self._taken_of_batch += len(events)
                self._fruitless = 0
                self.state = "open"
                self.error = None
                return

    def _blames(self, events: list[Event], tries: int, *, suspected: bool) -> bool:
        """Whether some of the events are to blame for a failure that is no outage."""
        if suspected and (len(events) > 1 or self._taken_of_batch):
            return True
        return tries >= SUSPICIONS

    async def _bisect(self, events: list[Event], error: BaseException) -> None:
        if len(events) == 1:
            self._set_aside(events, error)
            return
        half = len(events) // 2
        await self._write(events[:half], suspected=True)
        await self._write(events[half:], suspected=True)

    def _set_aside(self, events: list[Event], error: BaseException) -> None:
        if not self.dead:
            logger.warning(
                "eventlog: sink %r refuses an event for good (%s); it is set aside",
                self.alias,
                error_text(error),
            )
        self.dead += 1
        self.refusal = error_text(error)
        self._in_flight -= 1
        self._count()
        if self._dead_letters is not None:
            try:
                self._dead_letters.add(events)
            except Exception as problem:  # an event that nobody can take, say
                self.refusal += f" (and it could not be set aside: {error_text(problem)})"
                self._note(problem)

    async def _flush(self) -> None:
        """Flush once; where that fails, delivery goes on, and it is tried again in a while."""
        try:
            await self._calls.call(self.sink.flush, "flush")
        except SinkTimeoutError as error:
            self._give_up(error)
        except Exception as error:
            self._note(error)
            self._flush_failures += 1
            pause = max(self._flush_every, self._retry.delay(self._flush_failures, error))
            self._flush_at = anyio.current_time() + pause
            return
        if self._flush_failures:
            self._flush_failures = 0
            self.error = None
        self._has_flushed()

    def _has_flushed(self) -> None:
        self._flush_at = anyio.current_time() + self._flush_every
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
        self._judge()

    def _judge(self) -> None:
        """Name a sink that takes too much of the training's process, once."""
        if self._guest is None:
            return
        share = self._guest.judge(anyio.current_time(), self._calls.meter.cpu)
        if share is not None:
            logger.warning(
                "eventlog: sink %r takes %.0f %% of a core from the training process: isolate=True "
                "puts a sink that is given by name into a process of its own, every= or reduce= "
                "gives it less",
                self.alias,
                share * 100,
            )

    def _confirm(self, *, done: bool = False) -> None:
        mark = self._unconfirmed or self._last_mark
        if mark is None and done:
            mark = Mark(self.subscription.cursor)  # a run that was killed before its first event
        if mark is None or (mark is self._last_mark and not done):
            return
        self._last_mark = mark
        self.confirmed = mark.seq
        self._unconfirmed = None
        if self._keeper is not None:
            self._keeper.save(mark, self.sink.state, done=done)

    # -- waiting --------------------------------------------------------------------------------

    def _check_stopped(self) -> None:
        if self._stopped:
            raise _StoppedError

    async def _sleep(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Wait, unless asked to stop, or until a wake finds that it is over."""
        assert self._waker is not None  # noqa: S101 - run() made it
        with anyio.move_on_after(max(0.0, seconds)):
            while not (self._stopped or over()):
                await self._waker.wait()
        self._check_stopped()

    async def _pause(self, failures: int, error: BaseException, part: float = 1.0) -> int:
        """Wait before the next try; return how many failures count from then on."""
        assert self._waker is not None  # noqa: S101 - run() made it
        self.retries += 1
        self.state = "retrying"
        self._note(error)
        wished = self._retry.wish(error) is not None
        before = self._source_closed()
        with anyio.move_on_after(self._retry.delay(failures, error) * part):
            while not self._stopped and (wished or before or not self._source_closed()):
                await self._waker.wait()
            self._check_stopped()
            # the source has ended meanwhile: nobody is to wait minutes for the last batch
            return 0
        return failures

    def _note(self, error: BaseException) -> None:
        text = error_text(error)
        now = time.monotonic()
        if self.error != text and now >= self._said.get(text, now):
            # a tracker that comes and goes is not to fill the terminal of a run of a month
            if len(self._said) >= SAID:
                self._said.clear()
            self._said[text] = now + SAY_AGAIN
            logger.warning("eventlog: sink %r: %s", self.alias, text)
        self.error = text

    def _give_up(self, error: BaseException) -> None:
        self._note(error)
        self.state = "failed"
        raise _GivenUpError from error
