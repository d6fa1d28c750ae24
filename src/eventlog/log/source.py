"""Where subscriptions read from: blocks of events, by seq.

`Source` hides whether events come from memory or from files, live or long finished. Everything
that consumes events does it through a `Reader`, which holds a place of its own: live delivery,
catching up, recovery, replay and delivery from another process differ only in the source and the
seq they start from.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, Protocol

from eventlog.codec import decode_events, stamp
from eventlog.events import Event
from eventlog.exceptions import CodecError
from eventlog.log.layout import NO_STEPS, BlockHeader, Content, content_of

__all__ = ["Block", "Reader", "Source", "TailCache", "describe"]

_step_of = attrgetter("step")
_axis_of = attrgetter("axis")
_OWN_AXIS = {"step"}
# plain integers: an IntFlag's operators cost a microsecond each
_RUN, _NO_STEP = Content.RUN.value, Content.NO_STEP.value
_SORTED, _NAMED_AXIS = Content.SORTED.value, Content.NAMED_AXIS.value


def describe(
    events: Sequence[Event], kinds: Collection[type[Event]] | None = None
) -> tuple[Content, tuple[int, int]]:
    """Return what a block of these events holds and the range of their steps.

    Args:
        events: At least one.
        kinds: Their types, where these are known already.
    """
    flags = 0
    for kind in set(map(type, events)) if kinds is None else kinds:
        flags |= content_of(kind).value
    placed: Sequence[Event] = events
    if flags & _RUN:
        # what is said about the run is at no step: a resume would seem to begin at step 0
        placed = [e for e in events if content_of(type(e)) is not Content.RUN]
    steps: list[Any] = list(map(_step_of, placed))
    if None in steps:
        flags |= _NO_STEP
        steps = [step for step in steps if step is not None]
        steps.sort()
    else:
        ascending = sorted(steps)
        if steps == ascending:
            flags |= _SORTED
        steps = ascending
    if set(map(_axis_of, events)) != _OWN_AXIS:
        flags |= _NAMED_AXIS
    return Content(flags), ((steps[0], steps[-1]) if steps else NO_STEPS)


class Block:
    """A run of consecutive events, decoded when they are first asked for.

    Attributes:
        first: seq of the first event.
        end: seq after the last one.
        flags: What is in it; lets a reader pass it by.
        steps: Smallest and largest step; `NO_STEPS` when no event has one.
        attempt: Of all its events.
        size: Bytes it takes, about.
    """

    __slots__ = ("_events", "_payload", "attempt", "end", "first", "first_time", "flags", "size",
                 "steps")  # fmt: skip

    def __init__(
        self,
        first: int,
        count: int,
        flags: Content,
        steps: tuple[int, int],
        *,
        attempt: int,
        first_time: int,
        size: int,
        events: list[Event] | None = None,
        payload: Callable[[], bytes] | None = None,
    ) -> None:
        self.first = first
        self.end = first + count
        self.flags = flags
        self.steps = steps
        self.attempt = attempt
        self.first_time = first_time
        self.size = size
        self._events = events
        self._payload = payload

    @classmethod
    def stored(cls, header: BlockHeader, attempt: int, payload: Callable[[], bytes]) -> Block:
        """Make a block that reads its events from where they are stored."""
        return cls(
            header.first_seq,
            header.events,
            Content(header.flags),
            (header.min_step, header.max_step),
            attempt=attempt,
            first_time=header.first_time,
            size=header.length,
            payload=payload,
        )

    @property
    def in_memory(self) -> bool:
        """Whether `events` costs nothing."""
        return self._events is not None

    def events(self) -> list[Event]:
        """Return the events, with seq and wall time.

        Raises:
            CodecError: The payload is not what its header says.
        """
        if self._events is None:
            assert self._payload is not None  # noqa: S101 - one of the two is given
            events = decode_events(self._payload())
            if len(events) != self.end - self.first:
                raise CodecError(
                    f"{len(events)} events in a block of {self.end - self.first} "
                    f"at seq {self.first}"
                )
            if events:
                stamp(events, self.first, self.first_time - events[0].mono)
            self._events = events
            self._payload = None
        return self._events

    def part(self, start: int, stop: int) -> Block:
        """Return a block of the events from `start` to `stop`, counted from its own first one."""
        events = self.events()[start:stop]
        flags, steps = describe(events)
        return Block(
            self.first + start,
            len(events),
            flags,
            steps,
            attempt=self.attempt,
            first_time=events[0].wall,
            size=self.size * len(events) // max(1, self.end - self.first),
            events=events,
        )


class Reader(Protocol):
    """A place in a source. Not for several threads at once."""

    def read(self, seq: int) -> Block | None:
        """Return the first block that ends after `seq`, or None where there is none yet.

        The block may start before `seq`, and it starts after it where events cannot be had.
        """
        ...


class Source(Protocol):
    """A log, as its consumers see it."""

    @property
    def first(self) -> int:
        """The smallest seq that can still be read."""
        ...

    @property
    def end(self) -> int:
        """The seq that the next event will get."""
        ...

    @property
    def synced(self) -> int:
        """No event from this seq on is promised to survive a loss of power."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing will be added any more."""
        ...

    def open_reader(self) -> Reader:
        """Return a new place in the source."""
        ...

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called, from any thread, after events were added or the source closed.

        Returns:
            What ends that.
        """
        ...


class TailCache:
    """The newest blocks of a log in memory, bounded by events and by bytes.

    One writer appends; readers look up. By itself it is the source of a run without a directory:
    what falls out of it is lost to readers that are too slow, and they count it.
    """

    def __init__(self, max_events: int = 65_536, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._blocks: deque[Block] = deque()
        self._lock = threading.Lock()
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._bytes = 0
        self._end = 0
        self._closed = False
        self._wakes: list[Callable[[], None]] = []

    @property
    def first(self) -> int:
        blocks = self._blocks
        return blocks[0].first if blocks else self._end

    @property
    def end(self) -> int:
        return self._end

    @property
    def synced(self) -> int:
        return self._end

    @property
    def closed(self) -> bool:
        return self._closed

    def restart(self, seq: int) -> None:
        """Begin at a seq other than 0, before anything was appended."""
        self._end = seq

    def append(self, block: Block) -> None:
        """Add the newest block; forget the oldest ones over the bounds."""
        with self._lock:
            self._blocks.append(block)
            self._bytes += block.size
            self._end = block.end
            while len(self._blocks) > 1 and (
                self._end - self._blocks[0].first > self._max_events
                or self._bytes > self._max_bytes
            ):
                self._bytes -= self._blocks.popleft().size

    def notify(self) -> None:
        """Wake the listeners: once for each batch that was written."""
        for wake in tuple(self._wakes):
            wake()

    def close(self) -> None:
        """Say that nothing more will come."""
        self._closed = True
        self.notify()

    def find(self, seq: int) -> Block | None:
        """Return the first cached block that ends after `seq`."""
        with self._lock:
            blocks = self._blocks
            if not blocks or seq >= self._end:
                return None
            if seq >= blocks[-1].first:
                return blocks[-1]
            index = bisect.bisect_right(blocks, seq, key=attrgetter("end"))
            return blocks[index]

    def open_reader(self) -> Reader:
        return _CacheReader(self)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes = [*self._wakes, wake]

        def unlisten() -> None:
            self._wakes = [w for w in self._wakes if w is not wake]

        return unlisten


class _CacheReader:
    def __init__(self, cache: TailCache) -> None:
        self._cache = cache

    def read(self, seq: int) -> Block | None:
        return self._cache.find(seq)
