"""The exceptions of eventlog.

Emitting never raises for what a value or a sink does (see `Run(strict=True)` for tests); what
is raised comes from wrong arguments, from reading logs, and from looking up sinks::

    EventlogError
    +-- ClosedError           the run or the bus is closed
    +-- EventTypeError        two event types claim one tag
    +-- ValueRejectedError    strict mode only: a value that cannot be recorded
    +-- LogError
    |   +-- NotALogError      the path holds no event log
    |   +-- CodecError        a payload that is not a list of events
    +-- SinkError
        +-- SinkNotFoundError     no such sink is installed
        +-- SinkLoadError         its entry point does not load, or two claim one name
        +-- UnavailableError      raised by a sink: try again later
        +-- RefusedError          raised by a sink: this batch will never be taken
        +-- SinkTimeoutError      a call took longer than its deadline
"""

from __future__ import annotations

__all__ = [
    "ClosedError",
    "CodecError",
    "EventTypeError",
    "EventlogError",
    "LogError",
    "NotALogError",
    "RefusedError",
    "SinkError",
    "SinkLoadError",
    "SinkNotFoundError",
    "SinkTimeoutError",
    "UnavailableError",
    "ValueRejectedError",
]


class EventlogError(Exception):
    """The base of all exceptions of eventlog.

    What they say of themselves has no secrets in it: an SDK's error that they quote may show its
    whole configuration.
    """

    def __str__(self) -> str:
        from eventlog._config import redact_text

        return redact_text(super().__str__())


class ClosedError(EventlogError):
    """The run or the bus is closed."""


class EventTypeError(EventlogError):
    """Two event types claim the same tag."""


class ValueRejectedError(EventlogError, ValueError):
    """In strict mode: something was logged that cannot be recorded."""


class LogError(EventlogError):
    """A log cannot be read or written."""


class NotALogError(LogError):
    """A path that was given as an event log is none."""


class CodecError(LogError):
    """A payload is not what the layout says it is."""


class SinkError(EventlogError):
    """The base of what concerns one sink."""


class SinkNotFoundError(SinkError, LookupError):
    """No sink of that name is installed."""


class SinkLoadError(SinkError):
    """A sink is installed, but it cannot be loaded."""


class UnavailableError(SinkError):
    """Raised by a sink whose tracker cannot take anything for the time being.

    The batch is kept and given again, after `retry_after` seconds where that is known.
    """

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RefusedError(SinkError):
    """Raised by a sink whose tracker will never take this batch.

    Delivery halves the batch until it knows the events to blame, sets these aside as dead
    letters, and goes on with the rest.
    """


class SinkTimeoutError(SinkError, TimeoutError):
    """A sink's call took longer than its deadline; its thread is given up."""
