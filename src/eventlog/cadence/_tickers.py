"""Terms at work: in which of its intervals an event lies, and what the next one begins at."""

from __future__ import annotations

import math
from typing import Protocol

from eventlog.cadence.terms import AxisTerm, PowTerm, Term, TimeTerm, UpdateTerm
from eventlog.events import Event

__all__ = ["TIME", "UPDATES", "Ticker", "axis_value", "ticker"]

TIME = ""
"""The axis of the monotonic stamps; no counter can have this name."""

UPDATES = "update"
"""What counts model updates; no counter can have this name either."""

_BELOW = 1 - 2e-9
"""Less than the part of a multiple at which a float may lie that stands for it."""


def axis_value(event: Event, axis: str) -> int | float | None:
    """Return where an event is on an axis: step, batch, epoch, time, a named axis or a counter.

    None where it does not say, or says what is no number.
    """
    if axis == "step":
        return event.step
    if axis == "batch":
        return event.batch
    if axis == TIME:
        return event.mono
    value = event.epoch if axis == "epoch" else event.values.get(axis)
    if axis != "epoch" and event.axis == axis:
        return event.step
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return None


class Ticker(Protocol):
    """A term. Its intervals are numbered; it is due when a greater number is reached.

    Attributes:
        axis: What it looks at.
    """

    axis: str

    def index(self, event: Event, origin: int, updates: int) -> int | None:
        """Return the interval that an event lies in; None when it does not say.

        Args:
            event: The event.
            origin: When the first event was emitted.
            updates: How often the model was updated.
        """
        ...

    def bound(self, index: int, origin: int) -> int | float:
        """Return a number on the axis below which there are no greater intervals."""
        ...


class _Whole:
    """Multiples of a whole number of steps or batches."""

    __slots__ = ("axis", "n")

    def __init__(self, axis: str, n: int) -> None:
        self.axis = axis
        self.n = n

    def index(self, event: Event, origin: int, updates: int) -> int | None:
        x = event.step if self.axis == "step" else event.batch
        return None if x is None or x < 0 else x // self.n

    def bound(self, index: int, origin: int) -> int:
        return (index + 1) * self.n


class _Multiples:
    """Multiples on an axis that may be fractional."""

    __slots__ = ("axis", "n", "term")

    def __init__(self, term: AxisTerm) -> None:
        self.axis = term.axis
        self.term = term
        try:
            self.n = float(term.n)
        except OverflowError:
            self.n = math.inf

    def index(self, event: Event, origin: int, updates: int) -> int | None:
        x = axis_value(event, self.axis)
        return None if x is None or x < 0 else self.term.index(x)

    def bound(self, index: int, origin: int) -> float:
        return (index + 1) * self.n * _BELOW


class _Powers:
    """Powers on an axis."""

    __slots__ = ("axis", "term")

    def __init__(self, term: PowTerm) -> None:
        self.axis = term.axis
        self.term = term

    def index(self, event: Event, origin: int, updates: int) -> int | None:
        x = axis_value(event, self.axis)
        return None if x is None or x < 0 else self.term.index(x)

    def bound(self, index: int, origin: int) -> int | float:
        nominal: int = self.term.base**index
        if self.axis in ("step", "batch"):
            return nominal
        try:
            return nominal * _BELOW
        except OverflowError:
            return math.inf


class _Time:
    """Nanoseconds since the first event."""

    __slots__ = ("axis", "ns")

    def __init__(self, ns: int) -> None:
        self.axis = TIME
        self.ns = ns

    def index(self, event: Event, origin: int, updates: int) -> int:
        return (event.mono - origin) // self.ns

    def bound(self, index: int, origin: int) -> int:
        return origin + (index + 1) * self.ns


class _Updates:
    """Model updates: nothing that an event says of itself."""

    __slots__ = ("axis",)

    def __init__(self) -> None:
        self.axis = UPDATES

    def index(self, event: Event, origin: int, updates: int) -> int:
        return updates

    def bound(self, index: int, origin: int) -> float:
        return math.inf


def ticker(term: Term) -> Ticker:
    """Return a term at work."""
    if isinstance(term, TimeTerm):
        return _Time(term.ns)
    if isinstance(term, UpdateTerm):
        return _Updates()
    if isinstance(term, PowTerm):
        return _Powers(term)
    if term.axis in ("step", "batch"):
        return _Whole(term.axis, int(term.n))
    return _Multiples(term)
