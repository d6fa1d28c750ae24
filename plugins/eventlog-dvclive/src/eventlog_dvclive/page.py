"""``run.json``: what there is to know about a run that DVCLive's own files have no place for."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eventlog.events import Status
from eventlog.sinks.base import RunInfo
from eventlog_dvclive.files import read_json, write_json

__all__ = ["OWN", "RunPage"]

OWN = "eventlog"
"""The folder, in the run's, of all that DVCLive's own files have no place for."""

_WRITER = "eventlog-dvclive"


@dataclass(slots=True)
class RunPage:
    """The run's description, and what the next process must know about the files.

    Attributes:
        folder: Where it lies.
        run_id: Whose files are in the folder; empty where no run's are.
        about: What is shown of the run.
        axes: The axis of each metric that is not on ``step``.
        media: The axis of each thing that has files: images, texts, ...
        mixed: Axes that went back without a rewind, so that none of their points is void.
        attempt: The latest one that has points.
        artifacts: What is known of each.
        status, error: How the run ended.
        stale: The file lacks something.
    """

    folder: Path
    run_id: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    media: dict[str, str] = field(default_factory=dict)
    mixed: set[str] = field(default_factory=set)
    attempt: int = 0
    artifacts: dict[str, Any] = field(default_factory=dict)
    status: Status | None = None
    error: str | None = None
    stale: bool = True

    @classmethod
    def read(cls, folder: Path) -> RunPage:
        """Return what an earlier process left; an empty page where there is nothing."""
        page = cls(folder)
        found = read_json(folder / "run.json")
        if found.get("writer") != _WRITER:
            return page
        files = found.get("files", {})
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            page.run_id = str(found.get("run_id", ""))
            page.axes = dict(files.get("axes", {}))
            page.media = dict(files.get("media", {}))
            page.mixed = set(files.get("mixed", ()))
            page.attempt = int(files.get("attempt", 0))
            page.artifacts = dict(found.get("artifacts", {}))
        return page

    def clear(self) -> RunPage:
        """Remove what an earlier run of ours left beside DVCLive's own files.

        Raises:
            OSError: It cannot be removed.
        """
        if self.run_id:  # nobody else's folder of that name
            shutil.rmtree(self.folder)
        return RunPage(self.folder)

    def describe(self, run: RunInfo) -> None:
        """Take over what is known of a run."""
        known = {
            "project": run.project,
            "name": run.name or run.run_id,
            "group": run.group,
            "tags": list(run.tags),
            "notes": run.notes,
            "rank": run.rank,
            "world_size": run.world_size,
            "provenance": run.provenance,
        }
        if self.run_id != run.run_id:
            self.run_id, self.attempt = run.run_id, 0
        self.about = {key: value for key, value in known.items() if value not in (None, "", [], {})}
        self.stale = True

    def end(self, status: Status, error: str | None) -> None:
        """Take note of how the run ended."""
        self.status, self.error, self.stale = status, error, True

    def write(self) -> None:
        """Replace the file, if it lacks anything.

        Raises:
            OSError: It cannot be written.
        """
        if not self.stale:
            return
        content: dict[str, Any] = {"writer": _WRITER, "run_id": self.run_id} | self.about
        content["status"] = self.status or "running"
        if self.error is not None:
            content["error"] = self.error
        if self.artifacts:
            content["artifacts"] = self.artifacts
        content["files"] = {
            "axes": self.axes,
            "media": self.media,
            "mixed": sorted(self.mixed),
            "attempt": self.attempt,
        }
        write_json(self.folder / "run.json", content)
        self.stale = False
