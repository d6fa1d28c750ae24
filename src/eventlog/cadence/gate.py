"""The gate of a subscription: which events a cadence lets pass.

A tick belongs to an axis value. The first event at a step decides for the step: once it is due,
every event of that step passes, and once it is not, none does. So three metrics logged by three
calls at one step arrive at the same steps.

The gate keeps a *lane* for each kind of event and each axis, since train and validation steps may
interleave; a new attempt starts all of them afresh. What decides is a function of the events alone
(their axes, the updates among them, their own monotonic stamps), so that live delivery, a sidecar
and a replay tick at the same events.

After each tick a lane knows its *bounds*: what no event may reach, axis by axis, before the next
one. Whole blocks of events that stay below them are passed by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from eventlog.cadence.frequency import FrequencyManager
from eventlog.cadence.terms import AxisTerm, Cadence, PowTerm, Term, TimeTerm, UpdateTerm
from eventlog.cadence.text import every
from eventlog.events import BatchEvent, EpochEvent, Event

__all__ = ["TIME", "Bounds", "Gate", "Lane", "Rule", "as_rule", "axis_value"]

Rule: TypeAlias = Cadence | FrequencyManager
"""What decides: a parsed text, or a manager."""

Bounds: TypeAlias = tuple[tuple[str, int | float], ...]
"""By axis, what no event may reach before the next tick."""

TIME = ""
"""The axis of the monotonic stamps; no counter can have this name."""

_SLACK = 2e-9
"""More than the part of a float by which it may lie below the multiple that it stands for."""


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
    """Return where an event is on an axis: step, batch, epoch, time, a named axis or a counter.

    None where it does not say, or says what is no number.
    """
    if axis == "step":
        return event.step
    if axis == TIME:
        return event.mono
    if axis == "batch":
        return event.batch
    if axis == "epoch":
        value: Any = event.epoch
    elif event.axis == axis:
        return event.step
    else:
        value = event.values.get(axis)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return None


class Lane:
    """The decisions for one kind of event on one axis.

    Attributes:
        key: The axis value that `due` was decided for; None when each event decides for itself.
        due: Whether events of that value pass.
        due_key: The last axis value that was due: late events of it pass, too.
        ticks: How many values were due.
        bounds: What no event may reach before the next tick; None when any event may be due.
    """

    __slots__ = ("bounds", "due", "due_key", "indices", "key", "manager", "origin", "ticks")

    def __init__(self, manager: FrequencyManager | None) -> None:
        self.key: int | float | None = None
        self.due = False
        self.due_key: int | float | None = None
        self.ticks = 0
        self.bounds: Bounds | None = None
        self.indices: list[int | None] | None = None
        self.origin: int | None = None
        self.manager = manager

    def state(self) -> dict[str, Any]:
        """Return the lane as plain values."""
        return {
            "key": self.key,
            "due": self.due,
            "due_key": self.due_key,
            "ticks": self.ticks,
            "indices": None if self.indices is None else list(self.indices),
            "origin": self.origin,
            "manager": None if self.manager is None else self.manager.state_dict(),
        }


class Gate:
    """One rule, applied to the events of one subscription.

    Args:
        rule: A text, a parsed cadence or a manager; see `as_rule`.

    Attributes:
        rule: The rule, owned by this gate.
        lanes: By kind of event and axis.
        updates: Model updates since the attempt began.
    """

    def __init__(self, rule: str | Rule) -> None:
        self.rule = as_rule(rule)
        self.lanes: dict[tuple[type[Event], str], Lane] = {}
        self.updates = 0
        self._restarted = False
        self._last_update: dict[str, int | float | None] | None = None
        if isinstance(self.rule, FrequencyManager):
            self._terms: tuple[Term, ...] = ()
            self._axes: tuple[str, ...] = (self.rule.frequency_type,)
        else:
            self._terms = self.rule.terms
            self._axes = tuple(t.axis for t in self._terms if isinstance(t, AxisTerm | PowTerm))

    @property
    def name(self) -> str:
        """The rule as a text: decisions are only restored for the same one."""
        return str(self.rule)

    @property
    def never(self) -> bool:
        """Whether the rule is a manager without a frequency: then nothing ever passes."""
        return isinstance(self.rule, FrequencyManager) and self.rule.log_frequency is None

    @property
    def ticks(self) -> int:
        """How many axis values were due since the attempt began."""
        return sum(lane.ticks for lane in self.lanes.values())

    def keyed_by(self, kind: type[Event]) -> str:
        """Return the axis whose values ticks belong to, for events of a kind that have it."""
        if issubclass(kind, EpochEvent):
            return "epoch"
        if issubclass(kind, BatchEvent) and self._axes[:1] != ("step",):
            return "batch"
        return "step"

    def key_of(self, event: Event) -> int | float | None:
        """Return the axis value that a tick belongs to, for this event."""
        for axis in (self.keyed_by(type(event)), "step", "batch", "epoch"):
            key = axis_value(event, axis)
            if key is not None:
                return key
        return None

    def lane(self, kind: type[Event], axis: str) -> Lane:
        """Return the lane for a kind of event and an axis; made when it is first asked for."""
        lane = self.lanes.get((kind, axis))
        if lane is None:
            rule = self.rule
            manager = rule.copy() if isinstance(rule, FrequencyManager) else None
            lane = self.lanes[kind, axis] = Lane(manager)
            self._tell(lane)
        return lane

    def enter(self, event: Event) -> Lane:
        """Take an event's axis value into account; the lane says whether the event passes."""
        lane = self.lane(type(event), event.axis)
        key = self.key_of(event)
        if key is None or key != lane.key:
            self.move(lane, key, event)
        return lane

    def move(self, lane: Lane, key: int | float | None, event: Event) -> None:
        """Take the first event of another axis value: it decides for the value."""
        lane.key = key
        if key is not None and key == lane.due_key:
            lane.due = True
        elif self._reaches(lane, event) and self._decide(lane, event):
            lane.due = True
            lane.due_key = key
            lane.ticks += 1
        else:
            lane.due = False

    def _reaches(self, lane: Lane, event: Event) -> bool:
        if lane.bounds is None:
            return True
        for axis, bound in lane.bounds:
            x = event.step if axis == "step" else axis_value(event, axis)
            if x is not None and x >= bound:
                return True
        return False

    def _decide(self, lane: Lane, event: Event) -> bool:
        if lane.manager is not None:
            x = axis_value(event, lane.manager.frequency_type)
            if x is None or x < 0 or not lane.manager.log_ready(x):
                return False
            lane.manager.log_written(x)
            self._bound(lane)
            return True
        due = False
        indices: list[int | None] = list(lane.indices or [None] * len(self._terms))
        for i, term in enumerate(self._terms):
            index, last = self._index(term, lane, event), indices[i]
            if index is not None and (last is None or index > last):
                indices[i] = index
                due = True
        if due:
            lane.indices = indices
            self._bound(lane)
        return due

    def _index(self, term: Term, lane: Lane, event: Event) -> int | None:
        if isinstance(term, AxisTerm | PowTerm):
            x = axis_value(event, term.axis)
            return None if x is None or x < 0 else term.index(x)
        if isinstance(term, TimeTerm):
            if lane.origin is None:
                lane.origin = event.mono
            return (event.mono - lane.origin) // term.ns
        return self.updates

    def _bound(self, lane: Lane) -> None:
        """Work out the bounds of a lane anew."""
        if lane.manager is not None:
            due = lane.manager.next_due()
            lane.bounds = () if due is None else ((lane.manager.frequency_type, due),)
            return
        lane.bounds = None
        if lane.indices is None:
            return
        bounds: list[tuple[str, int | float]] = []
        for term, index in zip(self._terms, lane.indices, strict=True):
            if isinstance(term, UpdateTerm):
                if index is None or index < self.updates:
                    return
            elif isinstance(term, TimeTerm):
                if index is None or lane.origin is None:
                    return
                bounds.append((TIME, lane.origin + (index + 1) * term.ns))
            else:
                bounds.append((term.axis, 0 if index is None else _least(term, index)))
        lane.bounds = tuple(bounds)

    def model_updated(self, event: Event) -> None:
        """Take note of a model update, whatever types the subscription takes."""
        self.updates += 1
        self._last_update = {axis: axis_value(event, axis) for axis in ("step", "batch", "epoch")}
        for lane in self.lanes.values():
            self._tell(lane)

    def _tell(self, lane: Lane) -> None:
        """Tell a lane of the last model update."""
        if lane.manager is not None and self._last_update is not None:
            x = self._last_update[lane.manager.frequency_type]
            if x is not None and x >= 0:
                lane.manager.model_updated(x)
        self._bound(lane)

    def epoch_ended(self, lane: Lane, event: Event) -> bool:
        """Whether a window of a lane ends with the epoch that just ended.

        So it is for rules in epochs. The tick that the next epoch would bring has then been had.
        """
        epoch = axis_value(event, "epoch")
        if epoch is None or epoch < 0 or "epoch" not in self._axes:
            return False
        after = epoch + 1
        ended = False
        if lane.manager is not None:
            ended = lane.manager.log_ready(after)
            if ended:
                lane.manager.log_written(after)
        else:
            indices: list[int | None] = list(lane.indices or [None] * len(self._terms))
            for i, term in enumerate(self._terms):
                if isinstance(term, AxisTerm | PowTerm) and term.axis == "epoch":
                    index = term.index(after)
                    if index > (indices[i] or 0):
                        indices[i] = index
                        ended = True
            if ended:
                lane.indices = indices
        self._bound(lane)
        return ended

    def restart(self) -> None:
        """Forget everything: another attempt begins."""
        self.lanes.clear()
        self.updates = 0
        self._last_update = None
        self._restarted = True
        if isinstance(self.rule, FrequencyManager):
            self.rule = self.rule.copy(fresh=True)

    def state(self) -> dict[str, Any]:
        """Return what the gate knows beside its lanes, as plain values."""
        return {
            "updates": self.updates,
            "last_update": self._last_update,
            "restarted": self._restarted,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned; there are no lanes then."""
        self.lanes.clear()
        if state["restarted"]:
            self.restart()
        self.updates = state["updates"]
        self._last_update = state["last_update"]

    def load_lane(self, lane: Lane, state: Mapping[str, Any]) -> None:
        """Have a lane take over what `Lane.state` returned."""
        lane.key = state["key"]
        lane.due = state["due"]
        lane.due_key = state["due_key"]
        lane.ticks = state["ticks"]
        lane.indices = None if state["indices"] is None else list(state["indices"])
        lane.origin = state["origin"]
        if lane.manager is not None:
            lane.manager.load_state_dict(state["manager"])
        self._bound(lane)


def _least(term: AxisTerm | PowTerm, index: int) -> int | float:
    """Return a number below which no value has a greater index than this one."""
    if isinstance(term, PowTerm):
        nominal: int | Fraction = term.base**index
    elif term.n.denominator == 1:
        nominal = (index + 1) * term.n.numerator
    else:
        nominal = (index + 1) * term.n
    if term.axis in ("step", "batch"):
        return math.ceil(nominal)
    try:
        return float(nominal) * (1 - _SLACK)
    except OverflowError:
        return math.floor(nominal * (1 - Fraction(_SLACK)))
