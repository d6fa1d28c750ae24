"""A subscription: a cursor on a log, a cadence and a window.

It is the one way from a log to whoever consumes it: live sinks and async iterators, catching up,
recovery, replay and the delivering process all pull from a `Subscription`. It knows no thread, no
clock and no loop; what comes out depends on the events alone.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from eventlog.cadence.gate import Gate, Rule
from eventlog.cadence.window import Reduce, Reduction, ReductionWindow
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
from eventlog.log.attempts import Attempts
from eventlog.log.layout import Content, content_of
from eventlog.log.source import Block, Source

__all__ = ["Every", "Mark", "Ready", "Subscription"]

Every: TypeAlias = "str | Rule | Mapping[str | type[Event], str | Rule] | None"
"""A cadence for step and batch events, or cadences by event type (or its tag)."""

_HELD = 1_000
"""How many events of one axis value are kept in case it is the last one."""

_HELD_BLOCKS = 16


class Mark(msgspec.Struct, frozen=True):
    """Where a subscription may go on after what was handed out was delivered.

    Attributes:
        seq: The next event to read. Events of an open window are read again.
        state: The cadence's state there.
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


class _State:
    """What a subscription keeps for one lane of its gate beside the gate's own decisions."""

    __slots__ = ("closed", "held", "opened", "skipped", "snapshot", "window")

    def __init__(self) -> None:
        self.closed = -1
        self.held: list[Event] = []
        self.skipped: list[Block] = []
        self.window: ReductionWindow | None = None
        self.snapshot: dict[str, Any] | None = None
        self.opened: tuple[int, int | float | None] = (0, None)

    def open_seq(self) -> int | None:
        if self.window is not None:
            return self.window.first_seq
        if self.skipped:
            return self.skipped[0].first
        return self.held[0].seq if self.held else None


