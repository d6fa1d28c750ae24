"""What Aim shows of a run as a whole: where it lies, what it is called, how it ended."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from eventlog.events import Status
from eventlog.sinks.base import RunInfo
from eventlog.sinks.plain import short_text
from eventlog_aim.opening import is_remote
from eventlog_aim.values import clean_text, plain

__all__ = ["conclude", "describe", "place_of"]

_PLACEHOLDER = re.compile(r"\{(project|name|run_id)\}")
_LONGEST_ERROR = 10_000


def place_of(repo: str | None, run: RunInfo) -> str | None:
    """Return the repository of a run; None for the one that Aim takes by default."""
    if repo is None:
        return None if run.directory is None else os.path.abspath(run.directory)
    if is_remote(repo) or "://" in repo:
        return repo
    names = {"project": run.project, "name": run.name, "run_id": run.run_id}
    return os.path.abspath(_PLACEHOLDER.sub(lambda match: _folder(names[match[1]]), repo))


def _folder(name: str) -> str:
    text = re.sub(r"[/\\\x00-\x1f]", "_", clean_text(name))[:100]
    return text if text.strip(".") else f"_{text}"


def describe(run: Any, info: RunInfo, resumed: bool, count: Callable[[str], None]) -> None:
    """Say what is known of a run; what a user may have changed in Aim stays as it is."""
    if not resumed:
        rank = f" (rank {info.rank})" if info.rank else ""
        run.name = clean_text(info.name or info.run_id) + rank
        if info.notes:
            run.description = clean_text(info.notes)
    there = set(run.tags) if info.tags else set()
    for tag in dict.fromkeys(clean_text(tag) for tag in info.tags):
        if tag and tag not in there:
            run.add_tag(tag)
    about = {
        "run_id": info.run_id,
        "project": info.project,
        "group": info.group,
        "rank": info.rank,
        "world_size": info.world_size,
        "attempt": info.attempt,
        "status": "running",
        "provenance": info.provenance,
    }
    run["eventlog"] = plain(about, count)


def conclude(run: Any, status: Status, error: str | None, *, reports: bool) -> None:
    """Say how a run ended: as a parameter, in its messages, and by Aim's own mark of success.

    Args:
        run: The `aim.Run`.
        status, error: How it ended.
        reports: Whether Aim's thread is there that writes such marks.
    """
    run["eventlog", "status"] = status
    text = short_text(clean_text(error), _LONGEST_ERROR) if error else None
    if text:
        run["eventlog", "error"] = text
    if not reports:
        return
    if text:
        run.log_error(text)
    if status == "finished":
        run.report_successful_finish()
