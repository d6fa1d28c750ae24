"""Reading a log's segments, one after the other, while they are written, retired and compacted."""

from __future__ import annotations

import os
from pathlib import Path

from eventlog.exceptions import CodecError
from eventlog.log.index import IndexEntry, read_footer, read_index
from eventlog.log.layout import BlockKind
from eventlog.log.segment_reader import Damage, Scanned, Segment, block_fault, list_segments
from eventlog.log.source import Block

__all__ = ["FileReader", "last_valid_seq"]


class FileReader:
    """A place in the log of one rank on disk; see `eventlog.log.source.Reader`.

    Attributes:
        damage: What could not be read so far.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: list[tuple[int, Path]] = []
        self._segment: Segment | None = None
        self._index = -1
        self._offset = 0
        self._next_seq = 0
        self._at_end = False
        self.damage: list[Damage] = []

    def read(self, seq: int) -> Block | None:
        if (self._segment is None or seq < self._next_seq) and not self._seek(seq):
            return None
        while True:
            block = self._read_here(seq)
            if block is not None:
                self._at_end = False
                return block
            if not self._advance():
                self._at_end = True
                return None

    def _seek(self, seq: int) -> bool:
        self._segments = list_segments(self._directory)
        index = 0
        for i, (base, _) in enumerate(self._segments):
            if base <= seq:
                index = i
        return self._open(index, seq)

    def _open(self, index: int, seq: int) -> bool:
        """Open a segment, or the first one after it that is still there, and go to a seq in it."""
        for number in range(index, len(self._segments)):
            base, path = self._segments[number]
            if self._segment is not None:
                self._segment.close()
            try:
                self._segment = Segment(path)
            except FileNotFoundError:  # retired between the listing and now
                self._segment = None
                continue
            self._index = number
            self._offset = 0
            self._next_seq = base
            if seq > base:
                self._go_to(self._segment, seq)
            return True
        return False

    def _go_to(self, segment: Segment, seq: int) -> None:
        """Pass by what ends before `seq`, where an index that holds says where that is."""
        index = read_index(segment)
        if index is None:
            return
        entry = index.find(seq)
        if entry is None:
            self._offset = index.offset
            self._next_seq = seq
            return
        block = segment.block_at(entry.offset)
        if block is not None and IndexEntry.of(entry.offset, block.header) == entry:
            self._offset = entry.offset
            self._next_seq = min(seq, entry.first_seq)

    def _advance(self) -> bool:
        """Go on to the segment after this one, once this one will not grow any more."""
        if self._segment is None:
            return False
        if self._index + 1 >= len(self._segments):
            self._segments = list_segments(self._directory)
            bases = [base for base, _ in self._segments]
            current = self._segment.path
            self._index = next(
                (i for i, (_, path) in enumerate(self._segments) if path == current),
                sum(1 for base in bases if base < self._next_seq) - 1,
            )
        if self._replaced(self._segment):
            return True
        if self._index + 1 >= len(self._segments):
            return False
        # a writer never returns to a segment once there is a later one, so what has not become
        # a block by now never will
        segment = self._segment
        if self._read_tail(segment):
            return True
        if (tail := self.tail()) is not None:
            self._note(tail)
        return self._open(self._index + 1, self._next_seq)

    def _replaced(self, segment: Segment) -> bool:
        """Open the segment again where another file has taken its name.

        A writer that starts again where its predecessor died before its first event does that, and
        so does compaction.
        """
        if self._index < 0 or self._segments[self._index][1] != segment.path:
            return False
        try:
            same = os.stat(segment.path).st_ino == segment.inode
        except FileNotFoundError:
            return False
        return not same and self._open(self._index, self._next_seq)

    def _read_tail(self, segment: Segment) -> bool:
        """Whether a block has appeared at the end of the segment since the last look."""
        segment.refresh()
        return segment.header is not None and next(segment.scan(self._offset), None) is not None

    def tail(self) -> Damage | None:
        """Return what follows the last block of the segment that is being read, if anything."""
        segment = self._segment
        if segment is None:
            return None
        at = max(self._offset, segment.start)
        left = segment.size - at
        if left <= 0:
            return None
        reason = "a tail that is no block" if segment.header else "no header can be read"
        return Damage(segment.path, at, left, reason)

    @property
    def at_end(self) -> bool:
        """Whether the last look found nothing more to read."""
        return self._at_end

    def _note(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)

    def _read_here(self, seq: int) -> Block | None:
        segment = self._segment
        assert segment is not None  # noqa: S101 - read() has opened one
        segment.refresh()
        if segment.header is None:
            return None
        for scanned in segment.scan(self._offset, self._note):
            header = scanned.header
            if header.kind != BlockKind.EVENTS:
                self._look_at(segment, scanned)
                self._offset = scanned.end
                continue
            if header.first_seq + header.events <= seq:
                self._offset = scanned.end
                self._next_seq = max(self._next_seq, header.first_seq + header.events)
                continue
            events = self._load(segment, scanned)
            self._offset = scanned.end
            self._next_seq = header.first_seq + header.events
            if events is not None:
                return events
        return None

    def _look_at(self, segment: Segment, scanned: Scanned) -> None:
        """Note what is wrong with a block that holds no events."""
        reason = block_fault(segment, scanned)
        if reason is not None:
            length = scanned.end - scanned.offset
            self._note(Damage(segment.path, scanned.offset, length, reason))

    def _load(self, segment: Segment, scanned: Scanned) -> Block | None:
        """Check a block's payload now: who is given a block can rely on it."""
        assert segment.header is not None  # noqa: S101 - scan() yields nothing without it
        try:
            payload = segment.payload(scanned)
        except CodecError as error:
            length = scanned.end - scanned.offset
            self._note(Damage(segment.path, scanned.offset, length, str(error)))
            return None
        return Block.stored(scanned.header, segment.header.attempt, lambda: payload)


def last_valid_seq(directory: Path) -> int:
    """Return the seq after the last event that can be read from a log; 0 for an empty one."""
    for base, path in reversed(list_segments(directory)):
        try:
            segment = Segment(path)
        except FileNotFoundError:  # retired between the listing and now
            continue
        try:
            footer = read_footer(segment)
            if footer is not None and footer.events:
                return footer.end
            ends = [
                b.header.first_seq + b.header.events
                for b in segment.scan()
                if b.header.kind == BlockKind.EVENTS
            ]
        finally:
            segment.close()
        if ends:
            return max(ends)
        if base:
            return base
    return 0
