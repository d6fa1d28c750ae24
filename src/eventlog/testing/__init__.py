"""What tests of training code and of sinks can use."""

from __future__ import annotations

from eventlog.testing.clock import FakeClock
from eventlog.testing.sinks import (
    AsyncFaultySink,
    AsyncMemorySink,
    Call,
    Fault,
    FaultySink,
    MemorySink,
)

__all__ = [
    "AsyncFaultySink",
    "AsyncMemorySink",
    "Call",
    "FakeClock",
    "Fault",
    "FaultySink",
    "MemorySink",
]
