"""Putting together what several ranks say of one place. No files, no clock: events and times in."""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec

from eventlog.cadence.window import Reducer, Reduction
from eventlog.events import BatchEvent, EpochEvent, Event, Scalar, StepEvent, Window
from eventlog.ranks import RANKS

__all__ = ["MOST", "Aligner", "Lane", "Placed", "place_of"]

MOST = 300_000
"""Values that may wait for other ranks; over that they go out with the ranks that they have."""

Lane: TypeAlias = tuple[str, str]
"""The kind of event, and its axis: along it, each rank's places ascend."""

_Key: TypeAlias = str | None
"""A value's name; None stands for an event that has no values."""


class Placed(NamedTuple):
    """Where an event with values belongs."""

    lane: Lane
    position: int | float


def place_of(event: Event) -> Placed | None:
    """Return where an event's values belong; None for an event that ranks have no share in."""
    kind = type(event)
    position: int | float | None
    if kind is StepEvent:
        name, position = "step", event.step
    elif kind is BatchEvent:
        name, position = "batch", event.batch
    elif kind is EpochEvent:
        name, position = "epoch", event.epoch
    else:
        return None
    return None if position is None else Placed((name, event.axis), position)


class _Value:
    """What is one value of the result: of one name at one place, with the ranks' events."""

    __slots__ = ("born", "events", "key", "position")

    def __init__(self, key: _Key, position: int | float, born: float) -> None:
        self.key = key
        self.position = position
        self.born = born
        self.events: dict[int, Event] = {}


def _keys_of(event: Event) -> list[_Key]:
    return list(event.values) or [None]


class _Way:
    """One lane, in one attempt.

    Attributes:
        places: The values that wait, by position and name; a rank may log a name several times.
        order: These positions, sorted.
        at: How far each rank has come.
        unawaited: Ranks that were waited for in vain, until they are here again.
        done: The last position that went out, and in `gone` the ranks of what did there, by name.
        known: What lies before was written by an earlier producer.
    """

    __slots__ = ("at", "done", "gone", "known", "order", "places", "unawaited")

    def __init__(self) -> None:
        self.places: dict[int | float, dict[_Key, list[_Value]]] = {}
        self.order: list[int | float] = []
        self.at: dict[int, int | float] = {}
        self.unawaited: set[int] = set()
        self.done: int | float | None = None
        self.gone: dict[_Key, list[set[int] | None]] = {}
        self.known: int | float | None = None

    def note_gone(self, position: int | float, key: _Key, ranks: set[int] | None) -> None:
        if position != self.done:
            self.gone = {}
        self.done = position
        self.gone.setdefault(key, []).append(ranks)


