"""Waking an event loop from any thread, without waiting for it and without one call per wake."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any

import anyio

__all__ = ["Waker", "in_asyncio", "in_loop"]


class Waker:
    """An event of a loop that any thread may set.

    Made in the loop that waits. Calls from the time it is set to the time it is waited for again
    are one call into the loop.
    """

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._pending = False
        self._schedule = _scheduler()

    def __call__(self) -> None:
        """Wake who waits; from any thread, also after the loop has ended."""
        if self._pending:
            return
        self._pending = True
        # a loop that is gone waits for nothing
        with contextlib.suppress(RuntimeError):
            self._schedule(self._set)

    def _set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait for the next wake; one that came since the last wait counts."""
        await self._event.wait()
        self._event = anyio.Event()
        self._pending = False


def in_loop() -> bool:
    """Whether this thread runs a loop, asyncio's or trio's."""
    if _in_trio():
        return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_asyncio() -> bool:
    """Whether the running loop is asyncio's; ask it inside of one."""
    return not _in_trio()


def _in_trio() -> bool:
    # another thread may be importing it just now: then this one does not run it
    ask = getattr(getattr(sys.modules.get("trio"), "lowlevel", None), "current_task", None)
    if ask is None:
        return False
    try:
        ask()
    except RuntimeError:
        return False
    return True


def _scheduler() -> Callable[[Callable[[], None]], Any]:
    if not in_asyncio():
        import trio

        token = trio.lowlevel.current_trio_token()

        def schedule(function: Callable[[], None]) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(function)

        return schedule
    return asyncio.get_running_loop().call_soon_threadsafe
