"""What one subscription keeps for one kind of event on one axis.

The gate decides; here waits what it has not let pass: the events of the newest axis value, in case
it is the last one, or the open window that they are reduced to.
"""

from __future__ import annotations

from typing import Any

from eventlog._columns import Column, Columns
from eventlog._keys import KeyFilter
from eventlog.cadence._tickers import UPDATES
from eventlog.cadence.gate import Gate
from eventlog.cadence.window import Reduction, ReductionWindow
from eventlog.events import Event
from eventlog.exceptions import CodecError
from eventlog.log.source import Block

__all__ = ["HELD", "GatedLane"]

HELD = 1_000
"""How many events of one axis value are kept, the newest ones, in case it is the last value."""


class GatedLane:
    """The events of one kind on one axis behind a gate.

    Args:
        gate: Decides for them.
        kind, axis: Which events.
        reduction: What becomes of a window; None passes due events as they are.
        keys: Which values go into a window; the gate looks at all.

    Attributes:
        reopen: After a restart, the seq of the first event that waited before it; None when none
            did.
        afresh: Whether these are to be decided anew, since the rule has changed.
    """

    __slots__ = ("_blocks", "_by_batch", "_by_step", "_held", "_keyed_by", "_keys",
                 "_reduction", "_window", "afresh", "gate", "lane", "reopen")  # fmt: skip

    def __init__(
        self,
        gate: Gate,
        kind: type[Event],
        axis: str,
        reduction: Reduction | None,
        keys: KeyFilter | None,
    ) -> None:
        self.gate = gate
        self.lane = gate.lane(kind, axis)
        self.reopen: int | None = None
        self.afresh = False
        self._keyed_by = gate.keyed_by(kind)
        self._by_step = self._keyed_by == "step"
        self._by_batch = self._keyed_by == "batch"
        self._reduction = reduction
        self._keys = keys
        self._window = ReductionWindow()
        # blocks that were passed by unread, and after them the events of the newest axis value
        self._blocks: list[Block] = []
        self._held: list[Event] = []

    @property
    def open(self) -> int:
        """How many events wait."""
        unread = sum(block.end - block.first for block in self._blocks)
        return unread + len(self._held) + self._window.n

    @property
    def open_seq(self) -> int | None:
        """The seq of the first event that waits; None when none does."""
        if self._blocks:
            return self._blocks[0].first
        return self._held[0].seq if self._held else self._window.first_seq

    def take(self, event: Event, out: list[Event]) -> None:
        """Take one more event; whatever passes now goes to `out`."""
        lane = self.lane
        key: int | float | None = None
        if self._by_step:
            key = event.step
        elif self._by_batch:
            key = event.batch
        if key is None:
            key = self.gate.key_of(event)
        moves = key is None or key != lane.key
        if self._reduction is not None:
            if moves:
                if lane.due:
                    self._close(self._reduction, out)
                self.gate.move(lane, key, event)
            self._add(event)
            return
        if moves:
            self.gate.move(lane, key, event)
            self._held = []
            self._blocks = []
        if lane.due:
            out.append(event)
        else:
            self._held.append(event)
            if len(self._held) >= 2 * HELD:
                del self._held[:-HELD]

    def take_many(
        self, events: list[Event], columns: Columns, at: int, limit: int, out: list[Event]
    ) -> int | None:
        """Take the events of a block from an index on, until `out` holds `limit`.

        Returns:
            Where it stopped; None, and nothing is taken, where that must be done one by one.
        """
        column = columns.of(self._keyed_by)
        if column is None or self._reduction is not None:
            return None
        lane, keys, n = self.lane, column.values, len(events)
        while at < n and len(out) < limit:
            key = keys[at]
            if key != lane.key:
                ahead = self._next(columns, column, at)
                if ahead > at:
                    self._wait(events, keys, at, ahead)
                    at = ahead
                    continue
                self._drop()
                self.gate.move(lane, key, events[at])
            end = at + 1
            while end < n and keys[end] == key:
                end += 1
            if lane.due:
                end = min(end, at + limit - len(out))
                out += events[at:end]
            else:
                self._hold(events[at:end])
            at = end
        return at

    def _next(self, columns: Columns, keys: Column, at: int) -> int:
        """Return the index of the first event that can be due, or an earlier one."""
        lane = self.lane
        if lane.bounds is None:
            return at
        ahead = len(keys.values)
        if lane.due_key is not None and not (keys.ascending and keys.values[at] > lane.due_key):
            ahead = keys.finds(lane.due_key, at)
        for axis, bound in lane.bounds:
            if axis != UPDATES:
                column = keys if axis == self._keyed_by else columns.of(axis)
                ahead = min(ahead, at if column is None else column.reaches(bound, at))
        return ahead

    def _wait(self, events: list[Event], keys: list[Any], at: int, ahead: int) -> None:
        """Pass by events of which none is due, but for those of the last value."""
        last = keys[ahead - 1]
        start = ahead - 1
        while start > at and keys[start - 1] == last:
            start -= 1
        self._blocks = []
        self._held = events[start:ahead]
        self.lane.key = last
        self.lane.due = False

    def pass_by(self, block: Block, columns: Columns | None) -> bool:
        """Take a block of this lane's events, unread, if it is plain that none can be due.

        Args:
            block: Its steps are ascending.
            columns: Of its events; None when these are not in memory.
        """
        lane, (low, high) = self.lane, block.steps
        if not self._by_step or lane.bounds is None or self._reduction is not None:
            return False
        for axis, bound in lane.bounds:
            if axis == "step":
                if high >= bound:
                    return False
            elif axis == UPDATES:
                continue
            elif columns is None or (column := columns.of(axis)) is None or column.high >= bound:
                return False
        if lane.due_key is not None and low <= lane.due_key <= high:
            return False
        goes_on = low == high == lane.key
        if goes_on and self._held and columns is None:
            return False
        if not goes_on:
            self._drop()
        if columns is not None:
            events = block.events()
            start = len(events) - 1
            while start > 0 and events[start - 1].step == high:
                start -= 1
            self._hold(events[start:])
        else:
            self._blocks.append(block)
            while self.open - (self._blocks[0].end - self._blocks[0].first) >= HELD:
                del self._blocks[0]
        lane.key = high
        lane.due = False
        return True

    def hold_again(self, event: Event) -> None:
        """Take an event that waited when the subscription was restored, as it did then."""
        if self._reduction is not None:
            self._add(event)
        elif self.gate.key_of(event) == self.lane.key:
            self._hold([event])

    def flush(self, out: list[Event]) -> None:
        """Close a window that is due before its axis moves on."""
        if self._reduction is not None and self.lane.due:
            self._close(self._reduction, out)
            self.lane.due = False

    def epoch_ended(self, event: Event, out: list[Event]) -> None:
        """Close a window that ends with an epoch."""
        if self._reduction is not None and self.gate.epoch_ended(self.lane, event):
            self._close(self._reduction, out)
            self.lane.due = False

    def finish(self, out: list[Event]) -> None:
        """Let what waits pass: the last axis value of a run or an attempt."""
        if not self.gate.never:
            if self._reduction is not None:
                self._close(self._reduction, out)
            out += self._last_value()
        self._drop()
        self._window = ReductionWindow()

    def _add(self, event: Event) -> None:
        self._window.add(event if self._keys is None else self._keys.cut(event))

    def _close(self, reduction: Reduction, out: list[Event]) -> None:
        event = self._window.close(reduction)
        if event is not None:
            out.append(event)

    def _hold(self, events: list[Event]) -> None:
        self._held += events
        if len(self._held) >= 2 * HELD:
            del self._held[:-HELD]

    def _drop(self) -> None:
        if self._held:
            self._held = []
        if self._blocks:
            self._blocks = []

    def _last_value(self) -> list[Event]:
        last = self._held[::-1]
        for block in reversed(self._blocks):
            try:
                events = block.events()
            except CodecError:
                break
            for event in reversed(events):
                if event.step != self.lane.key:
                    return last[:HELD][::-1]
                last.append(event)
        return last[:HELD][::-1]
