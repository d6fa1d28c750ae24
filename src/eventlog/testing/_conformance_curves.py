"""Finding the curves of a log among those that a tracker shows, and comparing them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from eventlog.events import Event
from eventlog.sinks.plain import place
from eventlog.testing.shown import At, Shown

__all__ = ["Board", "Curve", "Match", "Point", "Verdict", "curves_of", "plain"]

Outcome = Literal["shown", "converted", "impossible", "wrong"]
Point = tuple[At, float]


@dataclass(frozen=True)
class Verdict:
    """What became of one thing: shown, converted, declared impossible, or wrong, with a note."""

    outcome: Outcome
    note: str = ""

    def __str__(self) -> str:
        return f"{self.outcome}: {self.note}" if self.note else self.outcome


@dataclass(frozen=True)
class Curve:
    """The points of one key on one axis, as the log has them."""

    key: str
    axis: str
    points: list[Point] = field(default_factory=list)


@dataclass(frozen=True)
class Match:
    """A curve beside what the tracker shows of it.

    Attributes:
        curve: As the log has it.
        name: Under which name it is shown; None where it is not.
        wanted: Its points, with the digits that the tracker keeps.
        seen: The points that are shown under that name.
    """

    curve: Curve
    name: str | None
    wanted: list[Point]
    seen: list[Point]

    @property
    def same(self) -> bool:
        """Whether all is shown as it was logged, in order."""
        return same_points(self.wanted, self.seen)

    @property
    def missing(self) -> list[Point]:
        """Points that are not shown, or not as they were logged."""
        return without(self.wanted, self.seen)

    @property
    def extra(self) -> list[Point]:
        """Points that are shown and were never logged, or not so often."""
        return without(self.seen, self.wanted)


def plain(name: str) -> str:
    """Return a name without case and without what trackers replace."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _key(point: Point) -> tuple[At, object]:
    at, value = point
    return at, "nan" if math.isnan(value) else value


def same_points(one: Sequence[Point], other: Sequence[Point]) -> bool:
    """Whether two lists of points are equal; NaN equals NaN."""
    return list(map(_key, one)) == list(map(_key, other))


def without(points: Iterable[Point], others: Iterable[Point]) -> list[Point]:
    """Return the points that are not among the others, each of which stands for one."""
    left = [_key(point) for point in others]
    rest: list[Point] = []
    for point in points:
        if _key(point) in left:
            left.remove(_key(point))
        else:
            rest.append(point)
    return rest


def curves_of(events: Iterable[Event]) -> list[Curve]:
    """Return the numbers that a log holds, by key and axis, each at its place on this axis."""
    found: dict[tuple[str, str], Curve] = {}
    for event in events:
        axis, at = place(event)
        for key, value in event.values.items():
            if not isinstance(value, str):
                curve = found.setdefault((axis, key), Curve(key, axis))
                curve.points.append((at, int(value) if isinstance(value, bool) else value))
    return list(found.values())


class Board:
    """What a tracker shows, and which of it belongs to which curve of the log.

    Args:
        curves: All curves of the log: numbers that only one of them has tell it from the others.
        shown: What the tracker shows.
        rounded: What the tracker makes of a number.
    """

    def __init__(
        self, curves: Sequence[Curve], shown: Shown, rounded: Callable[[float], float]
    ) -> None:
        self._shown = shown
        self._rounded = rounded
        owners: dict[float, set[int]] = {}
        for number, curve in enumerate(curves):
            for _, value in curve.points:
                if math.isfinite(value):
                    owners.setdefault(rounded(value), set()).add(number)
        self._own = {value: numbers.pop() for value, numbers in owners.items() if len(numbers) == 1}
        self.matches = [self._match(number, curve) for number, curve in enumerate(curves)]

    def _match(self, number: int, curve: Curve) -> Match:
        name = self._name_of(number, curve)
        seen = [] if name is None else self._shown.scalars[name]
        wanted = [(at, self._rounded(value)) for at, value in curve.points]
        return Match(curve, name, wanted, [(at, float(value)) for at, value in seen])

    def _name_of(self, number: int, curve: Curve) -> str | None:
        hits: dict[str, int] = {}
        for name, points in self._shown.scalars.items():
            hits[name] = sum(self._own.get(value) == number for _, value in points)
        best = max(hits.values(), default=0)
        if best:
            named = [name for name, n in hits.items() if n == best]
            return curve.key if curve.key in named else named[0]
        if curve.key in self._shown.scalars:
            return curve.key
        word = plain(curve.key)
        return next((n for n in self._shown.scalars if word and word in plain(n)), None)

    def match(self, key: str, axis: str = "step") -> Match:
        """Return the curve of a key.

        Raises:
            KeyError: The log has none.
        """
        for match in self.matches:
            if (match.curve.key, match.curve.axis) == (key, axis):
                return match
        raise KeyError(f"{key!r} on {axis!r}")
