"""Tables, JSON and numbers on standard output: for a person at a terminal, or for a pipe."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eventlog._visible import escaped_json, visible

__all__ = [
    "Terminal",
    "duration",
    "is_unicode",
    "iso_time",
    "local_time",
    "quantity",
    "strict_json",
    "write_json",
    "write_table",
]

_WIDE = 4096


class Terminal(Console):
    """A console that leaves a broken pipe to its caller, and does not cut what goes to a pipe."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        super().__init__(stderr=stderr, highlight=False, width=None if stream.isatty() else _WIDE)

    def on_broken_pipe(self) -> NoReturn:
        """Let `eventlog.cli.outcome` end the command."""
        raise BrokenPipeError


def write_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> None:
    """Write a table: with a rule at a terminal, aligned lines otherwise.

    Args:
        columns: Headings.
        rows: One text for each column; taken literally, markup means nothing.
        right: The columns that hold numbers.
    """
    console = Terminal()
    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, header_style="bold"
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print(table)


def write_json(value: Any) -> None:
    """Write one JSON document that every parser takes."""
    text = json.dumps(strict_json(value), indent=2, ensure_ascii=not is_unicode(sys.stdout))
    sys.stdout.write(escaped_json(text) + "\n")


def strict_json(value: Any) -> Any:
    """Return the value with NaN and infinities as the texts "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: strict_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(each) for each in value]
    return value


def is_unicode(stream: TextIO) -> bool:
    """Whether every character can be written to a stream."""
    return (getattr(stream, "encoding", None) or "").lower().startswith("utf")


def iso_time(wall: int | None) -> str | None:
    """Return a wall time in ns as ISO 8601, in UTC."""
    return None if wall is None else datetime.fromtimestamp(wall / 1e9, UTC).isoformat()


def local_time(wall: int | None) -> str:
    """Return a wall time in ns as a person reads it where they are."""
    if wall is None:
        return "-"
    return datetime.fromtimestamp(wall / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def quantity(size: float) -> str:
    """Return a number of bytes in three digits or so."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time span as a person says it."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"
