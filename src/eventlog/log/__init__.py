"""The event log: what a run emitted, on disk, readable at any time and by anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventlog.log.archive import Log, LogSummary, open_log

__all__ = ["Log", "LogSummary", "open_log"]


def __getattr__(name: str) -> Any:
    """Import the archive when it is asked for: it is made of what is made of this package."""
    if name not in __all__:
        raise AttributeError(f"module 'eventlog.log' has no attribute {name!r}")
    from eventlog.log import archive

    return getattr(archive, name)
