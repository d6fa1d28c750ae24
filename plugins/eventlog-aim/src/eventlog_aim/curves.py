"""`Curves`: gathers the points of a batch, and writes them to Aim curve by curve.

``Run.track`` writes each point by itself: four records and up to four more about the whole curve,
each its own transaction, or its own message where the repository is remote. Here the first point
of a curve goes that way, which sets the curve up, and the rest of a batch goes as columns: in one
transaction, or one instruction for each column. Where an Aim has no such inside, every point goes
through ``Run.track``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Curves", "Point"]

_COLUMNS = ("step_view", "val_view", "epoch_view", "time_view")


class Point(NamedTuple):
    """A number, and where it is; `step` is None where Aim is to count."""

    step: int | float | None
    value: float
    epoch: int | float | None
    wall: float


class _Curve:
    """A curve: its points to be written, and where it was last."""

    __slots__ = ("attempt", "context", "last", "name", "points", "rows")

    def __init__(self, name: str, context: dict[str, Any]) -> None:
        self.name = name
        self.context = context
        self.points: list[Point] = []
        self.rows: tuple[Any, list[bytes]] | None = None
        self.last: int | float | None = None
        self.attempt = 0


class Curves:
    """Writes points and objects into an `aim.Run`.

    Args:
        run: The open run.
        count: Counts what is not shown as it is.
    """

    def __init__(self, run: Any, count: Callable[[str], None]) -> None:
        self._run = run
        self._count = count
        self._curves: dict[tuple[str, str], _Curve] = {}
        self._waiting: dict[tuple[str, str], _Curve] = {}
        tracker = getattr(run, "_tracker", None)
        inside = ("_track", "_update_sequence_info", "sequence_infos")
        self._tracker = tracker if all(hasattr(tracker, name) for name in inside) else None
        self._encoding = importlib.import_module("aim.storage.encoding")
        self._context_of = importlib.import_module("aim.storage.context").Context

    def add(self, name: str, context: dict[str, Any], key: str, point: Point, attempt: int) -> None:
        """Take a point; `key` is the same for equal contexts, and for no others."""
        curve = self._curves.get((name, key))
        if curve is None:
            curve = self._curves[name, key] = _Curve(name, context)
        if point.step is not None:
            if attempt == curve.attempt and curve.last is not None and point.step <= curve.last:
                self._count("number at or before its curve's last place: replaces what is there")
            curve.last, curve.attempt = point.step, attempt
        curve.points.append(point)
        self._waiting[name, key] = curve

    def discard(self) -> None:
        """Forget the points that were not written."""
        for curve in self._waiting.values():
            curve.points.clear()
        self._waiting.clear()

    def track(self, value: Any, name: str, context: dict[str, Any], point: Point) -> None:
        """Write a single number or object now, with its own time where Aim takes it."""
        if self._tracker is not None:
            if isinstance(point.step, float):
                index = self._context_of(context).idx
                _admit(self._tracker.sequence_infos.get((index, name)), point.step)
            self._tracker._track(
                value, point.wall, name, point.step, point.epoch, context=dict(context)
            )
            return
        self._count("time of a point: Aim's own clock")
        self._run.track(value, name, point.step, point.epoch, context=dict(context))

    def commit(self) -> None:
        """Write the points that wait."""
        batches: dict[int, tuple[Any, Any]] = {}
        for curve in self._waiting.values():
            if not curve.points:
                continue
            first, *rest = curve.points
            self.track(first.value, curve.name, curve.context, first)
            if rest:
                self._write(curve, rest, batches)
        for container, batch in batches.values():
            container.commit(batch)
        self.discard()

    def _write(
        self, curve: _Curve, points: list[Point], batches: dict[int, tuple[Any, Any]]
    ) -> None:
        tracker = self._tracker
        index = self._context_of(curve.context).idx
        info = None if tracker is None else tracker.sequence_infos.get((index, curve.name))
        trees: list[Any] = [
            getattr(getattr(info, column, None), "tree", None) for column in _COLUMNS
        ]
        local = all(hasattr(tree, "container") for tree in trees)
        remote = all(hasattr(tree, "update") and not hasattr(tree, "container") for tree in trees)
        if tracker is None or info is None or not (local or remote):
            for point in points:
                self.track(point.value, curve.name, curve.context, point)
            return
        rows = _rows(points, info)
        if local:
            self._write_here(curve, rows, trees, batches)
        else:
            for tree, column in zip(trees, range(1, 5), strict=True):
                tree.update((), [(row[0], row[column]) for row in rows])
        for _, step, value, _, _ in _extremes(rows):
            _admit(info, step)
            tracker._update_sequence_info(index, curve.name, value, step)

    def _write_here(
        self,
        curve: _Curve,
        rows: list[tuple[Any, ...]],
        trees: list[Any],
        batches: dict[int, tuple[Any, Any]],
    ) -> None:
        if curve.rows is None:
            curve.rows = _root(trees)
        container, prefixes = curve.rows
        if id(container) not in batches:
            batches[id(container)] = container, container.batch()
        batch = batches[id(container)][1]
        encode, encode_path, put = (
            self._encoding.encode,
            self._encoding.encode_path,
            container.set,
        )
        for row in rows:
            key = encode_path((row[0],))
            for prefix, value in zip(prefixes, row[1:], strict=True):
                put(prefix + key, encode(value), batch)


def _rows(points: list[Point], info: Any) -> list[tuple[Any, ...]]:
    """Return (key, step, value, epoch, time) for each point; Aim keeps one for each step."""
    place, counted = info.step_hash_fn, info.count
    rows = []
    for step, value, epoch, wall in points:
        at = counted if step is None else step
        if at >= counted:
            counted = at + 1
        rows.append((place(at), at, value, epoch, wall))
    return rows


def _admit(info: Any, step: int | float) -> None:
    """Let a place between two whole ones, such as half an epoch, be the last of a curve.

    Aim counts on by one from the last place, and takes what is below that for an earlier one.
    """
    count = getattr(info, "count", None)
    if isinstance(step, float) and count and count - 1 < step < count:
        info.count = step


def _extremes(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows that what Aim knows of a whole curve depends on: least, greatest, last."""
    finite = [row for row in rows if row[2] == row[2]]
    chosen = [min(finite, key=_value), max(finite, key=_value)] if finite else []
    # of equal steps the later one is what stays
    return [*chosen, max(enumerate(rows), key=lambda pair: (pair[1][1], pair[0]))[1]]


def _value(row: tuple[Any, ...]) -> float:
    value: float = row[2]
    return value


def _root(trees: list[Any]) -> tuple[Any, list[bytes]]:
    """Return the store that the columns lie in, and each one's prefix there."""
    prefixes = []
    container: Any = None
    for tree in trees:
        container, prefix = tree.container, b""
        while hasattr(container, "parent"):
            prefix, container = container.prefix + prefix, container.parent
        prefixes.append(prefix)
    return container, prefixes
