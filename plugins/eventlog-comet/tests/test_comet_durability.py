"""What is left after a kill, a second process, or a writer that fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import Event, StepEvent, TextEvent
from eventlog.exceptions import UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_comet import CometSink
from eventlog_comet.__main__ import main
from eventlog_comet.spool import UNFINISHED

CHILD = """
import json, os, signal, sys
from pathlib import Path
from eventlog.events import StepEvent, TextEvent
from eventlog.sinks.base import RunInfo
from eventlog_comet import CometSink
folder = Path(sys.argv[1])
sink = CometSink()
sink.open(RunInfo(run_id="r1", project="p", tags=("t",), directory=folder, config={"lr": 1}))
sink.write([StepEvent(step=s, values={"v": float(s)}, seq=s) for s in range(1000)])
sink.write([TextEvent(tag="t", text="hello", step=1, seq=1000)])
sink.flush()
print(json.dumps(sink.state()), flush=True)
sink.write([StepEvent(step=s, values={"v": -1.0}, seq=s + 1001) for s in range(500)])
os.kill(os.getpid(), signal.SIGKILL)
"""


def opened(folder: Path, **known: Any) -> CometSink:
    sink = CometSink()
    sink.open(RunInfo(run_id="r1", project="p", directory=folder, **known))
    return sink


def killed(folder: Path) -> dict[str, Any]:
    """Return the state that a process confirmed, which was then killed in the middle of a batch."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)], capture_output=True, text=True, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    state: dict[str, Any] = json.loads(child.stdout)
    return state


def points(archive: Path, name: str = "v") -> list[tuple[int, float]]:
    with zipfile.ZipFile(archive) as file:
        assert file.testzip() is None
        lines = file.read("messages.json").decode().splitlines()
    found = [json.loads(line)["payload"].get("metric") for line in lines]
    return [(p["step"], p["metricValue"]) for p in found if p and p["metricName"] == name]


