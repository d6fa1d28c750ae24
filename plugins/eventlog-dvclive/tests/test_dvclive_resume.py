"""What becomes of rows when a run is killed, resumed, fails to write, or goes back."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dvclive import utils

from eventlog.events import (
    BatchEvent,
    EpochEvent,
    Event,
    ImageEvent,
    Rewound,
    RunStarted,
    Scalar,
    StepEvent,
    TextEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog_dvclive import DvcliveSink, curves

WALL = 1_700_000_000_000_000_000
MS = 1_000_000
SDK: Any = utils


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVCLive looks for repositories where the process is."""
    monkeypatch.chdir(tmp_path)


def opened(folder: Path, /, **run: Any) -> DvcliveSink:
    sink = DvcliveSink(dir=folder)
    sink.open(RunInfo(**({"run_id": "r1"} | run)))
    return sink


def points(folder: Path, name: str = "v") -> list[tuple[int, float]]:
    path = folder / "plots" / "metrics" / f"{name}.tsv"
    if not path.exists():
        return []
    return [(int(row["step"]), float(row[name])) for row in SDK.parse_tsv(path)]


def steps(values: range, attempt: int = 1, seq: int | None = None, **more: Any) -> list[Event]:
    first = values.start if seq is None else seq
    return [
        StepEvent(
            step=s,
            values={"v": float(attempt), "w": s},
            attempt=attempt,
            wall=WALL + (first + i) * MS,
            seq=first + i,
            **more,
        )
        for i, s in enumerate(values)
    ]


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    """After write() has returned, SIGKILL takes no row, and the next process goes on."""
    code = f"""
import os, signal, sys
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_dvclive import DvcliveSink
sink = DvcliveSink(dir={str(tmp_path / "run")!r})
sink.open(RunInfo(run_id="r1"))
for step in range(100):
    sink.write([StepEvent(step=step, values={{"v": 1.0}}, wall={WALL} + step * {MS}, seq=step)])
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == -signal.SIGKILL
    folder = tmp_path / "run"
    assert points(folder) == [(s, 1.0) for s in range(100)]
    # what was confirmed last is older than what is there
    again = opened(folder, state={"run_id": "r1", "attempt": 1, "seq": 39})
    again.write(steps(range(40, 110)))
    again.close("finished")
    assert points(folder) == [(s, 1.0) for s in range(110)]
    assert SDK.parse_json(folder / "metrics.json") == {"v": 1.0, "w": 109, "step": 109}


@pytest.mark.parametrize("torn", [b"17000", b"1700000000010\t10\t1.", b"1700000000010\t10\t1.0"])
def test_half_a_row_is_mended(tmp_path: Path, torn: bytes) -> None:
    """A row that a killed process wrote in part is cut off before others follow."""
    sink = opened(tmp_path)
    sink.write(steps(range(10)))
    sink.flush()
    path = tmp_path / "plots" / "metrics" / "v.tsv"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    again = opened(tmp_path, state=sink.state())
    assert path.read_bytes() == whole
    again.write(steps(range(10, 12)))
    assert points(tmp_path) == [(s, 1.0) for s in range(12)]


def test_half_a_header_and_damaged_files_are_mended(tmp_path: Path) -> None:
    """DVCLive cannot go on with half of a metrics.json or params.yaml; the sink can."""
    sink = opened(tmp_path, config={"lr": 0.1})
    sink.write(steps(range(10)))
    sink.flush()
    (tmp_path / "metrics.json").write_text('{"v": ')
    (tmp_path / "params.yaml").write_text("lr: [")
    (tmp_path / "plots" / "metrics" / "w.tsv").write_text("timest")
    again = opened(tmp_path, config={"lr": 0.1}, state=sink.state())
    again.write(steps(range(10, 11)))
    again.close("finished")
    assert points(tmp_path, "w") == [(10, 10.0)]
    assert SDK.parse_json(tmp_path / "metrics.json") == {"v": 1.0, "w": 10, "step": 10}
    assert (tmp_path / "params.yaml").read_text() == "lr: 0.1\n"
    assert sum(again.unshown.values()) == 2


def test_a_batch_that_failed_comes_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full after the first file, or in mid-row, leaves no row twice."""
    sink = opened(tmp_path)
    sink.write(steps(range(5)))
    real, calls = os.write, 0

    def write(descriptor: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            return real(descriptor, bytes(data)[:7])
        if calls == 3:
            raise OSError(errno.ENOSPC, "no space")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    for _ in range(2):
        calls = 0
        with pytest.raises(OSError, match="no space"):
            sink.write(steps(range(5, 10)))
        assert points(tmp_path, "w") == [(s, float(s)) for s in range(5)]
    monkeypatch.undo()
    sink.write(steps(range(5, 10)))
    assert points(tmp_path) == [(s, 1.0) for s in range(10)]
    assert points(tmp_path, "w") == [(s, float(s)) for s in range(10)]


def test_a_rewind_takes_what_is_void_on_each_axis(tmp_path: Path) -> None:
    """Steps, batches and epochs go back where the rewind says so, named axes and the rest stay."""
    value: dict[str, Scalar] = {"v": 1.0}
    events: list[Event] = []
    for s in range(10):
        for kind, axes in (
            (StepEvent, {"step": s}),
            (BatchEvent, {"batch": 2 * s}),
            (EpochEvent, {"epoch": s}),
            (StepEvent, {"step": s, "axis": "val"}),
        ):
            events.append(kind(values=value, wall=WALL + len(events) * MS, seq=len(events), **axes))
    sink = opened(tmp_path)
    sink.write(events)
    last = len(events)
    sink.write([Rewound(to_step=6, batch=12, epoch=2.5, attempt=2, wall=WALL, seq=last)])
    assert points(tmp_path) == [(s, 1.0) for s in range(7)]
    new: dict[str, Scalar] = {"v": 2.0}
    wall = WALL + 1000 * MS
    sink.write(
        [
            StepEvent(step=6, values=new, attempt=2, wall=wall, seq=last + 1),
            BatchEvent(batch=13, values=new, attempt=2, wall=wall, seq=last + 2),
            EpochEvent(epoch=2, values=new, attempt=2, wall=wall, seq=last + 3),
        ]
    )
    sink.flush()
    assert points(tmp_path) == [*((s, 1.0) for s in range(6)), (6, 2.0)]
    found = {
        name: [(int(r["step"]), float(r[name])) for r in SDK.parse_tsv(path)]
        for name in ("v_batch", "v_epoch", "v_val")
        if (path := tmp_path / "plots" / "metrics" / f"{name}.tsv")
    }
    assert found == {
        # the batch at the very place stays: training went on with the next one
        "v_batch": [*((2 * s, 1.0) for s in range(7)), (13, 2.0)],
        "v_epoch": [(0, 1.0), (1, 1.0), (2, 2.0)],
        "v_val": [(s, 1.0) for s in range(10)],
    }
    assert sink.unshown == {}


def test_a_rewind_to_the_start_leaves_no_trace(tmp_path: Path) -> None:
    """A metric that is not logged again is neither among the plots nor in metrics.json."""
    sink = opened(tmp_path)
    sink.write([*steps(range(3)), StepEvent(step=3, values={"x/y": 1}, wall=WALL, seq=3)])
    sink.flush()
    sink.write([Rewound(to_step=0, attempt=2, wall=WALL, seq=4), *steps(range(1), 2, 5)])
    sink.flush()
    assert SDK.parse_json(tmp_path / "metrics.json") == {"v": 2.0, "w": 0, "step": 0}
    assert not (tmp_path / "plots" / "metrics" / "x" / "y.tsv").exists()


def test_a_rewind_within_a_batch_that_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows before and after a rewind, in a batch that fails at first, are there once."""
    sink = opened(tmp_path)
    sink.write(steps(range(6)))
    batch: list[Event] = [
        *steps(range(6, 9)),
        Rewound(to_step=7, attempt=2, wall=WALL + 9 * MS, seq=9),
        *steps(range(7, 9), 2, 10),
        Rewound(to_step=8, attempt=3, wall=WALL + 12 * MS, seq=12),
        *steps(range(8, 10), 3, 13),
    ]
    monkeypatch.setattr(curves, "_open", _raise)
    with pytest.raises(OSError, match="broken"):
        sink.write(batch)
    monkeypatch.undo()
    sink.write(batch)
    expected = [*((s, 1.0) for s in range(7)), (7, 2.0), (8, 3.0), (9, 3.0)]
    assert points(tmp_path) == expected
    assert points(tmp_path, "w") == [(s, float(s)) for s in range(10)]


def _raise(path: Path) -> int:
    raise OSError(errno.EIO, "broken")


@pytest.mark.parametrize("confirmed", range(20))
def test_a_rewound_run_that_is_killed_anywhere(tmp_path: Path, confirmed: int) -> None:
    """Whatever was confirmed when it died, all that comes again is there once."""
    events: list[Event] = [
        RunStarted(run_id="r1", wall=WALL, seq=0),
        *steps(range(10), 1, 1),
        Rewound(to_step=5, attempt=2, wall=WALL + 11 * MS, seq=11),
        *steps(range(5, 13), 2, 12),
    ]
    sink = opened(tmp_path)
    for event in events:
        sink.write([event])
    attempt = events[confirmed].attempt
    state = {"run_id": "r1", "attempt": attempt, "seq": confirmed}
    again = opened(tmp_path, state=state)
    for event in events[confirmed + 1 :]:
        again.write([event])
    again.close("finished")
    assert points(tmp_path) == [*((s, 1.0) for s in range(5)), *((s, 2.0) for s in range(5, 13))]


def test_a_rewind_outlives_the_process(tmp_path: Path) -> None:
    """What the first point after a rewind decides is kept in a small state."""
    sink = opened(tmp_path)
    sink.write([*steps(range(10)), Rewound(to_step=5, attempt=2, wall=WALL, seq=10)])
    state = sink.state()
    assert len(msgspec.msgpack.encode(state)) < 200
    again = opened(tmp_path, state=state, attempt=2)
    again.write(steps(range(5, 7), 2, 11))
    again.close("finished")
    assert points(tmp_path) == [*((s, 1.0) for s in range(5)), (5, 2.0), (6, 2.0)]


def test_an_axis_that_goes_back_by_itself_is_spared(tmp_path: Path) -> None:
    """Batches that are counted anew in each epoch lose nothing to a rewind, and no step is lost."""
    sink = opened(tmp_path)
    sink.write(
        [
            BatchEvent(batch=b, values={"v": 1.0}, wall=WALL + b * MS, seq=10 * e + b)
            for e in range(3)
            for b in range(10)
        ]
    )
    again = opened(tmp_path, state=sink.state())
    again.write([Rewound(to_step=0, batch=5, attempt=2, wall=WALL, seq=30)])
    again.write([BatchEvent(batch=5, values={"v": 2.0}, attempt=2, wall=WALL + MS, seq=31)])
    assert len(points(tmp_path)) == 31
    assert again.unshown == {"rewind of the axis 'batch', which goes back by itself": 1}


def test_media_of_a_void_attempt_go(tmp_path: Path) -> None:
    """Images and texts that a rewind made void are removed, those at other steps are not."""
    digest, data = "0" * 64, b"bytes"
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / digest).write_bytes(data)
    blob = {"sha256": digest, "size": len(data), "mime": "image/png"}
    sink = opened(tmp_path / "out", run_dir=tmp_path)

    def event(kind: type[Event], step: int, seq: int, attempt: int = 1, **more: Any) -> Event:
        fields = {"tag": "a/b", "step": step, "wall": WALL, "seq": seq, "attempt": attempt} | more
        return msgspec.convert({"type": kind.__struct_config__.tag} | fields, kind)

    for step in range(4):
        sink.write(
            [
                event(TextEvent, step, 2 * step, text="old"),
                event(ImageEvent, step, 2 * step + 1, blobs=[blob]),
            ]
        )
    sink.write([Rewound(to_step=2, attempt=2, wall=WALL, seq=8)])
    sink.write([event(TextEvent, 2, 9, 2, text="new"), event(TextEvent, 2, 10, 2, text="newer")])
    texts = {p.name: p.read_text() for p in (tmp_path / "out/eventlog/text/a/b").iterdir()}
    assert texts == {"0.md": "old", "1.md": "old", "2.md": "new", "2_2.md": "newer"}
    images = {p.name for p in (tmp_path / "out/plots/images/a/b").iterdir()}
    assert images == {"0.png", "1.png"}


def test_a_folder_that_is_gone_is_counted(tmp_path: Path) -> None:
    """Where another run took the folder, or it was deleted, the sink starts anew and says so."""
    sink = opened(tmp_path)
    sink.write(steps(range(3)))
    state = sink.state()
    opened(tmp_path, run_id="other").close("finished")
    again = opened(tmp_path, state=state)
    again.write(steps(range(3, 5)))
    assert points(tmp_path) == [(3, 1.0), (4, 1.0)]
    assert again.unshown == {"run's folder that is not there any more": 1}
