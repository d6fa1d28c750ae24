"""Files that belong to a step: ``<folder>/<tag>/<step>.png``, as DVC's slider for images wants."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from eventlog.sinks.names import Names
from eventlog_dvclive.files import replace_file, same_file
from eventlog_dvclive.layout import clean
from eventlog_dvclive.page import RunPage

__all__ = ["Media"]

_STEP = re.compile(r"(-?\d+)(?:_\d+)?\.[a-z0-9]+")


class Media:
    """Where files of each kind go.

    Args:
        plots: DVCLive's folder of plots.
        page: Knows the axis of what has files.
    """

    def __init__(self, plots: Path, page: RunPage) -> None:
        self._page = page
        own = page.folder
        self._folders = {
            "images": plots / "images",
            "custom": plots / "custom",
            "text": own / "text",
            "tables": own / "tables",
            "artifacts": own / "artifacts",
        }
        self._names = Names(clean, own / "media.json", nested=True, fold_case=True)

    def name(self, kind: str, tag: str, axis: str) -> str:
        """Return what a tag's files are called: the kind, and a path below its folder.

        Raises:
            OSError: It cannot be kept for the next process.
        """
        name = self._names(f"{kind}/{tag or '(no name)'}", axis, kind)
        if self._page.media.get(name) != axis:
            self._page.media[name] = axis
            self._page.stale = True
            self._page.write()  # before there are files: a rewind must know whose they are
        return name

    def save(self) -> None:
        """Keep the names for the next process.

        Raises:
            OSError: They cannot be written.
        """
        self._names.save()

    def folder(self, name: str) -> Path:
        """Return where the files of a name lie."""
        kind, _, rest = name.partition("/")
        return self._folders[kind] / rest

    def put(
        self, folder: Path, at: int | None, suffix: str, write: Callable[[Path], object]
    ) -> Path:
        """Make the file of a step, and return where it is.

        The same file for the same step is there once; another one gets a number.

        Args:
            folder: Where it belongs.
            at: The step; None takes the next one.
            suffix: The end of the file's name.
            write: Makes the file at the path that it is given.

        Raises:
            OSError: It cannot be written.
        """
        new = self._page.folder / f"new{suffix}"
        replace_file(new, write)
        if at is None:
            at = max(_steps(folder), default=-1) + 1
        path, number = folder / f"{at}{suffix}", 2
        while path.exists() and not same_file(path, new):
            path, number = folder / f"{at}_{number}{suffix}", number + 1
        folder.mkdir(parents=True, exist_ok=True)
        return new.replace(path)

    def cut(self, axis: str, floor: int) -> None:
        """Remove the files of an axis whose step is `floor` or beyond.

        Raises:
            OSError: A file cannot be removed.
        """
        for name in [name for name, its in self._page.media.items() if its == axis]:
            for path in self.folder(name).rglob("*"):
                found = _STEP.fullmatch(path.name)
                if found and int(found[1]) >= floor and path.is_file():
                    path.unlink()


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(found[1]) for path in folder.iterdir() if (found := _STEP.fullmatch(path.name))]
