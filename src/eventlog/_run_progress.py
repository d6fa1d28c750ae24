"""Progress bars of a run's loops, in one display on the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from eventlog.clock import monotonic_ns

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Bar", "Bars"]

logger = logging.getLogger("eventlog")

_SHOWN_EVERY = 50_000_000
"""Nanoseconds from one change of a bar to the next: it is drawn ten times a second."""


class Bar:
    """One loop's bar.

    Args:
        bars: Where it stands.
        name: Before the number.
        total: How many there will be; None where that is not known.
        done: How many there were before.
    """

    def __init__(self, bars: Bars, name: str, total: int | None, done: int) -> None:
        self._bars = bars
        self._name = name
        self._next = 0
        self._display = bars.enter(self)
        if self._display is not None:
            self._task = self._display.add_task(name, total=total, completed=done)

    def show(self, done: int, number: int) -> None:
        """Say how many are done, and the number to be seen beside the name."""
        if self._display is None or (now := monotonic_ns()) < self._next:
            return
        self._next = now + _SHOWN_EVERY
        with contextlib.suppress(Exception):  # a terminal that went away
            text = f"{self._name} {number}"
            self._display.update(self._task, completed=done, description=text)

    def end(self) -> None:
        """Take it away."""
        if self._display is not None:
            with contextlib.suppress(Exception):
                self._display.remove_task(self._task)
        self._bars.leave(self)


class Bars:
    """The display of a run's bars: there while one of them is.

    Nothing is shown where standard error is no terminal, and no notebook either.
    """

    def __init__(self) -> None:
        self._display: Progress | None = None
        self._within: list[Bar] = []
        self._said = False

    def enter(self, bar: Bar) -> Progress | None:
        """Return the display, shown from now on; None where there cannot be one."""
        if self._display is None:
            self._display = self._start()
        if self._display is not None:
            self._within.append(bar)
        return self._display

    def leave(self, bar: Bar) -> None:
        """Hide the display after the last bar."""
        if bar in self._within:
            self._within.remove(bar)
            if not self._within:
                self.hide()

    def hide(self) -> None:
        """Give the terminal back, whatever loops have not ended: the run has."""
        display, self._display = self._display, None
        self._within.clear()
        if display is not None:
            with contextlib.suppress(Exception):
                display.stop()

    def _start(self) -> Progress | None:
        if not _is_terminal(sys.stderr) and "ipykernel" not in sys.modules:
            return None
        try:
            display = _display()
            display.start()
        except Exception as error:  # rich is not there, or the terminal is a strange one
            if not self._said:
                logger.warning("eventlog: no progress is shown: %s", error)
            self._said = True
            return None
        return display


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"
    except Exception:  # there is none, or it is closed
        return False


def _display() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # what the program prints stays on standard output, also where only the bar's is a terminal
    console, same = Console(stderr=True), _is_terminal(sys.stdout)
    return Progress(*columns, console=console, transient=True, redirect_stdout=same)
