"""Where in a log a step, an epoch or a time is.

What each block holds is read once: off the index of a sealed segment, off the blocks' headers in
one that is not. A search goes by halves through that, and decodes the blocks that it ends at.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from eventlog.events import Event, Rewound
from eventlog.exceptions import CodecError
from eventlog.log.index import IndexEntry, read_index
from eventlog.log.layout import NO_STEPS, BlockKind, Content, content_of
from eventlog.log.segment_reader import Segment, list_segments
from eventlog.log.source import Block

__all__ = ["Seeker"]


class _ChangedError(Exception):
    """A segment is not the file any more that was looked at: it was compacted, or retired."""


class _Part:
    """What the blocks of one segment hold.

    Attributes:
        attempt: Of all its events.
        entries: In the order of the log.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = (-1, -1)
        self._read_to = 0
        self._headers_only = False
        self.attempt = 1
        self.entries: list[IndexEntry] = []
        self._steps: dict[int, tuple[int, int]] = {}
        self._epochs: dict[int, tuple[float, float] | None] = {}

    def look(self) -> bool:
        """Look again; returns whether anything has changed."""
        stat = os.stat(self._path)
        if (stat.st_ino, stat.st_size) == self._seen:
            return False
        segment = Segment(self._path)
        try:
            if segment.inode != self._seen[0]:
                self._forget()
            self._seen = (segment.inode, segment.size)
            if segment.header is not None:
                self.attempt = segment.header.attempt
                self._read(segment)
        finally:
            segment.close()
        return True

    def _forget(self) -> None:
        self._read_to = 0
        self.entries = []
        self._steps = {}
        self._epochs = {}

    def _read(self, segment: Segment) -> None:
        index = None if self._headers_only else read_index(segment)
        if index is not None:
            self.entries = list(index)
            return
        for block in segment.scan(self._read_to):
            self._read_to = block.end
            if block.header.kind == BlockKind.EVENTS:
                self.entries.append(IndexEntry.of(block.offset, block.header))

    def events(self, entry: IndexEntry) -> list[Event]:
        """Decode a block; empty where it is damaged.

        Raises:
            _ChangedError: Another file has taken the segment's place, or its index is wrong.
        """
        try:
            segment = Segment(self._path)
        except FileNotFoundError:
            raise _ChangedError from None
        try:
            if segment.inode != self._seen[0]:
                raise _ChangedError
            scanned = segment.block_at(entry.offset)
            if scanned is None or IndexEntry.of(entry.offset, scanned.header) != entry:
                self._go_through_headers()
                raise _ChangedError
            block = Block.stored(scanned.header, self.attempt, lambda: segment.payload(scanned))
            return block.events()
        except CodecError:
            return []
        finally:
            segment.close()

    def _go_through_headers(self) -> None:
        """Believe the index no more."""
        self._headers_only = True
        self._seen = (-1, -1)

    def steps(self, entry: IndexEntry) -> tuple[int, int]:
        """Return the range of a block's steps on the axis "step"; `NO_STEPS` when it has none."""
        if not entry.flags & Content.NAMED_AXIS:
            return entry.min_step, entry.max_step
        if entry.offset not in self._steps:
            found = [e.step for e in self.events(entry) if _has_step(e) and e.step is not None]
            self._steps[entry.offset] = (min(found), max(found)) if found else NO_STEPS
        return self._steps[entry.offset]

    def epochs(self, entry: IndexEntry) -> tuple[float, float] | None:
        """Return the first and the last epoch of a block; None when it has none."""
        if entry.offset not in self._epochs:
            found = [e.epoch for e in self.events(entry) if _is_placed(e) and e.epoch is not None]
            self._epochs[entry.offset] = (found[0], found[-1]) if found else None
        return self._epochs[entry.offset]


def _is_placed(event: Event) -> bool:
    """Whether an event's own place counts: what is said about the run has none."""
    return content_of(type(event)) is not Content.RUN


def _has_step(event: Event) -> bool:
    return event.axis == "step" and _is_placed(event)


class _Place(NamedTuple):
    """A block, and the segment that it lies in."""

    part: _Part
    entry: IndexEntry

    def find(self, holds: Callable[[Event], bool]) -> int | None:
        """Return the seq of the first event that is meant."""
        return next((e.seq for e in self.part.events(self.entry) if holds(e)), None)


