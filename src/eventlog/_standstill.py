"""Noticing that a loop stands still: a deadline in it does not pass where nothing is awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import anyio

__all__ = ["Standstill"]

_LOOK_EVERY = 1.0
_BEAT_EVERY = 0.2


class Standstill:
    """A thread that looks whether the loop still turns.

    Args:
        limit: Seconds for which it may stand still. They are counted and not measured, so that a
            process that was stopped has not stood still.
        notice: Called on the thread, once, when it was longer.
    """

    def __init__(self, limit: float, notice: Callable[[], None]) -> None:
        self._limit = limit
        self._notice = notice
        self._still = 0.0
        self._over = False

    async def watch(self) -> None:
        """Turn with the loop, until cancelled."""
        threading.Thread(target=self._look, name="eventlog-standstill", daemon=True).start()
        try:
            while True:
                self._still = 0.0
                await anyio.sleep(_BEAT_EVERY)
        finally:
            self._over = True

    def _look(self) -> None:
        while not self._over:
            if self._still > self._limit:
                self._notice()
                return
            time.sleep(_LOOK_EVERY)
            self._still += _LOOK_EVERY