_LaneKey: TypeAlias = tuple[type[Event], str]


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
            left out.
        start: The first seq to read.
        attempts: Leaves out what a later attempt has logged again.

    Attributes:
        cursor: The next seq to read.
        read: Events read so far.
        filtered: Of these, the ones that were left out or went into a reduced event.
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
    ) -> None:
        self._source = source
        self._reader = source.open_reader()
        self._block: Block | None = None
        self._types = None if types is None else frozenset(map(_as_type, types))
        self._gates = _gates(every)
        self._reduction = None if reduce is None else Reduction(reduce)
        if self._reduction is not None and not self._gates:
            raise ValueError("reduce needs a cadence: say when a window ends, as every='10 steps'")
        self._keys = None if keys is None else tuple(keys)
        self._states: dict[tuple[int, type[Event], str], _State] = {}
        self._gate_list = list(dict.fromkeys(self._gates.values()))
        self._gate_ids = {id(gate): i for i, gate in enumerate(self._gate_list)}
        self._looked_at = _KINDS
        if self._types is not None:
            self._looked_at = Content.RUN | Content.MODEL | Content.EPOCH
            for kind in self._types:
                self._looked_at |= content_of(kind)
        self._attempts = attempts if attempts is not None and attempts.latest > 1 else None
        self._plain = (
            not self._attempts and not self._gates and self._types is None and self._keys is None
        )
        self._attempt: int | None = None
        self._ended = False
        self._passed_to = start
        self.cursor = start
        self.read = 0
        self.filtered = 0
        self.delivered = 0
        self.lost = 0
        self._merged = 0
        self._ticks_before = 0

    @property
    def ticks(self) -> int:
        """How often its cadence was due."""
        return self._ticks_before + sum(gate.ticks for gate in self._gate_list)

    @property
    def never_ticked(self) -> bool:
        """Whether it has a cadence that was never due although there was something to gate."""
        return bool(self._gates) and not self.ticks and bool(self._states)

    @property
    def open(self) -> int:
        """Events that were read and are neither handed out nor left out: those of open windows."""
        return self.read - self.filtered - self.delivered

    def pull(self, limit: int = 512, scan: int = 8192) -> Ready | None:
        """Read on, up to `limit` events that pass or `scan` that are read.

        Returns:
            None when nothing could be read.
        """
        out: list[Event] = []
        flush = False
        start = self.cursor
        while len(out) < limit and self.cursor - start < scan and not flush:
            block = self._block
            if block is None or not block.first <= self.cursor < block.end:
                block = self._block = self._reader.read(self.cursor)
            if block is None:
                break
            if block.first > self.cursor:
                self.lost += block.first - self.cursor
                self.cursor = block.first
            if self._skip(block):
                continue
            events = block.events()
            if self.cursor > block.first or len(events) > limit - len(out):
                at = self.cursor - block.first
                events = events[at : at + max(1, limit - len(out))]
            flush = self._feed(events, out, self._plain and not block.flags & Content.RUN)
        if self.cursor == start:
            return self._at_end()
        self._count_delivered(out)
        return Ready(out, self._mark(), flush)

    def _at_end(self) -> Ready | None:
        """Close what is open once the source has ended without saying so: the run was killed."""
        if not self._source.closed or self._ended or self.cursor < self._source.end:
            return None
        out: list[Event] = []
        self._finish_lanes(out)
        self._ended = True
        if not out:
            return None
        self._count_delivered(out)
        return Ready(out, self._mark(), False)

    def _feed(self, events: Sequence[Event], out: list[Event], plain: bool) -> bool:
        """Take events; returns whether there was a `Flushed` among them, where it stops."""
        if plain:
            out.extend(events)
            self._advance(events[-1].seq + 1, len(events))
            return False
        for event in events:
            self._advance(event.seq + 1, 1)
            if self._one(event, out):
                return True
        return False

    def _advance(self, cursor: int, n: int) -> None:
        self.cursor = cursor
        self.read += n

    def _one(self, event: Event, out: list[Event]) -> bool:
        kind = type(event)
        if self._attempts is not None and self._attempts.superseded(event):
            self.filtered += 1
            return False
        if event.attempt != self._attempt:
            self._begin_attempt(event.attempt, out)
        if kind is ModelUpdateEvent:
            for each in self._gate_list:
                each.model_updated(event)
        gate = self._gates.get(kind)
        if gate is None or not self._wanted(kind):
            self._pass(event, out)
            return kind is Flushed
        if self._keys is not None:
            kept = self._select(event)
            if kept is None:
                self.filtered += 1
                return False
            event = kept
        self._gated(gate, event, out)
        return False

    def _wanted(self, kind: type[Event]) -> bool:
        return self._types is None or kind in self._types

    def _pass(self, event: Event, out: list[Event]) -> None:
        kind = type(event)
        if event.seq < self._passed_to:
            self.filtered += 1
            return
        if kind is Flushed or kind is RunFinished or kind is EpochEvent:
            self._close_windows(event, out)
        if not self._wanted(kind) or (kind is Flushed and self._types is None):
            self.filtered += 1
            return
        if self._keys is not None and event.values:
            kept = self._select(event)
            if kept is None:
                self.filtered += 1
                return
            event = kept
        out.append(event)

    def _close_windows(self, event: Event, out: list[Event]) -> None:
        if type(event) is RunFinished:
            self._finish_lanes(out)
            return
        if self._reduction is None:
            return
        for gate in self._gate_list:
            ended = type(event) is EpochEvent and gate.epoch_ended(event)
            for key, lane in gate.lanes.items():
                if ended or (type(event) is Flushed and lane.due):
                    self._close(self._state(gate, key), out)
                    gate.settle(lane)

    def _select(self, event: Event) -> Event | None:
        patterns = self._keys or ()
        values = {
            k: v
            for k, v in event.values.items()
            if any(fnmatch.fnmatchcase(k, pattern) for pattern in patterns)
        }
        if not values:
            return None
        if len(values) == len(event.values):
            return event
        return msgspec.structs.replace(event, values=values)

    def _state(self, gate: Gate, key: _LaneKey) -> _State:
        full = (self._gate_ids[id(gate)], *key)
        state = self._states.get(full)
        if state is None:
            state = self._states[full] = _State()
        return state

    def _gated(self, gate: Gate, event: Event, out: list[Event]) -> None:
        state = self._state(gate, (type(event), event.axis))
        if event.seq <= state.closed:
            # settled before the restart that made us read it again
            self.filtered += 1
            return
        if self._reduction is not None:
            self._gated_window(gate, state, event, out)
            return
        lane = gate.enter(event)
        if lane.moved:
            self._drop_held(state)
        if lane.due:
            out.append(event)
            state.closed = event.seq
            return
        if not state.held and not state.skipped:
            state.opened = (gate.updates, gate.last_update(lane))
        if len(state.held) < _HELD:
            state.held.append(event)
        else:
            self.filtered += 1

    def _drop_held(self, state: _State) -> None:
        if state.held or state.skipped:
            self.filtered += len(state.held)
            last = state.held[-1].seq if state.held else state.skipped[-1].end - 1
            state.closed = max(state.closed, last)
            state.held = []
            state.skipped = []

    def _gated_window(self, gate: Gate, state: _State, event: Event, out: list[Event]) -> None:
        lane = gate.lane_of(event)
        if lane.due and gate.moves(lane, event):
            self._close(state, out)
        if state.window is None:
            state.window = ReductionWindow()
            state.snapshot = lane.state()
            state.opened = (gate.updates, None)
        gate.enter(event)
        state.window.add(event)

    def _close(self, state: _State, out: list[Event]) -> None:
        assert self._reduction is not None  # noqa: S101 - only windows are closed
        window, state.window, state.snapshot = state.window, None, None
        closed = None if window is None else window.close(self._reduction)
        if closed is not None:
            event, n = closed
            state.closed = max(state.closed, event.seq)
            self._merged += n - 1
            out.append(event)

    def _count_delivered(self, out: list[Event]) -> None:
        self.delivered += len(out)
        self.filtered += self._merged
        self._merged = 0

    def _begin_attempt(self, attempt: int, out: list[Event]) -> None:
        if self._attempt is not None:
            self._finish_lanes(out)
            for gate in self._gate_list:
                self._ticks_before += gate.ticks
                gate.restart()
        self._attempt = attempt
        self._ended = False

    def _finish_lanes(self, out: list[Event]) -> None:
        """Hand out what is held and close all windows: the last event passes, once."""
        last: list[Event] = []
        for (gate_id, kind, _), state in self._states.items():
            if self._reduction is not None:
                self._close(state, last)
                continue
            held = state.held
            if state.skipped:
                earlier = self._last_skipped(self._gate_list[gate_id], kind, state)
                self.filtered -= len(earlier)
                held = earlier + held
            if held and not self._gate_list[gate_id].never:
                state.closed = held[-1].seq
                last += held
            else:
                self.filtered += len(held)
            state.held = []
            state.skipped = []
        last.sort(key=lambda e: e.seq)
        out.extend(last)

    def _last_skipped(self, gate: Gate, kind: type[Event], state: _State) -> list[Event]:
        """Return the events of the last axis value in the blocks that were passed by."""
        found: list[Event] = []
        wanted = gate.key_of(state.held[0]) if state.held else None
        for block in reversed(state.skipped):
            for event in reversed(block.events()):
                if type(event) is not kind or event.seq <= state.closed:
                    continue
                key = gate.key_of(event)
                if wanted is None:
                    wanted = key
                elif key != wanted:
                    return found[::-1]
                if self._keys is None or (kept := self._select(event)) is not None:
                    found.append(event if self._keys is None else kept)  # type: ignore[arg-type]
        return found[::-1]

    def _skip(self, block: Block) -> bool:
        """Pass a block by, unread, where nothing in it is wanted or can be due."""
        if self._plain or self.cursor > block.first or block.attempt != self._attempt:
            return False
        kinds = block.flags & _KINDS
        if not kinds & self._looked_at:
            self._advance(block.end, block.end - block.first)
            self.filtered += block.end - block.first
            return True
        if self._reduction or self._attempts or block.flags not in _SIMPLE:
            return False
        kind = _SIMPLE[block.flags]
        gate = self._gates.get(kind)
        bounds = None if gate is None else gate.next_step(kind, "step")
        if gate is None or bounds is None:
            return False
        low, high = block.steps
        last_due, bound = bounds
        if not last_due < low <= high < bound:
            return False
        if (held := self._state(gate, (kind, "step")).held) and gate.key_of(held[0]) == low:
            return False
        self._hold_block(gate, kind, block)
        return True

    def _hold_block(self, gate: Gate, kind: type[Event], block: Block) -> None:
        """Keep a block that is passed by: it may be the last one of the run."""
        state = self._state(gate, (kind, "step"))
        lane = gate.lanes[kind, "step"]
        low, high = block.steps
        if low != high or lane.key != low:
            self._drop_held(state)
        if not state.skipped:
            state.opened = (gate.updates, gate.last_update(lane))
        state.skipped = [*state.skipped[-_HELD_BLOCKS + 1 :], block]
        gate.pass_by(lane, high)
        self._advance(block.end, block.end - block.first)
        self.filtered += block.end - block.first

    def _mark(self) -> Mark:
        """Describe where to go on, once everything handed out so far was delivered."""
        if not self._gate_list:
            return Mark(self.cursor)
        seq = self.cursor
        updates = max((gate.updates for gate in self._gate_list), default=0)
        lanes = []
        for (gate_id, kind, axis), state in self._states.items():
            gate = self._gate_list[gate_id]
            open_seq = state.open_seq()
            decisions = gate.lanes[kind, axis].state()
            closed = self.cursor - 1
            if open_seq is not None:
                closed = state.closed
                updates = min(updates, state.opened[0])
                seq = min(seq, open_seq)
                if state.snapshot is not None:
                    decisions = state.snapshot
                else:
                    decisions["seen"] = decisions["due"] = False
                    if decisions["manager"] is not None:
                        decisions["manager"]["last_model_update_step"] = state.opened[1]
            lanes.append([gate_id, event_tag(kind), axis, closed, decisions])
        return Mark(
            seq,
            {"attempt": self._attempt, "passed": self.cursor, "updates": updates, "lanes": lanes},
        )

    def restore(self, mark: Mark) -> None:
        """Go on from a mark: what was handed out before it does not come again."""
        self.cursor = mark.seq
        if not mark.state:
            return
        self._attempt = mark.state["attempt"]
        self._passed_to = mark.state["passed"]
        types = event_types()
        for gate in self._gate_list:
            gate.restart()
            gate.updates = mark.state["updates"]
        for gate_id, tag, axis, closed, decisions in mark.state["lanes"]:
            kind = types.get(tag)
            if kind is None or gate_id >= len(self._gate_list):
                continue
            gate = self._gate_list[gate_id]
            gate.open_lane(kind, axis).load(decisions)
            self._state(gate, (kind, axis)).closed = closed


_KINDS = (
    Content.STEP
    | Content.BATCH
    | Content.EPOCH
    | Content.MODEL
    | Content.RUN
    | Content.MEDIA
    | Content.OTHER
)
_SIMPLE: dict[Content, type[Event]] = {
    Content.STEP | Content.SORTED: StepEvent,
    Content.BATCH | Content.SORTED: BatchEvent,
}


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