class Aligner:
    """Takes the ranks' events in any order between them, and gives out the reduced ones in order.

    Values of the same name at the same place belong together, whatever else is logged with them.
    They go out once each rank that is waited for has come to them or has passed their place, or
    when `patience` is over; those of the same events are one event again.

    Args:
        reduction: What becomes of each value.
        ranks: That are waited for.
        patience: Seconds from the first rank's value to the last one's.

    Attributes:
        awaited: The ranks that are waited for.
        attempt: The one that is going on.
        late: By rank, the events that came after the others had gone out.
        behind: Ranks that were waited for in vain, since this was last looked at.
    """

    def __init__(self, reduction: Reduction, ranks: Iterable[int], patience: float) -> None:
        self._reduction = reduction
        self._patience = patience
        self.awaited = set(ranks)
        self.attempt = 1
        self._known = 0
        self.late: Counter[int] = Counter()
        self.behind: set[int] = set()
        self._ways: dict[Lane, _Way] = {}
        self._steps: dict[int, int] = {}
        self._ahead: dict[int, deque[Event]] = {}
        self._ahead_since: float | None = None
        self._pending = 0
        self._out: list[Event] = []

    def resume(self, written: Iterable[Event]) -> None:
        """Take note of what an earlier producer has written: it is not written again."""
        for event in written:
            placed = place_of(event)
            if event.attempt > self.attempt:
                self.attempt, self._ways = event.attempt, {}
            if placed is not None:
                way = self._ways.setdefault(placed.lane, _Way())
                named: list[_Key] = [key for key in event.values if key != RANKS]
                for key in named or [None]:
                    way.note_gone(placed.position, key, None)
                way.known = way.done
        self._known = self.attempt

    def take(self, rank: int, event: Event, now: float) -> None:
        """Take one more event of a rank; those without a place of ranks go out as they are.

        Args:
            rank: Whose it is.
            event: As it was read.
            now: In seconds.
        """
        ahead = self._ahead.get(rank)
        if ahead or event.attempt > self.attempt:
            self._ahead.setdefault(rank, deque()).append(event)
            if self._ahead_since is None:
                self._ahead_since = now
            return
        placed = place_of(event)
        if placed is None:
            if event.attempt < self.attempt:
                event = msgspec.structs.replace(event, attempt=self.attempt)
            self._out.append(event)
        elif event.attempt < self.attempt:
            if event.attempt >= self._known:
                self.late[rank] += 1
        else:
            self._place(rank, event, placed, now)

    def _place(self, rank: int, event: Event, placed: Placed, now: float) -> None:
        lane, position = placed
        way = self._ways.get(lane)
        if way is None:
            way = self._ways[lane] = _Way()
        way.at[rank] = max(position, way.at.get(rank, position))
        if event.axis == "step" and event.step is not None:
            self._steps[rank] = max(event.step, self._steps.get(rank, 0))
        way.unawaited.discard(rank)
        keys = _keys_of(event)
        if way.done is not None and position <= way.done:
            keys = self._still_to_go(way, rank, keys, position)
        if keys and position not in way.places:
            way.places[position] = {}
            bisect.insort(way.order, position)
        for key in keys:
            waiting = way.places[position].setdefault(key, [])
            value = next((value for value in waiting if rank not in value.events), None)
            if value is None:
                value = _Value(key, position, now)
                waiting.append(value)
                self._pending += 1
            value.events[rank] = event

    def _still_to_go(
        self, way: _Way, rank: int, keys: list[_Key], position: int | float
    ) -> list[_Key]:
        """Return the names of an event's values, without those that went out without it."""
        if position != way.done:
            if way.known is None or position > way.known:
                self.late[rank] += 1
            return []
        left, is_late = [], False
        for key in keys:
            without = (r for r in way.gone.get(key, ()) if r is None or rank not in r)
            for ranks in without:
                if ranks is not None:
                    ranks.add(rank)
                    is_late = True
                break
            else:
                left.append(key)
        if is_late:
            self.late[rank] += 1
        return left

    def say(self, event: Event) -> None:
        """Put an event into the result, in the attempt that is going on."""
        self._out.append(msgspec.structs.replace(event, attempt=self.attempt))

    def ready(self, now: float) -> list[Event]:
        """Return what can go out by now."""
        while True:
            for way in self._ways.values():
                self._advance(way, now)
            if not self._moves_on(now):
                break
            self._next_attempt(now)
        out, self._out = self._out, []
        return out

    def finish(self) -> list[Event]:
        """Return all that is left: nobody comes any more."""
        self.awaited.clear()
        return self.ready(0.0)

    def _advance(self, way: _Way, now: float) -> None:
        while way.order:
            place = way.places[way.order[0]]
            # the values of the same ranks' same events, in the order in which they came
            together: dict[tuple[tuple[int, int], ...], list[_Value]] = {}
            for key, waiting in list(place.items()):
                while waiting and self._is_complete(way, waiting[0], now):
                    value = waiting.pop(0)
                    events = tuple((rank, id(value.events[rank])) for rank in sorted(value.events))
                    together.setdefault(events, []).append(value)
                if not waiting:
                    del place[key]
            for values in together.values():
                self._emit(way, values)
            if place:
                return
            del way.places[way.order.pop(0)]

    def _is_complete(self, way: _Way, value: _Value, now: float) -> bool:
        missing = self.awaited - value.events.keys() - way.unawaited
        if missing:
            missing = {rank for rank in missing if not self._has_passed(rank, way, value)}
        if not missing:
            return True
        if now - value.born < self._patience and self._pending <= MOST:
            return False
        way.unawaited |= missing
        self.behind |= missing
        return True

    def _has_passed(self, rank: int, way: _Way, value: _Value) -> bool:
        if self._ahead.get(rank):
            return True
        at = way.at.get(rank)
        if at is not None and at > value.position:
            return True
        event = next(iter(value.events.values()))
        # a rank that logs nothing of this kind is known by its steps
        step = event.step if event.axis == "step" else None
        return step is not None and self._steps.get(rank, -1) > step

    def _emit(self, way: _Way, together: list[_Value]) -> None:
        self._pending -= len(together)
        events, position = together[0].events, together[0].position
        ranks = sorted(events)
        values: dict[str, Scalar] = {}
        nans = 0
        for key in (value.key for value in together):
            way.note_gone(position, key, set(ranks))
            if key is None:
                continue
            reducer = Reducer()
            # of what has no reducer, the lowest rank's stays
            for rank in reversed(ranks):
                reducer.add(events[rank].values[key])
            values[key] = reducer.result(self._reduction.of(key))
            nans += reducer.nans
        # what one rank alone says, while others are there, is that rank's own
        waited_for = self.awaited - way.unawaited
        if RANKS not in values and (len(ranks) > 1 or waited_for <= events.keys()):
            values[RANKS] = len(ranks)
        window = Window(first=position, last=position, n=len(ranks), nans=nans)
        self._out.append(msgspec.structs.replace(events[ranks[0]], values=values, window=window))

    def _moves_on(self, now: float) -> bool:
        """Whether the next attempt begins: all are there, or the patience is over."""
        if not any(self._ahead.values()):
            return False
        missing = {rank for rank in self.awaited if not self._ahead.get(rank)}
        since = now if self._ahead_since is None else self._ahead_since
        if missing and now - since < self._patience:
            return False
        self.behind |= missing
        return True

    def _next_attempt(self, now: float) -> None:
        awaited, self.awaited = self.awaited, set()
        for way in self._ways.values():
            self._advance(way, now)
        self.awaited = awaited
        self._ways, self._steps = {}, {}
        ahead, self._ahead, self._ahead_since = self._ahead, {}, None
        self.attempt = min(events[0].attempt for events in ahead.values() if events)
        for rank in sorted(ahead):
            for event in ahead[rank]:
                self.take(rank, event, now)
