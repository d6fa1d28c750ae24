"""Which run, and where: new ones and those to go on with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from eventlog._names import new_run_id, safe_name
from eventlog.exceptions import EventlogError

__all__ = ["choose_run", "write_manifest"]


def choose_run(base: Path | None, resume: str | None, name: str | None) -> tuple[str, bool]:
    """Return a run's id, and whether it existed.

    Args:
        base: The project's directory.
        resume: None for a new run; an id, "must" or "allow".
        name: Of the run to go on with, for "must" and "allow"; any when None.

    Raises:
        EventlogError: There is no such run.
    """
    if resume is None:
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


def write_manifest(run_dir: Path, content: dict[str, Any]) -> None:
    """Say in the run's directory which run it is."""
    temporary = run_dir / f".manifest.{os.getpid()}"
    temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, run_dir / "manifest.json")


def _read_manifest(run_dir: Path) -> dict[str, Any]:
    try:
        content = json.loads((run_dir / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
