"""The writer: from the inbox to the log and the cache, in one place and one order.

It is a plain daemon thread that calls `Writer.turn` every 40 ms. A turn can be called by anybody
else as well (tests, the interpreter's exit) and costs one write of one file.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from eventlog._values import clean_event
from eventlog.clock import SYSTEM_CLOCK, Clock
from eventlog.codec import encode_events, encode_foreign, set_rank, stamp
from eventlog.events import (
    ConfigUpdated,
    Event,
    ModelUpdateEvent,
    RunStarted,
    UnknownEvent,
)
from eventlog.log.inbox import Barrier, Inbox
from eventlog.log.layout import MAX_PAYLOAD, BlockKind, Content
from eventlog.log.log_writer import SEGMENT_BYTES, Encoded, LogWriter
from eventlog.log.records import ClockPair, Gap
from eventlog.log.source import Block, TailCache, describe

__all__ = ["SEGMENT_BYTES", "Encoded", "LogWriter", "Writer", "WriterStatistics"]

logger = logging.getLogger("eventlog")

_attempt_of = attrgetter("attempt")
_numbers = struct.Struct("<qqqq")

SYNC_INTERVAL = 1.0
"""Seconds between syncs: what a loss of power can cost; an epoch's end is synced at once."""

INTERVAL = 0.04
"""Seconds between turns: what `kill -9` can cost, with the time that a turn takes."""

DEVICE_WAIT = 5.0
"""Seconds that the end of a run waits for values that a device still owes."""

BLOCK_BYTES = 64 * 1024
TURN_EVENTS = 65_536
HEARTBEAT_NS = 10_000_000_000
CLOCK_STEP_NS = 1_000_000

_LATCHING = (RunStarted, ConfigUpdated, ModelUpdateEvent)


class WriterStatistics(NamedTuple):
    """What became of everything that was emitted: ``emitted = written + dropped + queued``.

    Attributes:
        emitted: Events offered so far.
        written: Events in the log (in the cache, for a run without a directory).
        dropped: Events that will never be, by reason.
        queued: Events on their way.
        degraded: Why the log cannot be written just now; None when it can.
    """

    emitted: int
    written: int
    dropped: dict[str, int]
    queued: int
    degraded: str | None


def _named(item: Any) -> str:
    """Return what an event that could not be made was to be, and where."""
    event = getattr(item, "event", None)
    if not isinstance(event, Event):
        return type(item).__name__
    what = getattr(event, "tag", None) or getattr(event, "name", None) or ", ".join(event.values)
    return f"{type(event).__name__} {str(what)[:80]!r} at step {event.step}"


