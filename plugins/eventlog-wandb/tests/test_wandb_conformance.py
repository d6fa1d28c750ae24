"""The suite that every sink passes, with the real SDK offline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from eventlog.events import Status
from eventlog.sinks.plain import flatten
from eventlog.testing import FinishedRun, Shown, SinkConformance
from eventlog_wandb.media import text_of
from eventlog_wandb.reading import OfflineRun, read_offline

pytestmark = pytest.mark.timeout(180)


class TestWandbConformance(SinkConformance):
    """Reads the ``.wandb`` files of a run, and the media and artifacts that they name."""

    sink: ClassVar[str] = "wandb"
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "finished",
        "failed": "failed",
        "interrupted": "interrupted",
        "killed": "killed",
    }
    # what is said of integers is not about small floats
    reasons: ClassVar[Mapping[str, str]] = {"tiny": "tiny"}
    outcomes: ClassVar[Path | None] = Path(__file__).with_name("outcomes.json")

    def options(self, where: Path) -> dict[str, Any]:
        return {"mode": "offline", "dir": str(where / "offline")}

    def environment(self, where: Path) -> dict[str, str]:
        return {"HOME": str(where / "home")}

    def read(self, run: FinishedRun) -> Shown:
        found = read_offline(run.where / "offline", str(run.tracker_id))
        shown = Shown(
            config=flatten({k: v for k, v in found.config.items() if k != "_wandb"}),
            summary=flatten(_own(found)),
            status=found.summary.get("eventlog/status"),
            name=found.name,
            notes=found.notes or None,
            group=found.group or None,
            tags=found.tags,
        )
        for row in found.rows:
            for column, value in row.items():
                axis = found.axes.get(column)
                if axis is not None or column.endswith("-unstepped"):
                    at = None if axis is None else row.get(axis)
                    _show(shown, found, column, at, value, row.get("_timestamp"))
        for artifact in found.artifacts:
            if artifact.kind != "run_table":
                path = next(iter(artifact.files.values()), None)
                shown.artifacts[artifact.name] = None if path is None else path.read_bytes()
        return shown


def _own(found: OfflineRun) -> dict[str, Any]:
    """Return the summary without what W&B makes of the history's last values."""
    columns = {column for row in found.rows for column in row}
    return {k: v for k, v in found.summary.items() if k not in columns and k != "_wandb"}


def _show(
    shown: Shown, run: OfflineRun, column: str, at: Any, value: Any, wall: float | None
) -> None:
    kind = value.get("_type") if isinstance(value, dict) else None
    if kind == "html-file":
        text = text_of(run.media(value["path"]).decode())
        if column == "model_update":
            shown.model_updates.append(text)
        else:
            shown.texts.setdefault(column, []).append((at, text))
    elif kind == "image-file":
        shown.images.setdefault(column, []).append((at, run.media(value["path"])))
    elif kind == "images/separated":
        pictures = [(at, run.media(path)) for path in value["filenames"]]
        shown.images.setdefault(column, []).extend(pictures)
    elif kind == "histogram":
        shown.histograms.setdefault(column, []).append((at, value))
    elif kind == "table-file":
        table = json.loads(run.media(value["path"]))
        shown.tables.setdefault(column, []).append((at, table))
    elif isinstance(value, str):
        shown.texts.setdefault(column, []).append((at, value))
    else:
        shown.scalars.setdefault(column, []).append((at, value))
        if wall is not None:
            shown.wall_times.setdefault(column, []).append(wall)
