"""The conformance tests, offline: what is read back is what ClearML would import."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from eventlog.testing.conformance import SinkConformance
from eventlog.testing.shown import FinishedRun, Shown

_LINE = re.compile(r"(?s)(.*?)(?: \[(\w+) (-?[\d.]+)\])?:[ \n](.*)")
_SINGLE_VALUE = -(2**31)


class TestClearml(SinkConformance):
    """Each run is a folder that `Task.import_offline_session` takes."""

    sink = "clearml"
    statuses: ClassVar = {
        "finished": "completed",
        "failed": "failed",
        "interrupted": "stopped",
        "killed": "failed",
    }
    outcomes = Path(__file__).with_name("outcomes.json")
    # the SDK imports numpy always, and these where they are installed
    shared_modules = frozenset({"numpy", "pandas", "PIL", "pyarrow"})
    tolerated: ClassVar = {"sys.meta_path": "six, which the SDK needs, finds six.moves by it"}

    def options(self, where: Path) -> dict[str, Any]:
        """Return options for the offline mode."""
        return {"offline": True, "dir": where / "clearml"}

    def read(self, run: FinishedRun) -> Shown:
        """Read the folder, an event with the same place replacing the former one."""
        assert run.url is not None
        folder = Path(run.url)
        task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        params = task["hyperparams"]
        properties = {key: item["value"] for key, item in params["properties"].items()}
        shown = Shown(
            config={key: item["value"] for key, item in params.get("General", {}).items()},
            status=task["status"],
            name=task["name"],
            notes=task.get("comment"),
            group=properties.get("group"),
            tags=task.get("tags", []),
        )
        for key, value in properties.items():
            if key.startswith("summary/"):
                shown.summary[key.removeprefix("summary/")] = value
        for artifact in task["execution"]["artifacts"]:
            shown.artifacts[artifact["key"]] = Path(artifact["uri"]).read_bytes()
        last = {
            (event["type"], event["metric"], event["variant"], event["iter"]): event
            for event in _events(folder / "metrics.jsonl")
        }
        for event in last.values():
            _show(shown, event)
        for event in _events(folder / "log.jsonl"):
            match = _LINE.fullmatch(event["msg"])
            assert match is not None
            tag, _, at, text = match.groups()
            place = None if at is None else int(float(at))
            shown.texts.setdefault(tag, []).append((place, text))
        return shown


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from json.loads(line)


def _show(shown: Shown, event: dict[str, Any]) -> None:
    title, series, at = event["metric"], event["variant"], event["iter"]
    name = series if title == series else f"{series}/{title}"
    if event["type"] == "training_stats_scalar":
        if at == _SINGLE_VALUE:
            shown.summary[series] = event["value"]
        else:
            shown.scalars.setdefault(name, []).append((at, event["value"]))
            shown.wall_times.setdefault(name, []).append(event["timestamp"] / 1000)
    elif event["type"] == "training_debug_image":
        shown.images.setdefault(name, []).append((at, Path(event["url"]).read_bytes()))
    else:
        plot = json.loads(event["plot_str"])
        pictures = plot["layout"].get("images")
        if pictures:
            content = Path(pictures[0]["source"]).read_bytes()
            shown.figures.setdefault(name, []).append((at, content))
        elif plot["data"][0]["type"] == "table":
            shown.tables.setdefault(name, []).append((at, json.dumps(plot["data"])))
        else:
            shown.histograms.setdefault(name, []).append((at, plot["data"][0]))
