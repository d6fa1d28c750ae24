"""How a program ends, and what a fork makes of its parent's runs."""

from __future__ import annotations

import os
import sys
import time
import weakref
from typing import TYPE_CHECKING

from eventlog._config import error_text
from eventlog.events import Status

if TYPE_CHECKING:
    from eventlog.run import Run

__all__ = ["all_runs", "current_run", "open_runs", "status_of", "uncaught"]

FORK_PATIENCE = 2.0
"""Seconds that a fork waits, at most, for sinks that are being opened."""

open_runs: list[Run] = []
all_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def current_run() -> Run | None:
    """Return the run that was opened last and is not closed, or None."""
    return open_runs[-1] if open_runs else None


def _abandon_runs() -> None:
    """Make a forked child's copies of its parent's runs harmless."""
    for run in list(all_runs):
        run._abandon()
    open_runs.clear()


def _let_sinks_open() -> None:
    """Give sinks that are being opened a moment, before a fork.

    They import their trackers on threads of their own; a child that is forked in the middle of
    an import finds that module's lock held for ever.
    """
    deadline = time.monotonic() + FORK_PATIENCE
    for run in list(all_runs):
        while run._is_opening() and time.monotonic() < deadline:
            time.sleep(0.005)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_let_sinks_open, after_in_child=_abandon_runs)


def uncaught() -> BaseException | None:
    """Return the exception that ends the program, as the interpreter has noted it.

    It notes none for ``sys.exit(n)``: a run without `with` cannot tell that from a plain end.
    """
    if hasattr(sys, "ps1"):
        return None  # interactive: an error at the prompt ends nothing
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def status_of(
    error: BaseException | None, before: BaseException | None
) -> tuple[Status, str | None]:
    """Return a run's status for the exception that ended it, and that in a line.

    Args:
        error: None for a plain end.
        before: One that was there before the run, and has nothing to do with it.
    """
    if error is None or error is before:
        return "finished", None
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return "finished", None
    text = error_text(error)
    return ("interrupted" if _is_interruption(error) else "failed"), text


def _is_interruption(error: BaseException) -> bool:
    """Whether the training was ended from outside, and has not failed.

    A Ctrl-C reaches asynchronous code as a cancellation, or in a group with such.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_interruption, error.exceptions))
    # where its loop is used, the library has been imported
    cancelled = tuple(
        getattr(sys.modules[module], name)
        for module, name in (("asyncio", "CancelledError"), ("trio", "Cancelled"))
        if hasattr(sys.modules.get(module), name)
    )
    return isinstance(error, (KeyboardInterrupt, *cancelled))
