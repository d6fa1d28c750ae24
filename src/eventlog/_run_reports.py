"""What a run says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from eventlog.delivery import SinkStatistics
from eventlog.log.writer import WriterStatistics

__all__ = ["CloseReport", "RunStatistics", "SinkHandle", "report_of"]


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
        complete: Whether everything is in the log, and with every sink.
        written: Whether everything is in the log.
        left: Events not delivered yet, by sink; they are in the log, and
            ``eventlog replay --pending`` brings them where they belong.
        dead: Events that a sink refused for good, by sink: see ``dead/<alias>`` below the run.
        lost: Events that a sink needed and that were not to be had any more, by sink.
        failed: Sinks that are not as they should be although nothing is left, with what is wrong.
    """

    complete: bool
    written: bool
    left: dict[str, int]
    dead: Mapping[str, int] = MappingProxyType({})
    lost: Mapping[str, int] = MappingProxyType({})
    failed: Mapping[str, str] = MappingProxyType({})


_NEVER_TAKEN = frozenset({"closed", "forked", "media", "no_value", "pickled"})
"""Reasons to drop that are the caller's: nothing that was taken is missing."""


def report_of(statistics: RunStatistics, written: bool, left: dict[str, int]) -> CloseReport:
    """Return what is to be said at the end, or after a flush.

    Args:
        statistics: Of that moment.
        written: Whether the writer came to its end in time.
        left: Events that are not with each sink; without those that lack none.
    """
    log, sinks = statistics.log, statistics.sinks
    missing = any(n for reason, n in log.dropped.items() if reason not in _NEVER_TAKEN)
    dead = {alias: sink.dead for alias, sink in sinks.items() if sink.dead}
    lost = {alias: sink.lost for alias, sink in sinks.items() if sink.lost}
    failed = {
        alias: sink.error or "it failed"
        for alias, sink in sinks.items()
        if sink.state == "failed" and alias not in left
    }
    written = written and log.degraded is None and not missing
    complete = written and not (left or dead or lost or failed)
    return CloseReport(complete, written, left, dead, lost, failed)


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
