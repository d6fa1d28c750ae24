"""Files for tables that are written some rows at a time: JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from eventlog._export import Columns
from eventlog.exceptions import EventlogError

__all__ = ["FORMATS", "TableFile", "open_table"]

_WHOLE = ("seq", "wall", "step", "batch", "rank", "attempt")


class TableFile(Protocol):
    """A table on its way to the disk."""

    def write(self, columns: Columns) -> None:
        """Append rows; the columns are those that the table was opened with, equally long."""
        ...

    def close(self) -> None:
        """End the file."""
        ...


class _JsonLines:
    """An object a row. NaN and infinities are Python's literals, what is not there is null."""

    def __init__(self, path: Path, texts: dict[str, bool]) -> None:
        self._file = path.open("wb")
        # msgspec is ten times as fast, but it makes NaN null
        self._quick = msgspec.json.Encoder()
        self._exact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

    def write(self, columns: Columns) -> None:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if not any(map(_has_nonfinite, columns.values())):
            self._file.write(self._quick.encode_lines(rows))
            return
        self._file.write("".join(f"{self._exact.encode(row)}\n" for row in rows).encode())

    def close(self) -> None:
        self._file.close()


def _has_nonfinite(column: list[Any]) -> bool:
    return any(isinstance(value, float) and not math.isfinite(value) for value in column)


class _Csv:
    """A line a row, below a heading. What is not there is empty; NaN is nan."""

    def __init__(self, path: Path, texts: dict[str, bool]) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(texts)

    def write(self, columns: Columns) -> None:
        self._writer.writerows(zip(*columns.values(), strict=True))

    def close(self) -> None:
        self._file.close()


class _Parquet:
    """A row group for each call. NaN is NaN, what is not there is null."""

    def __init__(self, path: Path, texts: dict[str, bool]) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise EventlogError(
                'a Parquet file needs pyarrow: pip install "eventlog-bus[parquet]"'
            ) from None
        number, text = pyarrow.float64(), pyarrow.string()
        kinds = {name: pyarrow.int64() for name in _WHOLE}
        self._table = pyarrow.table
        self._schema = pyarrow.schema(
            [
                (name, text if is_text else kinds.get(name, number))
                for name, is_text in texts.items()
            ]
        )
        self._writer = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, columns: Columns) -> None:
        self._writer.write_table(self._table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


FORMATS: dict[str, Callable[[Path, dict[str, bool]], TableFile]] = {
    ".jsonl": _JsonLines,
    ".csv": _Csv,
    ".parquet": _Parquet,
}


@contextmanager
def open_table(path: Path, texts: dict[str, bool]) -> Iterator[TableFile]:
    """Write a table; the file appears, or takes the place of an old one, when it is whole.

    Args:
        path: Its ending says the format.
        texts: The columns, and whether they hold texts rather than numbers.

    Raises:
        EventlogError: Something is not installed that the format needs.
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        table = FORMATS[path.suffix](temporary, texts)
        try:
            yield table
        finally:
            table.close()
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
