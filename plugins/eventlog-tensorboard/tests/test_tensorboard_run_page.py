"""Hyperparameters, status and summary of a run."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.metadata import (
    parse_session_end_info_plugin_data,
    parse_session_start_info_plugin_data,
)

from eventlog.events import (
    ConfigUpdated,
    Event,
    RunFinished,
    RunStarted,
    SummaryUpdated,
)
from eventlog.sinks.base import RunInfo
from eventlog_tensorboard import TensorBoardSink

WALL = 1_700_000_000_123_456_789


class Custom(Event, tag="tensorboard_custom", frozen=True, kw_only=True):
    """A user's own type, with a field that no sink knows."""

    path: str = ""


def opened(folder: Path, /, run: RunInfo | None = None, **options: Any) -> TensorBoardSink:
    sink = TensorBoardSink(dir=folder, **options)
    sink.open(run or RunInfo(run_id="r1", project="p", run_dir=folder))
    return sink


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE).Reload()


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    reader = read(folder)
    if tag not in reader.Tags()["scalars"]:
        return []
    return [(point.step, point.value) for point in reader.Scalars(tag)]


def texts(folder: Path, tag: str) -> list[str]:
    return [e.tensor_proto.string_val[0].decode() for e in read(folder).Tensors(tag)]


def float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def test_hparams_of_odd_shapes(tmp_path: Path) -> None:
    """Hyperparameters of any shape are in the HPARAMS tab, and whole in the text `config`."""
    config: dict[str, Any] = {
        "lr": 1e-3,
        "layers": 3,
        "amp": True,
        "name": "x" * 7000,
        "none": None,
        "list": [1, None, "a"],
        "empty": {},
        "opt": {"betas": [0.9, 0.999], "nested": {"eps": 1e-8}},
        "opt/betas": "taken",
        "nan": math.nan,
        "id": 2**60 + 1,
        "lone": "\udc80",
        **{f"k{i}": i for i in range(300)},
    }
    sink = opened(tmp_path, RunInfo(run_id="r1", name="n", config=config, tags=("a",)))
    sink.close("finished")
    reader = read(tmp_path)
    content = reader.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found: dict[str, Any] = {}
    for key, value in parse_session_start_info_plugin_data(content).hparams.items():
        found[key] = getattr(value, value.WhichOneof("kind"))
    assert {key: found.pop(key) for key in [f"k{i}" for i in range(300)]} == {
        f"k{i}": float(i) for i in range(300)
    }
    assert found == {
        "lr": 1e-3,
        "layers": 3.0,
        "amp": True,
        "name": "x" * 7000,
        "none": "None",
        "list": '[1, null, "a"]',
        "empty": "{}",
        "opt/betas": "[0.9, 0.999]",
        "opt/nested/eps": 1e-8,
        "opt/betas~2": "taken",
        "nan": "nan",
        "id": "1152921504606846977",
        "lone": "?",
    }
    text = texts(tmp_path, "config")[0]
    assert json.loads(text.removeprefix("```json\n").removesuffix("\n```"))["list"] == [
        1,
        None,
        "a",
    ]
    assert '"tags"' in texts(tmp_path, "run")[0]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("finished", "STATUS_SUCCESS"),
        ("failed", "STATUS_FAILURE"),
        ("killed", "STATUS_FAILURE"),
        ("interrupted", "STATUS_FAILURE"),
    ],
)
def test_the_status_is_shown(tmp_path: Path, status: Any, shown: str) -> None:
    """A run's end is in the HPARAMS tab and, with its error, in a text."""
    sink = opened(tmp_path)
    sink.write([RunFinished(status="failed", error="ValueError: no", wall=WALL, seq=0)])
    sink.close(status)
    content = read(tmp_path).SummaryMetadata("_hparams_/session_end_info").plugin_data.content
    info = parse_session_end_info_plugin_data(content)
    assert (info.status, info.end_time_secs) == (api_pb2.Status.Value(shown), WALL / 1e9)
    assert texts(tmp_path, "status") == [f"{status}: ValueError: no"]


def test_config_that_comes_later_and_a_resume(tmp_path: Path) -> None:
    """Later hyperparameters replace the row; a run that goes on is not ended any more."""
    sink = opened(tmp_path, RunInfo(run_id="r1", config={"lr": 0.1}))
    sink.write(
        [
            RunStarted(run_id="r1", config={"lr": 0.1}, wall=WALL, seq=0),
            ConfigUpdated(config={"warmup": 5}, wall=WALL, seq=1),
        ]
    )
    sink.close("failed")
    again = opened(tmp_path, RunInfo(run_id="r1", config={"lr": 0.1}, state=sink.state()))
    again.write([ConfigUpdated(config={"warmup": 7}, attempt=2, wall=WALL, seq=2)])
    again.flush()
    reader = read(tmp_path)
    content = reader.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    info = parse_session_start_info_plugin_data(content)
    assert {k: v.number_value for k, v in info.hparams.items()} == {"lr": 0.1, "warmup": 7.0}
    assert info.start_time_secs == WALL / 1e9
    assert "_hparams_/session_end_info" not in reader.Tags()["tensors"]


def test_without_hparams(tmp_path: Path) -> None:
    """The HPARAMS tab can be left alone."""
    sink = opened(tmp_path, RunInfo(run_id="r1", config={"lr": 0.1}), hparams=False)
    sink.close("finished")
    assert sorted(read(tmp_path).Tags()["tensors"]) == ["config", "run", "status"]


def test_summaries_are_metrics_and_a_text(tmp_path: Path) -> None:
    """Summary values are scalars in a folder of their own, and together a text."""
    sink = opened(tmp_path)
    sink.write(
        [
            SummaryUpdated(summary={"best": {"acc": 0.5}, "note": "x"}, step=3, wall=WALL, seq=0),
            SummaryUpdated(summary={"best": {"acc": 0.75}}, step=9, wall=WALL, seq=1),
            RunFinished(summary={"best": {"acc": 0.75}, "note": "x"}, step=9, wall=WALL, seq=2),
        ]
    )
    sink.close("finished")
    assert points(tmp_path / "summary", "best/acc") == [(3, 0.5), (9, 0.75)]
    first, last = texts(tmp_path / "summary", "summary")
    assert '"note": "x"' in first
    assert "0.75" in last
