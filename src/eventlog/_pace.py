"""Pace: a source that lets events out when they are due, as fast as they came or scaled."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from eventlog.events import Event
from eventlog.log.source import Block, Reader, Source

__all__ = ["PacedSource"]

TICK = 0.01


class PacedSource:
    """Another source, slowed down.

    Time runs along the events' own monotonic stamps; an attempt begins where the one before
    ended, so that the hours between a crash and its resume are not waited for. `run` must run in
    the loop of whoever reads.

    Args:
        inner: Where the events come from.
        speed: 1.0 for the original pace, 10.0 for ten times as fast.

    Raises:
        ValueError: `speed` is not greater than 0.
    """

    def __init__(self, inner: Source, speed: float) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be greater than 0, not {speed!r}")
        self._inner = inner
        self._speed = speed
        self._started: float | None = None
        self._bases: dict[int, tuple[int, int]] = {}
        self._latest = 0
        self._released = 0
        self._wakes: list[Callable[[], None]] = []

    @property
    def first(self) -> int:
        return self._inner.first

    @property
    def end(self) -> int:
        return self._inner.end

    @property
    def synced(self) -> int:
        return self._inner.synced

    @property
    def closed(self) -> bool:
        return self._inner.closed and self._released >= self._inner.end

    def open_reader(self) -> Reader:
        return _PacedReader(self, self._inner.open_reader())

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes = [*self._wakes, wake]

        def unlisten() -> None:
            self._wakes = [w for w in self._wakes if w is not wake]

        return unlisten

    async def run(self) -> None:
        """Wake the listeners as time goes on; cancel it when the delivery has ended."""
        while True:
            for wake in tuple(self._wakes):
                wake()
            await anyio.sleep(TICK)

    def due(self, event: Event) -> bool:
        """Whether it is time for an event."""
        base = self._bases.get(event.attempt)
        if base is None:
            base = self._bases[event.attempt] = (event.mono, self._latest)
        at = base[1] + max(0, event.mono - base[0])
        self._latest = max(self._latest, at)
        now = anyio.current_time()
        if self._started is None:
            self._started = now
        return at <= (now - self._started) * 1e9 * self._speed

    def released(self, seq: int) -> None:
        """Take note that everything before `seq` has been let out."""
        self._released = max(self._released, seq)


class _PacedReader:
    def __init__(self, pace: PacedSource, inner: Reader) -> None:
        self._pace = pace
        self._inner = inner
        self._block: Block | None = None

    def read(self, seq: int) -> Block | None:
        block = self._block
        if block is None or not block.first <= seq < block.end:
            block = self._block = self._inner.read(seq)
        if block is None:
            return None
        events = block.events()
        at = max(0, seq - block.first)
        stop = at
        while stop < len(events) and self._pace.due(events[stop]):
            stop += 1
        if stop == at:
            return None
        self._pace.released(block.first + stop)
        return block if stop == len(events) and not at else block.part(at, stop)
