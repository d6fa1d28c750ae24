"""What connects eventlog with the frameworks that training code is written for.

Each module needs its framework and is imported when one of its names is first used:

============== ====================================================================
`accelerate`   `EventlogTracker`, `AccelerateSink`
`transformers` `EventlogCallback`
`lightning`    `EventlogLogger`
`logging`      `EventlogHandler`, for records of the standard library
`torch`        `watch`
============== ====================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventlog.integrations.accelerate import AccelerateSink, EventlogTracker
    from eventlog.integrations.lightning import EventlogLogger
    from eventlog.integrations.logging import EventlogHandler
    from eventlog.integrations.torch import Watch, watch
    from eventlog.integrations.transformers import EventlogCallback

__all__ = [
    "AccelerateSink",
    "EventlogCallback",
    "EventlogHandler",
    "EventlogLogger",
    "EventlogTracker",
    "Watch",
    "watch",
]

_HOME = {
    "AccelerateSink": "accelerate",
    "EventlogCallback": "transformers",
    "EventlogHandler": "logging",
    "EventlogLogger": "lightning",
    "EventlogTracker": "accelerate",
    "Watch": "torch",
    "watch": "torch",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
