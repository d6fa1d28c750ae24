"""Reducers: what becomes of the values between two ticks.

Memory per key is constant, and the state of two windows can be merged. A NaN makes the result NaN,
as the arithmetic says, and is counted in the event's `Window`.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from eventlog.events import BatchEvent, EpochEvent, Event, Scalar, Window

__all__ = ["REDUCERS", "Reduce", "Reducer", "Reduction", "ReductionWindow"]

Reduce: TypeAlias = "str | Mapping[str, str] | None"
"""A reducer's name, or names by key (or glob pattern); None passes the due events as they are."""

REDUCERS: Final = ("last", "mean", "min", "max", "sum", "count", "std")


class Reducer:
    """The values of one key in one window: moments, extremes and the last value.

    Attributes:
        n: How many numbers.
        nans: How many of them were NaN.
    """

    __slots__ = ("_last", "_m2", "_max", "_mean", "_min", "_sum", "n", "nans")

    def __init__(self) -> None:
        self.n = 0
        self.nans = 0
        self._last: Scalar | None = None
        self._mean = 0.0
        self._m2 = 0.0
        self._sum: float = 0
        self._min: float = math.inf
        self._max: float = -math.inf

    def add(self, value: Scalar) -> None:
        """Take one more value; of a text only the last one is kept."""
        self._last = value
        if isinstance(value, str):
            return
        n = self.n = self.n + 1
        self._sum += value
        mean = self._mean
        delta = value - mean
        mean += delta / n
        self._mean = mean
        self._m2 += delta * (value - mean)
        # comparisons with NaN are false, so that NaN does not stick by itself
        if value < self._min:
            self._min = value
        if value > self._max:
            self._max = value
        if value != value:
            self.nans += 1

    def merge(self, other: Reducer) -> None:
        """Take the values of a later window, or of another rank."""
        if other._last is not None:
            self._last = other._last
        if not other.n:
            return
        n = self.n + other.n
        if self.n:
            delta = other._mean - self._mean
            self._mean += delta * (other.n / n)
            self._m2 += other._m2 + delta * delta * (self.n / n * other.n)
        else:
            self._mean, self._m2 = other._mean, other._m2
        self._sum += other._sum
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)
        self.nans += other.nans
        self.n = n

    def result(self, how: str) -> Scalar:
        """Return the reduced value; for a key that had only texts, the last one."""
        if how == "count":
            return self.n
        if how == "last" or not self.n:
            return math.nan if self._last is None else self._last
        if self.nans:
            return math.nan
        if how == "sum":
            return self._sum
        if how == "mean":
            # the running mean of infinities is NaN where their sum is not; the sum of what is
            # large is infinite where the mean is not
            return self._mean if math.isfinite(self._mean) else self._sum / self.n
        if how == "min":
            return self._min
        if how == "max":
            return self._max
        # rounding may leave the least below 0; max() would make 0 of a NaN
        return math.sqrt(self._m2 / self.n) if not self._m2 <= 0 else 0.0


class Reduction:
    """Which reducer each key gets."""

    def __init__(self, reduce: str | Mapping[str, str]) -> None:
        """Check the names.

        Raises:
            ValueError: One of them is unknown.
            TypeError: `reduce` is neither a text nor a mapping.
        """
        if isinstance(reduce, str):
            self._rules = [("*", reduce)]
        elif isinstance(reduce, Mapping):
            self._rules = list(reduce.items())
        else:
            raise TypeError(
                f"reduce must be a reducer's name or a mapping of keys to names, not {reduce!r}"
            )
        for _, name in self._rules:
            if name not in REDUCERS:
                raise ValueError(f"reduce must be one of {', '.join(REDUCERS)}, not {name!r}")
        self._known: dict[str, str] = {}

    def of(self, key: str) -> str:
        """Return the reducer of a key: the first rule that matches, or else the last value."""
        how = self._known.get(key)
        if how is None:
            how = next((n for rule, n in self._rules if fnmatch.fnmatchcase(key, rule)), "last")
            self._known[key] = how
        return how


class ReductionWindow:
    """The events of one lane since its last tick.

    Attributes:
        n: How many.
    """

    __slots__ = ("_first", "_keys", "_last", "n")

    def __init__(self) -> None:
        self.n = 0
        self._first: Event | None = None
        self._last: Event | None = None
        self._keys: dict[str, Reducer] = {}

    @property
    def first_seq(self) -> int | None:
        """The seq of the first event in it; None when it is empty."""
        return None if self._first is None else self._first.seq

    def add(self, event: Event) -> None:
        """Take one more event."""
        if self._first is None:
            self._first = event
        self._last = event
        self.n += 1
        keys = self._keys
        for key, value in event.values.items():
            reducer = keys.get(key)
            if reducer is None:
                reducer = keys[key] = Reducer()
            reducer.add(value)

    def close(self, reduction: Reduction) -> Event | None:
        """Return the reduced event; None when there were none, and be empty again.

        It has the place, the time and the axes of the last event in the window.
        """
        first, last, keys = self._first, self._last, self._keys
        if first is None or last is None:
            return None
        values = {key: r.result(reduction.of(key)) for key, r in keys.items()}
        window = Window(
            first=_position(first),
            last=_position(last),
            n=self.n,
            nans=sum(r.nans for r in keys.values()),
        )
        self.n = 0
        self._first = self._last = None
        self._keys = {}
        return msgspec.structs.replace(last, values=values, window=window)


def _position(event: Event) -> int | float | None:
    if isinstance(event, BatchEvent) and event.batch is not None:
        return event.batch
    if isinstance(event, EpochEvent) and event.epoch is not None:
        return event.epoch
    return event.step
