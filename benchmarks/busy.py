"""A sink that is as heavy on Python as a tracker's SDK can be, in a module without torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from eventlog.events import Event
from eventlog.sinks.base import RunInfo, Sink


class BusySink(Sink):
    """Takes about as much Python as a heavy tracker's SDK: 200 us an event."""

    name = "busy"

    def write(self, batch: Sequence[Event]) -> None:
        """Keep the interpreter busy."""
        for _ in batch:
            end = time.perf_counter() + 200e-6
            while time.perf_counter() < end:
                sum(range(50))


class LateSink(BusySink):
    """A sink that opens when it is told to, and then has all to catch up with."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.taken = 0

    def open(self, run: RunInfo) -> None:
        """Wait."""
        self.go.wait()

    def write(self, batch: Sequence[Event]) -> None:
        """Keep the interpreter busy."""
        super().write(batch)
        self.taken += len(batch)
