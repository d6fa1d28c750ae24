"""The published tests of every sink, for MLflow with a SQLite store."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Status
from eventlog.testing.conformance import SinkConformance
from eventlog.testing.shown import FinishedRun, Shown

_PLACE = re.compile(r"(.+)_(-?\d{8,})_\d+--?\d+$")
_IMAGE = re.compile(r"images/(.+)\+step\+(-?\d+)\+timestamp\+\d+\+[0-9a-f-]+\.png$")


class TestMlflowConformance(SinkConformance):
    sink = "mlflow"
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "FINISHED",
        "failed": "FAILED",
        "interrupted": "KILLED",
        "killed": "KILLED",
    }
    outcomes = Path(__file__).with_name("outcomes.json")
    # MLflow imports them itself
    shared_modules = frozenset({"pandas", "sklearn", "matplotlib"})
    tolerated: ClassVar[Mapping[str, str]] = {
        "sys.meta_path": "six and importlib_metadata, which MLflow imports, add a finder each",
    }

    def options(self, where: Path) -> dict[str, Any]:
        where.mkdir(parents=True, exist_ok=True)
        template = os.environ.get("EVENTLOG_TEST_MLFLOW_DATABASE")
        if template and not (where / "mlflow.db").exists():
            shutil.copy(template, where / "mlflow.db")
        return {"dir": str(where)}

    def read(self, run: FinishedRun) -> Shown:
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{run.where / 'mlflow.db'}")
        assert run.tracker_id is not None
        return _read(client, run.tracker_id)


def _read(client: Any, run_id: str) -> Shown:
    found = client.get_run(run_id)
    data, shown = found.data, Shown()
    for key in data.metrics:
        history = client.get_metric_history(run_id, key)
        points = [(m.step, m.value) for m in history]
        if key.startswith("summary/"):
            shown.summary[key.removeprefix("summary/")] = points[-1][1]
            continue
        shown.scalars[key] = points
        shown.wall_times[key] = [m.timestamp / 1000 for m in history]
    tags = {k: v for k, v in data.tags.items() if not k.startswith(("mlflow.", "eventlog."))}
    shown.config = dict(data.params)
    shown.config |= {k[7:]: v for k, v in tags.items() if k.startswith("config/")}
    shown.summary |= {k[8:]: v for k, v in tags.items() if k.startswith("summary/")}
    shown.tags = sorted(key for key, value in tags.items() if value == "true")
    shown.group = tags.get("group")
    shown.notes = data.tags.get("mlflow.note.content")
    shown.error = data.tags.get("eventlog.error")
    shown.status, shown.name = found.info.status, found.info.run_name
    _read_files(client, run_id, shown)
    return shown


def _read_files(client: Any, run_id: str, shown: Shown) -> None:
    by_kind: dict[str, Any] = {
        "texts": shown.texts,
        "figures": shown.figures,
        "histograms": shown.histograms,
        "tables": shown.tables,
        "events": defaultdict(list),
    }
    for path in sorted(_files(client, run_id, None)):
        local = Path(client.download_artifacts(run_id, path))
        kind, _, rest = path.partition("/")
        name, _, file = rest.rpartition("/")
        place = _PLACE.match(Path(file).stem)
        at = int(place[2]) if place else None
        if image := _IMAGE.match(path):
            points = shown.images.setdefault(image[1], [])
            points.append((int(image[2]), local.read_bytes()))
        elif kind == "artifacts":
            shown.artifacts[name] = local.read_bytes()
        elif kind == "model_updates":
            shown.model_updates.append(local.read_text())
        elif kind == "strings":
            for line in map(json.loads, local.read_text().splitlines()):
                shown.texts.setdefault(name, []).append((line["at"], line["text"]))
        elif kind in by_kind:
            what = local.read_bytes() if kind == "figures" else local.read_text()
            by_kind[kind].setdefault(name, []).append((at, what))
    shown.texts |= by_kind["events"]


def _files(client: Any, run_id: str, folder: str | None) -> Iterator[str]:
    for info in client.list_artifacts(run_id, folder):
        if info.is_dir:
            yield from _files(client, run_id, info.path)
        else:
            yield info.path