def archives(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.zip"), key=lambda path: path.stat().st_mtime_ns)


def test_a_kill_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    """The next process makes the archive that the killed one did not, of just what it confirmed."""
    state = killed(tmp_path)
    assert archives(tmp_path) == []
    sink = opened(tmp_path, state=state)
    assert sink.run_id == state["run_id"]
    (left,) = archives(tmp_path)
    assert points(left) == [(s, float(s)) for s in range(1000)]
    sink.write([StepEvent(step=s, values={"v": float(s)}, seq=s) for s in range(990, 1001)])
    sink.write([StepEvent(step=s, values={"v": -2.0}, seq=s + 1001) for s in range(3)])
    sink.close("finished")
    first, second = archives(tmp_path)
    assert first == left
    assert points(second) == [(s, -2.0) for s in range(3)]
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        meta = [json.loads(file.read("experiment.json")) for file in (one, two)]
        (text,) = (name for name in one.namelist() if not name.endswith(".json"))
        assert one.read(text) == b"hello"
    assert {m["offline_id"] for m in meta} == {state["run_id"]}
    assert {m["resume_strategy"] for m in meta} == {"get_or_create"}
    assert meta[0]["tags"] == ["t"]
    assert sink.unshown == {}
    assert not (tmp_path / UNFINISHED).exists()


def test_what_a_kill_left_can_be_archived_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m eventlog_comet` does it for a run that will never go on, or later does."""
    state = killed(tmp_path / "run")
    assert main([str(tmp_path)]) == 0
    (left,) = archives(tmp_path / "run")
    assert capsys.readouterr().out.split() == [str(left)]
    assert points(left)[:1000] == [(s, float(s)) for s in range(1000)]
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    sink = opened(tmp_path / "run", state=state)
    sink.close("finished")
    assert sink.unshown == {}
    assert main([]) == 2


def test_a_damaged_folder_is_named_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be archived stays, and the command says so."""
    folder = tmp_path / UNFINISHED / "x"
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text("{")
    assert main([str(tmp_path)]) == 1
    assert str(folder) in capsys.readouterr().err
    assert folder.exists()


def test_a_torn_line_is_cut(tmp_path: Path) -> None:
    """A message that a kill cut in two is left out of the archive."""
    sink = opened(tmp_path)
    sink.write([StepEvent(step=1, values={"v": 1.0}, seq=0)])
    sink.flush()
    state = sink.state()
    (messages,) = (tmp_path / UNFINISHED).glob("*/messages.json")
    with messages.open("ab") as file:
        file.write(b'{"payload":{"metr')
    again = opened(tmp_path, state=state | {"size": None})
    (left,) = archives(tmp_path)
    assert points(left) == [(1, 1.0)]
    again.close("finished")


def test_folders_that_are_gone_are_counted(tmp_path: Path) -> None:
    """Files that were confirmed and are not there any more are not passed over in silence."""
    state = {"run_id": "k" * 32, "spool": "tmpgone", "size": 5, "archive": "gone.zip"}
    sink = opened(tmp_path, state=state)
    sink.close("finished")
    assert sink.unshown == {"archive of an earlier process that is gone": 1}


def test_what_was_never_confirmed_is_cleared_away(tmp_path: Path) -> None:
    """A process that died before its first confirmation leaves nothing: its events come again."""
    killed(tmp_path)
    sink = opened(tmp_path)
    assert len(list((tmp_path / UNFINISHED).iterdir())) == 1
    sink.close("finished")
    assert len(archives(tmp_path)) == 1


def test_flush_waits_for_the_writing_thread(tmp_path: Path) -> None:
    """After a flush all points are in the file, as many as there are."""
    sink = opened(tmp_path)
    values: dict[str, Any] = {f"v{i}": 1.0 for i in range(10)}
    sink.write([StepEvent(step=s, values=values, seq=s) for s in range(300)])
    sink.flush()
    (messages,) = (tmp_path / UNFINISHED).glob("*/messages.json")
    state = sink.state()
    assert messages.stat().st_size == state["size"]
    assert messages.read_text().count("metric_msg") == 3000
    assert len(json.dumps(state)) < 500
    sink.flush()
    assert sink.state() == state
    sink.close("finished")
    assert "spool" not in sink.state()


def test_messages_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    """What the SDK's thread fails at is counted, does not hang, and does not fail the run."""
    sink = opened(tmp_path)
    sink.write([StepEvent(step=1, values={"v": 1.0}, seq=0)])
    sink.flush()
    good = sink.tracker.streamer.message_handler.file
    with (tmp_path / "closed").open("w") as bad:
        pass
    sink.tracker.streamer.message_handler.file = bad
    sink.write([StepEvent(step=2, values={"v": 2.0}, seq=1)])
    sink.flush()
    sink.tracker.streamer.message_handler.file = good
    sink.write([StepEvent(step=3, values={"v": 3.0}, seq=2)])
    sink.close("finished")
    (archive,) = archives(tmp_path)
    assert points(archive) == [(1, 1.0), (3, 3.0)]
    ((reason, times),) = sink.unshown.items()
    assert reason.startswith("message that Comet's SDK lost: ")
    assert times == 1
    with zipfile.ZipFile(archive) as file:
        assert not json.loads(file.read("experiment.json"))["customer_error_reported"]


def test_a_thread_that_does_not_keep_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush has an end, and what waits for the SDK's thread is bounded."""
    monkeypatch.setattr("eventlog_comet.sink._PATIENCE", 0.05)
    monkeypatch.setattr("eventlog_comet.sink._BACKLOG", 5)
    sink = opened(tmp_path)
    lock = sink.tracker.streamer.__write_lock__
    events: list[Event] = [StepEvent(step=s, values={"v": 1.0}, seq=s) for s in range(10)]
    with lock:
        with pytest.raises(UnavailableError):
            sink.write(events)
        with pytest.raises(UnavailableError):
            sink.flush()
    sink.write(events)
    monkeypatch.setattr("eventlog_comet.sink._PATIENCE", 10.0)
    sink.close("finished")
    (archive,) = archives(tmp_path)
    assert points(archive) == [(s, 1.0) for s in range(10)]


def test_an_unwritable_place_is_an_outage(tmp_path: Path) -> None:
    """A place where no archive can be is an OSError, which delivery tries again."""
    (tmp_path / "file").write_text("")
    sink = CometSink(dir=tmp_path / "file" / "x")
    with pytest.raises(OSError, match="file"):
        sink.open(RunInfo(run_id="r1"))
    sink.close("finished")


def test_ranks_do_not_share_a_folder(tmp_path: Path) -> None:
    """Each rank has its own experiment, and none clears away the files of another."""
    one, two = (opened(tmp_path, rank=rank, world_size=2) for rank in (0, 1))
    for sink in (one, two):
        sink.write([TextEvent(tag="t", text="x", seq=0)])
    one.close("finished")
    two.close("finished")
    assert one.run_id != two.run_id
    assert len(archives(tmp_path)) == 2
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in archives(tmp_path))
