"""Sealed segments: compaction, and what may be thrown away."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from eventlog import _platform
from eventlog.codec import decode_events
from eventlog.exceptions import CodecError, LogError
from eventlog.log.index import IndexBuilder, IndexEntry
from eventlog.log.layout import (
    NO_STEPS,
    BlockKind,
    Codec,
    Content,
    pack_block,
    parse_header,
)
from eventlog.log.segment_reader import Scanned, Segment, list_segments

__all__ = ["Compacted", "compact_log", "compact_segment", "retire_segments"]

_MERGED_BYTES = 256 * 1024
COMPACT_LOCK = "compact.lock"
_TEMPORARY = re.compile(r"^\.\d{20}\.elog\.\d+-[0-9a-f]+\.compact$")
_Pack: TypeAlias = Callable[[bytes], tuple[Codec, bytes]]


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
        LogError: It is not installed, or the log is being compacted already.
        OSError: A segment cannot be written; it is as it was, and those before it are compact.
    """
    _packer(codec)
    lock = _platform.FileLock(directory / COMPACT_LOCK)
    if not lock.acquire():
        raise LogError(f"{directory} is being compacted by another process")
    try:
        _remove_leftovers(directory)
        segments = list_segments(directory)
        # a writer that comes later begins a segment of its own
        alive = _platform.lock_is_held(directory / "lock")
        for number, (_, path) in enumerate(segments):
            # retired meanwhile
            with contextlib.suppress(FileNotFoundError):
                if alive and number == len(segments) - 1:
                    size = path.stat().st_size
                    yield Compacted(path, size, size, "it is being written")
                else:
                    yield compact_segment(path, codec)
    finally:
        lock.release()


def _remove_leftovers(directory: Path) -> None:
    """Remove what a compaction that was killed had not finished."""
    for path in directory.iterdir():
        if _TEMPORARY.match(path.name):
            path.unlink(missing_ok=True)


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
        codecs = {b.header.codec for b in blocks if b.header.kind == BlockKind.EVENTS}
        if not codecs:
            return Compacted(path, before, before, "it holds no events")
        if codecs != {Codec.NONE}:
            return Compacted(path, before, before, "it is compact already")
        unique = f"{os.getpid()}-{os.urandom(4).hex()}"
        temporary = path.with_name(f".{path.name}.{unique}.compact")
        try:
            with temporary.open("xb") as file:
                file.write(segment.prefix())
                _rewrite(segment, blocks, pack, file)
                file.flush()
                os.fsync(file.fileno())
                after = file.tell()
            os.replace(temporary, path)
            _platform.sync_directory(path.parent)
        except CodecError as error:
            return Compacted(path, before, before, f"it is damaged: {error}")
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        return Compacted(path, before, after)
    finally:
        segment.close()


def _packer(codec: str) -> _Pack:
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


def _rewrite(segment: Segment, blocks: Sequence[Scanned], pack: _Pack, file: BinaryIO) -> None:
    assert segment.header is not None  # noqa: S101 - _whole_blocks() has looked
    index = IndexBuilder(segment.header.base_seq)
    waiting: _Merge | None = None

    def write(merge: _Merge) -> None:
        codec, stored = pack(merge.payload())
        if len(stored) >= merge.size:
            codec, stored = Codec.NONE, merge.payload()
        head = merge.pack(segment.seed, codec, stored)
        header = parse_header(head, segment.seed)
        assert header is not None  # noqa: S101 - it was just made
        index.add(IndexEntry.of(file.tell(), header))
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
    file.writelines(index.seal(file.tell(), segment.seed))


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
        events = decode_events(payload)
        if not events or len(events) != header.events:
            raise CodecError(f"{len(events)} events in a block of {header.events}")
        self._offset = header.first_time - events[0].mono
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
            if n < 16 and payload[:1] == bytes([0x90 | n]):
                return payload[size:]
        elif payload[:1] == bytes([mark]) and int.from_bytes(payload[1:size], "big") == n:
            return payload[size:]
    raise CodecError("a payload that is no array of as many events as its header says")


def retire_segments(directory: Path, floor: int, keep_bytes: int | None = None) -> list[Path]:
    """Remove the oldest segments: all that lie before a seq, or until the rest is small enough.

    Args:
        directory: Of a rank's log.
        floor: No event from this seq on goes: the smallest position of any sink.
        keep_bytes: What may stay; None removes everything below `floor`.

    Returns:
        What was removed; nothing while the log is being compacted. The newest segment stays.
    """
    # a compaction would bring back under its name what is removed meanwhile
    lock = _platform.FileLock(directory / COMPACT_LOCK)
    if not lock.acquire():
        return []
    try:
        return _retire(directory, floor, keep_bytes)
    finally:
        lock.release()


def _retire(directory: Path, floor: int, keep_bytes: int | None) -> list[Path]:
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
