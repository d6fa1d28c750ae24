"""Sealed segments: the index at their end, compaction, and what may be thrown away."""

from __future__ import annotations

import bisect
import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from eventlog import _platform
from eventlog.codec import decode_events
from eventlog.exceptions import CodecError, LogError
from eventlog.log.files import Scanned, Segment, list_segments
from eventlog.log.layout import (
    HEADER_SIZE,
    NO_STEPS,
    BlockHeader,
    BlockKind,
    Codec,
    Content,
    pack_block,
    parse_header,
)

__all__ = [
    "Compacted",
    "IndexEntry",
    "SegmentIndex",
    "compact_log",
    "compact_segment",
    "read_index",
    "retire_segments",
    "seal_buffers",
]

_ENTRY = struct.Struct("<QQIqqqqH")
_FOOTER = struct.Struct("<QQQQQQqq")
FOOTER_SIZE = HEADER_SIZE + _FOOTER.size
_MERGED_BYTES = 256 * 1024


class IndexEntry(NamedTuple):
    """Where an EVENTS block is, and what is in it; as in its header."""

    offset: int
    first_seq: int
    events: int
    first_time: int
    last_time: int
    min_step: int
    max_step: int
    flags: int

    @classmethod
    def of(cls, offset: int, header: BlockHeader) -> IndexEntry:
        """Make the entry of a block."""
        return cls(
            offset,
            header.first_seq,
            header.events,
            header.first_time,
            header.last_time,
            header.min_step,
            header.max_step,
            header.flags,
        )


class SegmentIndex:
    """The index of a sealed segment.

    Attributes:
        entries: In the order of the log.
    """

    def __init__(self, entries: Sequence[IndexEntry]) -> None:
        self.entries = entries
        self._seqs = [entry.first_seq + entry.events for entry in entries]

    def offset_of(self, seq: int) -> int | None:
        """Return where the first block that ends after `seq` starts; None when there is none."""
        at = bisect.bisect_right(self._seqs, seq)
        return self.entries[at].offset if at < len(self.entries) else None


def seal_buffers(
    entries: Sequence[IndexEntry], base_seq: int, offset: int, seed: int
) -> list[bytes]:
    """Return what seals a segment: its INDEX and FOOTER blocks.

    Args:
        entries: One for each EVENTS block.
        base_seq: Of the segment.
        offset: Where these bytes will lie: the segment's length.
        seed: Of the segment's header checksums.
    """
    index = b"".join(_ENTRY.pack(*entry) for entry in entries)
    end = entries[-1].first_seq + entries[-1].events if entries else base_seq
    footer = _FOOTER.pack(
        offset,
        HEADER_SIZE + len(index),
        base_seq,
        end,
        sum(entry.events for entry in entries),
        len(entries),
        min((entry.first_time for entry in entries), default=0),
        max((entry.last_time for entry in entries), default=0),
    )
    return [
        pack_block(BlockKind.INDEX, index, seed=seed, count=len(entries), first_seq=base_seq),
        index,
        pack_block(BlockKind.FOOTER, footer, seed=seed, first_seq=end),
        footer,
    ]


def read_index(segment: Segment) -> SegmentIndex | None:
    """Return the index at the end of a segment; None where it is not sealed, or that is damaged."""
    size = segment.size
    if segment.header is None or size < FOOTER_SIZE:
        return None
    at = size - FOOTER_SIZE
    footer = segment.block_at(at)
    if footer is None or footer.header.kind != BlockKind.FOOTER or footer.end != size:
        return None
    payload = segment.stored_payload(footer)
    if payload is None or len(payload) != _FOOTER.size:
        return None
    offset = _FOOTER.unpack(payload)[0]
    index = segment.block_at(offset) if offset < at else None
    if index is None or index.header.kind != BlockKind.INDEX or index.end != at:
        return None
    stored = segment.stored_payload(index)
    if stored is None or len(stored) != index.header.events * _ENTRY.size:
        return None
    return SegmentIndex([IndexEntry(*fields) for fields in _ENTRY.iter_unpack(stored)])


