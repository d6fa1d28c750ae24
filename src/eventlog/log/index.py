"""What ends a sealed segment: an INDEX of its EVENTS blocks, and the FOOTER that says where it is.

Both only spare going through all headers. What they say is taken as a hint: a reader looks at the
block's own header before it believes it, and goes through all headers where they are missing,
damaged or wrong.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from typing import NamedTuple

from eventlog.log.layout import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    MAX_SEQ,
    BlockHeader,
    BlockKind,
    pack_block,
)
from eventlog.log.segment_reader import Scanned, Segment

__all__ = [
    "FOOTER_SIZE",
    "Footer",
    "IndexBuilder",
    "IndexEntry",
    "SegmentIndex",
    "read_footer",
    "read_index",
]

_ENTRY = struct.Struct("<QQIqqqqH")
_FOOTER = struct.Struct("<QQQQQQqq")
FOOTER_SIZE = HEADER_SIZE + _FOOTER.size


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


class Footer(NamedTuple):
    """The FOOTER's payload.

    Attributes:
        offset, length: Of the INDEX block with its header.
        base_seq, end: The first seq that the segment can hold, and the one after its last event.
        events, blocks: How many it holds.
        first_time, last_time: The smallest time that a block starts at, and the latest of all.
    """

    offset: int
    length: int
    base_seq: int
    end: int
    events: int
    blocks: int
    first_time: int
    last_time: int


class IndexBuilder:
    """The index of a segment that is being written; 54 bytes for each block.

    Args:
        base_seq: Of the segment.
    """

    def __init__(self, base_seq: int) -> None:
        self._base_seq = base_seq
        self._data = bytearray()
        self._end = base_seq
        self._events = 0
        self._first_time: int | None = None
        self._last_time: int | None = None

    def add(self, entry: IndexEntry) -> None:
        """Add the next EVENTS block."""
        self._data += _ENTRY.pack(*entry)
        self._end = entry.first_seq + entry.events
        self._events += entry.events
        first, last = self._first_time, self._last_time
        self._first_time = entry.first_time if first is None else min(first, entry.first_time)
        self._last_time = entry.last_time if last is None else max(last, entry.last_time)

    @property
    def full(self) -> bool:
        """Whether a block can hold no larger index."""
        return len(self._data) + _ENTRY.size > MAX_PAYLOAD

    def seal(self, offset: int, seed: int) -> list[bytes]:
        """Return the INDEX and FOOTER blocks; nothing where the index is too large for a block.

        Args:
            offset: Where these bytes will lie: the segment's length.
            seed: Of the segment's header checksums.
        """
        index = bytes(self._data)
        if len(index) > MAX_PAYLOAD:
            return []
        count = len(index) // _ENTRY.size
        footer = _FOOTER.pack(
            offset,
            HEADER_SIZE + len(index),
            self._base_seq,
            self._end,
            self._events,
            count,
            self._first_time or 0,
            self._last_time or 0,
        )
        base = self._base_seq
        return [
            pack_block(BlockKind.INDEX, index, seed=seed, count=count, first_seq=base),
            index,
            pack_block(BlockKind.FOOTER, footer, seed=seed, first_seq=self._end),
            footer,
        ]


class SegmentIndex:
    """The index of a sealed segment; its entries are unpacked when they are asked for.

    Attributes:
        offset: Where it lies in the file: behind all blocks with events.
    """

    def __init__(self, stored: bytes, offset: int) -> None:
        self._stored = stored
        self.offset = offset

    def __len__(self) -> int:
        return len(self._stored) // _ENTRY.size

    def __getitem__(self, number: int) -> IndexEntry:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return IndexEntry(*_ENTRY.unpack_from(self._stored, number * _ENTRY.size))

    def __iter__(self) -> Iterator[IndexEntry]:
        return map(IndexEntry._make, _ENTRY.iter_unpack(self._stored))

    def find(self, seq: int) -> IndexEntry | None:
        """Return the first block that ends after `seq`; None when there is none."""

        def end_of(number: int) -> int:
            entry = self[number]
            return entry.first_seq + entry.events

        at = bisect.bisect_right(range(len(self)), seq, key=end_of)
        return self[at] if at < len(self) else None


def read_footer(segment: Segment) -> Footer | None:
    """Return what a sealed segment's footer says; None where it has none, or a damaged one."""
    size = segment.size
    if segment.header is None or size < FOOTER_SIZE:
        return None
    block = segment.block_at(size - FOOTER_SIZE)
    if block is None or block.header.kind != BlockKind.FOOTER or block.end != size:
        return None
    payload = segment.stored_payload(block)
    if payload is None or len(payload) != _FOOTER.size:
        return None
    footer = Footer._make(_FOOTER.unpack(payload))
    return footer if footer.base_seq <= footer.end <= MAX_SEQ else None


def read_index(segment: Segment) -> SegmentIndex | None:
    """Return the index at the end of a segment; None where it is not sealed, or that is damaged."""
    footer = read_footer(segment)
    if footer is None:
        return None
    index = _index_block(segment, footer)
    stored = None if index is None else segment.stored_payload(index)
    if stored is None or len(stored) != footer.blocks * _ENTRY.size:
        return None
    return SegmentIndex(stored, footer.offset)


def _index_block(segment: Segment, footer: Footer) -> Scanned | None:
    if footer.offset + footer.length + FOOTER_SIZE != segment.size:
        return None
    block = segment.block_at(footer.offset)
    if block is None or block.header.kind != BlockKind.INDEX:
        return None
    return block if block.end == footer.offset + footer.length else None
