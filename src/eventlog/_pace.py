"""Pace: a source that lets events out when they are due, as fast as they came or scaled."""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio

from eventlog.events import Event
from eventlog.exceptions import CodecError
from eventlog.log.source import Block, Reader, Source

__all__ = ["PacedSource"]


class PacedSource:
    """Another source, slowed down.

    Time runs along the events' own monotonic stamps, from the first event that is asked for; an
    attempt begins where the one before ended, so that the hours between a crash and its resume
    are not waited for. All readers share one time: who starts behind the others, because its
    sink had taken less when an earlier replay was interrupted, catches up at once.

    `run` must run in the loop of whoever reads.

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
        self._rate = speed * 1e9
        self._started: float | None = None
        self._bases: dict[int, tuple[int, int]] = {}
        self._attempt = 0
        self._latest = 0
        self._released = 0
        self._wakes: list[Callable[[], None]] = []
        self._next = math.inf
        self._sooner: anyio.Event | None = None

    @property
    def first(self) -> int:
        return self._inner.first

    @property
    def sparse(self) -> bool:
        return bool(getattr(self._inner, "sparse", False))

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
        return _PacedReader(self, self._inner)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes = [*self._wakes, wake]
        unlisten_inner = self._inner.listen(wake)

        def unlisten() -> None:
            unlisten_inner()
            self._wakes = [w for w in self._wakes if w is not wake]

        return unlisten

    async def run(self) -> None:
        """Wake the listeners when an event is due; cancel it when the delivery has ended."""
        while True:
            self._sooner = anyio.Event()
            with anyio.CancelScope(deadline=self._next):
                await self._sooner.wait()
            if anyio.current_time() >= self._next:
                self._next = math.inf
                self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()

    def due_at(self, event: Event) -> float:
        """Return when it is time for an event, on the loop's clock."""
        if self._started is None:
            self._started = anyio.current_time()
        if event.attempt < self._attempt or self.closed:
            return self._started
        base = self._bases.get(event.attempt)
        if base is None:
            base = self._bases[event.attempt] = (event.mono, self._latest)
            self._attempt = event.attempt
        return self._started + self._place(event, base) / self._rate

    @staticmethod
    def _place(event: Event, base: tuple[int, int]) -> int:
        return base[1] + max(0, event.mono - base[0])

    def hold(self, until: float) -> None:
        """Have the listeners woken at an instant of the loop's clock."""
        if until < self._next:
            self._next = until
            if self._sooner is not None:
                self._sooner.set()

    def released(self, seq: int, last: Event | None = None) -> None:
        """Take note that everything before `seq` was let out, and of the last event that was."""
        if last is not None and (base := self._bases.get(last.attempt)) is not None:
            self._latest = max(self._latest, self._place(last, base))
        before = self.closed
        self._released = max(self._released, seq)
        if self.closed and not before:
            self._wake()


class _PacedReader:
    def __init__(self, pace: PacedSource, inner: Source) -> None:
        self._pace = pace
        self._inner = inner
        self._reader = inner.open_reader()
        self._block: Block | None = None

    def read(self, seq: int) -> Block | None:
        block = self._block
        if block is None or not block.first <= seq < block.end:
            # asked before reading: nothing comes after what is not there then
            ended, end = self._inner.closed, self._inner.end
            block = self._block = self._reader.read(seq)
            if block is None:
                if ended:
                    self._pace.released(end)
                return None
        try:
            events = block.events()
        except CodecError:
            # whoever asked finds that out, and goes on behind it
            self._pace.released(block.end)
            return block
        at = max(0, seq - block.first)
        stop = at
        now = anyio.current_time()
        while stop < len(events):
            when = self._pace.due_at(events[stop])
            if when > now:
                self._pace.hold(when)
                break
            stop += 1
        if stop == at:
            return None
        self._pace.released(block.first + stop, events[stop - 1])
        return block if stop == len(events) and not at else block.part(at, stop)
