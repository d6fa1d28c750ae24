"""The inbox: what was emitted and not yet taken by the writer.

Emitting is an append to a deque: no lock, no system call. `room` is the only thing that the
emitting side looks at; it is 0 whenever an event needs more than that look: when the inbox is full,
closed, or belongs to another process.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import repeat, starmap
from typing import Protocol, TypeAlias

from eventlog._wake import Wake
from eventlog.events import Event

__all__ = ["Barrier", "Deferred", "Inbox", "Item"]

EVENT_BYTES = 400
"""What an event with a few scalars takes in memory; larger ones say so themselves."""


class Deferred(Protocol):
    """An event of which a part is made on the writer's thread: a blob, a histogram's bins.

    Attributes:
        size: Bytes that it takes in memory.
    """

    size: int

    @property
    def event(self) -> Event:
        """What is there already, by which it is named if the rest cannot be made."""
        ...

    @property
    def ready(self) -> bool:
        """False while the value is still on its way from a device; never waits for it."""
        ...

    def resolve(self) -> Event:
        """Return the event. What it raises is counted, and the event dropped."""
        ...


class Barrier:
    """A mark in the stream of events: reached once everything before it was written.

    Args:
        durable: Whether everything must be on the disk by then, not only with the system.

    Attributes:
        seq: All events before it were written; -1 until then.
        synced: Whether they are on the disk.
    """

    size = 0
    ready = True

    def __init__(self, *, durable: bool = False) -> None:
        self._event = threading.Event()
        self.durable = durable
        self.seq = -1
        self.synced = False

    def reach(self, seq: int, synced: bool) -> None:
        """Say that all events before `seq` were written, and whether that is synced."""
        self.seq = seq
        self.synced = synced
        self._event.set()

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is reached; False when that takes longer than `timeout` seconds."""
        return self._event.wait(timeout)


def _is_ready(item: Deferred | Barrier) -> bool:
    try:
        return item.ready
    except Exception:  # an array that its program gave away, say: resolve() will say so
        return True


Item: TypeAlias = "Event | Deferred | Barrier"


class Inbox:
    """A bounded queue from the emitting threads to the writer.

    Attributes:
        items: What waits, oldest first.
        room: An event may be appended to `items` as it is while ``len(items) < room``; otherwise
            it must go through `put`.
        append: Appends to `items`.
        dropped: Events that were not taken, by reason.
    """

    # what emitting touches lies together: after a step of work each line of the cache that it
    # needs is one to wait for
    __slots__ = ("_deferred", "_extra", "_high_water", "_lock", "_marks", "_max_bytes",
                 "_max_events", "_refuse", "_reserve", "append", "dropped", "items", "room",
                 "wake")  # fmt: skip

    def __init__(
        self,
        max_events: int = 1_000_000,
        max_bytes: int = 256 * 1024 * 1024,
        *,
        high_water: int = 32_768,
        reserve: int = 1_000,
    ) -> None:
        self.items: deque[Item] = deque()
        self.append = self.items.append
        self.room = min(high_water, max_events)
        self.dropped: dict[str, int] = {}
        self.wake = Wake()
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._high_water = min(high_water, max_events)
        self._reserve = reserve
        self._extra = 0
        self._lock = threading.RLock()
        self._refuse = ""
        self._marks = 0
        self._deferred = 0

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return max(0, len(self.items) - self._marks)

    def put(self, item: Item, *, size: int = 0, reserved: bool = False) -> bool:
        """Append an item if it may be; count it as dropped otherwise.

        Args:
            item: An event, or what becomes one.
            size: Bytes over those of a small event; what is no event says so itself.
            reserved: Whether it may use the space that telemetry may not: run and model events.
        """
        with self._lock:
            mark = isinstance(item, Barrier)
            plain = isinstance(item, Event)
            if not isinstance(item, Event):
                size = item.size
            if self._refuse:
                if not mark:
                    self._count(self._refuse)
                return False
            waiting = len(self.items)
            events = self._max_events + (self._reserve if reserved else 0)
            room = self._max_bytes - self._extra - size
            full = waiting >= events or (waiting * EVENT_BYTES > room and not reserved)
            if full and not mark:
                self._count("inbox_full")
                self.wake.set()
                return False
            if not plain:
                # before the append: see take()
                self._deferred += 1
                self._marks += mark
                self._extra += size
            self.items.append(item)
        if waiting >= self._high_water:
            self.wake.set()
        return True

    def drop(self, reason: str) -> None:
        """Count an event that was not even offered."""
        with self._lock:
            self._count(reason)

    def _count(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    @property
    def held_up(self) -> bool:
        """Whether the first item waits for a device."""
        item = self.items[0] if self.items else None
        return item is not None and not isinstance(item, Event) and not _is_ready(item)

    def give_up_first(self) -> None:
        """Drop the first item: its device does not answer. For the writer alone."""
        with self._lock:
            item = self.items.popleft()
            if not isinstance(item, Event):
                self._deferred -= 1
                self._extra -= item.size
            self._count("device_hung")

    def take(self, n: int) -> list[Item]:
        """Remove up to `n` items, up to the first one that is not ready. For the writer alone."""
        items = self.items
        n = min(n, len(items))
        if not self._deferred:
            # nothing but events among the first n: put() counts before it appends
            return list(starmap(items.popleft, repeat((), n)))
        taken: list[Item] = []
        for _ in range(n):
            item = items[0]
            if not isinstance(item, Event):
                if not _is_ready(item):
                    break
                with self._lock:
                    self._deferred -= 1
                    self._extra -= item.size
                    self._marks -= isinstance(item, Barrier)
            taken.append(items.popleft())
        return taken

    def open_up(self) -> None:
        """Let events be appended as they are, unless nothing is taken any more."""
        with self._lock:
            if not self._refuse:
                self.room = self._high_water

    def refuse(self, reason: str) -> None:
        """Take nothing more; what comes is counted under `reason`."""
        with self._lock:
            self._refuse = reason
            self.room = 0

    def abandon(self, reason: str = "forked") -> None:
        """Forget everything: this is another process's copy of an inbox."""
        self._lock = threading.RLock()
        self.wake = Wake()
        self.items.clear()
        self.dropped = {}
        self._extra = 0
        self._marks = 0
        self._deferred = 0
        self.refuse(reason)
