"""The segments of a log as they are written, and what happens when the disk does not take them."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from eventlog.clock import Clock
from eventlog.events import Event
from eventlog.log.disk import OS_FILES, Files
from eventlog.log.index import IndexBuilder, IndexEntry
from eventlog.log.layout import HEADER_SIZE, BlockKind, pack_block
from eventlog.log.records import SegmentHeader, encode_latched, encode_record
from eventlog.log.segments import SegmentWriter
from eventlog.log.source import Block

__all__ = ["SEGMENT_BYTES", "Encoded", "LogWriter"]

logger = logging.getLogger("eventlog")

SEGMENT_BYTES = 128 * 1024 * 1024
BACKLOG_BYTES = 64 * 1024 * 1024
UNSYNCED_BYTES = 16 * 1024 * 1024
RETRY_NS = 1_000_000_000


class Encoded(NamedTuple):
    """A block that is to be written: what it holds, and its bytes but for the header."""

    block: Block
    payload: bytes
    last_time: int


class LogWriter:
    """The segments of one rank's log, as they are written.

    Write errors leave the segment: what could not be written waits in a bounded backlog and goes
    into a new segment once that can be made. So does a directory that is removed under the log,
    and what was written since the last sync where a sync fails: the kernel may have dropped it.

    Attributes:
        unsure: Whether a sync failed, and what it may have lost is to be written again.
        removed: Says whether somebody removed the directory; asked before a segment is made.
        moved: Called after the log had to make its directory again.
        rotated: Called when a segment was sealed and the next one begun.
        before_sync: Brings to the disk what the events name, before they are synced themselves.
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
        sparse: bool = False,
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
        self._sparse = sparse or msgspec.UNSET
        self._files = files
        self._segment: SegmentWriter | None = None
        self._segment_bytes = segment_bytes
        self._segment_attempt = attempt
        self._backlog: deque[Encoded] = deque()
        self._backlog_bytes = 0
        self._unsynced: deque[Encoded] = deque()
        self._unsynced_bytes = 0
        self._now = 0
        self._retry_at = 0
        self._strikes = 0
        self._first_segment = True
        self._rotating = False
        self._lock = threading.Lock()
        self._dirty = self._unnamed = False
        self._keeping = threading.Lock()
        self.unsure = False
        self._condemned: SegmentWriter | None = None
        self._index = IndexBuilder(0)
        self.latched: list[Event] = []
        self.written = 0
        self.written_end = 0
        self.synced_end = 0
        self.lost = 0
        self.degraded: str | None = None
        self.removed: Callable[[], bool] = lambda: not directory.exists()
        self.moved: Callable[[], None] | None = None
        self.rotated: Callable[[], None] | None = None
        self.before_sync: Callable[[], None] = lambda: None

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
        self._mend()
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
        self._mend()
        again = list(self._backlog)
        self._backlog.extend(encoded)
        self._backlog_bytes += sum(len(e.payload) for e in encoded)
        try:
            self._write_backlog(clock)
        except OSError:
            self.leave_segment()
            self._keep_unsynced([e for e in again if e.block.first >= self.written_end])
            raise
        finally:
            self._backlog.clear()
            self._backlog_bytes = 0

    def _write_backlog(self, clock: Clock) -> None:
        while self._backlog:
            self._leave_if_due(self._backlog[0].block.attempt)
            self._write_again()
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
            if self.degraded is not None and not self._backlog:
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
            self._index.add(
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
            with self._keeping:
                self._unsynced.append(encoded)
                self._unsynced_bytes += len(encoded.payload)
                while self._unsynced_bytes > UNSYNCED_BYTES:
                    self._unsynced_bytes -= len(self._unsynced.popleft().payload)

    def _leave_if_due(self, attempt: int) -> None:
        """Leave a segment that is full, or of another attempt, or that cannot be gone on with."""
        segment = self._segment
        if segment is None:
            return
        if segment is self._condemned:
            self.leave_segment(sync=False)
        elif (
            attempt != self._segment_attempt
            or segment.size >= self._segment_bytes
            or self._index.full
        ):
            self.leave_segment(seal=True)
            self._rotating = True

    def _segment_for(self, attempt: int, seq: int, clock: Clock) -> SegmentWriter:
        segment = self._segment
        if segment is None:
            header = SegmentHeader(
                uuid=os.urandom(16),
                attempt=attempt,
                base_seq=seq,
                mono=clock.monotonic_ns(),
                wall=clock.wall_ns(),
                latched=encode_latched(self.latched),
                sparse=self._sparse,
                **self._identity,  # type: ignore[arg-type]
            )
            made_again = not self._first_segment and self.removed()
            segment = SegmentWriter(
                self.directory, header, self._files, keep_old=self._first_segment
            )
            self._first_segment = False
            self._index = IndexBuilder(seq)
            with self._lock:
                self._segment = segment
            self._segment_attempt = attempt
            if made_again and self.moved is not None:
                self.moved()
            rotated, self._rotating = self._rotating, False
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
                named = self._sync_named()
                try:
                    segment.sync()
                except OSError as error:
                    logger.warning(
                        "eventlog: cannot sync %s (%s); what is not on the disk for certain is "
                        "written again, into a new file",
                        segment.path,
                        error,
                    )
                    # the kernel forgets the pages that it could not write: never ask it twice.
                    # Only the writer's thread closes it: another file could get its number
                    self._condemned = segment
                    self.unsure = True
                    self.degraded = str(error) or type(error).__name__
                    return
                if not named:
                    self._dirty = True
                    return
            self.synced_end = max(self.synced_end, end)
            with self._keeping:
                while self._unsynced and self._unsynced[0].block.end <= end:
                    self._unsynced_bytes -= len(self._unsynced.popleft().payload)

    def _sync_named(self) -> bool:
        try:
            self.before_sync()
        except OSError as error:
            if not self._unnamed:
                logger.warning("eventlog: cannot sync the blobs of %s: %s", self.directory, error)
            self._unnamed = True
            return False
        self._unnamed = False
        return True

    def _mend(self) -> None:
        """Leave a segment that cannot be gone on with, and have written again what it may lack."""
        if self._segment is not None and self._segment is self._condemned:
            self.leave_segment(sync=False)
        self._write_again()

    def _write_again(self) -> None:
        """Put what a failed sync may have lost before everything else that is to be written."""
        if not self.unsure:
            return
        self.unsure = False
        with self._keeping:
            first = self._unsynced[0].block.first if self._unsynced else self.written_end
            if first > self.synced_end:
                logger.warning(
                    "eventlog: %d events before these are more than is kept for that; they are in "
                    "the file that could not be synced",
                    first - self.synced_end,
                )
            while self._unsynced:
                encoded = self._unsynced.pop()
                self._backlog.appendleft(encoded)
                self._backlog_bytes += len(encoded.payload)
                self.written -= encoded.block.end - encoded.block.first
                self.written_end = encoded.block.first
            self._unsynced_bytes = 0

    def _keep_unsynced(self, blocks: Sequence[Encoded]) -> None:
        """Keep what was to be written again, and could not be, for the next try."""
        if blocks:
            with self._keeping:
                self._unsynced.extend(blocks)
                self._unsynced_bytes += sum(len(e.payload) for e in blocks)
            self.unsure = True

    def leave_segment(self, *, sync: bool = True, seal: bool = False) -> None:
        """End the segment; the next block starts another.

        Args:
            sync: Bring it to the disk first.
            seal: Write its index first, so that readers find their way in it at once.
        """
        ending = self._segment
        if seal and ending is not None and ending is not self._condemned:
            try:
                ending.append(self._index.seal(ending.size, ending.seed))
                self._dirty = True
            except OSError as error:
                # it is read without an index then, block by block
                logger.warning("eventlog: cannot seal %s: %s", ending.path, error)
        if sync:
            self.sync()
        with self._lock:
            segment, self._segment = self._segment, None
            if segment is not None:
                try:
                    segment.close()
                except OSError as error:
                    logger.warning("eventlog: cannot close %s: %s", segment.path, error)
