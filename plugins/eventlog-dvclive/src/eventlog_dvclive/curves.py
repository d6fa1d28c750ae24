"""The history of each metric: a file of tab-separated rows, byte for byte as DVCLive writes it.

DVCLive opens, appends one row and closes for each value, and reads all files again at each step.
Here the rows of a batch are appended to each file at once.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from eventlog_dvclive import tails
from eventlog_dvclive.files import replace_file
from eventlog_dvclive.layout import utf8

__all__ = ["Curve", "Curves", "Row"]

Row: TypeAlias = tuple[int, int | None, Any]
"""Milliseconds since 1970, step or None to count on, and value."""

_END = os.linesep


class Curve:
    """One metric's file, and the rows that wait for it.

    Attributes:
        name: The metric's, with ``/`` between its parts.
        path: Its file.
        axis: What its steps count.
        rows: Those that wait for `Curves.commit`.
        added: The step of the last row, waiting or written; None when there is none.
        written: The step of the last row that is written.
        unsure: The file may end in half a row, or in rows that come again.
    """

    __slots__ = ("added", "axis", "name", "path", "rows", "unsure", "written")

    def __init__(self, name: str, path: Path, axis: str) -> None:
        self.name, self.path, self.axis = name, path, axis
        self.rows: list[Row] = []
        self.added: int | None = None
        self.written: int | None = None
        self.unsure = True

    def header(self) -> bytes:
        """Return the first line."""
        return _line(("timestamp", "step", self.name.rpartition("/")[2]))

    def take(self) -> bytes:
        """Return the waiting rows as bytes; those without a step get the next one."""
        at = self.written
        lines = []
        for milliseconds, step, value in self.rows:
            at = step if step is not None else 0 if at is None else at + 1
            lines.append(f"{milliseconds}\t{at}\t{as_text(value)}{_END}")
        self.added = at
        return "".join(lines).encode()


class Curves:
    """The files of all metrics.

    Args:
        folder: Where they lie.

    Attributes:
        latest: The last value of each metric.
        gone: Metrics that a rewind left without a row.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.latest: dict[str, Any] = {}
        self.gone: set[str] = set()
        self._curves: dict[str, Curve] = {}
        self._touched: dict[str, Curve] = {}
        self._cuts: dict[str, int] = {}

    def load(self, axes: Mapping[str, str]) -> None:
        """Find what is there already, mend what a killed process left, and see where each ends.

        Args:
            axes: The axis of each metric that is not on ``step``.

        Raises:
            OSError: A file cannot be read or mended.
        """
        for path in sorted(self.folder.rglob("*.tsv")):
            if not path.is_file():
                continue
            name = path.relative_to(self.folder).as_posix().removesuffix(".tsv")
            curve = self.curve(name, axes.get(name, "step"))
            tails.mend(path)
            self._see_end(curve)

    def curve(self, name: str, axis: str) -> Curve:
        """Return the metric of a name; its file is made with its first row."""
        curve = self._curves.get(name)
        if curve is None:
            curve = self._curves[name] = Curve(name, self.folder / f"{name}.tsv", axis)
        return curve

    def touch(self, curve: Curve) -> None:
        """Take note that rows wait."""
        self._touched[curve.name] = curve

    def cut(self, axis: str, floor: int) -> None:
        """Take away all rows of an axis that are at `floor` or beyond, with the next `commit`."""
        self._cuts[axis] = min(floor, self._cuts.get(axis, floor))
        for curve in self._curves.values():
            if curve.axis != axis:
                continue
            curve.rows = [row for row in curve.rows if row[1] is None or row[1] < floor]
            if curve.added is not None:
                curve.added = min(curve.added, floor - 1)

    def commit(self) -> None:
        """Hand all rows to the operating system.

        Raises:
            OSError: It takes no more; `discard` must follow, and the same rows may come again.
        """
        if self._cuts:
            for curve in self._curves.values():
                if curve.axis in self._cuts and curve.path.exists():
                    self._rewrite(curve, self._cuts[curve.axis])
            self._cuts.clear()
        for curve in self._touched.values():
            if curve.rows:
                self._append(curve)
        self._touched.clear()

    def discard(self) -> None:
        """Forget the rows that wait; what was written of them is found when they come again."""
        for curve in self._touched.values():
            curve.rows.clear()
            curve.unsure = True
        for curve in self._curves.values():
            curve.added = curve.written
        self._touched.clear()
        self._cuts.clear()

    def _append(self, curve: Curve) -> None:
        if curve.unsure:
            self._settle(curve)
        rows, last = curve.take(), curve.rows[-1][2]
        descriptor = _open(curve.path)
        try:
            size = os.fstat(descriptor).st_size
            try:
                _write(descriptor, rows if size else curve.header() + rows)
            except BaseException:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        curve.written = curve.added
        curve.rows.clear()
        self._last(curve, last)

    def _settle(self, curve: Curve) -> None:
        """Take back what was written of rows that come again now."""
        if curve.path.exists():
            tails.mend(curve.path)
            milliseconds, step, value = curve.rows[0]
            place = None if step is None else str(step)
            tails.take_back(curve.path, milliseconds, place, as_text(value))
            self._see_end(curve)
        curve.unsure = False

    def _rewrite(self, curve: Curve, floor: int) -> None:
        """Replace a file by one without the rows that a rewind made void."""
        kept, cut = tails.below(curve.path, floor)
        if not cut:
            return
        if kept.count(b"\n") <= 1:
            curve.path.unlink()
            self.latest.pop(curve.name, None)
            self.gone.add(curve.name)
            curve.written = None
            return
        replace_file(curve.path, lambda temporary: temporary.write_bytes(kept))
        self._see_end(curve)

    def _see_end(self, curve: Curve) -> None:
        end = tails.last_row(curve.path)
        waiting = bool(curve.rows)
        curve.written = None if end is None else end[0]
        if not waiting:
            curve.added = curve.written
        if end is not None:
            self._last(curve, end[1])

    def _last(self, curve: Curve, value: Any) -> None:
        self.latest[curve.name] = value
        self.gone.discard(curve.name)


def as_text(value: Any) -> str:
    """Return a value as DVCLive writes it, except for bools, which its readers do not take."""
    if type(value) is float:
        return repr(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return _line((utf8(str(value)),)).decode().removesuffix(_END)


def _line(cells: tuple[str, ...]) -> bytes:
    text = StringIO()
    csv.writer(text, delimiter="\t", lineterminator=_END).writerow(cells)
    return text.getvalue().encode()


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
