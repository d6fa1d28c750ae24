"""The methods of a run that wait: for the disk, for the sinks, and at the end."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from eventlog._names import safe_name
from eventlog._reduction import Reduced
from eventlog._run_end import open_runs, status_of
from eventlog._run_reports import CloseReport, RunStatistics, SinkHandle, report_of
from eventlog._run_values import RunSummary
from eventlog._supervisor import Supervisor
from eventlog._wake import Wake
from eventlog.delivery import Delivery
from eventlog.events import Event, Flushed, RunFinished, Status
from eventlog.log.inbox import Barrier, Inbox
from eventlog.recorder import Recorder

__all__ = ["HURRY", "ClosingMethods"]

logger = logging.getLogger("eventlog")

HURRY = 1.0
"""Seconds that the exit of the program may take once somebody has interrupted the end of a run."""
SILENT = 3.0
"""Seconds that the end of a run may take before it says whom it waits for."""


class ClosingMethods:
    """Each wait here has an end, and each end says what is left."""

    summary: RunSummary
    _recorder: Recorder
    _inbox: Inbox
    _delivery: Delivery
    _supervisor: Supervisor | None
    _reduced: Reduced | None
    _progress: Wake
    _delivered: threading.Event
    _failed: dict[str, SinkHandle]
    _closing: threading.RLock
    _close_timeout: float
    _status: Status | None
    _report: CloseReport | None
    _ending: bool
    _said_end: bool
    _late: list[str]
    _impatient: bool

    if TYPE_CHECKING:  # what another part of `Run` brings

        @property
        def dir(self) -> Path | None:
            """See `Run`."""
            raise NotImplementedError

        def _find_place(self, timeout: float) -> None:
            raise NotImplementedError

        def statistics(self) -> RunStatistics:
            """See `Run.statistics`."""
            raise NotImplementedError

        def sink(self, alias: str) -> SinkHandle:
            """See `Run.sink`."""
            raise NotImplementedError

        def _at_exit(self) -> None:
            raise NotImplementedError

        def _axes(self, step: Any, axis: str | None, options: Any = None) -> dict[str, Any]:
            raise NotImplementedError

        def _put_reserved(self, event: Event) -> None:
            raise NotImplementedError

        def _hide_bars(self) -> None:
            raise NotImplementedError

    def flush(self, timeout: float | None = 30.0) -> CloseReport:
        """Wait until what was logged by now is in the log and with every sink.

        Args:
            timeout: Seconds; the report then says what is left.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._put_reserved(Flushed(**self._axes(None, None)))
        barrier = Barrier()
        if not self._inbox.put(barrier):
            if self._recorder.foreign:
                return CloseReport(False, False, {})
            written = self._recorder.source.closed
            return self._report or report_of(self.statistics(), written, self._remaining(None))
        self._inbox.wake.set()
        if not barrier.wait(timeout):
            return report_of(self.statistics(), False, self._remaining(None))
        self._delivery.hurry(barrier.seq)
        remaining = self._wait_delivered(barrier.seq, deadline)
        return report_of(self.statistics(), True, remaining)

    def _wait_delivered(self, seq: int, deadline: float | None) -> dict[str, int]:
        """Wait until all sinks are past `seq`, or done for; return what each lacks."""
        while True:
            self._progress.clear()
            ports = self._delivery.ports.values()
            left = None if deadline is None else deadline - time.monotonic()
            if all(port.finished or port.flushed_to >= seq for port in ports):
                break
            if (left is not None and left <= 0) or self._delivered.is_set():
                break
            # more than one thread may wait here, each clearing the mark
            self._progress.wait(0.1 if left is None else min(left, 0.1))
        if self._supervisor is not None:
            self._supervisor.wait_flushed(seq, deadline)
        return self._remaining(seq)

    def _remaining(self, end: int | None) -> dict[str, int]:
        end = self._recorder.source.end if end is None else end
        lacking = {
            alias: end - port.flushed_to
            for alias, port in self._delivery.ports.items()
            if port.flushed_to < end and port.state != "closed"
        }
        if self._supervisor is not None:
            lacking |= self._supervisor.lacking(end)
        return lacking | dict.fromkeys(self._failed, end)

    def sync(self, timeout: float | None = 10.0) -> bool:
        """Wait until everything that was logged by now is on the disk: it survives a loss of power.

        `step`, `log`, `batch` and `epoch` do this after themselves when given ``durable=True``.

        Args:
            timeout: Seconds.

        Returns:
            False when it took longer, or the disk does not take it; that is also logged.
        """
        barrier = Barrier(durable=True)
        if self._recorder.foreign or not self._inbox.put(barrier):
            return False
        self._inbox.wake.set()
        if barrier.wait(timeout) and barrier.synced:
            return True
        logger.warning("eventlog: what was logged by now could not be synced")
        return False

    def _unconfirmed(self) -> dict[str, int]:
        """Return what is not safe with sinks that keep nothing until they are closed."""
        end = self._recorder.source.end
        return {
            alias: end - port.confirmed
            for alias, port in self._delivery.ports.items()
            if port.sink.confirms == "close" and port.state != "closed" and port.confirmed < end
        }

    def close(
        self,
        status: Status | None = None,
        timeout: float | None = None,
        *,
        error: BaseException | None = None,
    ) -> CloseReport:
        """End the run: write everything, deliver everything, close the sinks. May be called twice.

        Args:
            status: finished, failed or interrupted; by default what `error` makes of it.
            timeout: Seconds; `close_timeout` by default. What is left then stays in the log.
            error: The exception that ended the training, if one did.
        """
        found, text = status_of(error, None)
        return self._close(found if status is None else status, text, timeout)

    def _close(self, status: Status, error: str | None, timeout: float | None) -> CloseReport:
        if self._recorder.foreign:
            return CloseReport(False, False, {})
        if status not in get_args(Status) or status == "killed":
            raise ValueError(f"status must be finished, failed or interrupted, not {status!r}")
        with self._closing:
            if self._report is not None:
                return self._report
            if self._ending:
                # a signal's handler has come in between: who was interrupted goes on and ends it
                written = self._recorder.source.closed
                report = report_of(self.statistics(), written, self._remaining(None))
                return report._replace(complete=False)
            self._ending = True
            try:
                timeout = self._close_timeout if timeout is None else timeout
                self._report = report = self._end(status, error, timeout)
            except KeyboardInterrupt:
                # whoever asks for the end once more does not want to wait at the exit, too
                self._impatient = True
                raise
            finally:
                # interrupted, it can be closed again
                self._ending = False
            atexit.unregister(self._at_exit)
            if self in open_runs:
                open_runs.remove(self)
        self._say_what_is_left(report, timeout)
        return report

    def _end(self, status: Status, error: str | None, timeout: float) -> CloseReport:
        """Write and deliver everything, as far as there is time."""
        self._status = status
        self._hide_bars()
        deadline = time.monotonic() + timeout
        if not self._said_end:
            self._said_end = True
            self._put_reserved(
                RunFinished(
                    status=status,
                    error=error,
                    summary=self.summary.as_dict(),
                    **self._axes(None, None),
                )
            )
        self._find_place(timeout)
        written = self._recorder.stop(max(0.0, deadline - time.monotonic()))
        # not join(): interrupted, it takes a thread that runs for one that has ended (bpo-45274)
        if not self._wait_for_sinks(min(deadline, time.monotonic() + SILENT)):
            self._say_who_is_waited_for(deadline)
            self._wait_for_sinks(deadline)
        reduced = {}
        if self._reduced is not None:
            self._reduced.end(deadline)
            reduced = self._reduced.lacking()
        remaining = self._remaining(None) | self._unconfirmed() | reduced
        report = report_of(self.statistics(), written, remaining)
        if not self._delivered.is_set():
            # nothing of ours may go on with a sink after the end, or keep its checkpoint
            self._late = [p.alias for p in self._delivery.ports.values() if not p.finished]
            self._delivery.stop()
        return report

    def _wait_for_sinks(self, deadline: float) -> bool:
        """Wait until all is delivered, here and elsewhere; False when that takes too long."""
        done = self._delivered.wait(max(0.0, deadline - time.monotonic()))
        return (self._supervisor is None or self._supervisor.end(deadline)) and done

    def _say_who_is_waited_for(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        to_go = self._remaining(None)
        states: dict[str, str] = {alias: port.state for alias, port in self._delivery.ports.items()}
        if self._supervisor is not None:
            states |= {a: self._supervisor.report(a).state for a in self._supervisor.aliases}
        logger.warning(
            "eventlog: waiting for %s, at most %.0f s more; Ctrl-C ends that, and what is left "
            "stays in the log",
            ", ".join(
                f"{alias!r} ({state}, {to_go.get(alias, 0)} events to go)"
                for alias, state in states.items()
                if state not in ("closed", "failed")
            )
            or "the process of the sinks",
            left,
        )

    def _say_what_is_left(self, report: CloseReport, timeout: float) -> None:
        for alias in self._late:
            if alias not in report.left:
                logger.warning(
                    "eventlog: sink %r has taken everything, but has not closed after %g s",
                    alias,
                    timeout,
                )
        for alias, n in report.dead.items():
            logger.warning(
                "eventlog: sink %r refused %d events for good (%s)%s",
                alias,
                n,
                self.statistics().sinks[alias].refusal,
                f"; they are in {self.dir / 'dead' / safe_name(alias)}" if self.dir else "",
            )
        for alias, problem in report.failed.items():
            logger.warning("eventlog: sink %r has not ended as it should: %s", alias, problem)
        for alias, n in report.left.items():
            logger.warning(
                "eventlog: sink %r has not taken %d events by the end (%s)%s",
                alias,
                n,
                self.sink(alias).error or f"after {timeout:g} s",
                f"; they are in the log: eventlog replay --pending {self.dir}"
                if self.dir is not None
                else "",
            )
