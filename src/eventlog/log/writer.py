"""The writer: from the inbox to the log and the cache, in one place and one order.

It is a plain daemon thread that calls `Writer.turn` every 20 ms. A turn can be called by anybody
else as well (tests, the interpreter's exit) and costs one write of one file.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from eventlog._values import clean_event
from eventlog.clock import SYSTEM_CLOCK, Clock
from eventlog.codec import encode_events, encode_foreign, stamp
from eventlog.events import (
    ConfigUpdated,
    Event,
    ModelUpdateEvent,
    RunStarted,
    UnknownEvent,
)
from eventlog.log.inbox import Barrier, Inbox
from eventlog.log.layout import HEADER_SIZE, MAX_PAYLOAD, BlockKind, Content, pack_block
from eventlog.log.records import ClockPair, Gap, SegmentHeader, encode_latched, encode_record
from eventlog.log.seal import IndexEntry, seal_buffers
from eventlog.log.segments import OS_FILES, Files, SegmentWriter
from eventlog.log.source import Block, TailCache, describe

__all__ = ["Encoded", "LogWriter", "Writer", "WriterStatistics"]

logger = logging.getLogger("eventlog")

_attempt_of = attrgetter("attempt")
_numbers = struct.Struct("<qqqq")

SYNC_INTERVAL = 1.0
"""Seconds between syncs: what a loss of power can cost; an epoch's end is synced at once."""

INTERVAL = 0.02
"""Seconds between turns: what `kill -9` can cost, with the time that a turn takes."""

BLOCK_BYTES = 64 * 1024
SEGMENT_BYTES = 128 * 1024 * 1024
TURN_EVENTS = 65_536
BACKLOG_BYTES = 64 * 1024 * 1024
RETRY_NS = 1_000_000_000
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


class Encoded(NamedTuple):
    """A block that is to be written: what it holds, and its bytes but for the header."""

    block: Block
    payload: bytes
    last_time: int