class Compacted(NamedTuple):
    """What compaction made of a segment: bytes before and after; `skipped` says why not."""

    path: Path
    before: int
    after: int
    skipped: str | None = None


def compact_log(directory: Path, codec: str = "zlib") -> Iterator[Compacted]:
    """Compact all segments of a log that will not grow any more.

    Args:
        directory: Of a rank's log.
        codec: zlib, which every reader has, or zstd, which is denser and quicker.

    Raises:
        ValueError: The codec is unknown.
        LogError: It is not installed.
    """
    segments = list_segments(directory)
    alive = _platform.lock_is_held(directory / "lock")
    for number, (_, path) in enumerate(segments):
        if alive and number == len(segments) - 1:
            size = path.stat().st_size
            yield Compacted(path, size, size, "it is being written")
        else:
            yield compact_segment(path, codec)


def compact_segment(path: Path, codec: str = "zlib") -> Compacted:
    """Rewrite a segment with its blocks merged and compressed, in place of the old file.

    Whoever reads the old file goes on reading it. A damaged segment is left as it is: what could
    be read of it by other means must not go.

    Raises:
        ValueError: The codec is unknown.
        LogError: It is not installed.
        OSError: It cannot be written; the old file is untouched.
    """
    pack = _packer(codec)
    segment = Segment(path)
    try:
        before = segment.size
        blocks, problem = _whole_blocks(segment)
        if problem is not None:
            return Compacted(path, before, before, problem)
        if all(b.header.codec != Codec.NONE for b in blocks if b.header.kind == BlockKind.EVENTS):
            return Compacted(path, before, before, "it is compact already")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.compact")
        try:
            with temporary.open("xb") as file:
                file.write(segment.prefix())
                _rewrite(segment, blocks, pack, file)
                file.flush()
                os.fsync(file.fileno())
                after = file.tell()
            os.replace(temporary, path)
            _platform.sync_directory(path.parent)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        return Compacted(path, before, after)
    finally:
        segment.close()


def _packer(codec: str):  # type: ignore[no-untyped-def]
    if codec == "zlib":
        return lambda data: (Codec.ZLIB, zlib.compress(data, 6))
    if codec == "zstd":
        try:
            import zstandard
        except ImportError:
            raise LogError("zstd is not installed: pip install zstandard") from None
        compressor = zstandard.ZstdCompressor(level=9)
        return lambda data: (Codec.ZSTD, compressor.compress(data))
    raise ValueError(f"codec must be zlib or zstd, not {codec!r}")


def _whole_blocks(segment: Segment) -> tuple[list[Scanned], str | None]:
    """Return the blocks after the header, or why the segment is to be left alone."""
    if segment.header is None:
        return [], "its header cannot be read"
    damaged = False

    def note(_: object) -> None:
        nonlocal damaged
        damaged = True

    blocks = list(segment.scan(damaged=note))
    end = blocks[-1].end if blocks else segment.start
    whole = all(segment.stored_payload(block) is not None for block in blocks)
    if damaged or not whole or end != segment.size:
        return [], "it is damaged"
    return blocks, None


def _rewrite(segment: Segment, blocks: Sequence[Scanned], pack, file) -> None:  # type: ignore[no-untyped-def]
    entries: list[IndexEntry] = []
    waiting: _Merge | None = None

    def write(merge: _Merge) -> None:
        codec, stored = pack(merge.payload())
        if len(stored) >= merge.size:
            codec, stored = Codec.NONE, merge.payload()
        head = merge.pack(segment.seed, codec, stored)
        header = parse_header(head, segment.seed)
        assert header is not None  # noqa: S101 - it was just made
        entries.append(IndexEntry.of(file.tell(), header))
        file.write(head)
        file.write(stored)

    for block in blocks:
        if block.header.kind in (BlockKind.INDEX, BlockKind.FOOTER):
            continue
        if block.header.kind == BlockKind.EVENTS:
            part = _Merge(segment, block)
            if waiting is not None and waiting.takes(part):
                waiting.add(part)
            else:
                if waiting is not None:
                    write(waiting)
                waiting = part
            continue
        if waiting is not None:
            write(waiting)
            waiting = None
        file.write(segment.raw(block))
    if waiting is not None:
        write(waiting)
    assert segment.header is not None  # noqa: S101 - _whole_blocks() has looked
    for buffer in seal_buffers(entries, segment.header.base_seq, file.tell(), segment.seed):
        file.write(buffer)