class _Attempt:
    """The blocks of one attempt.

    Args:
        number: Of the attempt.
        places: Its blocks, in order.
        alone: Whether it is the only one; where it starts and ends need not be exact then.
    """

    def __init__(self, number: int, places: list[_Place], *, alone: bool) -> None:
        self._places = places
        self._highest = list(accumulate((p.entry.max_step for p in places), max))
        self._epochs: tuple[float, float] | None = None
        self._rewinds: list[Rewound] = []
        low: float
        high: float
        low, high = NO_STEPS
        for part, entry in places:
            first, last = (entry.min_step, entry.max_step) if alone else part.steps(entry)
            low, high = min(low, first), max(high, last)
            if number > 1 and entry.flags & Content.RUN:
                self._rewinds += [e for e in part.events(entry) if isinstance(e, Rewound)]
        if self._rewinds:
            low, high = min(low, *(e.to_step for e in self._rewinds)), math.inf
        self._steps = (low, high)

    def steps(self) -> tuple[float, float]:
        """Return the first and the last step that it covers: after a rewind, all from there on."""
        return self._steps

    def find_step(self, step: float) -> int | None:
        """Return the seq of the first event at or after a step."""
        for place in self._places[bisect_left(self._highest, step) :]:
            if place.entry.max_step >= step and place.part.steps(place.entry)[1] >= step:
                seq = place.find(lambda e: _has_step(e) and e.step is not None and e.step >= step)
                if seq is not None:
                    return seq
        return None

    def epochs(self) -> tuple[float, float] | None:
        """Return the first and the last epoch that it covers; None when it has none."""
        if self._epochs is None:
            first = next(filter(None, map(_epochs_of, self._places)), None)
            last = next(filter(None, map(_epochs_of, reversed(self._places))), None)
            ends = [] if first is None or last is None else [first[0], last[1]]
            ends += [e.epoch for e in self._rewinds if e.epoch is not None]
            if ends:
                self._epochs = min(ends), math.inf if self._rewinds else max(ends)
        return self._epochs

    def find_epoch(self, epoch: float) -> int | None:
        """Return the seq of the first event at or after an epoch; these ascend in an attempt."""
        low, high = 0, len(self._places)
        while low < high:
            at = middle = (low + high) // 2
            while at < high and _epochs_of(self._places[at]) is None:
                at += 1
            span = _epochs_of(self._places[at]) if at < high else None
            if span is not None and span[1] < epoch:
                low = at + 1
            else:
                high = middle
        for place in self._places[low:]:
            seq = place.find(lambda e: _is_placed(e) and e.epoch is not None and e.epoch >= epoch)
            if seq is not None:
                return seq
        return None


def _epochs_of(place: _Place) -> tuple[float, float] | None:
    return place.part.epochs(place.entry)


class Seeker:
    """Finds places in a log, also one that is being written, rotated and compacted.

    Args:
        directory: Of a rank's log.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parts: dict[Path, _Part] = {}
        self._places: list[_Place] = []
        self._latest: list[int] = []
        self._attempts: list[_Attempt] | None = None

    def step(self, step: float) -> int:
        """Return the seq of the first event at or after a step; the log's end where none is.

        It lies in the latest attempt that covers the step; where none does, or that logged no
        more, in the one that starts next.
        """
        return self._settled(lambda: self._in_attempt(step, _Attempt.steps, _Attempt.find_step))

    def epoch(self, epoch: float) -> int:
        """Return the seq of the first event at or after an epoch; as `step`."""
        return self._settled(lambda: self._in_attempt(epoch, _Attempt.epochs, _Attempt.find_epoch))

    def time(self, wall: int) -> int:
        """Return the seq of the first event at or after a wall time, ns, in the log's order."""
        return self._settled(lambda: self._at(wall))

    def _settled(self, search: Callable[[], int | None]) -> int:
        """Search, again where the files have changed meanwhile; the log's end for nothing."""
        while True:
            try:
                self._look()
                seq = search()
            except _ChangedError:
                self._attempts = None
                continue
            if seq is not None:
                return seq
            return max((p.entry.first_seq + p.entry.events for p in self._places), default=0)

    def _look(self) -> None:
        parts = {path: self._parts.get(path) for _, path in list_segments(self._directory)}
        changed = parts.keys() != self._parts.keys()
        self._parts = {}
        for path, known in parts.items():
            part = known or _Part(path)
            try:
                changed |= part.look()
            except FileNotFoundError:  # retired between the listing and now
                changed = True
                continue
            self._parts[path] = part
        if changed:
            self._places = [_Place(p, e) for p in self._parts.values() for e in p.entries]
            self._latest = list(accumulate((p.entry.last_time for p in self._places), max))
            self._attempts = None

    def _at(self, wall: int) -> int | None:
        for place in self._places[bisect_left(self._latest, wall) :]:
            if place.entry.last_time >= wall:
                seq = place.find(lambda event: event.wall >= wall)
                if seq is not None:
                    return seq
        return None

    def _in_attempt(
        self,
        value: float,
        span_of: Callable[[_Attempt], tuple[float, float] | None],
        find: Callable[[_Attempt, float], int | None],
    ) -> int | None:
        """Search in the latest attempt that covers a value, then where the next one starts."""
        spans = [(one, span) for one in self._by_attempt() if (span := span_of(one)) is not None]
        while True:
            covering = [one for one, (first, last) in spans if first <= value <= last]
            if covering and (seq := find(covering[-1], value)) is not None:
                return seq
            ahead = [first for _, (first, last) in spans if value < first <= last]
            if not ahead:
                return None
            value = min(ahead)

    def _by_attempt(self) -> list[_Attempt]:
        if self._attempts is None:
            found: dict[int, list[_Place]] = {}
            for place in self._places:
                found.setdefault(place.part.attempt, []).append(place)
            alone = len(found) == 1
            self._attempts = [_Attempt(n, found[n], alone=alone) for n in sorted(found)]
        return self._attempts
