"""SIGTERM, for those who ask: the runs are closed before the program ends as it would have."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from eventlog._run_end import open_runs

__all__ = ["close_on_sigterm"]

_held = threading.local()
_prepared: list[bool] = []


def _hold_during_forks() -> None:
    """Let no SIGTERM come to a child that is not ready for it.

    A handler of Python's own runs a little after the signal, and a child forgets what was to be
    run: a worker that is terminated as soon as it is forked would go on.
    """
    if _prepared or not hasattr(os, "register_at_fork"):
        return
    _prepared.append(True)
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_let_go)


def _hold() -> None:
    _held.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_go() -> None:
    before, _held.before = getattr(_held, "before", None), None
    # there is none where this was asked for while another thread forked
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def close_on_sigterm(timeout: float | None = None) -> Callable[[], None]:
    """Have SIGTERM close the open runs, as interrupted, and then do what it did before.

    eventlog installs no handler by itself: frameworks have theirs. A former handler is called
    after the runs are closed; without one, the process ends by the signal, as it would have.

    Args:
        timeout: Seconds that closing a run may take; its own `close_timeout` by default. Stay
            below what your scheduler gives between SIGTERM and SIGKILL.

    Returns:
        A function that puts the former handler back.

    Raises:
        RuntimeError: This is not the main thread: Python lets no other one install handlers.
        TypeError: `timeout` is no number of seconds.
    """
    if timeout is not None and (not isinstance(timeout, int | float) or not timeout >= 0):
        raise TypeError(f"timeout must be seconds, or None, not {timeout!r}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("close_on_sigterm must be called on the main thread")
    before: Any = signal.getsignal(signal.SIGTERM)
    _hold_during_forks()

    def handle(number: int, frame: FrameType | None) -> None:
        for run in list(open_runs):
            run.close("interrupted", timeout)
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handle)

    def restore() -> None:
        # whoever came later has theirs, which may call ours
        if signal.getsignal(signal.SIGTERM) is handle:
            # one that C code had installed is not to be had again
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    return restore
