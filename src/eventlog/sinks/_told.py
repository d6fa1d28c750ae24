"""What a sink says of itself, as far as it can be used: a wrong attribute must cost nothing else.

Sinks are anybody's code: a `url` may be a `Path`, a number, or a property that raises.
"""

from __future__ import annotations

from typing import Any, Literal

from eventlog.sinks._thread import call_own
from eventlog.sinks.base import Sink

__all__ = ["told_text", "told_unshown"]


def told_text(sink: Sink, name: Literal["url", "run_id"]) -> str | None:
    """Return an attribute of a sink as a text; None where it has none that can be one."""

    def read() -> str | None:
        value: Any = getattr(sink, name, None)
        return None if value is None else str(value)

    try:
        return call_own(read)
    except Exception:
        return None


def told_unshown(sink: Sink) -> dict[str, int]:
    """Return what a sink has counted, without what is no count."""

    def read() -> dict[str, int]:
        counts: dict[Any, Any] = dict(sink.unshown)
        return {str(reason): n for reason, n in counts.items() if isinstance(n, int)}

    try:
        return call_own(read)
    except Exception:
        return {}
