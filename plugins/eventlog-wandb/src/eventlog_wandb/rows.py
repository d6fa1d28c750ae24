"""Rows of a run's history: one for each event, with its place on every axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eventlog.events import BatchEvent, EpochEvent, Event
from eventlog.sinks.names import Names
from eventlog_wandb.wandb_file import MARK

__all__ = ["Columns", "Entry", "number"]

_AXES = ("step", "batch", "epoch", "attempt")


def number(value: float, count: Callable[[str], None]) -> float:
    """Return a number as W&B can plot it; a bool is 0 or 1."""
    if isinstance(value, float):
        return value
    value = int(value)
    if -(2**53) <= value <= 2**53:
        return value
    if -(2**63) <= value < 2**63:
        count("integer beyond 53 bits: the page rounds it")
        return value
    count("integer beyond 64 bits: rounded")
    try:
        return float(value)
    except OverflowError:
        count("integer beyond floats: shown as infinity")
        return math.inf if value > 0 else -math.inf


@dataclass
class Entry:
    """What an event comes to: a row, and what is sent beside it.

    Attributes:
        here: The event's attempt and number; None for one that has none.
        row: The row's cells.
        options: What the log call said for this sink.
        places: How many cells say where and when it was.
        with_files: Whether there are files among the cells.
        before: What is to be sent before the row.
    """

    event: Event
    here: tuple[int, int] | None
    row: dict[str, Any]
    options: dict[str, Any]
    places: int
    with_files: bool = False
    before: list[Callable[[], None]] = field(default_factory=list)

    @property
    def filled(self) -> bool:
        """Whether the row shows anything."""
        return len(self.row) > self.places


class Columns:
    """The names of a row's cells, each of which is told to W&B once, with its axis.

    Args:
        names: Makes the names.
        define: The SDK's `define_metric`.
        count: Counts what is not shown as it is.
    """

    def __init__(
        self, names: Names, define: Callable[..., Any], count: Callable[[str], None]
    ) -> None:
        self._names = names
        self._define = define
        self._count = count
        self._axes: dict[str, str] = {}
        self._columns: dict[tuple[str, str, str], str] = {}
        for axis in _AXES:
            self._axis(axis)

    def row(self, event: Event) -> dict[str, Any]:
        """Return the cells that say where and when an event was."""
        row: dict[str, Any] = {}
        if event.step is not None:
            row[self._axis(_named(event))] = number(event.step, self._count)
        if event.batch is not None:
            row[self._axis("batch")] = number(event.batch, self._count)
        if event.epoch is not None:
            row[self._axis("epoch")] = number(event.epoch, self._count)
        if event.attempt > 1:
            row[self._axis("attempt")] = event.attempt
        if event.wall:
            row["_timestamp"] = event.wall_time
        if event.seq >= 0:
            row[MARK] = f"{event.attempt}:{event.seq}"
        return row

    def name(self, event: Event, axis: str, placed: bool, key: str, kind: str) -> str:
        """Return the name of a cell.

        Args:
            event: Whose it is.
            axis: What it is shown over.
            placed: Whether the event has a place there; otherwise W&B's own step is the axis.
            key: What the user calls it.
            kind: What it is.
        """
        if not placed:
            self._count("event without a step: shown at W&B's own")
            axis = "unstepped"
        elif axis == event.axis != "step" and not _is_native(event, axis):
            axis = _named(event)
        name = self._columns.get((axis, kind, key))
        if name is None:
            name = self._columns[axis, kind, key] = self._names(key, axis, kind)
            if placed:
                # without `step_sync`, a row that lacks the axis would be given its last value
                self._define(name, step_metric=self._axis(axis), step_sync=False)
        return name

    def _axis(self, axis: str) -> str:
        name = self._axes.get(axis)
        if name is None:
            name = self._axes[axis] = self._names(axis, "axis", "axis")
            self._define(name, hidden=True)
        return name


def _is_native(event: Event, axis: str) -> bool:
    """Whether an axis is the events' own one of batches or epochs, not a user's of that name."""
    if axis == "batch":
        return isinstance(event, BatchEvent) and event.batch is not None
    return axis == "epoch" and isinstance(event, EpochEvent) and event.epoch is not None


def _named(event: Event) -> str:
    """Return the axis that the event's step is on, beside those of batches and epochs."""
    return f"{event.axis} axis" if event.axis in ("batch", "epoch", "attempt") else event.axis
