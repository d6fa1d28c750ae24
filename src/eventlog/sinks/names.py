"""What a tracker calls a value: names made to fit its rules, always the same way.

Trackers forbid characters, cut names, keep ``foo`` and ``foo/bar`` in one place of a file system,
or do not tell ``Loss`` from ``loss``. And a name can be used on two axes, of which a tracker with
one axis would make one zigzag. Here each (axis, kind, key) gets a name that nothing else has, and
keeps it: also in the next process, where the table is kept in a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from eventlog._paths import read_json, replace_file
from eventlog.sinks.plain import whole_text

__all__ = ["Names"]


class Names:
    """A table of the names that a tracker shows.

    Args:
        clean: Makes a name fit the tracker's rules; the same name for the same key, always. It
            need not be unique.
        path: Where the table is kept, for those names that differ from their keys or that are not
            of the axis ``step``; None keeps it in memory.
        nested: Whether ``foo`` and ``foo/bar`` cannot both be, as with files and folders.
        fold_case: Whether ``Loss`` and ``loss`` are the same name.
        longest: Most characters of a name, its number included; None for no limit.
    """

    def __init__(
        self,
        clean: Callable[[str], str] = str,
        path: Path | None = None,
        *,
        nested: bool = False,
        fold_case: bool = False,
        longest: int | None = None,
    ) -> None:
        self._clean = clean
        self._path = path
        self._nested = nested
        self._fold = str.casefold if fold_case else str
        self._longest = longest
        self._names: dict[tuple[str, str, str], str] = {}
        self._taken: dict[str, tuple[str, str, str]] = {}
        self._folders: set[str] = set()
        self._stale = False
        if path is not None:
            self._load(path)

    def __call__(self, key: str, axis: str = "step", kind: str = "scalar") -> str:
        """Return what the tracker calls `key`, which is of that kind and on that axis."""
        name = self._names.get((axis, kind, key))
        if name is None:
            name = self._choose(axis, kind, key)
            self._put(axis, kind, key, name)
            self._stale = self._stale or name != key or axis != "step"
        return name

    def originals(self) -> dict[str, str]:
        """Return the keys of those names that differ from them."""
        return {name: key for (_, _, key), name in self._names.items() if name != key}

    def save(self) -> None:
        """Keep what is new, if there is a file.

        Raises:
            OSError: It cannot be written.
        """
        if not self._stale or self._path is None:
            return
        rows = [
            {"name": name, "key": key, "axis": axis, "kind": kind}
            for (axis, kind, key), name in self._names.items()
            if name != key or axis != "step"
        ]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps(rows, indent=1) + "\n")
        self._stale = False

    def _load(self, path: Path) -> None:
        """Take over the table that an earlier process kept; a damaged one is as good as none."""
        try:
            rows = read_json(path)
            for row in rows:
                axis, kind = str(row["axis"]), str(row["kind"])
                self._put(axis, kind, str(row["key"]), str(row["name"]))
        except (OSError, ValueError, TypeError, KeyError):
            return

    def _put(self, axis: str, kind: str, key: str, name: str) -> None:
        self._names[axis, kind, key] = name
        folded = self._fold(name)
        self._taken[folded] = (axis, kind, key)
        if self._nested:
            parts = folded.split("/")
            self._folders.update("/".join(parts[:end]) for end in range(1, len(parts)))

    def _choose(self, axis: str, kind: str, key: str) -> str:
        text = whole_text(key) or "(no name)"
        name = self._cut(self._clean(text) or "_", "")
        if not self._clashes(name):
            return name
        holder = self._taken.get(self._fold(name))
        suffix = ""
        if holder is not None and holder[2] == key:
            # cleaned by itself: a leading underscore may be among what names may not begin with
            suffix = "_" + self._clean(kind if holder[0] == axis else axis)
        plain = self._beside_leaves(self._clean(text) or "_")
        name = self._cut(plain, suffix)
        number = 2
        while self._clashes(name):
            name = self._cut(plain, f"{suffix}_{number}")
            number += 1
        return name

    def _beside_leaves(self, name: str) -> str:
        """Return a name none of whose folders is another name: ``foo_2/bar`` beside ``foo``."""
        if not self._nested:
            return name
        parts = name.split("/")
        for end in range(1, len(parts)):
            plain, number = parts[end - 1], 2
            while self._fold("/".join(parts[:end])) in self._taken:
                parts[end - 1] = f"{plain}_{number}"
                number += 1
        return "/".join(parts)

    def _cut(self, name: str, suffix: str) -> str:
        room = None if self._longest is None else max(1, self._longest - len(suffix))
        return (name[:room].rstrip("/") or "_") + suffix

    def _clashes(self, name: str) -> bool:
        folded = self._fold(name)
        if folded in self._taken:
            return True
        if not self._nested:
            return False
        parts = folded.split("/")
        above = ("/".join(parts[:end]) for end in range(1, len(parts)))
        return folded in self._folders or any(folder in self._taken for folder in above)
