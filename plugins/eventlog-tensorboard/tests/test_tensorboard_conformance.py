"""TensorBoard passes the tests that every sink must pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.metadata import (
    parse_session_end_info_plugin_data,
    parse_session_start_info_plugin_data,
)
from tensorboard.util import tensor_util

from eventlog.events import Status
from eventlog.testing import FinishedRun, Shown, SinkConformance

_START, _END = "_hparams_/session_start_info", "_hparams_/session_end_info"


class TestTensorBoard(SinkConformance):
    """Read back with the server's own reader."""

    sink: ClassVar[str] = "tensorboard"
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "STATUS_SUCCESS: finished",
        "failed": "STATUS_FAILURE: failed",
        "interrupted": "STATUS_FAILURE: interrupted",
        "killed": "STATUS_FAILURE: killed",
    }
    outcomes: ClassVar[Path | None] = Path(__file__).with_name("outcomes.json")
    float32: ClassVar[bool] = True
    shared_modules: ClassVar[frozenset[str]] = frozenset({"google_crc32c"})  # one C function

    def options(self, where: Path) -> dict[str, Any]:
        return {"dir": str(where / "tb" / "{run_id}")}

    def read(self, run: FinishedRun) -> Shown:
        assert run.url is not None
        root, shown = Path(run.url), Shown()
        for folder in sorted({p.parent for p in root.rglob("*tfevents*")}):
            axis = folder.relative_to(root).as_posix()
            reader = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
            for tag in reader.Tags()["tensors"]:
                _take(shown, reader, tag, "" if axis == "." else axis)
        # the HPARAMS tab knows two words, and a text says the rest
        if shown.status is not None:
            word, _, error = shown.texts.pop("status")[-1][1].partition(": ")
            shown.status, shown.error = f"{shown.status}: {word}", error or None
        return shown


def _take(shown: Shown, reader: EventAccumulator, tag: str, axis: str) -> None:
    metadata = reader.SummaryMetadata(tag)
    plugin = metadata.plugin_data.plugin_name
    if plugin == "hparams":
        _take_hparams(shown, tag, metadata.plugin_data.content)
        return
    name = f"{tag} by {axis}" if axis else tag
    points = [
        (point.step, point.wall_time, tensor_util.make_ndarray(point.tensor_proto))
        for point in reader.Tensors(tag)
    ]
    if plugin == "scalars":
        if axis == "summary":
            shown.summary[tag] = points[-1][2].item()
            return
        shown.scalars[name] = [(step, value.item()) for step, _, value in points]
        shown.wall_times[name] = [wall for _, wall, _ in points]
    elif plugin == "images":
        shown.images[name] = [(step, png) for step, _, value in points for png in value[2:]]
    elif plugin == "histograms":
        shown.histograms[name] = [(step, value.tolist()) for step, _, value in points]
    elif plugin == "text":
        _take_texts(shown, name, [(s, value.item().decode()) for s, _, value in points], axis)


def _take_texts(shown: Shown, name: str, points: list[tuple[int, str]], axis: str) -> None:
    text = points[-1][1]
    if name == "run":
        page = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
        shown.name, shown.group = page.get("name"), page.get("group")
        shown.notes, shown.tags = page.get("notes"), page.get("tags", [])
    elif axis == "summary":
        whole = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
        shown.summary |= {k: v for k, v in whole.items() if isinstance(v, str)}
    elif name == "model_update":
        shown.model_updates = [text for _, text in points]
    elif name.startswith("artifact/"):
        shown.artifacts[name] = None
    elif text.startswith("| "):
        shown.tables[name] = list(points)
    elif name != "config":
        shown.texts[name] = list(points)


def _take_hparams(shown: Shown, tag: str, content: bytes) -> None:
    if tag == _START:
        for key, value in parse_session_start_info_plugin_data(content).hparams.items():
            shown.config[key] = getattr(value, value.WhichOneof("kind"))
    elif tag == _END:
        shown.status = api_pb2.Status.Name(parse_session_end_info_plugin_data(content).status)
