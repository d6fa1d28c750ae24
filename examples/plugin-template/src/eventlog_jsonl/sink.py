"""`JsonlSink`: a folder for each run, with a line of JSON for each thing that was logged."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from eventlog.events import ArtifactEvent, BlobRef, Event, Status
from eventlog.sinks.base import Confirms, Rewind, RunInfo
from eventlog.sinks.tracker import At, TrackerSink

__all__ = ["JsonlSink"]


class JsonlSink(TrackerSink):
    """Writes ``events.jsonl``, ``run.json`` and files into a folder of the run.

    Args:
        dir: Where runs' folders lie; by default this run's is the place that eventlog offers.
    """

    name: ClassVar[str] = "jsonl"
    # What is not here is shown as a text (tables, histograms) or an image (figures), and counted.
    capabilities: ClassVar[frozenset[str]] = frozenset(
        {"scalars", "strings", "text", "image", "artifact", "config", "summary", "status"}
    )
    # A file keeps what was written: after a rewind it has both attempts, and says which is which.
    rewind: ClassVar[Rewind] = "append"
    # write() returns when the system has the lines, so that a kill loses none.
    confirms: ClassVar[Confirms] = "write"
    # Lines are gathered and written once for each batch, by commit().
    buffered: ClassVar[bool] = True

    def __init__(self, dir: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._dir = None if dir is None else os.fspath(dir)
        self._file: IO[bytes] | None = None
        self._lines: list[bytes] = []
        self._page: dict[str, Any] = {}

    def target(self) -> str:
        """Return the place, so that another one starts at the beginning of the log."""
        return self._dir or ""

    # -- the life of a run ----------------------------------------------------------------------

    def start(self, run: RunInfo) -> None:
        """Make the folder, or go on in it; an SDK would be imported here, and not before."""
        folder = run.directory if self._dir is None else Path(self._dir, run.run_id)
        if folder is None:
            raise ValueError("a run without a directory needs the option dir")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file = (folder / "events.jsonl").open("ab", buffering=0)
        self.run_id, self.url, self.tracker = run.run_id, str(folder), self._file
        self._page = {
            "name": run.name,
            "group": run.group,
            "notes": run.notes,
            "tags": list(run.tags),
            "status": "running",
        }
        self._write_page()

    def commit(self) -> None:
        """Write the lines of a batch, whole or not at all: a batch that fails comes again."""
        if self._file is None or not self._lines:
            return
        end = self._file.seek(0, os.SEEK_END)
        data = memoryview(b"".join(self._lines))
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._file.truncate(end)
            raise
        self._lines.clear()

    def discard(self) -> None:
        """Forget the lines of a batch that failed."""
        self._lines.clear()

    def finish(self, status: Status, error: str | None) -> None:
        """Say how the run ended, and close the file, also when that fails."""
        try:
            self._page |= {"status": status, "error": error}
            self._write_page()
        finally:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    # -- what is logged -------------------------------------------------------------------------

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        """Add a line for each number."""
        for key, value in values.items():
            # JSON has no word for NaN and the infinities
            plain = value if math.isfinite(value) else str(value)
            self._put(event, axis, at, "number", key, plain)

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        """Add a line."""
        self._put(event, axis, at, "text", tag, text)

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        """Copy the files, which are named by their contents, and add a line for each."""
        for path, blob in images:
            name = self._copy(path, f"{blob.sha256}.{blob.mime.rpartition('/')[2]}")
            self._put(event, axis, at, "image", tag, name, caption=caption)

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        """Copy a file; of a folder, or of what is gone, there is the line alone."""
        name = None
        if path is not None and path.is_file():
            name = self._copy(path, f"{event.seq}-{event.attempt}.bin")
        elif path is not None:
            self.count("artifact that is a folder: only its path")
        facts = {"path": event.path, "kind": event.kind, "metadata": event.metadata}
        self._put(event, event.axis, event.step, "artifact", event.name, name, about=facts)

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Replace the page of the run."""
        self._page["config"] = dict(config)
        self._write_page()

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Replace the page of the run."""
        self._page["summary"] = dict(summary)
        self._write_page()

    # -- files ----------------------------------------------------------------------------------

    def _put(
        self, event: Event, axis: str, at: At, kind: str, key: str, value: Any, **more: Any
    ) -> None:
        line = {"axis": axis, "at": at, "kind": kind, "key": key, "value": value, **more}
        line |= {"wall_time": event.wall_time, "attempt": event.attempt}
        self._lines.append(json.dumps(line, default=str).encode() + b"\n")

    def _copy(self, path: Path, name: str) -> str:
        target = self._folder / "files" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
        return name

    def _write_page(self) -> None:
        temporary = self._folder / ".run.json"
        temporary.write_text(json.dumps(self._page, indent=1, default=str), encoding="utf-8")
        os.replace(temporary, self._folder / "run.json")