def _in_a_line(error: BaseException) -> str:
    """Return an error without the pages that some libraries' errors go on for."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


class Writer:
    """Takes events from the inbox, gives them their seq, and writes them.

    Args:
        inbox: Where events come from.
        cache: The newest events, for live delivery.
        log: Where they are written; None for a run that keeps nothing on disk.
        clock: Read once a turn.
        first_seq: The seq of the first event; more than 0 when a log is reopened.
        attempt: The attempt that the first event belongs to.
        rank: Of the process whose events these are.
        latched: What the log had latched when it was reopened; see `SegmentHeader`.
    """

    def __init__(
        self,
        inbox: Inbox,
        cache: TailCache,
        log: LogWriter | None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        first_seq: int = 0,
        attempt: int = 1,
        rank: int = 0,
        latched: Sequence[Event] = (),
    ) -> None:
        self._inbox = inbox
        self._cache = cache
        self._log = log
        self._clock = clock
        self._seq = first_seq
        self._attempt = attempt
        self._rank = rank
        self._first_seq = first_seq
        self._chunk = 256
        self._dropped: dict[str, int] = {}
        self._gap_reported: dict[str, int] = {}
        self._offset: int | None = None
        self._beat_at = 0
        self._turn_lock = threading.Lock()
        self._stopping = threading.Event()
        self._sync_soon = threading.Event()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._latched_run: RunStarted | None = None
        self._latched_model: ModelUpdateEvent | None = None
        self._latch(latched)
        cache.restart(first_seq)

    def start(self) -> None:
        """Start the writer's threads: one that writes, one that syncs what was written."""
        self._threads = [threading.Thread(target=self._run, name="eventlog-writer", daemon=True)]
        if self._log is not None:
            self._threads.append(
                threading.Thread(target=self._run_sync, name="eventlog-sync", daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        wake = self._inbox.wake
        while not self._stopping.is_set():
            wake.wait(INTERVAL)
            wake.clear()
            try:
                while self.turn() >= TURN_EVENTS:
                    pass
            except Exception:
                logger.exception("eventlog: the writer failed; it goes on")
        try:
            self._finish()
        finally:
            self._ended.set()

    def _run_sync(self) -> None:
        assert self._log is not None  # noqa: S101 - start() has looked
        while not self._stopping.is_set():
            self._sync_soon.wait(SYNC_INTERVAL)
            self._sync_soon.clear()
            self._log.sync()

    def turn(self) -> int:
        """Write what has been emitted by now; returns how many items that were."""
        with self._turn_lock:
            return self._turn()

    def _turn(self) -> int:
        items = self._inbox.take(TURN_EVENTS)
        now = self._clock.monotonic_ns()
        log = self._log
        if not items:
            if log is not None:
                log.write((), now, self._clock)
                self._note_gap()
                self._heartbeat(now)
            return 0
        barriers: list[tuple[Barrier, int]] = []
        events = self._resolve(items, barriers)
        if self._rank:
            # here, so that emitting need not
            set_rank(events, self._rank)
        first = self._seq
        before = first + sum(self._dropped.values())
        try:
            self._write(events, now)
        except Exception as error:
            # a fault of ours must neither end the log nor pass unseen
            done = self._seq + sum(self._dropped.values()) - before
            logger.exception("eventlog: the writer failed on %d events", len(events) - done)
            self._drop("writer_error", f"{type(error).__name__}: {error}", len(events) - done)
        self._cache.notify()
        self._pass(barriers, first)
        return len(items)

    def _pass(self, barriers: list[tuple[Barrier, int]], first: int) -> None:
        if not barriers:
            return
        log = self._log
        if log is not None and any(barrier.durable for barrier, _ in barriers):
            log.sync()
        for barrier, behind in barriers:
            seq = min(self._seq, first + behind)
            # without a directory, memory is as durable as it gets
            barrier.reach(seq, log is None or log.synced_end >= seq)

    def _write(self, events: list[Event], now: int) -> None:
        offset = self._clock.wall_ns() - now
        if self._offset is not None and abs(offset - self._offset) < CLOCK_STEP_NS:
            offset = self._offset
        encoded: list[Encoded] = []
        try:
            for run in self._by_attempt(events):
                self._encode(run, offset, encoded)
        finally:
            # what has its seq is written, whatever became of the rest
            if self._log is not None:
                self._log.write(encoded, now, self._clock)
                self._note_gap()
                if offset != self._offset:
                    self._clock_pair(now, offset)
            self._offset = offset
            for item in encoded:
                self._cache.append(item.block)
                if item.block.flags & Content.EPOCH:
                    self._sync_soon.set()

    def _resolve(self, items: list[Any], barriers: list[tuple[Barrier, int]]) -> list[Event]:
        if all(issubclass(kind, Event) for kind in set(map(type, items))):
            return items
        events: list[Event] = []
        for item in items:
            if isinstance(item, Event):
                events.append(item)
            elif isinstance(item, Barrier):
                barriers.append((item, len(events)))
            else:
                try:
                    event = item.resolve()
                    if not isinstance(event, Event):
                        raise TypeError(f"resolve() must return an Event, not {event!r:.80}")
                    events.append(event)
                except Exception as error:
                    self._drop("unresolved", f"{_named(item)}: {_in_a_line(error)}")
        return events

    def _by_attempt(self, events: list[Event]) -> list[list[Event]]:
        """Cut where a rewind begins another attempt: a block and a segment have only one."""
        if not events:
            return []
        if set(map(_attempt_of, events)) == {self._attempt}:
            return [events]
        runs: list[list[Event]] = [[]]
        for event in events:
            if event.attempt > self._attempt:
                self._attempt = event.attempt
                if runs[-1]:
                    runs.append([])
            elif event.attempt < self._attempt:
                # emitted by another thread just before the rewind, taken just after it
                event = msgspec.structs.replace(event, attempt=self._attempt)
            runs[-1].append(event)
        return runs

    def _encode(self, events: list[Event], offset: int, done: list[Encoded]) -> None:
        at = 0
        while at < len(events):
            part = events[at : at + self._chunk]
            at += len(part)
            self._encode_part(part, offset, done)

    def _encode_part(self, part: list[Event], offset: int, done: list[Encoded]) -> None:
        kinds = set(map(type, part))
        try:
            payload = b"" if UnknownEvent in kinds else encode_events(part)
        except Exception:
            payload = b""
        if not payload:
            part, payload = self._encode_singly(part)
            if not part:
                return
            kinds = set(map(type, part))
        first = self._seq
        try:
            if len(payload) > MAX_PAYLOAD:
                raise ValueError(f"{len(payload)} bytes are more than a block may have")
            flags, steps = describe(part, kinds)
            walls = stamp(part, first, offset)
            last_time = max(walls)
            _numbers.pack(walls[0], last_time, *steps)
        except Exception as error:
            # too large, or with an axis that is no number: find the one to blame
            half = len(part) // 2
            if not half:
                reason = "too_large" if len(payload) > MAX_PAYLOAD else "unencodable"
                self._drop(reason, f"{type(error).__name__}: {error}")
                return
            self._encode_part(part[:half], offset, done)
            self._encode_part(part[half:], offset, done)
            return
        self._chunk = max(1, min(8192, BLOCK_BYTES * len(part) // len(payload)))
        if not kinds.isdisjoint(_LATCHING):
            self._latch(part)
        self._seq = first + len(part)
        block = Block(
            first,
            len(part),
            flags,
            steps,
            attempt=part[0].attempt,
            first_time=walls[0],
            size=len(payload) + len(part) * 300,
            events=part,
        )
        done.append(Encoded(block, payload, last_time))

    def _encode_singly(self, part: list[Event]) -> tuple[list[Event], bytes]:
        """Keep what can be encoded, as it is or mended, and count the rest."""
        kept: list[Event] = []
        for event in part:
            try:
                encode_foreign([event])
                kept.append(event)
            except Exception:
                try:
                    mended = clean_event(event)
                    encode_foreign([mended])
                    kept.append(mended)
                except Exception as error:
                    self._drop("unencodable", f"{type(event).__name__}: {error}")
        return kept, encode_foreign(kept) if kept else b""

    def _latch(self, events: Sequence[Event]) -> None:
        for event in events:
            if type(event) is RunStarted:
                self._latched_run = event
            elif type(event) is ConfigUpdated and self._latched_run is not None:
                config = {**self._latched_run.config, **event.config}
                self._latched_run = msgspec.structs.replace(self._latched_run, config=config)
            elif type(event) is ModelUpdateEvent:
                self._latched_model = event
        if self._log is not None:
            self._log.latched = [
                e for e in (self._latched_run, self._latched_model) if e is not None
            ]

    def _drop(self, reason: str, detail: str, n: int = 1) -> None:
        if reason not in self._dropped:
            logger.warning("eventlog: an event could not be recorded (%s): %s", reason, detail)
        self._dropped[reason] = self._dropped.get(reason, 0) + n

    def _note_gap(self) -> None:
        dropped = self._all_dropped()
        if dropped == self._gap_reported or self._log is None:
            return
        known = self._gap_reported
        new = {k: n - known.get(k, 0) for k, n in dropped.items() if n > known.get(k, 0)}
        if self._log.write_record(BlockKind.GAP, Gap(dropped=new), self._seq):
            self._gap_reported = dropped

    def _clock_pair(self, now: int, offset: int) -> None:
        if self._log is not None:
            pair = ClockPair(mono=now, wall=now + offset)
            self._log.write_record(BlockKind.CLOCK, pair, self._seq)
            self._beat_at = now + HEARTBEAT_NS

    def _heartbeat(self, now: int) -> None:
        if now >= self._beat_at and self._seq > self._first_seq:
            self._clock_pair(now, self._clock.wall_ns() - now)

    def _all_dropped(self) -> dict[str, int]:
        dropped = dict(self._inbox.dropped)
        for reason, n in tuple(self._dropped.items()):
            dropped[reason] = dropped.get(reason, 0) + n
        if self._log is not None and self._log.lost:
            dropped["disk"] = self._log.lost
        return dropped

    def statistics(self) -> WriterStatistics:
        """Account for everything that was emitted."""
        # a turn that hangs on a disk must not hold up who asks: then the figures of before serve
        if self._turn_lock.acquire(timeout=0.2):
            try:
                return self._statistics()
            finally:
                self._turn_lock.release()
        return self._statistics()

    def _statistics(self) -> WriterStatistics:
        dropped = self._all_dropped()
        waiting = self._inbox.waiting
        seen = self._seq - self._first_seq
        log = self._log
        backlog = 0 if log is None else log.backlog_events
        lost = 0 if log is None else log.lost
        written = seen - backlog - lost
        queued = waiting + backlog
        emitted = written + queued + sum(dropped.values())
        return WriterStatistics(
            emitted, written, dropped, queued, None if log is None else log.degraded
        )

    def stop(self, timeout: float | None) -> bool:
        """Write what is left and end the threads; False when that takes longer than `timeout`."""
        self._stopping.set()
        self._inbox.wake.set()
        if not self._threads:
            self._finish()
            return True
        # not join(): interrupted, it takes a thread that runs for one that has ended (bpo-45274)
        return self._ended.wait(timeout)

    def _take_the_rest(self) -> None:
        """Write what is in the inbox, and give a device a while for what it still owes."""
        patience = DEVICE_WAIT
        while True:
            while self._turn():
                pass
            if not self._inbox.held_up:
                return
            if patience > 0:
                patience -= 0.005
                time.sleep(0.005)
            else:
                if not self._inbox.dropped.get("device_hung"):
                    logger.warning(
                        "eventlog: a device did not deliver a value within %g s; its events are "
                        "dropped",
                        DEVICE_WAIT,
                    )
                self._inbox.give_up_first()

    def _finish(self) -> None:
        with self._turn_lock:
            self._take_the_rest()
            log = self._log
            if log is not None:
                log.retry()
                self._turn()
                log.abandon_backlog()
                self._note_gap()
                log.leave_segment(seal=True)
                if log.unsure:  # that could not be synced: once more, elsewhere
                    log.retry()
                    self._turn()
                    log.leave_segment(seal=True)
                    log.abandon_backlog()
        self._cache.close()
