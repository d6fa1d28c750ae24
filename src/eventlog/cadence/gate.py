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

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from eventlog.cadence._tickers import TIME, UPDATES, Ticker, axis_value, ticker
from eventlog.cadence.frequency import FrequencyManager
from eventlog.cadence.terms import Cadence
from eventlog.cadence.text import every
from eventlog.events import BatchEvent, EpochEvent, Event

__all__ = ["Bounds", "Gate", "Lane", "Rule", "as_rule"]

Rule: TypeAlias = Cadence | FrequencyManager
"""What decides: a parsed text, or a manager."""

Bounds: TypeAlias = list[tuple[str, int | float]]
"""By axis, what no event may reach before the next tick."""


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

    def __init__(self, manager: FrequencyManager | None, terms: int) -> None:
        self.key: int | float | None = None
        self.due = False
        self.due_key: int | float | None = None
        self.ticks = 0
        self.bounds: Bounds | None = None
        self.indices: list[int | None] = [None] * terms
        self.origin: int | None = None
        self.manager = manager

    def state(self) -> dict[str, Any]:
        """Return the lane as plain values."""
        return {
            "key": self.key,
            "due": self.due,
            "due_key": self.due_key,
            "ticks": self.ticks,
            "indices": list(self.indices),
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
            self._tickers: tuple[Ticker, ...] = ()
            self._axes: tuple[str, ...] = (self.rule.frequency_type,)
        else:
            self._tickers = tuple(map(ticker, self.rule.terms))
            self._axes = tuple(t.axis for t in self._tickers if t.axis not in (TIME, UPDATES))

    @property
    def name(self) -> str:
        """The rule as a text: decisions are only restored for the same one."""
        return str(self.rule)

    @property
    def never(self) -> bool:
        """Whether the rule is a manager without a frequency: then nothing ever passes."""
        return isinstance(self.rule, FrequencyManager) and self.rule.log_frequency is None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that the rule counts on."""
        return self._axes

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
            lane = self.lanes[kind, axis] = Lane(manager, len(self._tickers))
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
            return
        bounds = lane.bounds
        if bounds is not None:
            for axis, bound in bounds:
                x = event.step if axis == "step" else axis_value(event, axis)
                if x is not None and x >= bound:
                    break
            else:
                lane.due = False
                return
        lane.due = self._decide(lane, event)
        if lane.due:
            lane.due_key = key
            lane.ticks += 1

    def _decide(self, lane: Lane, event: Event) -> bool:
        if lane.manager is not None:
            x = axis_value(event, lane.manager.frequency_type)
            if x is None or x < 0 or not lane.manager.log_ready(x):
                return False
            lane.manager.log_written(x)
            self._bound(lane)
            return True
        if lane.origin is None:
            lane.origin = event.mono
        due = False
        indices, bounds, origin = lane.indices, lane.bounds, lane.origin
        for i, term in enumerate(self._tickers):
            index, last = term.index(event, origin, self.updates), indices[i]
            if index is not None and (last is None or index > last):
                indices[i] = index
                due = True
                if bounds is not None:
                    bounds[i] = (term.axis, term.bound(index, origin))
        if due and bounds is None:
            self._bound(lane)
        return due

    def _bound(self, lane: Lane) -> None:
        """Work out the bounds of a lane anew."""
        lane.bounds = None
        if lane.manager is not None:
            due = lane.manager.next_due()
            lane.bounds = [] if due is None else [(lane.manager.frequency_type, due)]
        elif lane.origin is not None:
            bounds: Bounds = []
            for term, index in zip(self._tickers, lane.indices, strict=True):
                if term.axis == UPDATES and (index is None or index < self.updates):
                    return
                bound = 0 if index is None else term.bound(index, lane.origin)
                bounds.append((term.axis, bound))
            lane.bounds = bounds

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
            next_epoch = msgspec.structs.replace(event, epoch=after)
            for i, term in enumerate(self._tickers):
                if term.axis == "epoch":
                    index = term.index(next_epoch, 0, 0) or 0
                    if index > (lane.indices[i] or 0):
                        lane.indices[i] = index
                        ended = True
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
        lane.indices = list(state["indices"])
        lane.origin = state["origin"]
        if lane.manager is not None:
            lane.manager.load_state_dict(state["manager"])
        self._bound(lane)
