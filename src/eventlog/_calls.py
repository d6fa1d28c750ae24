"""Calling a sink: on its thread or in the loop, within a deadline, whatever it raises."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from eventlog._care import Meter, Turn
from eventlog._loop import in_asyncio
from eventlog._terms import Deadlines
from eventlog.exceptions import SinkError, SinkTimeoutError
from eventlog.sinks._thread import SinkThread, is_users_own
from eventlog.sinks.base import Sink, is_async

__all__ = ["SinkCalls"]


class SinkCalls:
    """The way to one sink's methods; a synchronous sink has a thread of its own from `start` on.

    Attributes:
        meter: What the calls have cost.
    """

    def __init__(self, alias: str, sink: Sink, deadlines: Deadlines) -> None:
        self._alias = alias
        self._deadlines = deadlines
        self._async = is_async(sink)
        self.meter = Meter()
        self._thread: SinkThread | None = None

    def start(self) -> None:
        """Make calls possible."""
        if not self._async:
            self._thread = SinkThread(self._alias)

    async def call(self, function: Callable[[], Any], what: str) -> None:
        """Call a method.

        Args:
            function: The method, with its arguments.
            what: Its name: open, write, flush or close.

        Raises:
            SinkTimeoutError: It took longer than its deadline.
            Exception: What it raised; what would end the task or the loop comes as a `SinkError`.
        """
        deadline: float = getattr(self._deadlines, what)
        name = f"sink {self._alias!r}: {what}()"
        if self._async:
            with anyio.move_on_after(deadline) as scope:
                await self.meter.wait(_guarded(function), Turn(name, deadline))
            if scope.cancelled_caught:
                raise SinkTimeoutError(f"{name} took longer than {deadline:g} s")
            return
        assert self._thread is not None  # noqa: S101 - start() came first
        await self._thread.call(partial(self.meter.call, function), name, deadline)

    def stop(self) -> None:
        """Let go of the thread; may be called twice."""
        if self._thread is not None:
            self._thread.stop()


async def _guarded(function: Callable[[], Any]) -> None:
    """Await a sink's method; what would end the loop or the task becomes the sink's own error."""
    try:
        result = function()
        if inspect.isawaitable(result):  # a sink's open, flush and close may be plain
            await result
    except (Exception, GeneratorExit):
        raise
    except SystemExit as error:
        raise SinkError(f"the sink raised SystemExit({error.code!r})") from error
    except BaseException as error:
        if _is_cancelled(error) or (is_users_own(error) and not _is_spared()):
            raise
        if isinstance(error, asyncio.CancelledError):
            raise SinkError("the sink raised a cancellation of its own") from error
        raise SinkError(f"the sink raised {type(error).__name__}: {error}") from error


def _is_cancelled(error: BaseException) -> bool:
    """Whether an error is that of this task being cancelled, alone or in a group of a nursery."""
    if in_asyncio():
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return False
    kind = anyio.get_cancelled_exc_class()
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)[1] is None
    return isinstance(error, kind)


def _is_spared() -> bool:
    """Whether a Ctrl-C comes to the tasks of this loop as a cancellation, never as itself."""
    return in_asyncio() and signal.getsignal(signal.SIGINT) is not signal.default_int_handler
