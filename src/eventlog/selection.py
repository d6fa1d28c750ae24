"""Which part of a log: ranges of steps, epochs and times."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

from eventlog.events import Event
from eventlog.log.layout import Content, content_of
from eventlog.log.source import Block

__all__ = ["Exclusion", "Instant", "Selection", "instant"]

Instant: TypeAlias = datetime | str | float | int
"""A datetime, ISO 8601 text (local time unless it says otherwise), or seconds since 1970."""

_Range: TypeAlias = tuple[Any, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(value: Instant) -> int:
    """Return a time as wall-clock nanoseconds.

    Raises:
        ValueError: It is no time.
        TypeError: It is of no such type.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"a time must be as in 2026-01-31T12:00:00 (ISO 8601), not {value!r}"
            ) from None
    if isinstance(value, datetime):
        # by whole microseconds: a float of seconds is some hundred nanoseconds off
        return (value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 10**9
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a time must be finite, not {value!r}")
        return round(value * 1e9)
    raise TypeError(f"a time must be a datetime, a text or seconds, not {value!r}")


class Exclusion(Protocol):
    """Leaves events out of a subscription before its cadence sees them."""

    def spares(self, block: Block) -> bool:
        """Whether nothing in the block is left out."""
        ...

    def excludes_all(self, block: Block) -> bool:
        """Whether everything in the block is left out, as far as its header tells."""
        ...

    def excludes(self, event: Event) -> bool:
        """Whether the event is left out."""
        ...


class Selection:
    """Ranges that an event must lie in, each as (first, stop): the stop is left out, None is open.

    What is said about the run itself always passes: a sink needs it.

    Args:
        steps: On the step axis; events without a step are left out.
        epochs: Whole or fractional.
        time: See `Instant`.

    Raises:
        ValueError, TypeError: A range is none.
    """

    def __init__(
        self,
        steps: _Range | None = None,
        epochs: _Range | None = None,
        time: tuple[Instant | None, Instant | None] | None = None,
    ) -> None:
        self._steps = _numbers("steps", _range("steps", steps))
        self._epochs = _numbers("epochs", _range("epochs", epochs))
        first, stop = _range("time", time)
        self._time = (
            None if first is None else instant(first),
            None if stop is None else instant(stop),
        )

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self._steps == self._epochs == self._time == (None, None)

    def spares(self, block: Block) -> bool:
        """Whether all of a block lies in the ranges; not worth knowing here."""
        return False

    def excludes_all(self, block: Block) -> bool:
        """Whether nothing of a block lies in the ranges, as far as its header tells."""
        if block.flags & Content.RUN or self._steps == (None, None):
            return False
        low, high = block.steps
        first, stop = self._steps
        return (first is not None and high < first) or (stop is not None and low >= stop)

    def excludes(self, event: Event) -> bool:
        """Whether an event lies outside one of the ranges."""
        if content_of(type(event)) is Content.RUN:
            return False
        return not (
            _within(event.step, self._steps)
            and _within(event.epoch, self._epochs)
            and _within(event.wall, self._time)
        )


def _range(name: str, given: Any) -> _Range:
    if given is None:
        return (None, None)
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"{name} must be a pair (first, stop), either of them None, not {given!r}")
    return given


def _numbers(name: str, given: _Range) -> _Range:
    for bound in given:
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float)):
            raise TypeError(f"{name} must be a pair of numbers or None, not {given!r}")
    return given


def _within(value: Any, bounds: _Range) -> bool:
    first, stop = bounds
    if first is None and stop is None:
        return True
    if value is None:
        return False
    return (first is None or value >= first) and (stop is None or value < stop)
