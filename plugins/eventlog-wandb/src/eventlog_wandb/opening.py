"""How a run of W&B is started: its arguments, its errors, and what an earlier process left."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eventlog.exceptions import SinkError, UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_wandb.naming import project_name, tags_of, whole
from eventlog_wandb.session import SETTINGS, Session
from eventlog_wandb.settings import server_of
from eventlog_wandb.wandb_file import Mark, last_mark

__all__ = ["DeletedError", "arguments", "earlier_mark", "mark_of", "start_session"]

_REFUSALS = re.compile(r"\b(400|401|403|404|409)\b|permission denied|not found", re.IGNORECASE)
_LONGEST = 128
_PROBE_S = 5.0


class DeletedError(SinkError):
    """The run's id belonged to a run that was deleted, and is not taken again."""


def arguments(
    run: RunInfo,
    options: Mapping[str, Any],
    mode: str,
    run_id: str,
    count: Callable[[str], None],
) -> dict[str, Any]:
    """Return what `wandb.init` is called with.

    Args:
        run: The run.
        options: The sink's.
        mode: online, offline or disabled.
        run_id: The run's in W&B.
        count: Counts what is cut.
    """
    init = dict(options["init"])
    # asked to stop by the web page, the SDK would interrupt the main thread
    settings = {**SETTINGS, "stop_fn": lambda: count("stop asked for on the web page: ignored")}
    if options["server"] is not None:
        settings["base_url"] = options["server"]
    settings |= init.pop("settings", {})
    given = {
        "project": project_name(options["project"] or run.project),
        "entity": options["entity"],
        "id": run_id,
        "name": _short(run.name or run.run_id),
        "group": _short(run.group) if run.group else None,
        "notes": whole(run.notes) if run.notes else None,
        "tags": tags_of(run.tags, run.rank, count),
        "mode": mode,
        # does not touch `wandb.run`, and does not end or return a run of the user's
        "reinit": "create_new",
        "resume": None if mode == "disabled" else "allow",
    }
    return given | init | {"settings": settings}


def start_session(given: Mapping[str, Any]) -> Session:
    """Start the run.

    Raises:
        DeletedError: Its id cannot be used any more.
        UnavailableError: The server cannot be reached.
        SinkError: It refuses, or an argument is wrong.
    """
    from wandb import errors

    if given["mode"] == "online":
        _check_reachable(given["settings"])
    try:
        return Session(given)
    except errors.AuthenticationError as error:
        raise SinkError(f"W&B does not take the key: {error}") from error
    except errors.CommError as error:
        if "deleted" in str(error):
            raise DeletedError(str(error)) from error
        if _REFUSALS.search(str(error)):
            raise SinkError(f"W&B refuses the run: {error}") from error
        raise UnavailableError(f"W&B cannot be reached: {error}") from error
    except errors.Error as error:
        raise SinkError(f"W&B cannot start the run: {error}") from error


def _check_reachable(settings: Mapping[str, Any]) -> None:
    """Raise `UnavailableError` for a dead server, which the SDK would try for half a minute."""
    address = urlsplit(server_of(settings.get("base_url")))
    host = address.hostname
    if host is None or _has_proxy(address.scheme, host, settings):
        return
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((host, port), _PROBE_S).close()
    except OSError as error:
        raise UnavailableError(f"W&B's server {host}:{port} cannot be reached: {error}") from error


def _has_proxy(scheme: str, host: str, settings: Mapping[str, Any]) -> bool:
    if settings.get(f"{scheme}_proxy") or settings.get("x_proxies"):
        return True
    proxies = urllib.request.getproxies()
    return ("all" in proxies or scheme in proxies) and not urllib.request.proxy_bypass(host)


def earlier_mark(folder: Path, run_id: str) -> Mark | None:
    """Return how far the offline files of a run go that earlier processes left in a folder."""
    found = [
        mark
        for path in folder.glob(f"*/offline-run-*-{run_id}*/run-{run_id}.wandb")
        if (mark := last_mark(path)) is not None
    ]
    return max(found, default=None)


def mark_of(value: object, row: int) -> Mark | None:
    """Return what a mark says, as the summary of a run with so many rows has it.

    The summary may be ahead of the rows, which the SDK sends a little later.
    """
    parts = str(value).split(":")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return None
    return Mark(int(parts[0]), int(parts[1]), row)


def _short(text: str) -> str:
    return whole(text)[:_LONGEST]
