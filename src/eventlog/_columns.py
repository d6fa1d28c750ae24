"""The axes of a block's events as columns, looked up once for all subscriptions.

With them a subscription finds the next event that can be due by bisection, in place of asking
event by event.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from eventlog.cadence._tickers import TIME, axis_value
from eventlog.events import Event
from eventlog.log.source import Block, Source

__all__ = ["Column", "Columns", "SharedColumns", "shared_columns"]

_GETTERS = {"step": "step", "batch": "batch", "epoch": "epoch", TIME: "mono"}
_SHARED_BLOCKS = 16


class Column:
    """Where each event of a block is on one axis.

    Attributes:
        values: One for each event.
        ascending: Whether none is smaller than the one before it.
        low, high: The smallest and the largest one.
    """

    __slots__ = ("ascending", "high", "low", "values")

    def __init__(self, values: list[Any], ordered: list[Any]) -> None:
        self.values = values
        self.ascending = ordered == values
        self.low = ordered[0]
        self.high = ordered[-1]

    def reaches(self, bound: int | float, at: int) -> int:
        """Return an index from `at` on before which no value reaches a bound."""
        if self.high < bound:
            return len(self.values)
        if not self.ascending or self.values[at] >= bound:
            return at
        return bisect_left(self.values, bound, at)

    def finds(self, value: int | float, at: int) -> int:
        """Return an index from `at` on before which no value equals this one."""
        if not self.low <= value <= self.high:
            return len(self.values)
        if not self.ascending:
            return at
        found = bisect_left(self.values, value, at)
        hit = found < len(self.values) and self.values[found] == value
        return found if hit else len(self.values)


class Columns:
    """The columns of some events, each made when it is first asked for."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._columns: dict[str, Column | None] = {}

    def of(self, axis: str) -> Column | None:
        """Return the column of an axis; None when an event does not say where on it it is."""
        try:
            return self._columns[axis]
        except KeyError:
            column = self._columns[axis] = self._make(axis)
            return column

    def _make(self, axis: str) -> Column | None:
        values: list[Any]
        if axis in _GETTERS:
            values = list(map(attrgetter(_GETTERS[axis]), self._events))
        else:
            values = [axis_value(event, axis) for event in self._events]
        try:
            ordered = sorted(values)
        except TypeError:  # some are None
            return None
        if ordered[0] is None or (axis == "epoch" and not math.isfinite(sum(values))):
            return None
        return Column(values, ordered)


class SharedColumns:
    """The columns of a source's newest blocks, which all live subscriptions read."""

    def __init__(self) -> None:
        self._recent: dict[int, tuple[Block, Columns]] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def of(self, block: Block) -> Columns:
        """Return the columns of a block in memory."""
        found = self._recent.get(block.first)
        if found is not None and found[0] is block:
            return found[1]
        columns = Columns(block.events())
        self._recent[block.first] = (block, columns)
        for oldest in list(self._recent)[:-_SHARED_BLOCKS]:
            self._recent.pop(oldest, None)
        return columns


_sources: WeakKeyDictionary[Source, SharedColumns] = WeakKeyDictionary()


def shared_columns(source: Source) -> SharedColumns:
    """Return what the subscriptions of a source share."""
    shared = _sources.get(source)
    if shared is None:
        shared = _sources[source] = SharedColumns()
    return shared
