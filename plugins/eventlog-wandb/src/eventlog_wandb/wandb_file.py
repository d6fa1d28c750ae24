"""The end of a run's ``.wandb`` file: what of a run is on the disk.

The file is a log in LevelDB's framing after a header of 7 bytes: blocks of 32 KiB, each starting
with a record or a part of one. So its end is readable without its beginning.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["MARK", "Mark", "history_marks", "last_mark", "records", "summary_has"]

MARK = "_eventlog"
"""The key under which each row says which event it shows: ``attempt:seq``."""

_BLOCK = 32 * 1024
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = [zlib.crc32(bytes([kind])) for kind in range(5)]


class Mark(NamedTuple):
    """What a row of the history says: its event, and its number in the history."""

    attempt: int
    seq: int
    row: int


def records(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield the whole records of a file, from a block on, up to where it is torn.

    Args:
        path: The file.
        start: A multiple of the block's size; 0 for the beginning.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    at, parts = (_HEADER if start == 0 else 0), []
    while at + 7 <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < 7:
            at += left
            continue
        crc, size, kind = struct.unpack_from("<IHB", data, at)
        body = data[at + 7 : at + 7 + size]
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or len(body) < size:
            return
        if zlib.crc32(body, _SEEDS[kind]) & 0xFFFFFFFF != crc:
            return
        at += 7 + size
        if kind in (_FULL, _FIRST):
            parts = [body]
        elif parts:
            parts.append(body)
        if kind in (_FULL, _LAST) and parts:
            yield b"".join(parts)
            parts = []


def last_mark(path: Path) -> Mark | None:
    """Return what the last row with a mark says that is whole on the disk."""
    for start in _starts(path):
        marks = list(history_marks(path, start))
        if marks:
            return marks[-1]
    return None


def history_marks(path: Path, start: int = 0) -> Iterator[Mark]:
    """Yield what the rows of a file say."""
    for record in _marked(path, start):
        if not record.HasField("history"):
            continue
        mark = _value(record.history.item, MARK)
        parts = str(mark).split(":")
        row = _value(record.history.item, "_step")
        if len(parts) == 2 and all(part.isdecimal() for part in parts):
            yield Mark(int(parts[0]), int(parts[1]), int(row or 0))


def summary_has(path: Path, value: str) -> bool:
    """Whether the run's summary got that mark, near the end of the file."""
    for start in _starts(path):
        seen = False
        for record in _marked(path, start):
            seen = True
            items = record.summary.update if record.HasField("summary") else ()
            if _value(items, MARK) == value:
                return True
        if seen:
            return False
    return False


def _starts(path: Path) -> Iterator[int]:
    """Yield blocks to start at, further and further from the end."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    blocks = 2
    while True:
        start = max(0, (size // _BLOCK - blocks + 1) * _BLOCK)
        yield start
        if start == 0:
            return
        blocks *= 4


def _marked(path: Path, start: int) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    parse = vars(wandb_internal_pb2)["Record"].FromString  # made when the module is imported
    needle = MARK.encode()
    for data in records(path, start):
        if needle in data:
            yield parse(data)


def _value(items: Any, key: str) -> Any:
    for item in items:
        if item.key == key or list(item.nested_key) == [key]:
            return json.loads(item.value_json)
    return None