class LogWriter:
    """The segments of one rank's log, as they are written.

    Write errors leave the segment: what could not be written waits in a bounded backlog and goes
    into a new segment once that can be made. So does a directory that is removed under the log.

    Attributes:
        moved: Called after the log had to make its directory again.
        rotated: Called when a segment was sealed and the next one begun.
    """

    def __init__(
        self,
        directory: Path,
        *,
        run_id: str,
        project: str = "",
        rank: int = 0,
        attempt: int = 1,
        files: Files = OS_FILES,
        segment_bytes: int = SEGMENT_BYTES,
        writer: str = "eventlog",
    ) -> None:
        self.directory = directory
        self._identity = {
            "run_id": run_id,
            "project": project,
            "rank": rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "writer": writer,
        }
        self._files = files
        self._segment: SegmentWriter | None = None
        self._segment_bytes = segment_bytes
        self._segment_attempt = attempt
        self._backlog: deque[Encoded] = deque()
        self._backlog_bytes = 0
        self._now = 0
        self._retry_at = 0
        self._strikes = 0
        self._first_segment = True
        self._lock = threading.Lock()
        self._dirty = False
        self._condemned: SegmentWriter | None = None
        self._entries: list[IndexEntry] = []
        self.latched: list[Event] = []
        self.written = 0
        self.written_end = 0
        self.synced_end = 0
        self.lost = 0
        self.degraded: str | None = None
        self.moved: Callable[[], None] | None = None
        self.rotated: Callable[[], None] | None = None

    @property
    def backlog_events(self) -> int:
        return sum(e.block.end - e.block.first for e in tuple(self._backlog))

    def waiting(self, seq: int) -> Block | None:
        """Return the first block that ends after `seq` of those that wait for the disk."""
        return next((e.block for e in tuple(self._backlog) if e.block.end > seq), None)

    def write(self, encoded: Sequence[Encoded], now: int, clock: Clock) -> None:
        """Append blocks, or keep them until that is possible."""
        self._now = now
        self._backlog.extend(encoded)
        self._backlog_bytes += sum(len(e.payload) for e in encoded)
        if not self._backlog or (self.degraded is not None and now < self._retry_at):
            self._shed()
            return
        try:
            self._write_backlog(clock)
            self._strikes = 0
        except OSError as error:
            self._fail(error)
        except Exception as error:
            # a fault of ours: what cannot be written for a third time must not hold up the rest
            logger.exception("eventlog: the log of %s cannot be written", self.directory)
            self._fail(error)
            self._strikes += 1
            if self._strikes % 3 == 0:
                self._give_up_oldest()
        self._shed()

    def retry(self) -> None:
        """Have the next write tried, however short ago the last one failed."""
        self._retry_at = 0

    def write_now(self, encoded: Sequence[Encoded], clock: Clock) -> None:
        """Append blocks, all of them, at once.

        Raises:
            OSError: Not all could be written; none of them is kept for later.
        """
        self._backlog.extend(encoded)
        self._backlog_bytes += sum(len(e.payload) for e in encoded)
        try:
            self._write_backlog(clock)
        except OSError:
            self.leave_segment(sync=False)
            raise
        finally:
            self._backlog.clear()
            self._backlog_bytes = 0

    def _write_backlog(self, clock: Clock) -> None:
        while self._backlog:
            attempt = self._backlog[0].block.attempt
            segment = self._segment_for(attempt, self._backlog[0].block.first, clock)
            group: list[Encoded] = []
            for encoded in self._backlog:
                if encoded.block.attempt != attempt or len(group) >= 1024:
                    break
                group.append(encoded)
            buffers: list[bytes] = []
            for block, payload, last_time in group:
                head = pack_block(
                    BlockKind.EVENTS,
                    payload,
                    seed=segment.seed,
                    flags=int(block.flags),
                    count=block.end - block.first,
                    first_seq=block.first,
                    first_time=block.first_time,
                    last_time=last_time,
                    steps=block.steps,
                )
                buffers += (head, payload)
            before = segment.size
            try:
                segment.append(buffers)
            finally:
                # blocks that are whole stay where they are, whatever became of those after them
                self._settle(group, before, segment.size)
            if self.degraded is not None:
                logger.warning("eventlog: %s is being written again", self.directory)
                self.degraded = None

    def _settle(self, group: list[Encoded], at: int, size: int) -> None:
        """Take the blocks out of the backlog that lie between `at` and `size` in the segment."""
        for encoded in group:
            block, payload, last_time = encoded
            end = at + HEADER_SIZE + len(payload)
            if end > size:
                break
            count = block.end - block.first
            self._entries.append(
                IndexEntry(
                    at, block.first, count, block.first_time, last_time, *block.steps, block.flags
                )
            )
            at = end
            self._dirty = True
            self._backlog.popleft()
            self._backlog_bytes -= len(encoded.payload)
            self.written += encoded.block.end - encoded.block.first
            self.written_end = encoded.block.end

    def _segment_for(self, attempt: int, seq: int, clock: Clock) -> SegmentWriter:
        segment, rotated = self._segment, False
        if segment is not None and segment is self._condemned:
            self.leave_segment(sync=False)
            segment = None
        if segment is not None and (
            attempt != self._segment_attempt or segment.size >= self._segment_bytes
        ):
            self.leave_segment(seal=True)
            segment = None
            rotated = True
        if segment is None:
            header = SegmentHeader(
                uuid=os.urandom(16),
                attempt=attempt,
                base_seq=seq,
                mono=clock.monotonic_ns(),
                wall=clock.wall_ns(),
                latched=encode_latched(self.latched),
                **self._identity,  # type: ignore[arg-type]
            )
            made_again = not self._first_segment and not self.directory.exists()
            segment = SegmentWriter(
                self.directory, header, self._files, keep_old=self._first_segment
            )
            self._first_segment = False
            self._entries = []
            with self._lock:
                self._segment = segment
            self._segment_attempt = attempt
            if made_again and self.moved is not None:
                self.moved()
            if rotated and self.rotated is not None:
                self.rotated()
        return segment

    def write_record(self, kind: BlockKind, record: msgspec.Struct, seq: int) -> bool:
        """Append a block that holds no events; False when the log cannot be written just now."""
        segment = self._segment
        if segment is None or segment is self._condemned or self.degraded is not None:
            return False
        payload = encode_record(record)
        head = pack_block(kind, payload, seed=segment.seed, first_seq=seq)
        try:
            segment.append([head, payload])
        except OSError as error:
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        if self.degraded is None:
            logger.warning(
                "eventlog: %s cannot be written (%s); training and live sinks go on, "
                "the log follows when it can",
                self.directory,
                error,
            )
        self.degraded = str(error) or type(error).__name__
        self._retry_at = self._now + RETRY_NS
        # what is in this segment stays; after a failed write its end is not known
        self.leave_segment()

    def _shed(self) -> None:
        while self._backlog_bytes > BACKLOG_BYTES and self._backlog:
            self._give_up_oldest()

    def _give_up_oldest(self) -> None:
        if self._backlog:
            oldest = self._backlog.popleft()
            self._backlog_bytes -= len(oldest.payload)
            self.lost += oldest.block.end - oldest.block.first

    def abandon_backlog(self) -> None:
        """Give up what waits for a disk that did not come back before the end."""
        while self._backlog:
            self._give_up_oldest()

    def sync(self) -> None:
        """Bring what was written to the disk; on failure go on in a new segment."""
        with self._lock:
            segment, end = self._segment, self.written_end
            if segment is None or segment is self._condemned:
                return
            if not segment.linked:
                logger.warning(
                    "eventlog: %s was removed; the log goes on in a new file", segment.path
                )
                self._condemned = segment
                return
            if self._dirty:
                self._dirty = False
                try:
                    segment.sync()
                except OSError as error:
                    logger.warning("eventlog: cannot sync %s: %s", segment.path, error)
                    # the kernel forgets the pages that it could not write: never ask it twice.
                    # Only the writer's thread closes it: another file could get its number
                    self._condemned = segment
                    return
        self.synced_end = end

    def leave_segment(self, *, sync: bool = True, seal: bool = False) -> None:
        """End the segment; the next block starts another.

        Args:
            sync: Bring it to the disk first.
            seal: Write its index first, so that readers find their way in it at once.
        """
        last = self._segment
        if seal and last is not None and last is not self._condemned:
            base = self._entries[0].first_seq if self._entries else 0
            try:
                last.append(seal_buffers(self._entries, base, last.size, last.seed))
                self._dirty = True
            except OSError as error:
                # it is read without an index then, block by block
                logger.warning("eventlog: cannot seal %s: %s", last.path, error)
        if sync:
            self.sync()
        with self._lock:
            segment, self._segment = self._segment, None
            if segment is not None:
                try:
                    segment.close()
                except OSError as error:
                    logger.warning("eventlog: cannot close %s: %s", segment.path, error)


