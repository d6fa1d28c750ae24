"""Reading segments: blocks out of files, past whatever is damaged, while they are still written.

A reader takes no lock and needs nobody's cooperation. A block counts once both of its checksums
hold; what follows the last such block is a *tail*, which may still become one.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from eventlog.events import Event
from eventlog.exceptions import CodecError
from eventlog.log.layout import (
    BLOCK_MAGIC,
    FILE_MAGIC,
    HEADER_SIZE,
    MAX_PAYLOAD,
    BlockHeader,
    BlockKind,
    header_seed,
    parse_header,
)
from eventlog.log.records import SegmentHeader, decode_record, unpack
from eventlog.log.source import Block

__all__ = ["Damage", "FileReader", "Scanned", "Segment", "list_segments", "segment_path"]

_SEARCH = 1 << 20


class Damage(NamedTuple):
    """Bytes of a segment that are no block.

    Attributes:
        path: The segment.
        offset, length: Where, and how many bytes.
        reason: In words.
    """

    path: Path
    offset: int
    length: int
    reason: str


class Scanned(NamedTuple):
    """A block whose header holds: where it is, and how to get at its payload."""

    offset: int
    header: BlockHeader

    @property
    def end(self) -> int:
        return self.offset + HEADER_SIZE + self.header.length


def segment_path(directory: Path, base_seq: int) -> Path:
    """Return the name of the segment that starts at a seq."""
    return directory / f"{base_seq:020d}.elog"


def list_segments(directory: Path) -> list[tuple[int, Path]]:
    """Return (base seq, path) of a log's segments, in order."""
    found = []
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    for name in names:
        stem, dot, suffix = name.partition(".")
        if dot and suffix == "elog" and len(stem) == 20 and stem.isascii() and stem.isdigit():
            found.append((int(stem), directory / name))
    return sorted(found)


class Segment:
    """One segment, opened for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.header: SegmentHeader | None = None
        self.seed = 0
        self.start = 0
        self._read_header()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @property
    def inode(self) -> int:
        return os.fstat(self._fd).st_ino

    def _read_header(self) -> None:
        head = self._pread(0, len(FILE_MAGIC) + HEADER_SIZE)
        if head[: len(FILE_MAGIC)] != FILE_MAGIC:
            return
        block = parse_header(head[len(FILE_MAGIC) :], 0)
        if block is None or block.kind != BlockKind.HEADER:
            return
        payload = self._pread(len(FILE_MAGIC) + HEADER_SIZE, block.length)
        if len(payload) < block.length or zlib.crc32(payload) != block.crc:
            return
        try:
            header = decode_record(payload, SegmentHeader)
        except CodecError:
            return
        self.header = header
        self.seed = header_seed(header.uuid)
        self.start = len(FILE_MAGIC) + HEADER_SIZE + block.length

    def refresh(self) -> None:
        """Look again for a header that was not whole yet."""
        if self.header is None:
            self._read_header()

    def _pread(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def block_at(self, offset: int) -> Scanned | None:
        """Return the block whose header is at `offset`, or None where none is (yet)."""
        header = parse_header(self._pread(offset, HEADER_SIZE), self.seed)
        return None if header is None else Scanned(offset, header)

    def stored_payload(self, block: Scanned) -> bytes | None:
        """Return the payload as stored, or None where it is not whole."""
        data = self._pread(block.offset + HEADER_SIZE, block.header.length)
        if len(data) < block.header.length or zlib.crc32(data) != block.header.crc:
            return None
        return data

    def payload(self, block: Scanned) -> bytes:
        """Return the payload, unpacked.

        Raises:
            CodecError: Its checksum does not hold, or it cannot be unpacked.
        """
        data = self.stored_payload(block)
        if data is None:
            raise CodecError(f"damaged payload at byte {block.offset} of {self.path.name}")
        return unpack(data, block.header.codec, MAX_PAYLOAD)

    def next_block(self, offset: int) -> Scanned | None:
        """Return the first header at or after `offset` that holds, searching byte by byte."""
        at = offset
        while True:
            chunk = self._pread(at, _SEARCH)
            start = 0
            while (hit := chunk.find(BLOCK_MAGIC, start)) >= 0:
                block = self.block_at(at + hit)
                if block is not None:
                    return block
                start = hit + 1
            if len(chunk) < _SEARCH:
                return None
            at += _SEARCH - len(BLOCK_MAGIC) + 1

    def scan(
        self, offset: int = 0, damaged: Callable[[Damage], None] | None = None
    ) -> Iterator[Scanned]:
        """Yield the blocks from `offset` on whose headers hold, up to the tail.

        Args:
            offset: 0, or the end of a block.
            damaged: Told about bytes between blocks that are none. The tail is not: it may grow.
        """
        at = max(offset, self.start)
        while True:
            block = self.block_at(at)
            if block is None:
                if self.size - at < HEADER_SIZE:
                    return
                block = self.next_block(at)
                if block is None:
                    return
                if damaged is not None:
                    damaged(Damage(self.path, at, block.offset - at, "no block starts here"))
            if block.end > self.size:
                return
            yield block
            at = block.end


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
        self.damage: list[Damage] = []

    def read(self, seq: int) -> Block | None:
        if (self._segment is None or seq < self._next_seq) and not self._seek(seq):
            return None
        while True:
            block = self._read_here(seq)
            if block is not None:
                return block
            if not self._advance():
                return None

    def _seek(self, seq: int) -> bool:
        self._segments = list_segments(self._directory)
        index = 0
        for i, (base, _) in enumerate(self._segments):
            if base <= seq:
                index = i
        return self._open(index, seq)

    def _open(self, index: int, seq: int) -> bool:
        if index >= len(self._segments):
            return False
        base, path = self._segments[index]
        if self._segment is not None:
            self._segment.close()
        try:
            self._segment = Segment(path)
        except FileNotFoundError:  # retired between the listing and now
            self._segment = None
            return False
        self._index = index
        self._offset = 0
        self._next_seq = base
        return True

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
        if self._index + 1 >= len(self._segments):
            return self._replaced(self._segment)
        # a writer never returns to a segment once there is a later one, so what has not become
        # a block by now never will
        segment = self._segment
        again = self._read_tail(segment)
        if again:
            return True
        if (left := segment.size - max(self._offset, segment.start)) > 0:
            self._note(Damage(segment.path, self._offset, left, "a tail that is no block"))
        return self._open(self._index + 1, self._next_seq)

    def _replaced(self, segment: Segment) -> bool:
        """Open the segment again where another file has taken its name.

        A writer that starts again where its predecessor died before its first event does that.
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
        return next(iter(segment.scan(self._offset)), None) is not None

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
            if header.kind != BlockKind.EVENTS or header.first_seq + header.events <= seq:
                self._offset = scanned.end
                self._next_seq = max(self._next_seq, header.first_seq + header.events)
                continue
            events = self._load(segment, scanned)
            self._offset = scanned.end
            self._next_seq = header.first_seq + header.events
            if events is not None:
                return events
        return None

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
        segment = Segment(path)
        try:
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


def latched_events(segment: Segment) -> list[Event]:
    """Return the state that a segment starts with; empty where it is damaged."""
    try:
        return segment.header.latched_events() if segment.header else []
    except CodecError:
        return []
