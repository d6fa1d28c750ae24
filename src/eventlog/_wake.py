"""A wake-up call between threads that a signal's handler may give, too."""

from __future__ import annotations

import queue

__all__ = ["Wake"]


class Wake:
    """Like `threading.Event`, for one thread that waits.

    An Event's lock is not reentrant: a handler that sets it while the same thread is setting it
    waits for itself for ever. `SimpleQueue.put` is reentrant by contract.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Wake who waits, or who will wait next."""
        if self._queue.empty():
            self._queue.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a call, which is used up by that; False when none came in `timeout` seconds."""
        try:
            self._queue.get(timeout=timeout)
        except queue.Empty:
            return False
        return True

    def clear(self) -> None:
        """Forget calls that were not waited for."""
        while not self._queue.empty():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return
