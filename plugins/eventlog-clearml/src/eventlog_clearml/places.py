"""Where things are shown in ClearML: by title and series, at an iteration, which is an integer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from eventlog.events import EpochEvent, Event
from eventlog.sinks.names import Names
from eventlog_clearml.convert import split_name

__all__ = ["Place", "Places"]

_MOST = 2**63


class Place(NamedTuple):
    """Where one thing is shown.

    Attributes:
        title, series: The graph and the curve in it.
        iteration: Where on the graph.
        counted: Whether the event has no place, so that it was counted up.
        name: Title and series in one.
    """

    title: str
    series: str
    iteration: int
    counted: bool
    name: str


class Places:
    """Finds the places of events.

    Args:
        names: Makes the names.
        count: Told what is not shown at its own place.
        first: Where events without a place go on.
    """

    def __init__(self, names: Names, count: Callable[[str, int], None], first: int) -> None:
        self._names = names
        self._count = count
        self._first = first
        self._counted: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._split: dict[tuple[str, str, str], tuple[str, str, str]] = {}

    @property
    def next(self) -> int:
        """Where events without a place go on in another process, whatever their names are."""
        return max(self._counted.values(), default=self._first)

    def keep(self) -> None:
        """Note that all is sent that was found until now."""
        if self._kept != self._counted:
            self._kept = dict(self._counted)

    def restore(self) -> None:
        """Forget what was found since: it comes again, and belongs to the same places."""
        self._counted = dict(self._kept)

    def find(
        self, event: Event, axis: str, at: float | None, key: str, kind: str = "scalar"
    ) -> Place:
        """Return where what is called `key` is shown."""
        axis, iteration = self.iteration(event, axis, at)
        parts = self._split.get((axis, kind, key))
        if parts is None:
            name = self._names(key, axis, kind)
            parts = self._split[axis, kind, key] = (*split_name(name), name)
        title, series, name = parts
        if iteration is not None:
            return Place(title, series, iteration, False, name)
        self._count("no axis: counted up", 1)
        iteration = self._counted.get(name, self._first)
        self._counted[name] = iteration + 1
        return Place(title, series, iteration, True, name)

    def iteration(self, event: Event, axis: str, at: float | None) -> tuple[str, int | None]:
        """Return a place as an integer, which may be on another axis then."""
        if isinstance(at, float):
            whole = math.floor(at) if math.isfinite(at) else None
            if whole != at and isinstance(event, EpochEvent) and event.step is not None:
                self._count("fractional epoch shown at its step", 1)
                axis, whole = event.axis, event.step
            elif whole != at:
                self._count("fractional epoch rounded down", 1)
            at = whole
        if at is not None and not -_MOST <= at < _MOST:
            self._count("place beyond int64: counted up", 1)
            return axis, None
        return axis, None if at is None else int(at)
