"""The ends of files of rows: mended after a kill, compared with what comes again, cut."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["below", "last_row", "mend", "take_back"]

_BLOCK = 1 << 16


class _Columns(NamedTuple):
    """Where a file has what: DVCLive writes files without a timestamp, too."""

    timestamp: int | None
    step: int

    @classmethod
    def of(cls, header: bytes) -> _Columns:
        names = header.rstrip(b"\r\n").split(b"\t")
        step = names.index(b"step") if b"step" in names else 0
        return cls(names.index(b"timestamp") if b"timestamp" in names else None, step)


def mend(path: Path) -> None:
    """Cut off a last line without an end, which a killed process left.

    Raises:
        OSError: The file cannot be read or changed.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end:
            start = max(0, end - _BLOCK)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)


def last_row(path: Path) -> tuple[int | None, Any] | None:
    """Return the step and the value of the last row; None when there is none.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        header = file.readline()
        first = file.tell()
        size = file.seek(0, os.SEEK_END)
        window = _BLOCK
        while True:
            start = max(first, size - window)
            file.seek(start)
            lines = file.read().splitlines()
            if len(lines) > 1 or start == first:
                break
            window *= 16
    if not lines:
        return None
    cells = _cells(lines[-1])
    place = _Columns.of(header).step
    step = _integer(cells[place]) if len(cells) > place else None
    return step, _value(cells[-1])


def take_back(path: Path, milliseconds: int, step: str | None, value: str) -> None:
    """Cut a file before the row that is equal to the first one that comes, if there is one.

    Delivery gives events again in the log's order from some place on: the row at that place and
    all that follow it were written before, and come again.

    Args:
        path: The file, whose last line is whole.
        milliseconds, step, value: The row; a step of None is equal to any.

    Raises:
        OSError: The file cannot be read or changed.
    """
    with path.open("r+b") as file:
        header = file.readline()
        columns = _Columns.of(header)
        if columns.timestamp is None:
            return  # equal rows without a time need not be the same one
        first = file.tell()
        size = file.seek(0, os.SEEK_END)
        window = _BLOCK
        while True:
            start = max(first, size - window)
            file.seek(start)
            if start > first:
                start += len(file.readline())
            lines = file.read(size - start).splitlines(keepends=True)
            earliest = _time(lines[0], columns.timestamp) if lines else None
            if start <= first or (earliest is not None and earliest < milliseconds):
                break
            window *= 16
        for line in lines:
            if _time(line, columns.timestamp) == milliseconds:
                cells = line.rstrip(b"\r\n").decode("utf-8", "replace").split("\t", 2)
                if cells[2:] == [value] and step in (None, cells[1]):
                    file.truncate(start)
                    return
            start += len(line)


def below(path: Path, floor: int) -> tuple[bytes, int]:
    """Return a file's bytes without the rows whose step is `floor` or beyond, and their number.

    Raises:
        OSError: The file cannot be read.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    place = _Columns.of(lines[0]).step if lines else 0
    kept, cut = lines[:1], 0
    for line in lines[1:]:
        cells = line.split(b"\t", place + 1)
        step = _integer(cells[place].decode("utf-8", "replace")) if len(cells) > place else None
        if step is not None and step >= floor:
            cut += 1
        else:
            kept.append(line)
    return b"".join(kept), cut


def _time(line: bytes, place: int) -> int | None:
    cells = line.split(b"\t", place + 1)
    return _integer(cells[place].decode("utf-8", "replace")) if len(cells) > place else None


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8", "replace")
    return next(iter(csv.reader([text], delimiter="\t")), [text])


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _value(text: str) -> Any:
    whole = _integer(text)
    if whole is not None:
        return whole
    try:
        return float(text)
    except ValueError:
        return text
