"""Where on its axis an event is shown, and what a rewind takes away there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from eventlog.events import Event
from eventlog.sinks.tracker import At
from eventlog_dvclive.page import RunPage

__all__ = ["Place", "Places"]

Place: TypeAlias = tuple[str, int | None]
"""An axis, and the step there; None counts on from the last one."""


class Places:
    """Knows how far each axis is, and from where on its points are void.

    A run that is rewound to a step goes on with this step or with the next one. What is beyond is
    void at once; whether the very step's own point is, the first point to come tells.

    Args:
        page: Keeps what the next process must know.
        void: Called with an axis and a step from which its points are void.
        count: Called with a reason when something is not shown as it is.
        floors: `kept` of the process before.
        step: The step that the run had come to, if it is known.
    """

    def __init__(
        self,
        page: RunPage,
        void: Callable[[str, int], None],
        count: Callable[[str], None],
        floors: Mapping[str, int],
        step: int | None,
    ) -> None:
        self._page, self._void, self._count = page, void, count
        self._floors = dict(floors)
        self.kept = dict(floors)
        self._found = step
        self._steps: dict[str, int] = {}

    @property
    def step(self) -> int | None:
        """The step that the run has come to: on the axis ``step``, or on the one there is."""
        if "step" in self._steps:
            return self._steps["step"]
        return next(reversed(self._steps.values()), self._found)

    def find(self, event: Event, axis: str, at: At) -> Place:
        """Return where an event is shown, as a whole number."""
        if isinstance(at, float):
            axis, at = self._whole(event, axis, at)
        if at is None:
            return axis, None
        if self._floors and axis in self._floors:
            floor = self._floors.pop(axis)
            if at <= floor:
                self._void(axis, floor)
        self._steps[axis] = at
        return axis, at

    def back(self, axis: str, event: Event) -> None:
        """Take note that an axis went back without a rewind: later rewinds spare its points.

        Points of an earlier attempt that come again after an outage are no such thing.
        """
        if axis not in self._page.mixed and event.attempt >= self._page.attempt:
            self._page.mixed.add(axis)
            self._page.stale = True

    def rewind(self, event: Event, to_step: int) -> None:
        """Make points void on each axis of which the event says where it goes on."""
        for axis, to in (("step", to_step), ("batch", event.batch), ("epoch", event.epoch)):
            if to is None or not math.isfinite(to):
                continue
            if axis in self._page.mixed:
                self._count(f"rewind of the axis {axis!r}, which goes back by itself")
                continue
            floor = math.floor(to)
            self._floors[axis] = floor
            self._void(axis, floor + 1)
        if event.attempt > self._page.attempt:
            self._page.attempt, self._page.stale = event.attempt, True

    def commit(self) -> None:
        """Keep what the batch changed."""
        self.kept = dict(self._floors)

    def discard(self) -> None:
        """Forget what the batch changed: it comes again."""
        self._floors = dict(self.kept)

    def _whole(self, event: Event, axis: str, at: float) -> Place:
        if at.is_integer():
            return axis, int(at)
        if event.step is not None:
            self._count("fractional epoch shown at its step")
            return event.axis, event.step
        if math.isfinite(at):
            self._count("fractional epoch rounded down")
            return axis, math.floor(at)
        return axis, None
