"""What a subscription does with each event: whether it passes, when, and as part of what.

It knows nothing of where events come from; `eventlog.subscription` feeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from eventlog._keys import KeyFilter
from eventlog._lanes import GatedLane
from eventlog.cadence.gate import Gate, Rule
from eventlog.cadence.window import Reduce, Reduction
from eventlog.codec import event_types
from eventlog.events import (
    BatchEvent,
    EpochEvent,
    Event,
    Flushed,
    ModelUpdateEvent,
    RunFinished,
    StepEvent,
    event_tag,
)
from eventlog.log.layout import Content, content_of

__all__ = ["KINDS", "Every", "Sieve"]

Every: TypeAlias = (
    "str | Rule | Mapping[str, str | Rule] | Mapping[type[Event], str | Rule] "
    "| Mapping[str | type[Event], str | Rule] | None"
)
"""A cadence for step and batch events, or cadences by event type (or its tag)."""

_CLOSING = (ModelUpdateEvent, EpochEvent, Flushed, RunFinished)
"""Kinds that mean something to windows or gates, besides passing themselves."""

_PURE = Content.STEP | Content.BATCH | Content.EPOCH | Content.MODEL
"""Flags that stand for one kind of event each."""

KINDS = int(_PURE | Content.RUN | Content.MEDIA | Content.OTHER)
"""The flags of a block that say which kinds of events it holds."""


class Sieve:
    """The rule by which events pass; see `eventlog.subscription.Subscription`.

    Attributes:
        looked_at: Flags of what must be looked at.
        passing: Flags of what passes as it is, for blocks that hold nothing else.
        keys: Which values are kept; None for all.
        quick: The lanes of the axis "step", for kinds that mean nothing else.
    """

    def __init__(
        self,
        types: Collection[type[Event] | str] | None,
        every: Every,
        reduce: Reduce,
        keys: Collection[str] | None,
    ) -> None:
        self._types = None if types is None else frozenset(map(_as_type, types))
        self._by_kind = _gates(every)
        self._gates = list(dict.fromkeys(self._by_kind.values()))
        self._reduction = None if reduce is None else Reduction(reduce)
        if self._reduction is not None and not self._gates:
            raise ValueError("reduce needs a cadence: say when a window ends, as every='10 steps'")
        self._lanes: dict[tuple[type[Event], str], GatedLane] = {}
        self._gated_any = False
        self._ticks_before = 0
        self.keys = None if keys is None else KeyFilter(keys)
        self.quick: dict[type[Event], GatedLane] = {}
        self.looked_at, self.passing = self._contents()

    def _contents(self) -> tuple[int, int]:
        gated = Content(0)
        for kind in self._by_kind:
            gated |= content_of(kind)
        if self._gates:
            gated |= Content.MODEL
        if self._reduction is not None:
            gated |= Content.EPOCH
        if self._types is None:
            return KINDS, KINDS & ~int(gated | Content.RUN)
        taken = Content(0)
        for kind in self._types:
            taken |= content_of(kind)
        closing = Content.RUN | (gated & (Content.MODEL | Content.EPOCH))
        return int(taken | closing), int(taken & _PURE & ~gated)

    @property
    def gated(self) -> bool:
        """Whether anything has a cadence."""
        return bool(self._gates)

    @property
    def ticks(self) -> int:
        """How often a cadence was due."""
        return self._ticks_before + sum(gate.ticks for gate in self._gates)

    @property
    def never_ticked(self) -> bool:
        """Whether no cadence was ever due although there was something to gate."""
        return self._gated_any and not self.ticks

    @property
    def open(self) -> int:
        """How many events wait."""
        return sum(lane.open for lane in self._lanes.values())

    def take_each(
        self,
        events: list[Event],
        excluded: Callable[[Event], bool] | None,
        out: list[Event],
        limit: int,
    ) -> Event:
        """Take events one by one until `out` holds `limit`, or one is a `Flushed`.

        Returns:
            The last one taken.
        """
        keys, quick = self.keys, self.quick
        for event in events:
            if excluded is not None and excluded(event):
                continue
            lane = quick.get(type(event))
            if lane is None or event.axis != "step":
                self._take(event, out)
                if type(event) is Flushed:
                    break
            elif keys is None or keys.matches(event):
                lane.take(event, out)
            if len(out) >= limit:
                break
        return event

    def _take(self, event: Event, out: list[Event]) -> None:
        """Take an event of any kind."""
        kind = type(event)
        if kind in _CLOSING:
            self._take_note(event, out)
            if kind is Flushed and self._types is None:
                return
        if self._types is not None and kind not in self._types:
            return
        if kind in self._by_kind:
            if self.keys is None or self.keys.matches(event):
                self._lane(kind, event.axis).take(event, out)
        elif self.keys is None or not event.values or self.keys.matches(event):
            out.append(event)

    def _take_note(self, event: Event, out: list[Event]) -> None:
        """Tell gates and windows of an event that means something to them."""
        if isinstance(event, ModelUpdateEvent):
            for gate in self._gates:
                gate.model_updated(event)
        elif isinstance(event, RunFinished):
            self.finish(out)
        else:
            for (kind, _), lane in self._lanes.items():
                if isinstance(event, Flushed):
                    lane.flush(out)
                elif kind is not EpochEvent:
                    # epoch events with a cadence are at the end of their epoch themselves
                    lane.epoch_ended(event, out)

    def _lane(self, kind: type[Event], axis: str) -> GatedLane:
        lane = self._lanes.get((kind, axis))
        if lane is None:
            lane = GatedLane(self._by_kind[kind], kind, axis, self._reduction, self.keys)
            self._lanes[kind, axis] = lane
            self._gated_any = True
            if axis == "step" and kind not in _CLOSING:
                self.quick[kind] = lane
        return lane

    def finish(self, out: list[Event]) -> None:
        """Hand out what waits and close all windows: the last event passes, once."""
        last: list[Event] = []
        for lane in self._lanes.values():
            lane.finish(last)
        last.sort(key=lambda event: event.seq)
        out += last

    def restart(self, out: list[Event]) -> None:
        """End an attempt: another one begins."""
        self.finish(out)
        for gate in self._gates:
            self._ticks_before += gate.ticks
            gate.restart()
        self._lanes.clear()
        self.quick.clear()

    def state(self) -> dict[str, Any]:
        """Return the decisions as plain values, and for each lane the first seq that waits."""
        return {
            "ticks": self._ticks_before,
            "rules": self._rules(),
            "gates": [gate.state() for gate in self._gates],
            "lanes": [
                [event_tag(kind), axis, lane.open_seq, lane.lane.state()]
                for (kind, axis), lane in self._lanes.items()
            ],
        }

    def _rules(self) -> list[Any]:
        """Return what decisions depend on: they are worth nothing for other rules."""
        by_kind = [[event_tag(k), self._gates.index(g)] for k, g in self._by_kind.items()]
        return [[gate.name for gate in self._gates], by_kind]

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned; with other rules, what waited is decided anew."""
        same = state["rules"] == self._rules()
        if same:
            self._ticks_before = state["ticks"]
            for gate, known in zip(self._gates, state["gates"], strict=True):
                gate.load(known)
        types = event_types()
        for tag, axis, opened, decisions in state["lanes"]:
            kind = types.get(tag)
            if kind not in self._by_kind or not (self._types is None or kind in self._types):
                continue
            lane = self._lane(kind, axis)
            lane.reopen = opened
            lane.afresh = not same
            if same:
                lane.gate.load_lane(lane.lane, decisions)

    def take_again(self, event: Event, out: list[Event]) -> None:
        """Take an event from before the mark: only what waited then is wanted."""
        lane = self._lanes.get((type(event), event.axis))
        if lane is None or lane.reopen is None or event.seq < lane.reopen:
            return
        if self.keys is not None and not self.keys.matches(event):
            return
        if lane.afresh:
            lane.take(event, out)
        else:
            lane.hold_again(event)


def _as_type(kind: type[Event] | str) -> type[Event]:
    if isinstance(kind, str):
        found = event_types().get(kind)
        if found is None:
            raise ValueError(
                f"types must name event types, not {kind!r}; known: {', '.join(event_types())}"
            )
        return found
    if isinstance(kind, type) and issubclass(kind, Event):
        return kind
    raise TypeError(f"types must hold event types or their tags, not {kind!r}")


def _gates(every: Every) -> dict[type[Event], Gate]:
    if every is None:
        return {}
    if isinstance(every, Mapping):
        return {_as_type(kind): Gate(rule) for kind, rule in every.items()}
    gate = Gate(every)
    return {StepEvent: gate, BatchEvent: gate}
