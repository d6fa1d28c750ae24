"""What a case is: a way to log {loss, accuracy, lr} once a step, as its users call it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("loss", "accuracy", "lr")
LR = 1e-3

Log = Callable[[int, float, float, float], object]
"""Logs loss, accuracy and learning rate at a step."""


@dataclass(frozen=True)
class Opened:
    """A logger that is ready.

    Attributes:
        log: Called on each step, on the training thread.
        close: Called once, after the loop.
    """

    log: Log
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Case:
    """One way to log.

    Attributes:
        name: What `--cases` calls it.
        group: `floor`, `ours`, `trackers`, `frameworks` or `plain`.
        call: What is called on each step, for the tables.
        open: Starts it in a folder of its own.
        read: Counts the steps of which all three numbers are readable, in a process that has
            nothing to do with the one that logs; None where there is no such reader.
        unread: Why there is none.
        follow: Counts them in a tracker behind the logger, where there is one to be read.
        needs: The modules without which it is skipped.
        serve: Starts a server that it needs, before anything is measured.
        weight: How many times as many rounds it gets.
    """

    name: str
    group: str
    call: str
    open: Callable[[Path], Opened]
    read: Callable[[Path], int] | None = None
    unread: str = ""
    follow: Callable[[Path], int] | None = None
    needs: tuple[str, ...] = ()
    serve: Callable[[Path], AbstractContextManager[object]] = lambda folder: nullcontext()
    weight: int = 1

    def missing(self) -> list[str]:
        """Return the modules that are not installed."""
        return [name for name in self.needs if not _there(name)]


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def sdk(name: str) -> Any:
    """Import a module of a library, most of which have no types."""
    return importlib.import_module(name)


def fewest(counts: dict[str, int]) -> int:
    """Return for how many steps all three names have a value."""
    return min(counts.get(name, 0) for name in NAMES)
