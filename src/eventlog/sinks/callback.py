"""A sink made of a function: the shortest way from events to something of your own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from eventlog.events import Event
from eventlog.sinks.base import CAPABILITIES, Sink

__all__ = ["AsyncCallbackSink", "CallbackSink", "callback_sink"]


class CallbackSink(Sink):
    """Calls ``function(event)`` for each event, on the sink's own thread."""

    name = "callback"
    capabilities = CAPABILITIES

    def __init__(self, function: Callable[[Event], Any]) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable, not {function!r}")
        self.tracker = self._function = function

    def write(self, batch: Sequence[Event]) -> None:
        """Call the function for each event."""
        for event in batch:
            self._function(event)


class AsyncCallbackSink(Sink):
    """Awaits ``function(event)`` for each event, in the delivery's loop."""

    name = "callback"
    capabilities = CAPABILITIES

    def __init__(self, function: Callable[[Event], Awaitable[Any]]) -> None:
        self.tracker = self._function = function

    async def write(self, batch: Sequence[Event]) -> None:
        """Await the function for each event."""
        for event in batch:
            await self._function(event)


def callback_sink(function: Callable[[Event], Any]) -> Sink:
    """Return a sink that gives each event to a function, plain or async."""
    if inspect.iscoroutinefunction(function):
        return AsyncCallbackSink(cast(Callable[[Event], Awaitable[Any]], function))
    return CallbackSink(function)
