"""Comet passes the tests that every sink must pass, read back from its offline archives."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Status
from eventlog.testing import FinishedRun, Shown, SinkConformance

SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class TestComet(SinkConformance):
    """All runs have their archives in one folder; those of a run share its experiment's key."""

    sink: ClassVar[str] = "comet"
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "finished",
        "failed": "failed",
        "interrupted": "interrupted",
        "killed": "killed",
    }
    outcomes: ClassVar[Path | None] = Path(__file__).with_name("outcomes.json")
    # the SDK imports them where they are installed
    shared_modules: ClassVar[frozenset[str]] = frozenset({"IPython", "matplotlib", "numpy"})
    tolerated: ClassVar[Mapping[str, str]] = {
        "sys.meta_path": "six, which the SDK needs, cannot be imported without its own importer",
    }

    def options(self, where: Path) -> dict[str, Any]:
        return {"dir": str(where / "comet")}

    def read(self, run: FinishedRun) -> Shown:
        shown = Shown()
        axes: dict[str, str] = {}
        for path in [*run.where.rglob("names.json"), *run.run_dir.rglob("names.json")]:
            axes |= {row["name"]: row["axis"] for row in json.loads(path.read_bytes())}
        found = (run.where / "comet").glob(f"{run.tracker_id}-*.zip")
        for archive in sorted(found, key=lambda path: path.stat().st_mtime_ns):
            with zipfile.ZipFile(archive) as file:
                shown.tags = json.loads(file.read("experiment.json"))["tags"] or shown.tags
                for line in file.read("messages.json").decode().splitlines():
                    message = json.loads(line)
                    _take(shown, message["type"], message["payload"], axes, file)
        return shown


def _take(
    shown: Shown, kind: str, payload: dict[str, Any], axes: dict[str, str], file: zipfile.ZipFile
) -> None:
    match kind:
        case "metric_msg":
            _take_point(shown, payload, axes)
        case "parameter_msg":
            shown.config[payload["param"]["paramName"]] = payload["param"]["paramValue"]
        case "log_other":
            _take_other(shown, payload["key"], payload["value"])
        case "file_upload":
            _take_file(shown, payload, file.read(payload["file_path"]))


def _take_point(shown: Shown, payload: dict[str, Any], axes: dict[str, str]) -> None:
    point = payload["metric"]
    name, value = point["metricName"], point["metricValue"]
    if name == "process duration":  # the SDK's own, at its end
        return
    at = point["epoch" if axes.get(name) == "epoch" else "step"]
    shown.scalars.setdefault(name, []).append((at, SPECIAL.get(value, value)))
    shown.wall_times.setdefault(name, []).append(payload["local_timestamp"] / 1000)


def _take_other(shown: Shown, key: str, value: Any) -> None:
    match key:
        case "Name":
            shown.name = value
        case "run/group":
            shown.group = value
        case "run/notes":
            shown.notes = value
        case "run/status":
            shown.status = value
        case _ if key.startswith("summary/"):
            shown.summary[key.removeprefix("summary/")] = value


def _take_file(shown: Shown, payload: dict[str, Any], data: bytes) -> None:
    about, facts = payload["additional_params"], payload["metadata"] or {}
    name, at = about.get("figName") or about["fileName"], about["step"]
    match payload["upload_type"]:
        case "text-sample" if facts["tag"] == "model_update":
            shown.model_updates.append(data.decode())
        case "text-sample":
            shown.texts.setdefault(facts["tag"], []).append((at, data.decode()))
        case "visualization":
            shown.images.setdefault(name, []).append((at, data))
        case "histogram3d":
            shown.histograms.setdefault(name, []).append((at, json.loads(data)))
        case "asset" if "tag" in facts:
            shown.tables.setdefault(name, []).append((at, data.decode()))
        case _ if name != "provenance.json":
            shown.artifacts[name] = data
