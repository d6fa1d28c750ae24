"""The thread of a synchronous sink: everything that touches its SDK happens there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import anyio

from eventlog._loop import Waker
from eventlog.exceptions import SinkError, SinkTimeoutError

__all__ = ["SinkThread"]

T = TypeVar("T")


class _Call:
    def __init__(self, function: Callable[[], Any], done: Callable[[], None]) -> None:
        self.function = function
        self.done = done
        self.finished = False
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self.function()
        except Exception as error:
            self.error = error
        except BaseException as error:
            # a SystemExit, or a cancellation, of the sink's own must end no thread and no task
            self.error = SinkError(f"the sink raised {type(error).__name__}: {error}")
            self.error.__cause__ = error
        self.finished = True
        self.done()


class SinkThread:
    """Runs calls one after the other on a daemon thread.

    The thread is started at once and never joined: a call that hangs for ever is given up with
    its thread, and keeps neither the loop nor the process.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"eventlog-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            del call

    async def call(self, function: Callable[[], T], what: str, deadline: float | None) -> T:
        """Run `function` on the thread and return what it returns.

        Args:
            function: Takes no arguments.
            what: For the error: which call it is.
            deadline: Seconds; None for no end.

        Raises:
            SinkTimeoutError: It took longer; the thread is of no use any more.
            Exception: What `function` raised; anything worse comes as a `SinkError`.
        """
        waker = Waker()
        call = _Call(function, waker)
        self._calls.put(call)
        with anyio.move_on_after(deadline):
            while not call.finished:
                await waker.wait()
        if not call.finished:
            raise SinkTimeoutError(f"{what} took longer than {deadline:g} s")
        if call.error is not None:
            raise call.error
        return cast(T, call.result)

    def stop(self) -> None:
        """Let the thread end once it has done what it was given."""
        self._calls.put(None)
