"""What the sink writes, read back with TensorBoard's own readers."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)

from eventlog.events import (
    BatchEvent,
    EpochEvent,
    Event,
    StepEvent,
    UnknownEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog_tensorboard import TensorBoardSink

WALL = 1_700_000_000_123_456_789


class Custom(Event, tag="tensorboard_custom_sink", frozen=True, kw_only=True):
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


def test_value_step_and_wall_time_arrive(tmp_path: Path) -> None:
    """Each point has the value, in 32 bits, the step and the wall time that were emitted."""
    sink = opened(tmp_path)
    events = [
        StepEvent(step=s, values={"loss": 1 / (s + 1), "n": s}, wall=WALL + s * 10**9, seq=s)
        for s in range(100)
    ]
    sink.write(events[:37])
    sink.write(events[37:])
    sink.flush()
    found = read(tmp_path).Scalars("loss")
    assert [(p.step, p.value, p.wall_time) for p in found] == [
        (e.step, float32(1 / (e.step + 1)), e.wall_time) for e in events if e.step is not None
    ]
    assert points(tmp_path, "n") == [(s, float(s)) for s in range(100)]
    assert sink.unshown == {}


def test_odd_values_arrive_or_are_counted(tmp_path: Path) -> None:
    """NaN, infinities and bools stay what they are; what is beyond 32 bits is counted."""
    sink = opened(tmp_path)
    values = {
        "nan": math.nan,
        "inf": math.inf,
        "true": True,
        "big": 1e300,
        "bigger": -(10**400),
        "nothing": None,
    }
    sink.write([StepEvent(step=1, values=values, wall=WALL, seq=0)])  # type: ignore[arg-type]
    sink.close("finished")
    found = {tag: points(tmp_path, tag)[0][1] for tag in read(tmp_path).Tags()["scalars"]}
    assert math.isnan(found.pop("nan"))
    assert found == {"inf": math.inf, "true": 1.0, "big": math.inf, "bigger": -math.inf}
    assert sink.unshown == {
        "value beyond float32: shown as infinity": 2,
        "value that is neither a number nor a string": 1,
    }


def test_strings_are_texts_of_their_name(tmp_path: Path) -> None:
    """A value that is a string goes to the TEXT tab, at its step."""
    sink = opened(tmp_path)
    sink.write([StepEvent(step=7, values={"phase": "warmup", "x": 1.0}, wall=WALL, seq=0)])
    assert texts(tmp_path, "phase") == ["warmup"]
    assert read(tmp_path).Tensors("phase")[0].step == 7
    assert points(tmp_path, "x") == [(7, 1.0)]


def test_names_never_collide(tmp_path: Path) -> None:
    """One name for two kinds of value, odd names and names of ours all have their own tag."""
    sink = opened(tmp_path)
    keys = ["x", "x/text", "", "status", "_hparams_/session_start_info", "a b\n|", "\udc80", "?"]
    values: dict[str, Any] = {key: float(i) for i, key in enumerate(keys)}
    sink.write([StepEvent(step=0, values=values, wall=WALL, seq=0)])
    sink.write([StepEvent(step=1, values={"x": "word"}, wall=WALL, seq=1)])
    sink.close("finished")
    reader = read(tmp_path)
    found = sorted(reader.Scalars(tag)[0].value for tag in reader.Tags()["scalars"])
    assert found == [float(i) for i in range(len(keys))]
    assert texts(tmp_path, "x/text~2") == ["word"]
    assert texts(tmp_path, "status") == ["finished"]
    assert points(tmp_path, "x") == [(0, 0.0)]


def test_each_axis_has_its_folder(tmp_path: Path) -> None:
    """Steps, batches, whole epochs and named axes are shown on axes of their own."""
    sink = opened(tmp_path)
    at: dict[str, Any] = {"step": 10, "batch": 40, "wall": WALL}
    sink.write(
        [
            StepEvent(**at, epoch=2, values={"v": 1.0}, seq=0),
            BatchEvent(**at, epoch=2, values={"v": 2.0}, seq=1),
            EpochEvent(**at, epoch=2, values={"v": 3.0}, seq=2),
            EpochEvent(**at, epoch=3.0, values={"v": 4.0}, seq=3),
            EpochEvent(**at, epoch=3.5, values={"half": 5.0}, seq=4),
            StepEvent(**at, axis="val_step", values={"v": 6.0}, seq=5),
            StepEvent(**at, axis="epoch", values={"v": 7.0}, seq=6),
            StepEvent(**at, axis="../a/b", values={"v": 8.0}, seq=7),
            StepEvent(**at, axis="", values={"v": 9.0}, seq=8),
        ]
    )
    sink.close("finished")
    assert points(tmp_path, "v") == [(10, 1.0)]
    assert points(tmp_path, "half") == [(10, 5.0)]
    assert points(tmp_path / "batch", "v") == [(40, 2.0)]
    assert points(tmp_path / "epoch", "v") == [(2, 3.0), (3, 4.0)]
    assert points(tmp_path / "val_step", "v") == [(10, 6.0)]
    assert points(tmp_path / "epoch~axis", "v") == [(10, 7.0)]
    assert points(tmp_path / "%2E.%2Fa%2Fb", "v") == [(10, 8.0)]
    assert points(tmp_path / "%", "v") == [(10, 9.0)]


def test_a_missing_step_is_replaced(tmp_path: Path) -> None:
    """Without a step the batch, the epoch, and at last a counter of the tag take its place."""
    sink = opened(tmp_path)
    sink.write(
        [
            StepEvent(batch=4, values={"v": 1.0}, wall=WALL, seq=0),
            StepEvent(epoch=5, values={"v": 2.0}, wall=WALL, seq=1),
            StepEvent(step=2**70, batch=6, values={"v": 3.0}, wall=WALL, seq=2),
            *(StepEvent(values={"v": 4.0 + i, "w": "a"}, wall=WALL, seq=3 + i) for i in range(3)),
        ]
    )
    assert points(tmp_path / "batch", "v") == [(4, 1.0), (6, 3.0)]
    assert points(tmp_path / "epoch", "v") == [(5, 2.0)]
    assert points(tmp_path / "unstepped", "v") == [(0, 4.0), (1, 5.0), (2, 6.0)]
    assert sink.unshown == {
        "no axis: steps counted up": 6,
        "step outside int64: shown elsewhere": 1,
    }
    again = opened(tmp_path, RunInfo(run_id="r1", state=sink.state()))
    again.write([StepEvent(values={"v": 9.0}, wall=WALL, seq=6)])
    assert points(tmp_path / "unstepped", "v")[-1] == (3, 9.0)


def test_negative_and_extreme_steps_arrive(tmp_path: Path) -> None:
    """Every int64 is a step."""
    sink = opened(tmp_path)
    steps = [-(2**63), -1, 0, 2**63 - 1]
    sink.write(
        [StepEvent(step=s, values={"v": 1.0}, wall=WALL, seq=i) for i, s in enumerate(steps)]
    )
    assert [step for step, _ in points(tmp_path, "v")] == steps


def test_neither_torch_nor_tensorflow_is_imported(tmp_path: Path) -> None:
    """The protobufs come when the sink is opened, and nothing heavy comes with them."""
    code = f"""
