"""Putting back what ClearML changes in a process when it is imported or started.

Importing it replaces methods of `argparse.ArgumentParser`, runs Hydra's jobs through itself, and
adds a filter for warnings; `Task.init` replaces `sys.exit`, `sys.excepthook`, the signals'
handlers and `multiprocessing.Process.run`, and keeps its master's process in the environment.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["environment", "undisturbed"]

_PARSER = ("parse_args", "parse_known_args", "add_subparsers", "_get_value")
_PLACES: tuple[tuple[Any, str, str], ...] = (
    (sys, "stdout", "streams"),
    (sys, "stderr", "streams"),
    (sys, "excepthook", ""),
    (sys, "exit", ""),
    (os, "fork", ""),
    (os, "_exit", ""),
    (threading, "excepthook", ""),
    (BaseProcess, "run", ""),
    (builtins, "__import__", "frameworks"),
    *((argparse.ArgumentParser, name, "arguments") for name in _PARSER),
)
_MISSING = object()


@contextlib.contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of the environment, or take them out (None), and put ClearML's back after."""
    before = {key: value for key, value in os.environ.items() if _is_clearml(key)}
    before |= {key: os.environ[key] for key in changes if key in os.environ}
    for key, value in changes.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    try:
        yield
    finally:
        for key in [key for key in os.environ if _is_clearml(key) or key in changes]:
            if key not in before:
                del os.environ[key]
        for key, value in before.items():
            if os.environ.get(key) != value:
                os.environ[key] = value


@contextlib.contextmanager
def undisturbed(wanted: frozenset[str] = frozenset()) -> Iterator[None]:
    """Put back what changed in the process meanwhile.

    Args:
        wanted: What may stay changed, because the user asked for it: ``streams``, ``frameworks``
            and ``arguments``.
    """
    places = [(owner, name) for owner, name, kind in _PLACES if kind not in wanted]
    before = [getattr(owner, name, _MISSING) for owner, name in places]
    handlers = _signal_handlers()
    root = logging.getLogger()
    logged = list(root.handlers)
    try:
        with warnings.catch_warnings():
            # what the SDK does with its libraries is not the user's to mend
            warnings.simplefilter("ignore")
            yield
    finally:
        for (owner, name), value in zip(places, before, strict=True):
            if value is not _MISSING and getattr(owner, name, None) is not value:
                setattr(owner, name, value)
        if "streams" not in wanted and root.handlers != logged:
            root.handlers[:] = logged
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                # only the main thread may, and in any other ClearML could not either
                with contextlib.suppress(ValueError, OSError):
                    signal.signal(number, handler)
        if "frameworks" not in wanted:
            _release_hydra()


def _is_clearml(name: str) -> bool:
    return name.startswith(("CLEARML_", "TRAINS_"))


def _signal_handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _release_hydra() -> None:
    """Give Hydra its own functions back, which importing ClearML replaces."""
    bind = sys.modules.get("clearml.binding.hydra_bind")
    patch: Any = getattr(bind, "PatchHydra", None)
    if patch is None or not getattr(patch, "_original_run_job", None):
        return
    for name in ("core.utils", "_internal.hydra", "_internal.core_plugins.basic_launcher"):
        module: Any = sys.modules.get(f"hydra.{name}")
        if module is None:
            continue
        module.run_job = patch._original_run_job
        if name == "_internal.hydra":
            module.Hydra.run = patch._original_hydra_run
    patch._original_run_job = patch._original_hydra_run = None
