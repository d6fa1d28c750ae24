"""The metrics of a log as series of points, for plots and listings."""

from __future__ import annotations

import fnmatch
import math
from array import array
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from eventlog.events import Event, ModelUpdateEvent, RunFinished, RunStarted, SummaryUpdated
from eventlog.log.archive import Log

__all__ = ["Axis", "Metrics", "Series", "Update", "envelope", "read_metrics"]


class Axis(StrEnum):
    """What metrics can be put over."""

    STEP = "step"
    EPOCH = "epoch"
    BATCH = "batch"
    WALL = "wall"


_UNITS = {Axis.WALL: "seconds", Axis.EPOCH: "epoch", Axis.BATCH: "batch"}
_NO_METRICS = (ModelUpdateEvent, RunStarted, RunFinished, SummaryUpdated)


class Update(NamedTuple):
    """A model update: where, and what was done."""

    x: float
    kind: str


class Series:
    """The points of one metric, in the order of the axis.

    Attributes:
        key: The metric's name.
        axis: What `x` counts: step, epoch, batch, "seconds", or an axis of the run's own.
        x, y: The finite points.
        nonfinite: Where NaN and infinities were.
        last: The value that was logged last, finite or not.
    """

    def __init__(self, key: str, axis: str) -> None:
        self.key = key
        self.axis = axis
        self.x = array("d")
        self.y = array("d")
        self.nonfinite = array("d")
        self.last: float = math.nan

    def add(self, x: float, y: float) -> None:
        """Add a point."""
        self.last = y
        if math.isfinite(y):
            self.x.append(x)
            self.y.append(y)
        else:
            self.nonfinite.append(x)

    def __len__(self) -> int:
        return len(self.x) + len(self.nonfinite)

    def settle(self) -> None:
        """Bring the points into order; an epoch's become one, their mean."""
        if list(self.x) != sorted(self.x):
            order = sorted(range(len(self.x)), key=self.x.__getitem__)
            self.x = array("d", [self.x[i] for i in order])
            self.y = array("d", [self.y[i] for i in order])
        if self.axis == "epoch":
            self.x, self.y = _means(self.x, self.y)


class Metrics(NamedTuple):
    """What there is to plot of a run."""

    series: list[Series]
    updates: list[Update]


def read_metrics(log: Log, axis: Axis, keys: Sequence[str] = ()) -> Metrics:
    """Read the metrics of a log, by what the latest attempt says of each step.

    Args:
        log: What to read.
        axis: What to put them over. Events that do not say where they are on it are left out.
        keys: Glob patterns of names; all when empty.
    """
    found: dict[str, dict[str, Series | None]] = {}
    updates: list[Update] = []
    origin: int | None = None
    for event in log.events(latest=True):
        if origin is None:
            origin = event.wall
        x = _place(event, axis, origin)
        if x is None:
            continue
        if isinstance(event, _NO_METRICS):
            if isinstance(event, ModelUpdateEvent):
                updates.append(Update(x, event.kind))
            continue
        name = event.axis if axis is Axis.STEP else _UNITS[axis]
        series = found.setdefault(name, {})
        for key, value in event.values.items():
            if isinstance(value, str):
                continue
            if key not in series:
                wanted = not keys or any(fnmatch.fnmatchcase(key, k) for k in keys)
                series[key] = Series(key, name) if wanted else None
            if (one := series[key]) is not None:
                one.add(x, value)
    chosen = [s for each in found.values() for s in each.values() if s is not None]
    for one in chosen:
        one.settle()
    return Metrics(sorted(chosen, key=lambda s: (s.key, s.axis)), updates)


def _place(event: Event, axis: Axis, origin: int) -> float | None:
    match axis:
        case Axis.WALL:
            return (event.wall - origin) / 1e9
        case Axis.STEP:
            return event.step
        case Axis.EPOCH:
            return event.epoch
        case Axis.BATCH:
            return event.batch


def _means(xs: array[float], ys: array[float]) -> tuple[array[float], array[float]]:
    x_out, y_out = array("d"), array("d")
    at = 0
    while at < len(xs):
        end = at
        while end < len(xs) and xs[end] == xs[at]:
            end += 1
        x_out.append(xs[at])
        y_out.append(math.fsum(ys[at:end]) / (end - at))
        at = end
    return x_out, y_out


def envelope(
    x: Sequence[float], y: Sequence[float], columns: int, low: float, high: float
) -> tuple[list[float], list[float]]:
    """Thin points out to what can be seen: the first, least, greatest and last of each column.

    Args:
        x, y: Points, in order of `x`.
        columns: How many can be told apart between `low` and `high`.
        low, high: The ends of the axis.
    """
    if len(x) <= 4 * columns or high <= low:
        return list(x), list(y)
    kept: list[int] = []
    at = 0
    scale = columns / (high - low)
    while at < len(x):
        column = int((x[at] - low) * scale)
        end = at + 1
        while end < len(x) and int((x[end] - low) * scale) == column:
            end += 1
        part = range(at, end)
        kept += sorted({at, min(part, key=y.__getitem__), max(part, key=y.__getitem__), end - 1})
        at = end
    return [x[i] for i in kept], [y[i] for i in kept]
