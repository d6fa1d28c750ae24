"""`Media`: texts, images and distributions, one record for each place."""

from __future__ import annotations

from typing import Any

from eventlog_aim.curves import Curves, Point

__all__ = ["Media"]

_LISTS = frozenset({"text", "image"})
"""Kinds of which Aim shows several at a place; always as a list, for a sequence has one type."""


class _Record:
    """What is shown at a place."""

    __slots__ = ("attempt", "context", "name", "objects", "point")

    def __init__(self, name: str, context: dict[str, Any], point: Point, attempt: int) -> None:
        self.name = name
        self.context = context
        self.point = point
        self.attempt = attempt
        self.objects: list[Any] = []


class Media:
    """Gathers what is shown at a place, and writes it with the batch.

    Aim has one record for a place, so what comes later at the same place is added to the record
    that is there, as long as it is the last one of its sequence.

    Args:
        curves: What writes.
    """

    def __init__(self, curves: Curves) -> None:
        self._curves = curves
        self._last: dict[tuple[str, str, str], _Record] = {}
        self._before: dict[tuple[str, str, str], _Record | None] = {}
        self._waiting: list[tuple[str, _Record]] = []

    def add(
        self,
        kind: str,
        name: str,
        context: dict[str, Any],
        key: str,
        point: Point,
        objects: list[Any],
        attempt: int,
    ) -> bool:
        """Take objects for a place; return whether they replace what was there."""
        last = self._last.get((kind, name, key))
        self._before.setdefault((kind, name, key), last)
        record = _Record(name, context, point, attempt)
        there = (
            last is not None
            and point.step is not None
            and (last.point.step, last.attempt) == (point.step, attempt)
        )
        if there and last is not None and kind in _LISTS:
            record.objects += last.objects
            self._waiting = [pair for pair in self._waiting if pair[1] is not last]
        record.objects += objects
        self._last[kind, name, key] = record
        self._waiting.append((kind, record))
        return there and kind not in _LISTS

    def commit(self) -> None:
        """Write what waits."""
        for kind, record in self._waiting:
            shown = record.objects if kind in _LISTS else record.objects[-1]
            self._curves.track(shown, record.name, record.context, record.point)
        self._waiting = []
        self._before = {}

    def discard(self) -> None:
        """Forget what was not written."""
        for key, record in self._before.items():
            if record is None:
                self._last.pop(key, None)
            else:
                self._last[key] = record
        self._waiting = []
        self._before = {}