class _Merge:
    """Consecutive EVENTS blocks that one block can hold: no gap, one offset between the clocks."""

    def __init__(self, segment: Segment, block: Scanned) -> None:
        payload = segment.payload(block)
        header = block.header
        self._header = header
        self._events = header.events
        self._items = [_strip(payload, header.events)]
        self._last_time = header.last_time
        self._steps = (header.min_step, header.max_step)
        self._flags = Content(header.flags)
        self._offset = header.first_time - decode_events(payload)[0].mono
        self.size = len(payload)

    def takes(self, other: _Merge) -> bool:
        return (
            other._header.first_seq == self._header.first_seq + self._events
            and other._offset == self._offset
            and self.size + other.size <= _MERGED_BYTES
        )

    def add(self, other: _Merge) -> None:
        ordered = Content.SORTED
        if not (self._flags & other._flags & ordered and self._steps[1] <= other._steps[0]):
            ordered = Content(0)
        self._flags = ((self._flags | other._flags) & ~Content.SORTED) | ordered
        self._events += other._events
        self._items += other._items
        self._last_time = max(self._last_time, other._last_time)
        low = min(self._steps[0], other._steps[0])
        high = max(self._steps[1], other._steps[1])
        self._steps = (low, high) if high >= 0 else NO_STEPS
        self.size += other.size

    def payload(self) -> bytes:
        return _array_head(self._events) + b"".join(self._items)

    def pack(self, seed: int, codec: int, stored: bytes) -> bytes:
        return pack_block(
            BlockKind.EVENTS,
            stored,
            seed=seed,
            codec=codec,
            flags=int(self._flags),
            count=self._events,
            first_seq=self._header.first_seq,
            first_time=self._header.first_time,
            last_time=self._last_time,
            steps=self._steps,
        )


def _array_head(n: int) -> bytes:
    """Return how a msgpack array of n items starts."""
    if n < 16:
        return bytes([0x90 | n])
    return b"\xdc" + n.to_bytes(2, "big") if n < 65536 else b"\xdd" + n.to_bytes(4, "big")


def _strip(payload: bytes, n: int) -> bytes:
    """Return the items of a msgpack array, as they are encoded."""
    for size, mark in ((1, None), (3, 0xDC), (5, 0xDD)):
        if mark is None:
            if payload[0] & 0xF0 == 0x90 and payload[0] & 0x0F == n:
                return payload[size:]
        elif payload[0] == mark and int.from_bytes(payload[1:size], "big") == n:
            return payload[size:]
    raise CodecError("a payload that is no array of as many events as its header says")


def retire_segments(directory: Path, floor: int, keep_bytes: int | None = None) -> list[Path]:
    """Remove the oldest segments: all that lie before a seq, or until the rest is small enough.

    Args:
        directory: Of a rank's log.
        floor: No event from this seq on goes: the smallest position of any sink.
        keep_bytes: What may stay; None removes everything below `floor`.

    Returns:
        What was removed. The newest segment always stays.
    """
    segments = list_segments(directory)
    sizes = [path.stat().st_size for _, path in segments]
    left = sum(sizes)
    removed: list[Path] = []
    for (_, path), (next_base, _), size in zip(segments, segments[1:], sizes, strict=False):
        if next_base > floor or (keep_bytes is not None and left <= keep_bytes):
            break
        path.unlink(missing_ok=True)
        removed.append(path)
        left -= size
    return removed
