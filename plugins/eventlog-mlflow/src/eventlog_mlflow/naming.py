"""What MLflow calls things: metrics, params, tags and files each have names of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from eventlog.sinks.names import Names

__all__ = ["Tables", "clean_file", "clean_key", "clean_key_for_files"]

LONGEST_FILE = 150
"""Characters of an artifact's name: what is put before and after it has to fit, too."""

_ODD = re.compile(r"[^\w.\- :]")
_ODD_IN_FILES = re.compile(r"[^A-Za-z0-9_.\- ]")
_UP = re.compile(r"^\.\.")


def clean_key(key: str) -> str:
    """Return a name that MLflow takes for a metric, a param or a tag.

    MLflow lets a name be a path, which has to be a plain one: no empty part, no ``..``.
    """
    return _path(key, _ODD)


def clean_key_for_files(key: str) -> str:
    """Return a name for a store that keeps each metric in a file of that name."""
    return _path(key, _ODD_IN_FILES)


def clean_file(name: str) -> str:
    """Return an artifact's path that is a file's in any store, and safe in an address."""
    parts = _path(name, _ODD_IN_FILES).split("/")
    # MLflow keeps names that begin with a dot for uploads that go on
    return "/".join("_" + part[1:] if part.startswith(".") else part for part in parts)


def _path(name: str, odd: re.Pattern[str]) -> str:
    parts = (odd.sub("_", part).strip() for part in name.split("/"))
    kept = ["_" * len(part) if part in (".", "..") else part for part in parts if part]
    # MLflow takes whatever begins with two dots for a way up
    return _UP.sub("__", "/".join(kept)) or "_"


class Tables:
    """The names of metrics, params, tags and files, which do not clash with each other.

    Args:
        directory: Where they are kept; None keeps them in memory.
        longest: Most characters of a metric's, a param's or a tag's name.
        files: Whether the store keeps each of these in a file.
        fold_case: Whether the store may take ``Loss`` and ``loss`` for the same name.
    """

    def __init__(
        self, directory: Path | None, longest: int, *, files: bool, fold_case: bool
    ) -> None:
        clean = clean_key_for_files if files else clean_key

        def table(name: str, clean: Callable[[str], str] = clean) -> Names:
            path = None if directory is None else directory / f"{name}.json"
            most = LONGEST_FILE if clean is clean_file else longest
            fold = fold_case or clean is clean_file
            # artifacts of events are files in folders of these names: they do not clash
            nested = files and clean is not clean_file
            return Names(clean, path, nested=nested, fold_case=fold, longest=most)

        self.metrics = table("names")
        self.params = table("names-params")
        self.tags = table("names-tags")
        self.files = table("names-files", clean_file)

    def save(self) -> None:
        """Keep what is new."""
        for names in (self.metrics, self.params, self.tags, self.files):
            names.save()

    def originals(self) -> dict[str, dict[str, str]]:
        """Return the keys of what has another name in MLflow, by what it is."""
        tables = {"metrics": self.metrics, "params": self.params, "tags": self.tags}
        tables["files"] = self.files
        return {what: found for what, names in tables.items() if (found := names.originals())}
