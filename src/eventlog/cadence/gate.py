"""The gate of a subscription: which events a cadence lets pass.

A tick belongs to an axis value. The first event at a step decides for the step: once it is due,
every event of that step passes, and once it is not, none does. So three metrics logged by three
calls at one step arrive at the same steps.

The gate keeps a *lane* for each kind of event and each axis, since train and validation steps may
interleave; a new attempt starts all of them afresh. What decides is a function of the events alone
(their axes, the updates among them, their own monotonic stamps), so that live delivery, a sidecar
and a replay tick at the same events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from eventlog.cadence.frequency import FrequencyManager
from eventlog.cadence.terms import AxisTerm, Cadence, PowTerm, TimeTerm
from eventlog.cadence.text import every
from eventlog.events import BatchEvent, EpochEvent, Event

__all__ = ["Gate", "Lane", "Rule", "as_rule", "axis_value"]

Rule: TypeAlias = Cadence | FrequencyManager
"""What decides: a parsed text, or a manager."""

_UNSEEN = object()


def as_rule(rule: str | Rule) -> Rule:
    """Return a cadence that this subscription owns: a text is parsed, a manager copied.

    Raises:
        CadenceError: The text is wrong.
        TypeError: It is none of these.
    """
    if isinstance(rule, FrequencyManager):
        return rule.copy()
    if isinstance(rule, str | Cadence):
        return every(rule)
    raise TypeError(
        "a cadence must be a text such as '10 steps' or a FrequencyManager, "
        f"not {type(rule).__name__}"
    )


def axis_value(event: Event, axis: str) -> int | float | None:
    """Return where an event is on an axis: step, batch, epoch, a named axis or a counter."""
    if axis == "step":
        return event.step
    if axis == "batch":
        return event.batch
    if axis == "epoch":
        return event.epoch
    if event.axis == axis:
        return event.step
    value = event.values.get(axis)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return None


class Lane:
    """The decisions for one kind of event on one axis.

    Attributes:
        key: The axis value that `due` was decided for.
        due: Whether events of that value pass.
        due_key: The last axis value that was due: late events of it pass, too.
        ticks: How many values were due.
        moved: Whether the last event was the first of its value.
        was_due: What `due` was before the last event.
    """

    __slots__ = ("due", "due_key", "indices", "key", "manager", "moved", "next_x", "origin",
                 "ticks", "was_due")  # fmt: skip

    def __init__(self, manager: FrequencyManager | None) -> None:
        self.key: Any = _UNSEEN
        self.due = False
        self.due_key: Any = _UNSEEN
        self.ticks = 0
        self.moved = False
        self.was_due = False
        self.indices: list[int | None] | None = None
        self.origin: int | None = None
        self.manager = manager
        self.next_x: int | float = 0

    def state(self) -> dict[str, Any]:
        """Return the lane as plain values."""
        return {
            "key": None if self.key is _UNSEEN else self.key,
            "seen": self.key is not _UNSEEN,
            "due": self.due,
            "due_key": None if self.due_key is _UNSEEN else self.due_key,
            "ticks": self.ticks,
            "indices": None if self.indices is None else list(self.indices),
            "origin": self.origin,
            "next_x": self.next_x,
            "manager": None if self.manager is None else self.manager.state_dict(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.key = state["key"] if state["seen"] else _UNSEEN
        self.due = state["due"]
        self.ticks = state["ticks"]
        self.due_key = state["due_key"] if self.ticks else _UNSEEN
        self.indices = None if state["indices"] is None else list(state["indices"])
        self.origin = state["origin"]
        self.next_x = state["next_x"]
        if self.manager is not None:
            self.manager.load_state_dict(state["manager"])


class Gate:
    """One rule, applied to the events of one subscription.

    Args:
        rule: A text, a parsed cadence or a manager; see `as_rule`.
    """

    def __init__(self, rule: str | Rule) -> None:
        self.rule = as_rule(rule)
        self.lanes: dict[tuple[type[Event], str], Lane] = {}
        self.updates = 0
        self._last_update: Event | None = None
        if isinstance(self.rule, FrequencyManager):
            self._axes: tuple[str, ...] = (self.rule.frequency_type,)
            self._steady = self.rule.mode == "exact"
            self._terms: tuple[Any, ...] = ()
        else:
            self._terms = self.rule.terms
            counted = [t for t in self._terms if isinstance(t, AxisTerm | PowTerm)]
            self._axes = tuple(dict.fromkeys(t.axis for t in counted))
            # steady: a value that is not due does not become due by waiting
            self._steady = len(counted) == len(self._terms)
        self._by_step = self._axes[:1] == ("step",)
        self._cached: tuple[Any, Any, Lane] | None = None

    @property
    def in_epochs(self) -> bool:
        """Whether windows of this rule end with an epoch."""
        return "epoch" in self._axes

    @property
    def never(self) -> bool:
        """Whether the rule is a manager without a frequency: then nothing ever passes."""
        return isinstance(self.rule, FrequencyManager) and self.rule.log_frequency is None

    @property
    def ticks(self) -> int:
        """How many axis values were due since the attempt began."""
        return sum(lane.ticks for lane in self.lanes.values())

    def key_of(self, event: Event) -> Any:
        """Return the axis value that a tick belongs to, for this event."""
        if isinstance(event, BatchEvent) and not self._by_step and event.batch is not None:
            return event.batch
        if isinstance(event, EpochEvent) and event.epoch is not None:
            return event.epoch
        if event.step is not None:
            return event.step
        if event.batch is not None:
            return event.batch
        return event.epoch

    def lane_of(self, event: Event) -> Lane:
        """Return the lane that an event belongs to; made when it is the first one there."""
        kind, axis = type(event), event.axis
        cached = self._cached
        if cached is not None and cached[0] is kind and cached[1] == axis:
            return cached[2]
        lane = self.lanes.get((kind, axis))
        if lane is None:
            lane = self._new_lane()
            self.lanes[kind, axis] = lane
            if lane.manager is not None and self._last_update is not None:
                self._tell(lane, self._last_update)
        self._cached = (kind, axis, lane)
        return lane

    def _new_lane(self) -> Lane:
        rule = self.rule
        return Lane(rule.copy() if isinstance(rule, FrequencyManager) else None)

    def enter(self, event: Event) -> Lane:
        """Take an event's axis value into account; the lane says whether the event passes."""
        lane = self.lane_of(event)
        key = self.key_of(event)
        if key == lane.key and key is not None:
            lane.moved = False
            return lane
        lane.moved = True
        lane.was_due = lane.due
        lane.key = key
        if key is not None and key == lane.due_key:
            lane.due = True
        elif self._decide(lane, event):
            lane.due = True
            lane.due_key = key
            lane.ticks += 1
        else:
            lane.due = False
        return lane

    def _decide(self, lane: Lane, event: Event) -> bool:
        if lane.manager is not None:
            return self._ask(lane.manager, event)
        x = axis_value(event, self._axes[0]) if self._axes else None
        if self._steady and len(self._axes) == 1 and x is not None and x < lane.next_x:
            return False
        indices = [self._index(term, lane, event) for term in self._terms]
        old = lane.indices
        if old is None:
            due = any(i is not None for i in indices)
        else:
            due = any(
                i is not None and (o is None or i > o) for i, o in zip(indices, old, strict=True)
            )
        if due:
            lane.indices = (
                indices
                if old is None
                else [o if i is None else i for i, o in zip(indices, old, strict=True)]
            )
            lane.next_x = self._next_x(x)
        return due

    def _index(self, term: Any, lane: Lane, event: Event) -> int | None:
        if isinstance(term, AxisTerm | PowTerm):
            x = axis_value(event, term.axis)
            if x is None or x < 0 or x != x:
                return None
            return term.index(x)
        if isinstance(term, TimeTerm):
            if lane.origin is None:
                lane.origin = event.mono
            return (event.mono - lane.origin) // term.ns
        return self.updates

    def _next_x(self, x: int | float | None) -> int | float:
        """Return a bound below which nothing is due, on the only axis there is; 0 for none."""
        if not self._steady or len(self._axes) != 1 or type(x) is not int or x < 0:
            return 0
        bounds: list[int | Fraction] = [term.next_after(x) for term in self._terms]
        return min(math.floor(bound) for bound in bounds)

    def _ask(self, manager: FrequencyManager, event: Event) -> bool:
        x = axis_value(event, manager.frequency_type)
        if x is None or x != x or not manager.log_ready(x):
            return False
        manager.log_written(x)
        return True

    def model_updated(self, event: Event) -> None:
        """Take note of a model update, whatever types the subscription takes."""
        self.updates += 1
        self._last_update = event
        for lane in self.lanes.values():
            if lane.manager is not None:
                self._tell(lane, event)

    def _tell(self, lane: Lane, update: Event) -> None:
        assert lane.manager is not None  # noqa: S101 - the callers have looked
        x = axis_value(update, lane.manager.frequency_type)
        if x is not None:
            lane.manager.model_updated(x)

    def epoch_ended(self, event: Event) -> bool:
        """Whether a window of this rule ends with the epoch that just ended.

        The tick that the next epoch would bring has then been had.
        """
        if not self.in_epochs or event.epoch is None:
            return False
        after = event.epoch + 1
        ended = False
        for lane in self.lanes.values():
            if lane.manager is not None:
                if lane.manager.log_ready(after):
                    lane.manager.log_written(after)
                    ended = True
                continue
            for i, term in enumerate(self._terms):
                if not isinstance(term, AxisTerm) or term.axis != "epoch":
                    continue
                index = term.index(after)
                if lane.indices is not None and index > (lane.indices[i] or 0):
                    lane.indices[i] = index
                    ended = True
        return ended

    def restart(self) -> None:
        """Forget everything: another attempt begins."""
        self.lanes.clear()
        self._cached = None
        self.updates = 0
        self._last_update = None
        if isinstance(self.rule, FrequencyManager):
            self.rule = self.rule.copy(fresh=True)

    def next_step(self, kind: type[Event], axis: str) -> tuple[int, int] | None:
        """Return (the last due step, a step before which none is due), where steps decide alone.

        None when more must be looked at than the steps of the events: then no event may be left
        out.
        """
        lane = self.lanes.get((kind, axis))
        if lane is None or lane.due_key is _UNSEEN or not self._steady:
            return None
        if self._axes != ("step",) or lane.due_key is None:
            return None
        if lane.manager is not None:
            bound = lane.manager.next_due()
            return None if bound is None else (lane.due_key, math.floor(bound))
        return (lane.due_key, math.floor(lane.next_x))

    def open_lane(self, kind: type[Event], axis: str) -> Lane:
        """Return the lane for a kind of event and an axis, made afresh."""
        lane = self.lanes[kind, axis] = self._new_lane()
        self._cached = None
        return lane

    def moves(self, lane: Lane, event: Event) -> bool:
        """Whether `enter` would move the lane on to another axis value."""
        key = self.key_of(event)
        return key is None or key != lane.key

    def last_update(self, lane: Lane) -> int | float | None:
        """Return what the lane's manager knows of the last model update."""
        return None if lane.manager is None else lane.manager.last_model_update_step

    def pass_by(self, lane: Lane, key: int) -> None:
        """Say that events up to an axis value were passed by, none of which was due."""
        lane.key = key
        lane.due = False

    def settle(self, lane: Lane) -> None:
        """Say that a lane's window was closed before its axis moved on."""
        lane.due = False
