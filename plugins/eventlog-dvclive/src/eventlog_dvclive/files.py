"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["copy_into", "read_json", "replace_file", "write_json"]


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Put a file in its place at once.

    Args:
        path: Where; the folders above are made.
        write: Makes the file at the path that it is given.

    Raises:
        OSError: It cannot be written; what was there before is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def same_file(one: Path, other: Path) -> bool:
    """Whether both hold the same bytes."""
    return filecmp.cmp(one, other, shallow=False)


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file holds; a missing or damaged one is as good as an empty one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by plain values as JSON.

    Raises:
        OSError: It cannot be written.
    """
    text = json.dumps(content, indent=2, default=str) + "\n"
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def copy_into(source: Path, target: Path) -> None:
    """Copy a file or a folder, in place of what is there.

    Raises:
        OSError: It cannot be read or written.
    """
    if source.is_dir():
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target)
        return
    if target.is_dir():
        shutil.rmtree(target)
    replace_file(target, lambda temporary: shutil.copyfile(source, temporary))
