"""The thread of a synchronous sink: everything that touches its SDK happens there.

And whose an error is, that a sink raises, and how long it may take to be made.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import anyio

from eventlog._loop import Waker
from eventlog.exceptions import SinkError, SinkTimeoutError

__all__ = ["SinkThread", "call_apart", "call_own", "is_users_own"]

T = TypeVar("T")

logger = logging.getLogger("eventlog")

_SILENT = 3.0
"""Seconds that making a sink may take before it is said."""


def is_users_own(error: BaseException) -> bool:
    """Whether an error that came out of a sink's code is the user's: a Ctrl-C, not a failure.

    Only the main thread is interrupted by one.
    """
    on_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and on_main


def call_own(function: Callable[[], T]) -> T:
    """Call a sink's code; what it raises must end no thread, no task and no program.

    Raises:
        Exception: What `function` raised; anything worse comes as a `SinkError`.
        KeyboardInterrupt: It was the user's.
    """
    try:
        return function()
    except Exception:
        raise
    except BaseException as error:
        if is_users_own(error):
            raise
        raise SinkError(f"the sink raised {type(error).__name__}: {error}") from error


class _Call:
    def __init__(self, function: Callable[[], Any], done: Callable[[], None]) -> None:
        self.function = function
        self.done = done
        self.finished = False
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = call_own(self.function)
        except Exception as error:
            self.error = error
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


def call_apart(function: Callable[[], T], what: str, deadline: float) -> T:
    """Run `function` on a daemon thread while this one waits: for what may never return.

    Args:
        function: Takes no arguments.
        what: For the error: what takes so long.
        deadline: Seconds.

    Raises:
        SinkTimeoutError: It took longer; the thread is left behind.
        Exception: What `function` raised; anything worse comes as a `SinkError`.
    """
    if _is_importing():
        # the other thread might wait for the very module that this one is about to load
        return function()
    finished = threading.Event()
    call = _Call(function, finished.set)
    threading.Thread(target=call.run, name="eventlog-make", daemon=True).start()
    deadline = min(deadline, threading.TIMEOUT_MAX)
    silent = min(deadline, _SILENT)
    if not finished.wait(silent) and silent < deadline:
        logger.warning("eventlog: %s takes long; it has %g s more", what, deadline - silent)
        finished.wait(deadline - silent)
    if not finished.is_set():
        raise SinkTimeoutError(f"{what} took longer than {deadline:g} s")
    if call.error is not None:
        raise call.error
    return cast(T, call.result)


async def acall_apart(function: Callable[[], T], what: str, deadline: float) -> T:
    """Do what `call_apart` does, while the loop goes on.

    Raises:
        SinkTimeoutError, Exception: As `call_apart` does.
    """
    if _is_importing():
        return function()
    return await call_once("make", function, what, deadline)


async def call_once(name: str, function: Callable[[], T], what: str, deadline: float) -> T:
    """Run `function` on a thread of its own; see `SinkThread.call`."""
    thread = SinkThread(name)
    try:
        return await thread.call(function, what, deadline)
    finally:
        thread.stop()


def _is_importing() -> bool:
    """Whether this thread is in the middle of an import."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
    return False
