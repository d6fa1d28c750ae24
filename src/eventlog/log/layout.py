"""The bytes of a log: blocks of a 64-byte header and a payload. See docs/log-format.md.

Nothing here opens a file. A header is checked before anything that it says is believed, and its
checksum is seeded with the file's uuid, so that a log embedded in another log's payload is never
taken for real blocks.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum, IntFlag
from typing import NamedTuple

from eventlog.events import (
    ArtifactEvent,
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    FigureEvent,
    Flushed,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    SummaryUpdated,
    TableEvent,
    TextEvent,
)

__all__ = [
    "FILE_MAGIC",
    "HEADER_SIZE",
    "KNOWN_KINDS",
    "MAX_EVENTS",
    "MAX_PAYLOAD",
    "MAX_SEQ",
    "NO_STEPS",
    "SKIPPABLE",
    "BlockHeader",
    "BlockKind",
    "Codec",
    "Content",
    "content_of",
    "header_seed",
    "pack_block",
    "parse_header",
]

FILE_MAGIC = b"\x89ELOG\r\n\x1a"
BLOCK_MAGIC = b"ELB1"
HEADER_SIZE = 64
MAX_PAYLOAD = 64 * 1024 * 1024
MAX_EVENTS = 2**20
"""Most events of a block; a writer makes blocks of 64 KiB, or of one event."""

MAX_SEQ = 2**63 - 1
MAX_STEP = 2**63 - 1
NO_STEPS = (MAX_STEP, -1)
"""min and max step of a block in which no event has a step: an empty range."""

_HEADER = struct.Struct("<4sBBHIIQqqqqI")
_CRC = struct.Struct("<I")


class BlockKind(IntEnum):
    """What a block's payload is; with bit 7 set, a reader that does not know it skips it."""

    EVENTS = 1
    HEADER = 2
    SCHEMA = 3
    INDEX = 4
    FOOTER = 5
    GAP = 6
    CLOCK = 7


class Codec(IntEnum):
    """How a payload is stored."""

    NONE = 0
    ZLIB = 1
    ZSTD = 2


class Content(IntFlag):
    """Which events an EVENTS block holds: its flags, so that readers can skip it unread."""

    STEP = 1
    BATCH = 2
    EPOCH = 4
    MODEL = 8
    RUN = 16
    MEDIA = 32
    OTHER = 64
    NAMED_AXIS = 128
    NO_STEP = 256
    SORTED = 512
    """No event has a smaller step than the one before it."""


KNOWN_KINDS = frozenset(BlockKind)
SKIPPABLE = 0x80
"""The bit of a kind that lets a reader that does not know it pass it by."""


_CONTENT: dict[type[Event], Content] = {
    StepEvent: Content.STEP,
    BatchEvent: Content.BATCH,
    EpochEvent: Content.EPOCH,
    ModelUpdateEvent: Content.MODEL,
    **dict.fromkeys(
        (RunStarted, RunFinished, ConfigUpdated, SummaryUpdated, Rewound, Flushed), Content.RUN
    ),
    **dict.fromkeys(
        (ImageEvent, FigureEvent, HistogramEvent, TextEvent, TableEvent, ArtifactEvent),
        Content.MEDIA,
    ),
}


def content_of(kind: type[Event]) -> Content:
    """Return the flag of an event type."""
    return _CONTENT.get(kind, Content.OTHER)


class BlockHeader(NamedTuple):
    """A block's header, checked.

    Attributes:
        length: Bytes of the payload as stored.
        events: How many are in it.
        first_seq: seq of the first one; the others follow without gaps.
        first_time: Wall time of the first event, ns; its difference to that event's `mono` holds
            for the whole block.
        last_time: The latest wall time in the block, ns.
        min_step, max_step: Over the events that have a step; `NO_STEPS` when none has.
        crc: Of the stored payload.
    """

    kind: int
    codec: int
    flags: int
    length: int
    events: int
    first_seq: int
    first_time: int
    last_time: int
    min_step: int
    max_step: int
    crc: int


def header_seed(uuid: bytes) -> int:
    """Return the seed of the header checksums in the file with that uuid."""
    return zlib.crc32(uuid)


def pack_block(
    kind: int,
    payload: bytes,
    *,
    seed: int,
    codec: int = Codec.NONE,
    flags: int = 0,
    count: int = 0,
    first_seq: int = 0,
    first_time: int = 0,
    last_time: int = 0,
    steps: tuple[int, int] = NO_STEPS,
) -> bytes:
    """Return a block's header for a payload that follows it.

    Raises:
        ValueError: The payload is too long for a block.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a payload must have at most {MAX_PAYLOAD} bytes, not {len(payload)}")
    head = _HEADER.pack(
        BLOCK_MAGIC,
        kind,
        codec,
        flags,
        len(payload),
        count,
        first_seq,
        first_time,
        last_time,
        steps[0],
        steps[1],
        zlib.crc32(payload),
    )
    return head + _CRC.pack(zlib.crc32(head, seed))


def parse_header(data: bytes | memoryview, seed: int) -> BlockHeader | None:
    """Return the header in the first 64 bytes of `data`, or None where that is no header."""
    if len(data) < HEADER_SIZE or data[:4] != BLOCK_MAGIC:
        return None
    if _CRC.unpack_from(data, 60)[0] != zlib.crc32(data[:60], seed):
        return None
    fields = _HEADER.unpack_from(data)
    header = BlockHeader(*fields[1:])
    if header.length > MAX_PAYLOAD or header.first_seq + header.events > MAX_SEQ:
        return None
    return header if header.events <= MAX_EVENTS or header.kind != BlockKind.EVENTS else None
