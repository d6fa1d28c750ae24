"""What is left after a kill, a full disk, or a second writer."""

from __future__ import annotations

import os
import signal
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
    Event,
    StepEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog_tensorboard import TensorBoardSink

WALL = 1_700_000_000_123_456_789


class Custom(Event, tag="tensorboard_custom_durable", frozen=True, kw_only=True):
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


def test_two_sinks_in_one_folder_and_second(tmp_path: Path) -> None:
    """Two writers that start in the same second lose nothing of each other's."""
    first, second = opened(tmp_path), opened(tmp_path)
    for i, sink in enumerate((first, second)):
        sink.write([StepEvent(step=i, values={"v": float(i)}, wall=WALL, seq=0)])
    for i, sink in enumerate((first, second)):
        sink.write([StepEvent(step=2 + i, values={"v": float(i)}, wall=WALL, seq=1)])
    assert sorted(step for step, _ in points(tmp_path, "v")) == [0, 1, 2, 3]


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_a_killed_process_loses_nothing_flushed(tmp_path: Path) -> None:
    """After SIGKILL all points that were flushed are there."""
    code = f"""
import os, signal
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_tensorboard import TensorBoardSink
sink = TensorBoardSink(dir={str(tmp_path)!r})
sink.open(RunInfo(run_id="r", config={{"lr": 0.1}}))
for i in range(0, 1000, 100):
    sink.write([StepEvent(step=s, values={{"v": float(s)}}, wall={WALL}, seq=s)
                for s in range(i, i + 100)])
sink.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert points(tmp_path, "v") == [(s, float(s)) for s in range(1000)]
    assert "config" in read(tmp_path).Tags()["tensors"]


def test_a_torn_last_record_is_readable(tmp_path: Path) -> None:
    """What comes before a record that was cut short is shown, as is what a later file holds."""
    sink = opened(tmp_path)
    sink.write([StepEvent(step=s, values={"v": 1.0}, wall=WALL, seq=s) for s in range(10)])
    sink.flush()
    (file,) = tmp_path.glob("*tfevents.1*")
    os.truncate(file, file.stat().st_size - 3)
    assert [step for step, _ in points(tmp_path, "v")] == list(range(9))
    again = opened(tmp_path)
    again.write([StepEvent(step=9, values={"v": 1.0}, wall=WALL, seq=9)])
    assert [step for step, _ in points(tmp_path, "v")] == list(range(10))


def test_a_batch_given_again_is_skipped(tmp_path: Path) -> None:
    """Events that were written are recognised, in the same process and in the next one."""
    events = [StepEvent(step=s, values={"v": 1.0}, wall=WALL, seq=s) for s in range(10)]
    sink = opened(tmp_path)
    sink.write(events[:6])
    sink.write(events[:8])
    sink.flush()
    again = opened(tmp_path, RunInfo(run_id="r1", state=sink.state()))
    again.write(events)
    again.close("finished")
    assert [step for step, _ in points(tmp_path, "v")] == list(range(10))
    assert again.state()["seq"] == 9


def test_a_full_disk_leaves_no_half_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one folder's file cannot be written, no folder keeps anything of the batch."""
    sink = opened(tmp_path)
    sink.write(
        [
            StepEvent(step=0, values={"v": 0.0}, wall=WALL, seq=0),
            BatchEvent(batch=0, values={"v": 0.0}, wall=WALL, seq=1),
        ]
    )
    batch = [
        StepEvent(step=1, values={"v": 1.0}, wall=WALL, seq=2),
        BatchEvent(batch=1, values={"v": 1.0}, wall=WALL, seq=3),
    ]
    write = os.write
    calls = 0

    def full(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            return write(fd, data[:5])
        if calls == 3:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        sink.write(batch)
    assert points(tmp_path, "v") == points(tmp_path / "batch", "v") == [(0, 0.0)]
    sink.write(batch)
    assert points(tmp_path, "v") == points(tmp_path / "batch", "v") == [(0, 0.0), (1, 1.0)]


def test_a_file_that_cannot_be_mended_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a torn write that cannot be cut off, the next batch goes to a new file."""
    sink = opened(tmp_path)
    sink.write([StepEvent(step=0, values={"v": 0.0}, wall=WALL, seq=0)])
    write = os.write
    with monkeypatch.context() as patch:

        def torn(fd: int, data: bytes) -> int:
            write(fd, data[:9])
            raise OSError(5, "Input/output error")

        def stuck(fd: int, size: int) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr(os, "write", torn)
        patch.setattr(os, "ftruncate", stuck)
        with pytest.raises(OSError, match="Input"):
            sink.write([StepEvent(step=1, values={"v": 1.0}, wall=WALL, seq=1)])
    sink.write([StepEvent(step=1, values={"v": 1.0}, wall=WALL, seq=1)])
    assert points(tmp_path, "v") == [(0, 0.0), (1, 1.0)]
