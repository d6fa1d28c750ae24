"""The async iterator over a subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from eventlog._loop import Waker
from eventlog.events import Event
from eventlog.log.source import Source
from eventlog.subscription import Subscription

__all__ = ["EventStream"]


class EventStream(AsyncIterator[Event]):
    """The events of a subscription, one by one; ends when the source does.

    Attributes:
        subscription: Its place, and what it read, left out and lost.
    """

    def __init__(self, source: Source, subscription: Subscription) -> None:
        self.subscription = subscription
        self._source = source
        self._buffer: list[Event] = []
        self._at = 0
        self._waker = Waker()
        self._unlisten = source.listen(self._waker)

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._at >= len(self._buffer):
            self._buffer = await self.next_batch()
            self._at = 0
        self._at += 1
        return self._buffer[self._at - 1]

    async def next_batch(self) -> list[Event]:
        """Return the next events, at least one; cancelling it loses none.

        Raises:
            StopAsyncIteration: The source has ended.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            ended = self._source.closed
            ready = self.subscription.pull()
            if ready is None:
                if ended:
                    raise StopAsyncIteration
                await self._waker.wait()
            elif ready.events:
                return ready.events
            else:
                await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """Stop listening."""
        self._unlisten()
