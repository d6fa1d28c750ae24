"""Watching a sink: what it asks of the network, and what it changes in its process."""

from __future__ import annotations

import builtins
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["changes", "child_processes", "loopback_only", "process_state"]

_HERE = ("localhost", "127.", "::1", "0.0.0.0", "::")  # noqa: S104 - compared, not bound to

_SIX = "_SixMetaPathImporter"
"""What six, which half of all packages need, finds its own modules by; it finds no others."""


def _is_here(host: Any) -> bool:
    text = host.decode("utf-8", "replace") if isinstance(host, bytes) else str(host)
    return host is None or text in ("", socket.gethostname()) or text.startswith(_HERE)


@contextlib.contextmanager
def loopback_only() -> Iterator[list[str]]:
    """Refuse to resolve and to connect to other hosts; yields a list of those that were asked for.

    Only what Python code does is seen.
    """
    outside: list[str] = []

    def guarded(function: Callable[..., Any], host_of: Callable[..., Any]) -> Callable[..., Any]:
        def guard(*args: Any, **kwargs: Any) -> Any:
            host = host_of(*args, **kwargs)
            if not _is_here(host):
                outside.append(str(host))
                raise OSError(f"conformance tests have no network, and {host!r} was asked for")
            return function(*args, **kwargs)

        return guard

    def of_address(_: Any, address: Any, *__: Any) -> Any:
        return address[0] if isinstance(address, tuple) else None  # a path is a local socket

    def first(host: Any = None, *_: Any, **__: Any) -> Any:
        return host

    patched: list[tuple[Any, str, Callable[..., Any]]] = [
        (socket.socket, "connect", of_address),
        (socket.socket, "connect_ex", of_address),
        (socket, "getaddrinfo", first),
        (socket, "gethostbyname", first),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patched]
    for owner, name, host_of in patched:
        setattr(owner, name, guarded(getattr(owner, name), host_of))
    try:
        yield outside
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def process_state() -> dict[str, Any]:
    """Return what belongs to the program that a sink is a guest of, by name."""
    root = logging.getLogger()
    return {
        "sys.stdout": sys.stdout,
        "sys.stderr": sys.stderr,
        "sys.stdin": sys.stdin,
        "sys.excepthook": sys.excepthook,
        "sys.unraisablehook": sys.unraisablehook,
        "sys.displayhook": sys.displayhook,
        "sys.meta_path": [f for f in sys.meta_path if type(f).__name__ != _SIX],
        "sys.argv": list(sys.argv),
        "threading.excepthook": threading.excepthook,
        "builtins.print": builtins.print,
        "builtins.__import__": builtins.__import__,
        "signal handlers": {s.name: signal.getsignal(s) for s in signal.valid_signals()
                            if isinstance(s, signal.Signals)},
        "warnings.filters": list(warnings.filters),
        "warnings.showwarning": warnings.showwarning,
        "logging root handlers": list(root.handlers),
        "logging root level": root.level,
        "logging.raiseExceptions": logging.raiseExceptions,
        "logging disabled": root.manager.disable,
        "os.environ": dict(os.environ),
        "working directory": os.getcwd(),
        "socket timeout": socket.getdefaulttimeout(),
        "random state": random.getstate(),
        "umask": _umask(),
    }  # fmt: skip


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """Return what differs between two states, and how, by name."""
    return {
        name: _difference(before[name], after[name])
        for name in before
        if before[name] is not after[name] and before[name] != after[name]
    }


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(k for k in {*before, *after} if before.get(k) != after.get(k))
        return ", ".join(f"{k}: {before.get(k)!r} -> {after.get(k)!r}" for k in keys)
    if isinstance(before, list) and isinstance(after, list):
        added = [item for item in after if item not in before]
        gone = [item for item in before if item not in after]
        return f"added {added!r}, removed {gone!r}"[:500]
    return f"{before!r:.200} -> {after!r:.200}"


def child_processes() -> list[str]:
    """Return this process's children by their command line; none where the system does not say."""
    found: list[str] = []
    for tasks in Path("/proc/self/task").glob("*/children"):
        for pid in tasks.read_text().split():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if command != [b""]:  # one that has ended, and is not reaped
                    found.append(b" ".join(command).decode("utf-8", "replace").strip())
    return found
