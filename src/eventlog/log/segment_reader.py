"""Reading one segment: blocks out of a file, past whatever is damaged, while it is still written.

A reader takes no lock and needs nobody's cooperation. A block counts once both of its checksums
hold; what follows the last such block is a *tail*, which may still become one.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from eventlog._paths import open_regular
from eventlog.events import Event
from eventlog.exceptions import CodecError
from eventlog.log.layout import (
    BLOCK_MAGIC,
    FILE_MAGIC,
    HEADER_SIZE,
    KNOWN_KINDS,
    MAX_PAYLOAD,
    MAX_SEQ,
    SKIPPABLE,
    BlockHeader,
    BlockKind,
    header_seed,
    parse_header,
)
from eventlog.log.records import SegmentHeader, decode_record, unpack

__all__ = [
    "Damage",
    "Scanned",
    "Segment",
    "block_fault",
    "has_remains",
    "is_sparse",
    "latched_events",
    "list_segments",
    "segment_path",
]

_SEARCH = 1 << 20
_WINDOW = 256 * 1024
_PEEK = 4096


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
    """Return (base seq, path) of a log's segments, in order: regular files, not links to any."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                stem, dot, suffix = entry.name.partition(".")
                if not dot or suffix != "elog" or len(stem) != 20:
                    continue
                # no writer gets further
                named = stem.isascii() and stem.isdigit() and int(stem) <= MAX_SEQ
                # a link may lead anywhere, and opening a pipe or a device may hang
                if named and entry.is_file(follow_symlinks=False):
                    found.append((int(stem), directory / entry.name))
    except FileNotFoundError:
        return []
    return sorted(found)


