"""Cadence: when something is due, by steps, batches, epochs, counters, time or model updates."""

from eventlog.cadence.frequency import (
    AnchorType,
    FrequencyManager,
    FrequencyType,
    LoggingModeType,
    LogStepType,
    log_ready,
)
from eventlog.cadence.terms import AxisTerm, Cadence, PowTerm, Term, TimeTerm, UpdateTerm
from eventlog.cadence.text import CadenceError, every

__all__ = [
    "AnchorType",
    "AxisTerm",
    "Cadence",
    "CadenceError",
    "FrequencyManager",
    "FrequencyType",
    "LogStepType",
    "LoggingModeType",
    "PowTerm",
    "Term",
    "TimeTerm",
    "UpdateTerm",
    "every",
    "log_ready",
]
