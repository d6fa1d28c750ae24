"""Keeping other processes, and other sinks of this one, out of a place that is being made."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventlog._platform import FileLock
from eventlog.exceptions import UnavailableError

__all__ = ["only_one"]

_LOOK_EVERY = 0.05


@contextmanager
def only_one(folder: Path, seconds: float = 20.0) -> Iterator[None]:
    """Hold the lock ``.eventlog.lock`` of a folder; it ends with the process, however that ends.

    Args:
        folder: Where; it must be there.
        seconds: How long to wait for whoever holds it.

    Raises:
        UnavailableError: Somebody holds it for longer.
        OSError: The file cannot be made.
    """
    lock = FileLock(folder / ".eventlog.lock")
    until = time.monotonic() + seconds
    while not lock.acquire():
        if time.monotonic() > until:
            raise UnavailableError(f"somebody else holds {lock.path} for more than {seconds:g} s")
        time.sleep(_LOOK_EVERY)
    try:
        yield
    finally:
        lock.release()
