"""The sink passes the tests that every sink must pass: its files are read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Status
from eventlog.sinks.plain import flatten
from eventlog.testing import FinishedRun, Shown, SinkConformance


class TestJsonl(SinkConformance):
    """Read back as a user's script would."""

    sink: ClassVar[str] = "jsonl"
    # the tracker's own word for each of eventlog's; here they are the same
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "finished",
        "failed": "failed",
        "interrupted": "interrupted",
        "killed": "killed",
    }
    outcomes: ClassVar[Path | None] = Path(__file__).with_name("outcomes.json")

    def options(self, where: Path) -> dict[str, Any]:
        return {"dir": str(where / "jsonl")}

    def read(self, run: FinishedRun) -> Shown:
        assert run.url is not None
        folder, shown = Path(run.url), Shown()
        page = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        shown.status, shown.name = page["status"], page["name"]
        shown.error = page.get("error")
        shown.group, shown.notes, shown.tags = page["group"], page["notes"], page["tags"]
        shown.config, shown.summary = (
            flatten(page.get("config", {})),
            flatten(page.get("summary", {})),
        )
        for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines():
            take(shown, json.loads(line), folder / "files")
        return shown


def take(shown: Shown, line: dict[str, Any], files: Path) -> None:
    """Put one line where it belongs."""
    key, at, value = line["key"], line["at"], line["value"]
    # a key can be used on several axes, each of which has a curve of its own
    name = key if line["axis"] == "step" else f"{key} by {line['axis']}"
    if line["kind"] == "number":
        shown.scalars.setdefault(name, []).append((at, number(value)))
        shown.wall_times.setdefault(name, []).append(line["wall_time"])
    elif line["kind"] == "text":
        shown.texts.setdefault(name, []).append((at, value))
    elif line["kind"] == "image":
        shown.images.setdefault(name, []).append((at, (files / value).read_bytes()))
    else:
        shown.artifacts[key] = None if value is None else (files / value).read_bytes()


def number(value: float | str) -> float:
    """Return a number; those that JSON has no word for are texts."""
    return float(value) if isinstance(value, str) else value
