"""What the blocks hold that are not events: the segment's header, clock pairs and gaps."""

from __future__ import annotations

import zlib
from typing import TypeVar

import msgspec

from eventlog._weight import check_weight
from eventlog.codec import decode_events, encode_foreign
from eventlog.events import Event
from eventlog.exceptions import CodecError

__all__ = [
    "ClockPair",
    "Gap",
    "SegmentHeader",
    "decode_record",
    "encode_latched",
    "encode_record",
    "unpack",
]

FORMAT_VERSION = 1
_LATCHED_BYTES = 16 * 1024 * 1024

T = TypeVar("T", bound=msgspec.Struct)


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first block of a segment: enough to understand the segment by itself.

    Attributes:
        uuid: 16 bytes; seeds the header checksums of the blocks that follow.
        base_seq: The first seq that the segment can hold.
        attempt: Of all events in the segment; a rewind starts a new one.
        mono, wall: A pair of clock readings, ns.
        latched: Encoded events that say how the run stands: its `RunStarted` with the config of
            now, the last `ModelUpdateEvent`.
        sparse: Whether seqs are left out on purpose: a part of another log. Not written where
            they are not.
    """

    format: int = FORMAT_VERSION
    uuid: bytes
    run_id: str
    project: str = ""
    rank: int = 0
    attempt: int = 1
    base_seq: int = 0
    mono: int = 0
    wall: int = 0
    host: str = ""
    pid: int = 0
    writer: str = ""
    latched: bytes = b""
    sparse: bool | msgspec.UnsetType = msgspec.UNSET

    def latched_events(self) -> list[Event]:
        """Decode what is latched.

        Raises:
            CodecError: It is damaged, though its checksum holds.
        """
        return decode_events(self.latched) if self.latched else []


class ClockPair(msgspec.Struct, frozen=True, kw_only=True):
    """Both clocks, read together: written as a heartbeat, and when the wall clock was set."""

    mono: int
    wall: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were emitted but are not in the log.

    Attributes:
        dropped: How many, by reason, since the gap before; a reader adds up the gaps.
    """

    dropped: dict[str, int]


def encode_record(record: msgspec.Struct) -> bytes:
    """Encode a payload that is a map."""
    return msgspec.msgpack.encode(record)


def decode_record(payload: bytes, kind: type[T]) -> T:
    """Decode a payload that is a map.

    Raises:
        CodecError: It is something else.
    """
    check_weight(payload)
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except Exception as error:
        raise CodecError(f"not a {kind.__name__}: {error}") from None


def encode_latched(events: list[Event]) -> bytes:
    """Encode events for a segment's header; nothing when they are larger than a header may be."""
    latched = encode_foreign(events)
    return latched if len(latched) <= _LATCHED_BYTES else b""


def unpack(payload: bytes, codec: int, limit: int) -> bytes:
    """Undo a payload's codec, taking no more memory than `limit` bytes for the result.

    Raises:
        CodecError: The codec is unknown or not installed, the payload damaged or too large.
    """
    if codec == 0:
        return payload
    if codec == 1:
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(payload, limit)
        except zlib.error as error:
            raise CodecError(f"damaged zlib payload: {error}") from None
        if inflate.unconsumed_tail or not inflate.eof:
            raise CodecError(f"a payload that is cut, or larger than {limit} bytes when unpacked")
        if inflate.unused_data:
            raise CodecError("a zlib payload with something behind it")
        return data
    if codec == 2:
        try:
            import zstandard
        except ImportError:
            raise CodecError(
                "this log is compacted with zstd; install it: pip install zstandard"
            ) from None
        try:
            unpacker = zstandard.ZstdDecompressor().decompressobj()
            size = zstandard.frame_content_size(payload)
            if size > limit:
                raise CodecError(f"a payload larger than {limit} bytes when unpacked")
            if size < 0:
                # its size is not said: read no more than may be
                data = zstandard.ZstdDecompressor().stream_reader(payload).read(limit + 1)
            else:
                data = unpacker.decompress(payload)
        except zstandard.ZstdError as error:
            raise CodecError(f"damaged zstd payload: {error}") from None
        if len(data) > limit or (size >= 0 and len(data) != size):
            raise CodecError(f"a payload that is cut, or larger than {limit} bytes when unpacked")
        return data
    raise CodecError(f"unknown codec {codec}: written by a newer eventlog?")
