"""A folder of event files: one *run* in TensorBoard's words, one axis in ours."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eventlog_tensorboard.records import EventFile, create_event_file, frame
from eventlog_tensorboard.summaries import (
    INT64_MAX,
    INT64_MIN,
    file_head,
    scalar_prefix,
    scalars_event,
    summary_event,
    text_value,
)

__all__ = ["Folder", "folder_name"]

_BEYOND_FLOAT32 = "value beyond float32: shown as infinity"
_NO_SCALAR = "value that is neither a number nor a string"
_F32 = struct.Struct("<f").pack
_NAME_LIMIT = 60
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)\d) *(?:\.|$)", re.IGNORECASE
)


def folder_name(name: str) -> str:
    """Return a name as a path's part on every system; two names never have the same one."""
    quoted = quote(name, safe=" ,;=+@()[]!$'", errors="replace").replace("~", "%7E")
    if quoted.startswith(".") or _RESERVED.match(quoted):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if quoted.endswith((".", " ")):
        quoted = f"{quoted[:-1]}%{ord(quoted[-1]):02X}"
    whole = name.encode("utf-8", "surrogatepass")
    if len(quoted) <= _NAME_LIMIT and whole == name.encode("utf-8", "replace"):
        return quoted or "%"
    return f"{quoted[:_NAME_LIMIT]}~{sha256(whole).hexdigest()[:16]}"


class Folder:
    """Where the points of one axis go.

    Points wait in `buffer` until the sink writes the buffers of all folders, so that a batch is
    taken whole or not at all.

    Args:
        path: The folder; made with its first file.
        suffix: What file names end with.
        count: Called with the reason when something cannot be shown as it is.
        taken: Tags that are in use already.
    """

    def __init__(
        self, path: Path, suffix: str, count: Callable[[str], None], taken: frozenset[str]
    ) -> None:
        self.path = path
        self.buffer = bytearray()
        self.file: EventFile | None = None
        self.purge: float | None = None  # an earlier attempt's points count no more from here on
        self.mixed = False  # its axis went back without a rewind
        self.high: int | None = None
        self.next_count = 0
        self._counts: dict[tuple[str, str], int] = {}
        self._suffix = suffix
        self._count = count
        self._taken = set(taken)
        self._tags: dict[tuple[str, str], str] = {}
        self._prefixes: dict[str, bytes] = {}

    def scalars(self, wall_time: float, step: int | None, values: Mapping[str, Any]) -> None:
        """Add a point to each scalar's curve; strings go to the text of their name."""
        if step is None:
            for key, value in values.items():
                at = self._running("scalar", key)
                self.scalars(wall_time, at, {key: value})
            return
        prefixes = self._prefixes
        parts: list[bytes] = []
        for key, value in values.items():
            if isinstance(value, str):
                self.add(wall_time, step, "text", key, partial(text_value, text=value))
                continue
            try:
                packed = _F32(value)
            except (OverflowError, struct.error):
                if not isinstance(value, int | float):
                    self._count(_NO_SCALAR)
                    continue
                self._count(_BEYOND_FLOAT32)
                packed = _F32(math.inf if value > 0 else -math.inf)
            prefix = prefixes.get(key)
            if prefix is None:
                prefix = prefixes[key] = scalar_prefix(self.tag("scalar", key))
            parts += (prefix, packed)
        if parts:
            self._at(wall_time, step)
            self.buffer += frame(scalars_event(wall_time, step, b"".join(parts)))

    def add(
        self,
        wall_time: float,
        step: int | None,
        kind: str,
        key: str,
        build: Callable[[str], Any],
    ) -> None:
        """Add what is no scalar.

        Args:
            wall_time: Seconds since 1970.
            step: Where; None counts up.
            kind: What it is; with `key` it makes the tag.
            key: What the user called it.
            build: Makes the summary from its tag.
        """
        step = self._running(kind, key) if step is None else step
        self._at(wall_time, step)
        self.buffer += frame(summary_event(wall_time, step, build(self.tag(kind, key))))

    def tag(self, kind: str, key: str) -> str:
        """Return the tag of a kind's key: the key, unless another kind has it.

        TensorBoard shows one kind of thing for each tag and drops the rest.
        """
        tag = self._tags.get((kind, key))
        if tag is None:
            tag = key.encode("utf-8", "replace").decode() or "(no name)"
            if tag in self._taken and kind:
                tag = f"{tag}/{kind}"
            number = 2
            plain = tag
            while tag in self._taken:
                tag, number = f"{plain}~{number}", number + 1
            self._taken.add(tag)
            self._tags[kind, key] = tag
        return tag

    def settle_purge(self, wall_time: float) -> None:
        """Purge what is superseded although no further point came."""
        if self.purge is not None and self.path.is_dir():
            self._begin(wall_time, INT64_MAX)
        self.purge = None

    def write(self) -> None:
        """Hand the buffer to the operating system; `settle` or `take_back` must follow."""
        if self.file is not None:
            self.file.write(self.buffer)

    def settle(self) -> None:
        """Keep what `write` wrote."""
        if self.file is not None:
            self.file.settle()
        self.drop()

    def take_back(self) -> None:
        """Cut off what `write` wrote; a file that cannot be mended is left for a new one."""
        self.drop()
        if self.file is not None and not self.file.take_back():
            self.close()

    def drop(self) -> None:
        """Forget what waits to be written."""
        self.buffer = bytearray()

    def close(self) -> None:
        """Let go of the file; the next point opens another one."""
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def _running(self, kind: str, key: str) -> int:
        self._count("no axis: steps counted up")
        at = self._counts.get((kind, key), self.next_count)
        self._counts[kind, key] = at + 1
        return at

    def last_count(self) -> int:
        """Return the first number that no tag counted to."""
        return max(self._counts.values(), default=self.next_count)

    def _at(self, wall_time: float, step: int) -> None:
        if self.file is None or self.purge is not None:
            self._begin(wall_time, step)
        if self.high is None or step >= self.high:
            self.high = step
        else:
            self.mixed = True

    def _begin(self, wall_time: float, step: int) -> None:
        """Start a new file, which a purge needs: readers see it after all that it supersedes.

        A run that is rewound to a step goes on with this step or with the next one; the first
        point tells which, so that a last point that still holds is not purged.
        """
        purge = None
        if self.purge is not None:
            floor = math.floor(self.purge)
            purge = min(max(min(max(step, floor), floor + 1), INT64_MIN), INT64_MAX)
        head = b"".join(frame(data) for data in file_head(wall_time, purge))
        file = create_event_file(self.path, int(wall_time), self._suffix, head)
        self.close()
        self.file = file
        if purge is not None:
            self.purge = self.high = None
