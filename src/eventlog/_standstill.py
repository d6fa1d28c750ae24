"""Noticing that a call of a sink stops its loop: no deadline passes where nothing is awaited.

What is ours may be held up as well, by a disk, and is left alone: only a sink's own call counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import anyio

from eventlog._care import turn_on

__all__ = ["Standstill"]

_LOOK_EVERY = 1.0
_BEAT_EVERY = 0.2


class Standstill:
    """A thread that looks whether the loop still turns.

    Args:
        margin: Seconds for which a call may have the loop to itself, beside its deadline. They are
            counted and not measured, so that a process that was stopped has not stood still.
        notice: Called on the thread, once, with the name of the call that had it for longer.
    """

    def __init__(self, margin: float, notice: Callable[[str], None]) -> None:
        self._margin = margin
        self._notice = notice
        self._still = 0.0
        self._over = False

    async def watch(self) -> None:
        """Turn with the loop, until cancelled."""
        thread = threading.Thread(
            target=self._look,
            args=(threading.get_ident(),),
            name="eventlog-standstill",
            daemon=True,
        )
        thread.start()
        try:
            while True:
                self._still = 0.0
                await anyio.sleep(_BEAT_EVERY)
        finally:
            self._over = True

    def _look(self, loop: int) -> None:
        while not self._over:
            turn = turn_on(loop)
            if turn is None:
                self._still = 0.0
            elif self._still > turn.deadline + self._margin:
                self._notice(turn.what)
                return
            time.sleep(_LOOK_EVERY)
            self._still += _LOOK_EVERY