class Segment:
    """One segment, opened for reading.

    Attributes:
        header: From whichever of its two copies holds; None where neither does (yet).
        seed: Of the checksums of the blocks' headers.
        start: Where the blocks begin.
        damage: What of the beginning could not be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._window = b""
        self._window_at = 0
        self._payloads = False
        self._size = 0
        self.header: SegmentHeader | None = None
        self.seed = 0
        self.start = 0
        self._copy_ahead = False
        self.damage: Damage | None = None
        self._fd = open_regular(path)
        self._read_header()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    @property
    def size(self) -> int:
        self._size = os.fstat(self._fd).st_size
        return self._size

    @property
    def inode(self) -> int:
        return os.fstat(self._fd).st_ino

    def _read_header(self) -> None:
        at = len(FILE_MAGIC)
        found = self._header_at(at)
        if found is None:
            at = self._second_header()
            found = self._header_at(at) if at else None
            if found is None:
                return
            self.damage = Damage(self.path, 0, at, "a damaged beginning; the header's copy serves")
        elif self._pread(0, at) != FILE_MAGIC:
            self.damage = Damage(self.path, 0, at, "these are not the first bytes of a log")
        self.header, end = found
        self.seed = header_seed(self.header.uuid)
        self.start = end
        self._copy_ahead = at == len(FILE_MAGIC)
        self._pass_copy()

    def _pass_copy(self) -> bool:
        """Pass by the header's second copy, once it is there; False where it is half there."""
        if self._copy_ahead:
            head = parse_header(self._pread(self.start, HEADER_SIZE), 0)
            if head is None or head.kind != BlockKind.HEADER:
                return True
            if self.start + HEADER_SIZE + head.length > self.size:
                return False
            copy = self._header_at(self.start)
            if copy is not None:
                self.start = copy[1]
                self._copy_ahead = False
        return True

    def _header_at(self, offset: int) -> tuple[SegmentHeader, int] | None:
        """Return the HEADER block that lies at `offset`, and where it ends."""
        head = parse_header(self._pread(offset, HEADER_SIZE), 0)
        if head is None or head.kind != BlockKind.HEADER:
            return None
        block = Scanned(offset, head)
        payload = self.stored_payload(block)
        if payload is None:
            return None
        try:
            return decode_record(payload, SegmentHeader), block.end
        except CodecError:
            return None

    def _second_header(self) -> int:
        """Return where the second copy of the header lies; 0 where it is not to be found.

        It follows the first one and is as long: what lies elsewhere is part of somebody's data.
        """
        first = len(FILE_MAGIC) + HEADER_SIZE
        head = parse_header(self._pread(len(FILE_MAGIC), HEADER_SIZE), 0)
        if head is not None:
            return first + head.length
        chunk = self._pread(0, _SEARCH)
        hit = first - 1
        while (hit := chunk.find(BLOCK_MAGIC, hit + 1)) >= 0:
            head = parse_header(chunk[hit : hit + HEADER_SIZE], 0)
            if head is not None and hit == first + head.length:
                return hit
        return 0

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

    def _read(self, offset: int, length: int) -> bytes:
        """Read through a window: blocks may be as short as one event."""
        at = offset - self._window_at
        if at < 0 or at + length > len(self._window):
            ahead = _WINDOW if self._payloads else _PEEK
            self._window = os.pread(self._fd, max(length, ahead), offset)
            self._window_at = offset
            if len(self._window) < length:
                return self._pread(offset, length)
            at = 0
        return self._window[at : at + length]

    def block_at(self, offset: int) -> Scanned | None:
        """Return the block whose header is at `offset`, or None where none is (yet)."""
        header = parse_header(self._read(offset, HEADER_SIZE), self.seed)
        if header is None:
            # what is still being written is read anew
            self._window = b""
            return None
        return Scanned(offset, header)

    def stored_payload(self, block: Scanned) -> bytes | None:
        """Return the payload as stored, or None where it is not whole."""
        self._payloads = True
        data = self._read(block.offset + HEADER_SIZE, block.header.length)
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

    def prefix(self) -> bytes:
        """Return the bytes before the first block: the magic and the header."""
        return self._pread(0, self.start)

    def raw(self, block: Scanned) -> bytes:
        """Return a block as it is stored, header and payload."""
        return self._pread(block.offset, block.end - block.offset)

    def next_block(self, offset: int) -> Scanned | None:
        """Return the first header at or after `offset` that holds, searching byte by byte."""
        at = offset
        while True:
            chunk = self._pread(at, _SEARCH)
            start = 0
            while (hit := chunk.find(BLOCK_MAGIC, start)) >= 0:
                head = parse_header(self._pread(at + hit, HEADER_SIZE), self.seed)
                if head is not None:
                    return Scanned(at + hit, head)
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
        if self.damage is not None and damaged is not None and offset < self.start:
            damaged(self.damage)
        if offset <= self.start and not self._pass_copy():
            return
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
            if block.end > self._size and block.end > self.size:
                return
            yield block
            at = block.end


def block_fault(segment: Segment, scanned: Scanned) -> str | None:
    """Return why a block that holds no events cannot be used, in words; None when all is well."""
    kind = scanned.header.kind
    if kind not in KNOWN_KINDS:
        if kind & SKIPPABLE:
            return None
        return f"a block of unknown kind {kind}: written by a newer eventlog?"
    return "damaged payload" if segment.stored_payload(scanned) is None else None


def has_remains(path: Path) -> bool:
    """Whether a file holds more than the beginning of a segment: something that was not read."""
    try:
        segment = Segment(path)
    except OSError:
        return False
    try:
        at = segment.start
        for block in segment.scan():
            if block.header.kind == BlockKind.EVENTS:
                return True
            at = block.end
        return segment.size > at
    finally:
        segment.close()


def is_sparse(directory: Path) -> bool:
    """Whether a log leaves seqs out on purpose: it is a part of another one."""
    for _, path in list_segments(directory):
        try:
            segment = Segment(path)
        except FileNotFoundError:  # retired between the listing and now
            continue
        header = segment.header
        segment.close()
        if header is not None:
            return header.sparse is True
    return False


def latched_events(segment: Segment) -> list[Event]:
    """Return the state that a segment starts with; empty where it is damaged."""
    try:
        return segment.header.latched_events() if segment.header else []
    except CodecError:
        return []
