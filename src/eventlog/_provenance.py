"""What it takes to do a run again, as far as it can be had without running anything."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from eventlog._paths import read_small

__all__ = ["git_commit", "provenance"]

_PACKAGES = ("torch", "numpy", "jax", "tensorflow", "transformers", "lightning", "accelerate",
             "datasets", "sklearn")  # fmt: skip


_REF = re.compile(r"refs/[^\x00-\x20\x7f~^:?*\\\[]+")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def provenance() -> dict[str, Any]:
    """Return Python, system, host, the git commit, and versions of what is imported by now.

    Neither the environment nor the command line is recorded: they hold secrets.
    """
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "host": platform.node(),
        "cpus": os.cpu_count(),
    }
    packages = {name: version for name in _PACKAGES if (version := _version(name)) is not None}
    if packages:
        found["packages"] = packages
    try:
        commit = git_commit(Path.cwd())
    except OSError:  # the working directory was removed
        commit = None
    if commit is not None:
        found["git_commit"] = commit
    return found


def _version(package: str) -> str | None:
    try:
        version = getattr(sys.modules.get(package), "__version__", None)
    except Exception:  # a module that imports on access, and cannot
        return None
    return version if isinstance(version, str) else None


def git_commit(directory: Path) -> str | None:
    """Return the commit that is checked out in `directory` or above, read from git's files."""
    try:
        for folder in (directory, *directory.parents):
            git = folder / ".git"
            if git.is_dir():
                return _head(git, git)
            if git.is_file():
                return _linked_head(git)
    except (OSError, ValueError):
        pass
    return None


def _linked_head(link: Path) -> str | None:
    """Return the commit of a worktree or a submodule: its ``.git`` is a file that points to it."""
    text = _text(link)
    if not text.startswith("gitdir: "):
        return None
    git = link.parent / text[8:]
    common = git / "commondir"
    return _head(git, git / _text(common) if common.is_file() else git)


def _head(git: Path, common: Path) -> str | None:
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return _commit(head)
    ref = head[5:]
    # it becomes a path: of whoever made the repository
    if not _REF.fullmatch(ref) or ".." in ref:
        return None
    for directory in (git, common):
        if (directory / ref).is_file():
            return _commit(_text(directory / ref))
    packed = common / "packed-refs"
    if packed.is_file():
        for line in _text(packed).splitlines():
            if line.endswith(f" {ref}"):
                return _commit(line.split(" ", 1)[0])
    return None


def _text(path: Path) -> str:
    return read_small(path).decode().strip()


def _commit(text: str) -> str | None:
    """Return a commit; what else there may be in a file is not for the log."""
    return text if _COMMIT.fullmatch(text) else None
