"""eventlog: say what happened in training once; have it in a durable log and in every tracker."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from eventlog._version import __version__

if TYPE_CHECKING:
    from eventlog._replay import areplay, replay, stream
    from eventlog._signals import close_on_sigterm
    from eventlog.bus import EventBus
    from eventlog.cadence import FrequencyManager, every, log_ready
    from eventlog.events import (
        ArtifactEvent,
        BatchEvent,
        EpochEvent,
        Event,
        FigureEvent,
        HistogramEvent,
        ImageEvent,
        ModelUpdateEvent,
        RunFinished,
        RunStarted,
        StepEvent,
        TableEvent,
        TextEvent,
        UnknownEvent,
    )
    from eventlog.exceptions import EventlogError
    from eventlog.integrations.torch import watch
    from eventlog.log import Log, open_log
    from eventlog.run import Run, current_run
    from eventlog.sinks import RunInfo, Sink, available_sinks

__all__ = [
    "ArtifactEvent",
    "BatchEvent",
    "EpochEvent",
    "Event",
    "EventBus",
    "EventlogError",
    "FigureEvent",
    "FrequencyManager",
    "HistogramEvent",
    "ImageEvent",
    "Log",
    "ModelUpdateEvent",
    "Run",
    "RunFinished",
    "RunInfo",
    "RunStarted",
    "Sink",
    "StepEvent",
    "TableEvent",
    "TextEvent",
    "UnknownEvent",
    "__version__",
    "areplay",
    "available_sinks",
    "close_on_sigterm",
    "current_run",
    "every",
    "log_ready",
    "open_log",
    "replay",
    "stream",
    "watch",
]

_MODULES = {
    "eventlog.bus": ("EventBus",),
    "eventlog.cadence": ("FrequencyManager", "every", "log_ready"),
    "eventlog.events": (
        "ArtifactEvent",
        "BatchEvent",
        "EpochEvent",
        "Event",
        "FigureEvent",
        "HistogramEvent",
        "ImageEvent",
        "ModelUpdateEvent",
        "RunFinished",
        "RunStarted",
        "StepEvent",
        "TableEvent",
        "TextEvent",
        "UnknownEvent",
    ),
    "eventlog.exceptions": ("EventlogError",),
    "eventlog.integrations.torch": ("watch",),
    "eventlog.log": ("Log", "open_log"),
    "eventlog._replay": ("areplay", "replay", "stream"),
    "eventlog._signals": ("close_on_sigterm",),
    "eventlog.run": ("Run", "current_run"),
    "eventlog.sinks": ("RunInfo", "Sink", "available_sinks"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: ``import eventlog`` alone costs little."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'eventlog' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