class Writer:
    """Takes events from the inbox, gives them their seq, and writes them.

    Args:
        inbox: Where events come from.
        cache: The newest events, for live delivery.
        log: Where they are written; None for a run that keeps nothing on disk.
        clock: Read once a turn.
        first_seq: The seq of the first event; more than 0 when a log is reopened.
        attempt: The attempt that the first event belongs to.
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
        latched: Sequence[Event] = (),
    ) -> None:
        self._inbox = inbox
        self._cache = cache
        self._log = log
        self._clock = clock
        self._seq = first_seq
        self._attempt = attempt
        self._first_seq = first_seq
        self._chunk = 256
        self._dropped: dict[str, int] = {}
        self._gap_reported: dict[str, int] = {}
        self._offset: int | None = None
        self._beat_at = 0
        self._turn_lock = threading.Lock()
        self._stopping = threading.Event()
        self._sync_soon = threading.Event()
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
        self._finish()

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
        barriers: list[Barrier] = []
        events = self._resolve(items, barriers)
        before = self._seq + sum(self._dropped.values())
        try:
            self._write(events, now)
        except Exception as error:
            # a fault of ours must neither end the log nor pass unseen
            done = self._seq + sum(self._dropped.values()) - before
            logger.exception("eventlog: the writer failed on %d events", len(events) - done)
            self._drop("writer_error", f"{type(error).__name__}: {error}", len(events) - done)
        self._cache.notify()
        self._pass(barriers)
        return len(items)

    def _pass(self, barriers: list[Barrier]) -> None:
        if not barriers:
            return
        log = self._log
        if log is not None and any(barrier.durable for barrier in barriers):
            log.sync()
        for barrier in barriers:
            # without a directory, memory is as durable as it gets
            barrier.reach(self._seq, log is None or log.synced_end >= self._seq)

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

    def _resolve(self, items: list[Any], barriers: list[Barrier]) -> list[Event]:
        if all(issubclass(kind, Event) for kind in set(map(type, items))):
            return items
        events: list[Event] = []
        for item in items:
            if isinstance(item, Event):
                events.append(item)
            elif isinstance(item, Barrier):
                barriers.append(item)
            else:
                try:
                    event = item.resolve()
                    if not isinstance(event, Event):
                        raise TypeError(f"resolve() must return an Event, not {event!r:.80}")
                    events.append(event)
                except Exception as error:
                    self._drop("unresolved", f"{type(error).__name__}: {error}")
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
        writer = self._threads[0]
        writer.join(timeout)
        return not writer.is_alive()

    def _finish(self) -> None:
        with self._turn_lock:
            while self._turn():
                pass
            log = self._log
            if log is not None:
                log.retry()
                self._turn()
                log.abandon_backlog()
                self._note_gap()
                log.leave_segment(seal=True)
        self._cache.close()
