"""Records of the standard library's `logging` as text events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventlog.run import Run

__all__ = ["EventlogHandler"]

_LONGEST = 16_384
_BURST = 10.0
"""Seconds' worth of records that may come at once."""


class EventlogHandler(logging.Handler):
    """Makes each record a text event whose tag is ``<logger's name>/<level>``.

    ::

        logging.getLogger("train").addHandler(EventlogHandler(run, level=logging.INFO))

    Records of eventlog itself, and what is logged on its threads (a tracker's SDK does that while
    it is given an event), are left out: they would never end. Nothing that goes wrong in here
    raises. The formatter is the handler's, as usual; by default the message alone, with the
    traceback where there is one.

    Args:
        run: None for the run that was opened last and is not closed, whichever it is at that time.
        level: The lowest level that is taken.
        rate: Most records a second, after a burst of ten times as many; None for no limit. What
            goes beyond it is counted, and the next record that is taken says how many these were.

    Attributes:
        left_out: How many records were beyond the rate.
    """

    def __init__(
        self, run: Run | None = None, level: int | str = logging.NOTSET, *, rate: float | None = 100
    ) -> None:
        super().__init__(level)
        if rate is not None and not rate > 0:
            raise ValueError(f"rate must be a number of records above 0, or None, not {rate!r}")
        self._run = run
        self._rate = rate
        self._room = _BURST * (rate or 0)
        self._at: float | None = None
        self._unsaid = 0
        self.left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record; the standard library calls this, one record at a time."""
        if record.name.partition(".")[0] == "eventlog":
            return
        if (record.threadName or "").startswith("eventlog-"):
            return
        run = self._run or _current_run()
        if run is None:
            return
        try:
            if not self._has_room(record.created):
                return
            text = self.format(record)
            if len(text) > _LONGEST:
                text = f"{text[:_LONGEST]}... ({len(text)} characters)"
            if self._unsaid:
                text += f"\n({self._unsaid} records before it were left out)"
                self._unsaid = 0
            run.text(f"{record.name}/{record.levelname}", text)
        except Exception:
            self.handleError(record)

    def _has_room(self, at: float) -> bool:
        if self._rate is None:
            return True
        if self._at is not None:
            self._room += max(0.0, at - self._at) * self._rate
        self._at = at
        self._room = min(self._room, _BURST * self._rate)
        if self._room < 1:
            self.left_out += 1
            self._unsaid += 1
            return False
        self._room -= 1
        return True


def _current_run() -> Run | None:
    from eventlog._run_end import current_run

    return current_run()
