"""Where time comes from: every read of a clock in eventlog goes through here.

Two clocks matter. *Monotonic* nanoseconds stamp each event when it is emitted; cadences and paced
replay follow them. *Wall* nanoseconds since 1970 are derived from them with an offset that is
measured once per written batch, so that a step of the system's clock shows in the next batch.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "monotonic_ns", "wall_ns"]

monotonic_ns = time.monotonic_ns
wall_ns = time.time_ns


class Clock(Protocol):
    """What the writer and the delivery ask for the time; tests inject their own."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never goes back."""
        ...

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)


SYSTEM_CLOCK = SystemClock()
