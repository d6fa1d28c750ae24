"""The event log: what a run emitted, on disk, readable at any time and by anybody."""

from __future__ import annotations

from eventlog.log.archive import Log, LogSummary, open_log

__all__ = ["Log", "LogSummary", "open_log"]
