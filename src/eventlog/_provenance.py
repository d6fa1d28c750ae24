"""What it takes to do a run again, as far as it can be had without running anything."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

__all__ = ["git_commit", "provenance"]

_PACKAGES = ("torch", "numpy", "jax", "tensorflow", "transformers", "lightning", "accelerate",
             "datasets", "sklearn")  # fmt: skip


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
    packages = {
        name: version
        for name in _PACKAGES
        if name in sys.modules
        and isinstance(version := getattr(sys.modules[name], "__version__", None), str)
    }
    if packages:
        found["packages"] = packages
    commit = git_commit(Path.cwd())
    if commit is not None:
        found["git_commit"] = commit
    return found


def git_commit(directory: Path) -> str | None:
    """Return the commit that is checked out in `directory` or above, read from git's files."""
    try:
        for folder in (directory, *directory.parents):
            git = folder / ".git"
            if git.is_dir():
                return _head(git)
    except OSError:
        pass
    return None


def _head(git: Path) -> str | None:
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head or None
    ref = head[5:]
    if (git / ref).is_file():
        return (git / ref).read_text().strip()
    packed = git / "packed-refs"
    if packed.is_file():
        for line in packed.read_text().splitlines():
            if line.endswith(f" {ref}"):
                return line.split(" ", 1)[0]
    return None