import sys
import eventlog_tensorboard
assert not any(name.startswith("tensorboard") for name in sys.modules), "eager"
from eventlog.events import *
from eventlog.sinks.base import RunInfo
sink = eventlog_tensorboard.TensorBoardSink(dir={str(tmp_path)!r})
sink.open(RunInfo(run_id="r", config={{"lr": 0.1}}))
sink.write([StepEvent(step=0, values={{"v": 1.0, "t": "x"}}, wall={WALL}, seq=0)])
sink.close("finished")
heavy = {{"torch", "tensorflow", "numpy", "tensorboard.compat.tensorflow_stub"}} & set(sys.modules)
assert not heavy, heavy
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_events_of_other_types_show_their_values(tmp_path: Path) -> None:
    """Values of a user's or an unknown event are shown; what else they hold is counted."""
    sink = opened(tmp_path)
    sink.write(
        [
            Custom(step=1, values={"a": 1.0}, path="x", wall=WALL, seq=0),
            UnknownEvent(step=2, values={"a": 2.0}, type_name="new", wall=WALL, seq=1),
        ]
    )
    assert points(tmp_path, "a") == [(1, 1.0), (2, 2.0)]
    assert sum(sink.unshown.values()) == 2


def test_where_the_files_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is the one that was asked for, eventlog's, or one below the current folder."""
    monkeypatch.chdir(tmp_path)
    run = RunInfo(run_id="r/1", project="p", name="n", directory=tmp_path / "sinks" / "tb")
    cases = [
        (TensorBoardSink(dir="out/{project}-{run_id}"), run, tmp_path / "out" / "p-r%2F1"),
        (TensorBoardSink(), run, tmp_path / "sinks" / "tb"),
        (TensorBoardSink(), RunInfo(run_id="r", project="p"), tmp_path / "tensorboard/p/r"),
        (TensorBoardSink(), RunInfo(run_id="r", rank=3), tmp_path / "tensorboard/r/rank3"),
    ]
    for sink, info, folder in cases:
        sink.open(info)
        sink.close("finished")
        assert sink.url == str(folder)
        assert list(folder.glob("*tfevents*"))
    assert TensorBoardSink(dir="x").target() == str(tmp_path / "x")


def test_misuse_is_named(tmp_path: Path) -> None:
    """A suffix that TensorBoard does not read, and writing before opening, raise."""
    with pytest.raises(ValueError, match="filename_suffix must"):
        TensorBoardSink(filename_suffix=".profile-empty")
    sink = TensorBoardSink(dir=tmp_path, filename_suffix=".mine")
    sink.close("finished")
    assert sink.state() == {}
    with pytest.raises(RuntimeError, match="must be open"):
        sink.write([StepEvent(seq=0)])
    sink.open(RunInfo(run_id="r"))
    sink.write([StepEvent(step=0, values={"v": 1.0}, wall=WALL, seq=0)])
    sink.close("finished")
    sink.close("finished")
    assert list(tmp_path.glob("*.mine"))
