"""What a run says of itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from eventlog.delivery import SinkStatistics
from eventlog.log.writer import WriterStatistics

__all__ = ["CloseReport", "RunStatistics", "SinkHandle"]


class RunStatistics(NamedTuple):
    """What became of everything that was logged.

    Attributes:
        log: ``emitted = written + dropped + queued``.
        sinks: By alias: ``read = delivered + filtered + dead + in_flight``.
        rejected: Values that could not be recorded, by reason.
        thinned: Calls that `record=` left out.
    """

    log: WriterStatistics
    sinks: dict[str, SinkStatistics]
    rejected: dict[str, int]
    thinned: int


class CloseReport(NamedTuple):
    """What was done in time.

    Attributes:
        complete: Whether everything was written and delivered.
        written: Whether everything is in the log.
        left: Events not delivered yet, by sink; they are in the log, and
            ``eventlog replay --pending`` brings them where they belong.
    """

    complete: bool
    written: bool
    left: dict[str, int]


class SinkHandle(NamedTuple):
    """A sink of a run, as it is now.

    Attributes:
        state: waiting, opening, open, retrying, closed or failed; skipped where "all" left it out.
        url: Where to look.
        run_id: The run's id in that tracker.
        tracker: The SDK's own object, where the sink runs in this process.
        error: What went wrong last; None when all is well.
    """

    alias: str
    state: str
    url: str | None
    run_id: str | None
    tracker: Any
    error: str | None
