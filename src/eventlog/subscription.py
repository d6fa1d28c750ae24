"""A subscription: a cursor on a log, a cadence and a window.

It is the one way from a log to whoever consumes it: live sinks and async iterators, catching up,
recovery, replay and the delivering process all pull from a `Subscription`. It knows no thread, no
clock and no loop; what comes out depends on the events alone, and on neither the blocks that they
came in nor how much is pulled at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from eventlog._columns import Columns, shared_columns
from eventlog._keys import KeyFilter
from eventlog._lanes import KINDS, GatedLane, one_kind
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
from eventlog.exceptions import CodecError
from eventlog.log.attempts import Attempts
from eventlog.log.layout import Content, content_of
from eventlog.log.source import Block, Source
from eventlog.selection import Exclusion, Selection

__all__ = ["Every", "Mark", "Ready", "Subscription"]

Every: TypeAlias = (
    "str | Rule | None | Mapping[str, str | Rule] | Mapping[type[Event], str | Rule] "
    "| Mapping[str | type[Event], str | Rule]"
)
"""A cadence for step and batch events, or cadences by event type (or its tag)."""

_STRIDE = 1024
"""How many events of a block are looked at in one go, where that is done one by one."""

_CLOSING = (ModelUpdateEvent, EpochEvent, Flushed, RunFinished)
"""Kinds that mean something to windows or gates, besides passing themselves."""

_PURE = (Content.STEP, Content.BATCH, Content.EPOCH, Content.MODEL)
"""Flags that stand for one kind of event each."""


class Mark(msgspec.Struct, frozen=True):
    """Where a subscription may go on after what was handed out was delivered.

    Attributes:
        seq: The next event to read. Events that wait (for their window to close, or in case they
            are the last ones) are read again.
        state: The cadence's state after the last event that was read.
    """

    seq: int
    state: dict[str, Any] = {}


class Ready(NamedTuple):
    """What `Subscription.pull` hands out.

    Attributes:
        events: To be delivered, in order; may be empty when nothing of what was read passes.
        mark: Valid once these events were delivered.
        flush: The user asked for a flush of what was emitted until here.
    """

    events: list[Event]
    mark: Mark
    flush: bool


class Subscription:
    """A place in a log, and the rule by which its events pass.

    Args:
        source: The log.
        types: Event types (or their tags) to take; all when None. Model updates reach the cadence
            in any case.
        every: When step and batch events pass; see `Every`. All others pass unless a mapping
            names a cadence for them.
        reduce: What becomes of the values between two ticks; None passes due events as they are.
        keys: Glob patterns of value names to keep; events with values of which none is kept are
            left out, and so are gated events without values.
        start: The first seq to read.
        attempts: Leaves out what a later attempt has logged again.
        where: Leaves out what lies outside its ranges.

    Attributes:
        cursor: The next seq to read.
        read: Events read so far.
        delivered: Of these, the ones that were handed out; a reduced event counts as one.
        lost: Events that could not be had any more.
    """

    def __init__(
        self,
        source: Source,
        *,
        types: Collection[type[Event] | str] | None = None,
        every: Every = None,
        reduce: Reduce = None,
        keys: Collection[str] | None = None,
        start: int = 0,
        attempts: Attempts | None = None,
        where: Selection | None = None,
    ) -> None:
        self._source = source
        self._reader = source.open_reader()
        self._block: Block | None = None
        self._columns: Columns | None = None
        self._shared = shared_columns(source)
        self._is_shared = False
        self._types = None if types is None else frozenset(map(_as_type, types))
        self._gates = _gates(every)
        self._gate_list = list(dict.fromkeys(self._gates.values()))
        self._reduction = None if reduce is None else Reduction(reduce)
        if self._reduction is not None and not self._gates:
            raise ValueError("reduce needs a cadence: say when a window ends, as every='10 steps'")
        self._keys = None if keys is None else KeyFilter(keys)
        self._exclusions: tuple[Exclusion, ...] = tuple(x for x in (attempts, where) if x)
        self._looked_at, self._passing = self._contents()
        self._lanes: dict[tuple[type[Event], str], GatedLane] = {}
        # the lanes of the axis "step", for kinds that mean nothing else
        self._quick: dict[type[Event], GatedLane] = {}
        self._gated_any = False
        self._attempt: int | None = None
        self._restored: Mark | None = None
        self._passed_to = start
        self.cursor = start
        self.read = 0
        self.delivered = 0
        self.lost = 0
        self._ticks_before = 0

    def _contents(self) -> tuple[Content, Content]:
        """Return what must be looked at, and what passes as it is when a block holds only that."""
        gated = Content(0)
        for kind in self._gates:
            gated |= content_of(kind)
        if self._gates:
            gated |= Content.MODEL
        if self._reduction is not None:
            gated |= Content.EPOCH
        if self._types is None:
            return KINDS, KINDS & ~gated & ~Content.RUN
        taken = Content(0)
        for kind in self._types:
            taken |= content_of(kind)
        pure = Content(0)
        for flag in _PURE:
            pure |= taken & flag
        return taken | Content.RUN | (gated & (Content.MODEL | Content.EPOCH)), pure & ~gated

    @property
    def ticks(self) -> int:
        """How often its cadence was due."""
        return self._ticks_before + sum(gate.ticks for gate in self._gate_list)

    @property
    def never_ticked(self) -> bool:
        """Whether it has a cadence that was never due although there was something to gate."""
        return self._gated_any and not self.ticks

    @property
    def open(self) -> int:
        """Events that were read and are neither handed out nor left out: those that wait."""
        return sum(lane.open for lane in self._lanes.values())

    @property
    def filtered(self) -> int:
        """Events that were read and left out, or went into a reduced event."""
        return self.read - self.delivered - self.open

    def pull(self, limit: int = 512, scan: int = 8192) -> Ready | None:
        """Read on, up to `limit` events that pass or about `scan` that are read.

        What waited for the end of an attempt or of the run may come on top of that.

        Returns:
            None when nothing could be read.
        """
        out: list[Event] = []
        flush = False
        start = self.cursor
        ended = self._source.closed
        while len(out) < limit and self.cursor - start < scan and not flush:
            block = self._next_block()
            if block is None:
                break
            if block.attempt != self._attempt:
                self._begin_attempt(block.attempt, out)
            elif not self._pass_by(block):
                flush = self._feed(block, out, limit)
        if self.cursor == start and not out:
            if not ended:
                return None
            # the source has ended without saying so: the run was killed
            self._lose(self._source.end)
            self._finish(out)
            if not out:
                return None
        self.delivered += len(out)
        if self._keys is not None:
            out = list(map(self._keys.cut, out))
        return Ready(out, self._mark(), flush)

    def _next_block(self) -> Block | None:
        """Return the block that holds the cursor, which goes on where events cannot be had."""
        block = self._block
        if block is None or not block.first <= self.cursor < block.end:
            block = self._block = self._reader.read(self.cursor)
            self._columns = None
            if block is None:
                return None
            self._is_shared = block.in_memory
            self._lose(block.first)
        return block

    def _lose(self, end: int) -> None:
        if end > self.cursor:
            self.lost += end - self.cursor
            self.cursor = end

    def _advance(self, end: int) -> None:
        self.read += end - self.cursor
        self.cursor = end

    def _untouched(self, block: Block) -> bool:
        """Whether nothing in a block can be left out before its cadence is asked."""
        return all(exclusion.spares(block) for exclusion in self._exclusions)

    def _excluded(self, event: Event) -> bool:
        return any(exclusion.excludes(event) for exclusion in self._exclusions)

    def _pass_by(self, block: Block) -> bool:
        """Pass a block by, unread, where nothing in it is wanted or can be due."""
        if not block.first == self.cursor >= self._passed_to:
            return False
        outside = any(exclusion.excludes_all(block) for exclusion in self._exclusions)
        if block.flags & KINDS & self._looked_at and not outside:
            kind = one_kind(block)
            lane = None if kind is None else self._quick.get(kind)
            simple = block.flags & (Content.SORTED | Content.NO_STEP) == Content.SORTED
            if lane is None or not simple or self._keys is not None or not self._untouched(block):
                return False
            if not lane.pass_by(block):
                return False
        self._advance(block.end)
        return True

    def _feed(self, block: Block, out: list[Event], limit: int) -> bool:
        """Take events of a block; returns whether there was a `Flushed`, after which it stops."""
        try:
            events = block.events()
        except CodecError:
            self._lose(block.end)
            return False
        at = self.cursor - block.first
        if self.cursor < self._passed_to:
            self._take_again(events[at : self._passed_to - block.first], out)
            return False
        untouched = self._untouched(block)
        if untouched and self._keys is None:
            if not block.flags & KINDS & ~self._passing:
                passing = events[at : at + limit - len(out)]
                out += passing
                self._advance(passing[-1].seq + 1)
                return False
            kind = one_kind(block)
            lane = None if kind is None else self._quick.get(kind)
            if lane is not None:
                if self._columns is None:
                    self._columns = self._shared.of(block) if self._is_shared else Columns(events)
                stop = lane.take_many(events, self._columns, at, limit, out)
                if stop is not None:
                    self._advance(block.first + stop)
                    return False
        return self._take_each(events[at : at + _STRIDE], untouched, out, limit)

    def _take_each(
        self, events: list[Event], untouched: bool, out: list[Event], limit: int
    ) -> bool:
        keys, quick = self._keys, self._quick
        for event in events:
            if not untouched and self._excluded(event):
                continue
            lane = quick.get(type(event))
            if lane is None or event.axis != "step":
                self._take(event, out)
                if type(event) is Flushed:
                    self._advance(event.seq + 1)
                    return True
            elif keys is None or keys.matches(event):
                lane.take(event, out)
            if len(out) >= limit:
                break
        self._advance(event.seq + 1)
        return False

    def _take(self, event: Event, out: list[Event]) -> None:
        """Take an event of any kind."""
        kind = type(event)
        if kind is ModelUpdateEvent:
            for gate in self._gate_list:
                gate.model_updated(event)
        elif kind is RunFinished:
            self._finish(out)
        elif kind is EpochEvent:
            # epoch events with a cadence are at the end of their epoch themselves
            for (of, _), lane in self._lanes.items():
                if of is not EpochEvent:
                    lane.epoch_ended(event, out)
        elif kind is Flushed:
            for lane in self._lanes.values():
                lane.flush(out)
        if not self._wants(kind) or (kind is Flushed and self._types is None):
            return
        if kind in self._gates:
            if self._keys is None or self._keys.matches(event):
                self._lane(kind, event.axis).take(event, out)
        elif self._keys is None or not event.values or self._keys.matches(event):
            out.append(event)

    def _wants(self, kind: type[Event]) -> bool:
        return self._types is None or kind in self._types

    def _lane(self, kind: type[Event], axis: str) -> GatedLane:
        lane = self._lanes.get((kind, axis))
        if lane is None:
            lane = GatedLane(self._gates[kind], kind, axis, self._reduction, self._keys)
            self._lanes[kind, axis] = lane
            self._gated_any = True
            if axis == "step" and kind not in _CLOSING:
                self._quick[kind] = lane
        return lane

    def _begin_attempt(self, attempt: int, out: list[Event]) -> None:
        if self._attempt is not None:
            self._finish(out)
            for gate in self._gate_list:
                self._ticks_before += gate.ticks
                gate.restart()
            self._lanes.clear()
            self._quick.clear()
        self._attempt = attempt

    def _finish(self, out: list[Event]) -> None:
        """Hand out what waits and close all windows: the last event passes, once."""
        last: list[Event] = []
        for lane in self._lanes.values():
            lane.finish(last)
        last.sort(key=lambda event: event.seq)
        out += last

    def _mark(self) -> Mark:
        """Describe where to go on, once everything handed out so far was delivered."""
        if self._restored is not None and self.cursor < self._passed_to:
            return self._restored
        if not self._gate_list:
            return Mark(self.cursor)
        seq = self.cursor
        lanes = []
        for (kind, axis), lane in self._lanes.items():
            opened = lane.open_seq
            if opened is not None:
                seq = min(seq, opened)
            lanes.append([event_tag(kind), axis, opened, lane.lane.state()])
        state = {
            "attempt": self._attempt,
            "passed": self.cursor,
            "ticks": self._ticks_before,
            "rules": self._rules(),
            "gates": [gate.state() for gate in self._gate_list],
            "lanes": lanes,
        }
        return Mark(seq, state)

    def _rules(self) -> list[Any]:
        """Return what decisions depend on: they are worth nothing for other rules."""
        gates = self._gate_list
        by_kind = [[event_tag(k), gates.index(gate)] for k, gate in self._gates.items()]
        return [[gate.name for gate in gates], by_kind]

    def restore(self, mark: Mark) -> None:
        """Go on from a mark: what was handed out before it does not come again.

        With other rules than those of the mark, what waited is decided anew.
        """
        self.cursor = mark.seq
        state = mark.state
        if not state:
            return
        self._restored = mark
        self._attempt = state["attempt"]
        self._passed_to = state["passed"]
        same = state["rules"] == self._rules()
        if same:
            self._ticks_before = state["ticks"]
            for gate, decisions in zip(self._gate_list, state["gates"], strict=True):
                gate.load(decisions)
        types = event_types()
        for tag, axis, opened, decisions in state["lanes"]:
            kind = types.get(tag)
            if kind not in self._gates or not self._wants(kind):
                continue
            lane = self._lane(kind, axis)
            lane.reopen = opened
            lane.afresh = not same
            if same:
                lane.gate.load_lane(lane.lane, decisions)

    def _take_again(self, events: list[Event], out: list[Event]) -> None:
        """Take events that were read before the restart: only what waited then is wanted."""
        for event in events:
            lane = self._lanes.get((type(event), event.axis))
            if lane is None or lane.reopen is None or event.seq < lane.reopen:
                continue
            if self._excluded(event):
                continue
            if self._keys is not None and not self._keys.matches(event):
                continue
            if lane.afresh:
                lane.take(event, out)
            else:
                lane.hold_again(event)
        self._advance(events[-1].seq + 1)


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
