"""Which run, and where: new ones and those to go on with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eventlog._names import new_run_id, safe_name
from eventlog._paths import read_json, replace_file
from eventlog.exceptions import EventlogError
from eventlog.log.layout import BlockKind, Content
from eventlog.log.segment_reader import Segment, list_segments

__all__ = ["choose_run", "last_step", "newest_attempt", "rank_directories", "write_manifest"]

_RANK = re.compile(r"rank-(0|[1-9][0-9]{0,9})")


def choose_run(
    base: Path | None,
    resume: str | None,
    name: str | None,
    run_id: str | None = None,
    earlier: str | None = None,
) -> tuple[str, bool]:
    """Return a run's id, and whether it existed.

    Args:
        base: The project's directory.
        resume: None for a new run; an id, "must" or "allow".
        name: Of the run to go on with, for "must" and "allow"; any when None.
        run_id: The id that somebody chose: of a run that exists, or of a new one.
        earlier: The run of the same job before it was started again.

    Raises:
        EventlogError: There is no such run.
    """
    if resume is None:
        for chosen in (run_id, earlier):
            if chosen is not None:
                found = safe_name(chosen)
                existed = base is not None and any(rank_directories(base / found))
                if existed or chosen is run_id:
                    return found, existed
        return new_run_id(), False
    if base is None:
        raise EventlogError("resume needs a directory; this run has none (dir=None)")
    if resume not in ("must", "allow"):
        if not (base / safe_name(resume)).is_dir():
            raise EventlogError(f"there is no run {resume!r} to resume in {base}")
        return safe_name(resume), True
    for run_dir in sorted(base.glob("*/"), reverse=True):
        manifest = _read_manifest(run_dir)
        if manifest and (name is None or manifest.get("name") == name):
            return run_dir.name, True
    if resume == "must":
        wanted = "" if name is None else f" named {name!r}"
        raise EventlogError(f"there is no run{wanted} to resume in {base}")
    return new_run_id(), False


def rank_directories(run_dir: Path) -> Iterator[tuple[int, Path]]:
    """Yield each rank of which a run has a log, and where that lies."""
    try:
        names = os.listdir(run_dir)
    except OSError:
        return
    for name in names:
        match = _RANK.fullmatch(name)
        if match and list_segments(run_dir / name):
            yield int(match.group(1)), run_dir / name


def newest_attempt(directory: Path) -> int:
    """Return the newest attempt in the log of a rank; 0 for a log that has none yet.

    Raises:
        OSError: It cannot be read.
    """
    for _, path in reversed(list_segments(directory)):
        segment = Segment(path)
        header = segment.header
        segment.close()
        if header is not None:
            return header.attempt
    return 0


def last_step(directory: Path) -> int:
    """Return the largest step that the log of a rank has on the axis "step"; -1 for none.

    Only headers are read: a block that has another axis as well does not count.

    Raises:
        OSError: It cannot be read.
    """
    last = -1
    for _, path in list_segments(directory):
        segment = Segment(path)
        try:
            for block in segment.scan():
                header = block.header
                if header.kind == BlockKind.EVENTS and not header.flags & Content.NAMED_AXIS:
                    last = max(last, header.max_step)
        finally:
            segment.close()
    return last


def write_manifest(run_dir: Path, content: dict[str, Any]) -> None:
    """Say in the run's directory which run it is."""
    replace_file(run_dir / "manifest.json", json.dumps(content, indent=2) + "\n")


def _read_manifest(run_dir: Path) -> dict[str, Any]:
    try:
        content = read_json(run_dir / "manifest.json")
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
