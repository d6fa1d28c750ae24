"""What tests of training code and of sinks can use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from eventlog.testing.clock import FakeClock
from eventlog.testing.sinks import (
    AsyncFaultySink,
    AsyncMemorySink,
    Call,
    Fault,
    FaultySink,
    MemorySink,
)

if TYPE_CHECKING:
    from eventlog.testing.conformance import SinkConformance
    from eventlog.testing.shown import FinishedRun, Shown

__all__ = [
    "AsyncFaultySink",
    "AsyncMemorySink",
    "Call",
    "FakeClock",
    "Fault",
    "FaultySink",
    "FinishedRun",
    "MemorySink",
    "Shown",
    "SinkConformance",
]

_HOME = {
    "FinishedRun": "eventlog.testing.shown",
    "Shown": "eventlog.testing.shown",
    "SinkConformance": "eventlog.testing.conformance",
}


def __getattr__(name: str) -> Any:
    """Import the conformance tests when they are asked for: they alone need pytest."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'eventlog.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
