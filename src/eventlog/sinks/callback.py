"""A sink made of a function: the shortest way from events to something of your own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from eventlog.events import Event, Status
from eventlog.sinks.base import CAPABILITIES, RunInfo, Sink

__all__ = ["AsyncCallbackSink", "CallbackSink", "callback_sink"]


class CallbackSink(Sink):
    """Calls ``function(event)`` for each event, on the sink's own thread.

    When it raises, the event is given to it again; those before it, which it took, are not.
    """

    name = "callback"
    capabilities = CAPABILITIES

    def __init__(self, function: Callable[[Event], Any]) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable, not {function!r}")
        self.tracker = self._function = function
        self._taken_to = -1

    def open(self, run: RunInfo) -> None:
        """Begin anew: another log counts from 0 again."""
        self._taken_to = -1

    def write(self, batch: Sequence[Event]) -> None:
        """Call the function for each event.

        Raises:
            TypeError: It returned something to await; nobody would.
        """
        for event in batch:
            if event.seq <= self._taken_to:
                continue
            result = self._function(event)
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError(
                    f"{self._function!r} returned a {type(result).__name__}, which nobody "
                    "awaits; give a function that is defined with 'async def'"
                )
            self._taken_to = event.seq


class AsyncCallbackSink(Sink):
    """Awaits ``function(event)`` for each event, in the delivery's loop; see `CallbackSink`.

    In an `eventlog.Run` that loop is on a thread of its own, not the one that you may be running.
    """

    name = "callback"
    capabilities = CAPABILITIES

    def __init__(self, function: Callable[[Event], Awaitable[Any]]) -> None:
        self.tracker = self._function = function
        self._taken_to = -1

    async def open(self, run: RunInfo) -> None:
        """Begin anew: another log counts from 0 again."""
        self._taken_to = -1

    async def write(self, batch: Sequence[Event]) -> None:
        """Await the function for each event."""
        for event in batch:
            if event.seq > self._taken_to:
                await self._function(event)
                self._taken_to = event.seq

    async def flush(self) -> None:
        """Do nothing: what the function took is where it wanted it."""

    async def close(self, status: Status) -> None:
        """Do nothing: the function is its owner's."""


def callback_sink(function: Callable[[Event], Any]) -> Sink:
    """Return a sink that gives each event to a function, plain or async."""
    called = getattr(function, "__call__", None)  # noqa: B004 - an object's, which may be async
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        return AsyncCallbackSink(cast(Callable[[Event], Awaitable[Any]], function))
    return CallbackSink(function)
