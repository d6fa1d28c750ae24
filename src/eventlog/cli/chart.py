"""Charts for a terminal: lines of braille dots, eight in each character."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from eventlog._visible import visible
from eventlog.cli.series import Metrics, Series, Update, envelope
from eventlog.sinks.console import format_value

__all__ = ["charts"]

_BLANK = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_LABEL = 10
_NARROWEST = 48
_LINE, _MARK, _FRAME = "cyan", "magenta", "dim"


class _Canvas:
    """Dots: two by four in each character, the first row on top."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self._cells = [[0] * columns for _ in range(rows)]
        self._marks = [[0] * columns for _ in range(rows)]

    def dot(self, x: int, y: int, *, mark: bool = False) -> None:
        cells = self._marks if mark else self._cells
        if 0 <= x < 2 * self.columns and 0 <= y < 4 * self.rows:
            cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            self.dot(round(x0 + (x1 - x0) * i / steps), round(y0 + (y1 - y0) * i / steps))

    def row(self, index: int) -> Text:
        text = Text()
        for cell, mark in zip(self._cells[index], self._marks[index], strict=True):
            dots = cell | mark
            text.append(chr(_BLANK | dots) if dots else " ", _LINE if cell else _MARK)
        return text


def charts(metrics: Metrics, width: int, rows: int = 8) -> Table:
    """Return the metrics as charts, side by side as far as there is room.

    Args:
        metrics: What to draw.
        width: Characters that there are.
        rows: The height of one, without its labels.
    """
    across = max(1, min(3, len(metrics.series), width // _NARROWEST))
    each = min(width // across - 2, 100)
    grid = Table.grid(padding=(0, 2, 1, 0))
    cells = [chart(series, metrics.updates, each, rows) for series in metrics.series]
    for at in range(0, len(cells), across):
        grid.add_row(*cells[at : at + across])
    return grid


def chart(series: Series, updates: Sequence[Update], width: int, rows: int) -> Text:
    """Return one metric as lines of text."""
    head = Text.assemble((visible(series.key), "bold"), "  ", (format_value(series.last), _LINE))
    if series.nonfinite:
        head.append(f"  {len(series.nonfinite):,} not finite", "yellow")
    columns = max(8, width - _LABEL - 2)
    if not series.x:
        return Text("\n").join([head, Text("nothing finite to draw", style=_FRAME)])
    left, right = series.x[0], series.x[-1]
    low, high = min(series.y), max(series.y)
    canvas = _draw(series, updates, columns, rows)
    lines = [head]
    for row in range(rows):
        label = format_value(high) if row == 0 else ""
        if row == rows - 1 and high > low:
            label = format_value(low)
        edge = "┤" if label else "│"
        lines.append(Text.assemble((f"{label:>{_LABEL}} {edge}", _FRAME), canvas.row(row)))
    begin, end = format_value(left), format_value(right)
    gap = columns - len(begin) - len(end)
    name = f"{visible(series.axis):^{max(0, gap)}}"
    lines.append(Text(f"{'':{_LABEL}} └{'─' * columns}", style=_FRAME))
    lines.append(Text(f"{'':{_LABEL}}  {begin}{name}{end}", style=_FRAME))
    return Text("\n", no_wrap=True).join(lines)


def _draw(series: Series, updates: Iterable[Update], columns: int, rows: int) -> _Canvas:
    canvas = _Canvas(columns, rows)
    left, right = series.x[0], series.x[-1]
    low, high = min(series.y), max(series.y)
    across, up = 2 * columns - 1, 4 * rows - 1

    def column(x: float) -> int:
        return round(_share(x, left, right, 0.5) * across)

    for update in updates:
        if left <= update.x <= right:
            for height in range(0, up + 1, 2):
                canvas.dot(column(update.x), height, mark=True)
    before: tuple[int, int] | None = None
    for x, y in zip(*envelope(series.x, series.y, across + 1, left, right), strict=True):
        at = column(x), up - round(_share(y, low, high, 0.5) * up)
        canvas.line(*(before or at), *at)
        before = at
    return canvas


def _share(value: float, low: float, high: float, single: float) -> float:
    """Return where a value is between two others, 0 to 1; `single` where these are one."""
    if high <= low:
        return single
    # halves: the span of two huge values is more than a float holds
    share = (value / 2 - low / 2) / (high / 2 - low / 2)
    return share if math.isfinite(share) else single
