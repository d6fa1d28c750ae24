"""Making a repository on disk, and bringing one up to date, by one process at a time."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from eventlog.exceptions import UnavailableError
from eventlog.sinks.locking import only_one

__all__ = ["make_ready"]

_MAKING = ".eventlog-making-"


def make_ready(aim: Any, repo: str | None) -> Any:
    """Make a repository where there is none, and bring an older one up to date.

    Aim does so, too, when it opens a run, but takes what another process is still making for a
    repository of an ancient version.

    Args:
        aim: The module.
        repo: The folder; None for Aim's own default.

    Returns:
        The `aim.Repo` that this took, which has hooks; None where all was ready.

    Raises:
        UnavailableError: Another process is making it, or it must be upgraded by hand.
    """
    folder = Path(aim.Repo.default_repo_path() if repo is None else repo)
    if _status(aim, folder) == "UPDATED":
        return None
    with only_one(folder):
        status = _status(aim, folder)
        if status == "UPDATED":
            return None
        if status == "MISSING":
            return _make(aim, folder)
        if status == "PATCH_REQUIRED":
            return aim.Repo.from_path(str(folder))
    raise UnavailableError(
        f"Aim's repository {folder} is not up to date: another process is making it, or it is "
        "of an old version of Aim, or half of one"
    )


def _status(aim: Any, folder: Path) -> str:
    try:
        return str(aim.Repo.check_repo_status(str(folder)).name)
    except ValueError:  # its version is just being written
        return "UPDATE_REQUIRED"


def _make(aim: Any, folder: Path) -> Any:
    """Make a repository, which gets its name once it is whole: a killed process leaves none."""
    for left in folder.glob(f"{_MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)
    making = tempfile.mkdtemp(prefix=_MAKING, dir=folder)
    try:
        made = aim.Repo.from_path(making, init=True)
        os.rename(made.path, folder / Path(made.path).name)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return made
