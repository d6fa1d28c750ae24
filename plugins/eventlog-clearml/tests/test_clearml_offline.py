"""What the sink writes into an offline folder."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import (
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    Rewound,
    RunFinished,
    StepEvent,
    SummaryUpdated,
    TableEvent,
    TextEvent,
)
from eventlog.exceptions import RefusedError
from eventlog.sinks.base import RunInfo
from eventlog_clearml import ClearmlSink

WALL = 1_700_000_000_123_456_789
Point = tuple[int, float]


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail every attempt to reach a host."""

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError(f"the network is asked for {args}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def opened(folder: Path, run: RunInfo | None = None, **options: Any) -> ClearmlSink:
    sink = ClearmlSink(offline=True, dir=folder, **options)
    run = run or RunInfo(run_id="r-1", project="proj", name="name", directory=folder / "own")
    sink.open(run)
    return sink


def events_of(sink: ClearmlSink, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    path = Path(str(sink.url)) / name
    if not path.exists():
        return []
    return [event for line in path.read_text().splitlines() for event in json.loads(line)]


def points(sink: ClearmlSink, title: str, series: str) -> list[Point]:
    return [
        (event["iter"], event["value"])
        for event in events_of(sink)
        if (event["metric"], event["variant"]) == (title, series)
    ]


def texts(sink: ClearmlSink) -> list[str]:
    return [event["msg"] for event in events_of(sink, "log.jsonl")]


def task_of(sink: ClearmlSink) -> dict[str, Any]:
    task: dict[str, Any] = json.loads((Path(str(sink.url)) / "task.json").read_text())
    return task


def test_value_step_and_wall_time_arrive(tmp_path: Path) -> None:
    """Each point is in its graph, with the step and the wall time that were emitted."""
    sink = opened(tmp_path)
    events = [
        StepEvent(step=s, values={"train/loss": 1 / (s + 1), "lr": s}, wall=WALL, seq=s)
        for s in range(20)
    ]
    sink.write(events[:7])
    sink.write(events[7:])
    assert points(sink, "loss", "train") == [(s, 1 / (s + 1)) for s in range(20)]
    assert points(sink, "lr", "lr") == [(s, s) for s in range(20)]
    assert {event["timestamp"] for event in events_of(sink)} == {WALL // 1_000_000}
    assert len((Path(str(sink.url)) / "metrics.jsonl").read_text().splitlines()) == 2
    assert sink.unshown == {}
    sink.close("finished")
    with zipfile.ZipFile(f"{sink.url}.zip") as session:
        assert {"task.json", "metrics.jsonl"} <= set(session.namelist())


def test_numbers_that_clearml_has_not_are_texts(tmp_path: Path) -> None:
    """NaN and infinities go to the console, a few of each name, and are counted; none is 0."""
    sink = opened(tmp_path)
    odd: dict[str, Any] = {"a": math.nan, "b": -math.inf, "c": 10**400, "d": 2**53 + 1, "e": True}
    sink.write([StepEvent(step=3, values=odd, wall=WALL, seq=0)])
    sink.write([StepEvent(step=s, values={"a": math.nan}, seq=s) for s in range(4, 40)])
    assert points(sink, "d", "d") == [(3, float(2**53))]
    assert points(sink, "e", "e") == [(3, 1.0)]
    assert {event["metric"] for event in events_of(sink)} == {"d", "e"}
    assert texts(sink)[:2] == ["a [step 3]: nan", "b [step 3]: -inf"]
    assert sum(text.startswith("a ") for text in texts(sink)) == 10
    assert sink.unshown == {
        "number that is not finite: in the console only": 39,
        "integer beyond 2**53: not exact": 1,
    }
    sink.close("finished")


def test_each_axis_has_its_graph(tmp_path: Path) -> None:
    """Steps, batches, epochs and named axes are shown at their own places."""
    sink = opened(tmp_path)
    at: dict[str, Any] = {"step": 10, "batch": 40, "wall": WALL}
    sink.write(
        [
            StepEvent(**at, epoch=2, values={"t/v": 1.0}, seq=0),
            BatchEvent(**at, epoch=2, values={"t/v": 2.0}, seq=1),
            EpochEvent(**at, epoch=3.0, values={"t/v": 3.0}, seq=2),
            EpochEvent(**at, epoch=3.5, values={"half": 4.0}, seq=3),
            EpochEvent(epoch=3.5, values={"half": 5.0}, seq=4),
            StepEvent(**at, axis="val_step", values={"t/v": 6.0}, seq=5),
        ]
    )
    assert points(sink, "v", "t") == [(10, 1.0)]
    assert points(sink, "v_batch", "t") == [(40, 2.0)]
    assert points(sink, "v_epoch", "t") == [(3, 3.0)]
    assert points(sink, "v_val_step", "t") == [(10, 6.0)]
    halves = [(e["iter"], e["value"]) for e in events_of(sink) if "half" in e["metric"]]
    assert halves == [(10, 4.0), (3, 5.0)]
    assert sink.unshown == {
        "fractional epoch shown at its step": 1,
        "fractional epoch rounded down": 1,
    }
    sink.close("finished")


def test_what_has_no_place_is_counted_up(tmp_path: Path) -> None:
    """Values without a step are points and a single value; a resumed run goes on counting."""
    sink = opened(tmp_path)
    events = [StepEvent(values={"acc": 0.5 + i}, wall=WALL, seq=i) for i in range(3)]
    events.append(StepEvent(step=2**70, values={"far": 1.0}, wall=WALL, seq=3))
    sink.write(events)
    assert points(sink, "acc", "acc") == [(0, 0.5), (1, 1.5), (2, 2.5)]
    assert points(sink, "far", "far") == [(0, 1.0)]
    assert points(sink, "Summary", "acc")[-1] == (-(2**31), 2.5)
    again = opened(tmp_path, RunInfo(run_id="r-1", state=sink.state()))
    again.write([StepEvent(values={"acc": 9.0}, wall=WALL, seq=4)])
    assert points(again, "acc", "acc")[-1] == (3, 9.0)
    sink.close("finished")
    again.close("finished")


def test_no_two_keys_share_a_curve(tmp_path: Path) -> None:
    """Odd names have curves of their own, which the next process finds again."""
    keys = ["", "x", "x/x", "/x", "x/", "../../x", "..", "a\\b", "CON", "y" * 10_000, "z" * 10_001]
    keys += ["\U0001f600", "\udc80", "foo", "foo/bar", "Loss", "loss", "Summary", "a\nb", "a\tb"]
    sink = opened(tmp_path)
    values: dict[str, Any] = {key: float(number) for number, key in enumerate(keys)}
    sink.write([StepEvent(step=1, values=values, wall=WALL, seq=0)])
    curves = {(e["metric"], e["variant"]): e["value"] for e in events_of(sink)}
    assert sorted(curves.values()) == [float(number) for number in range(len(keys))]
    assert all(0 < len(title) <= 240 and series for title, series in curves)
    run = RunInfo(run_id="r-1", directory=tmp_path / "own", state=sink.state())
    again = opened(tmp_path, run)
    again.write([StepEvent(step=2, values={"x/x": -1.0}, wall=WALL, seq=1)])
    last = events_of(again)[-1]
    assert curves[last["metric"], last["variant"]] == float(keys.index("x/x"))
    sink.close("finished")
    again.close("finished")


def test_the_whole_run_is_described(tmp_path: Path) -> None:
    """Config, also what changes later, summary, tags, notes, group and status are in the task."""
    config = {"a": {"b": [1, None], "c": None}, "long": "x" * 20_000, "a/b": 2, "bad": "\udc80"}
    run = RunInfo(
        run_id="r-1",
        project="p",
        name="n",
        rank=1,
        world_size=2,
        config=config,
        tags=("t1", "t2"),
        group="g",
        notes="why",
        provenance={"git": {"commit": "c0ffee"}},
    )
    sink = opened(tmp_path, run)
    summary = {"best": {"acc": 0.5, "nan": math.nan}, "verdict": "good"}
    sink.write(
        [
            ConfigUpdated(config={"lr": 0.1, "a": 5}, seq=0),
            SummaryUpdated(summary=summary, seq=1),
            RunFinished(status="failed", error="ValueError: no", seq=2),
        ]
    )
    sink.close("failed")
    task = task_of(sink)
    params = {key: item["value"] for key, item in task["hyperparams"]["General"].items()}
    assert params["a"] == "5"
    assert params["lr"] == "0.1"
    assert params["a/b"] == "2"
    assert params["a/c"] == "None"
    assert params["bad"] == "?"
    assert len(params["long"]) == 16_384
    whole = json.loads(task["configuration"]["config"]["value"])
    assert whole["long"] == "x" * 20_000
    assert "c0ffee" in task["configuration"]["provenance"]["value"]
    properties = {key: item["value"] for key, item in task["hyperparams"]["properties"].items()}
    assert properties == {
        "run_id": "r-1",
        "group": "g",
        "rank": "1",
        "world_size": "2",
        "summary/best/nan": "NaN",
        "summary/verdict": "good",
        "status": "failed",
        "error": "ValueError: no",
    }
    assert points(sink, "Summary", "best/acc") == [(-(2**31), 0.5)]
    assert (task["tags"], task["comment"]) == (["t1", "t2"], "why")
    assert (task["status"], task["status_reason"]) == ("failed", "ValueError: no")
    assert (task["project_name"], task["name"]) == ("p__", "n rank 1")
    assert sink.unshown == {
        "name shorter than 3 characters: lengthened": 1,
        "parameter of over 16,384 characters: cut": 1,
    }


def test_texts_say_where_they_belong(tmp_path: Path) -> None:
    """Strings and texts are lines of the console, with name, place and level."""
    sink = opened(tmp_path)
    options: dict[str, Any] = {"clearml": {"level": "warning", "other": 1}}
    sink.write(
        [
            StepEvent(step=7, values={"phase": "warm"}, wall=WALL, seq=0),
            TextEvent(tag="note", text="a\nb", step=8, options=options, wall=WALL, seq=1),
            TextEvent(tag="long", text="x" * 600_000, wall=WALL, seq=2),
            Rewound(to_step=5, attempt=2, wall=WALL, seq=3),
        ]
    )
    assert texts(sink)[0] == "phase [step 7]: warm"
    assert texts(sink)[1] == "note [step 8]:\na\nb"
    assert len(texts(sink)[2]) == 500_000
    assert texts(sink)[3] == "attempt 2: back to step 5"
    levels = [event["level"] for event in events_of(sink, "log.jsonl")]
    assert levels == ["INFO", "WARNING", "INFO", "INFO"]
    assert sink.unshown == {
        "option 'other' of a log call": 1,
        "text of over 500,000 characters: cut": 1,
    }
    sink.close("interrupted")
    assert task_of(sink)["status"] == "stopped"


def test_tables_keep_their_layout(tmp_path: Path) -> None:
    """A table is a plot; the layout that a call adds is part of it, and a huge one is left out."""
    sink = opened(tmp_path)
    options: dict[str, Any] = {"clearml": {"extra_layout": {"height": 99}}}
    rows: Any = [[1, None], [math.nan, "x"]]
    sink.write(
        [
            TableEvent(tag="t", columns=["a", "b"], rows=rows, step=1, options=options, seq=0),
            TableEvent(tag="huge", columns=["a"], rows=[["x" * 9_000_000]], step=1, seq=1),
        ]
    )
    (event,) = events_of(sink)
    plot = json.loads(event["plot_str"])
    assert plot["data"][0]["cells"]["values"] == [[1, "nan"], [None, "x"]]
    assert plot["layout"]["height"] == 99
    assert sink.unshown == {"plot of over 8 MB: left out": 1}
    sink.close("finished")


def test_a_resumed_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    """The same task goes on; a batch that comes again is left out, and half a line is gone."""
    sink = opened(tmp_path)
    batch: list[Event] = [StepEvent(step=s, values={"v": 1.0 + s}, seq=s) for s in range(3)]
    sink.write(batch)
    state = sink.state()
    with (Path(str(sink.url)) / "metrics.jsonl").open("a") as file:
        file.write('[{"timestamp": 17')
    again = opened(tmp_path, RunInfo(run_id="r-1", state=state))
    assert (again.run_id, again.url) == (sink.run_id, sink.url)
    again.write([*batch, StepEvent(step=1, values={"v": 9.0}, attempt=2, seq=3)])
    assert points(again, "v", "v") == [(0, 1.0), (1, 2.0), (2, 3.0), (1, 9.0)]
    assert again.tracker.name == "name"
    sink.close("finished")
    again.close("finished")
    gone = opened(tmp_path, RunInfo(run_id="r-1", state={"run_id": "offline-gone"}))
    assert gone.run_id not in ("offline-gone", sink.run_id)
    gone.close("finished")
    fresh = opened(tmp_path, RunInfo(run_id="r-2"), task_id=sink.run_id)
    assert fresh.run_id == sink.run_id
    fresh.close("finished")


def test_a_run_that_ends_well_has_no_error(tmp_path: Path) -> None:
    """What went wrong in a former attempt is not said of the task that has completed."""
    sink = opened(tmp_path)
    sink.write([RunFinished(status="failed", error="boom", seq=0)])
    sink.close("failed")
    assert task_of(sink)["hyperparams"]["properties"]["error"]["value"] == "boom"
    again = opened(tmp_path, RunInfo(run_id="r-1", state=sink.state()))
    again.close("finished")
    properties = task_of(again)["hyperparams"]["properties"]
    assert (properties["status"]["value"], properties["error"]["value"]) == ("finished", "")
    assert task_of(again)["status_reason"] == ""


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that cannot be written is taken back, and comes whole the next time."""
    sink = opened(tmp_path)
    real = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 20:
            return int(real(file, data[:20]))
        raise OSError(28, "No space left on device")

    event = StepEvent(values={"v": 1.0}, seq=0)
    with monkeypatch.context() as patch:
        patch.setattr("eventlog_clearml.outbox.os.write", full)
        with pytest.raises(OSError, match="No space"):
            sink.write([event])
    assert events_of(sink) == []
    sink.write([event])
    assert points(sink, "v", "v") == [(0, 1.0)]
    sink.close("finished")


def test_one_process_has_one_mode(tmp_path: Path) -> None:
    """Online beside offline is refused by name; several offline tasks are fine."""
    first, second = opened(tmp_path), opened(tmp_path)
    assert first.run_id != second.run_id
    with pytest.raises(RefusedError, match=r'one mode at a time.*"isolate": True'):
        ClearmlSink(offline=False).open(RunInfo(run_id="r"))
    first.close("finished")
    second.write([StepEvent(step=0, values={"v": 1.0}, seq=0)])
    second.close("finished")
    second.close("finished")
    assert task_of(second)["status"] == "completed"


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    """After `write` SIGKILL loses nothing, and the folder can be imported without its zip."""
    code = """
import os, signal, sys
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_clearml import ClearmlSink
sink = ClearmlSink(offline=True, dir=sys.argv[1])
sink.open(RunInfo(run_id="r-1", project="proj", name="name"))
sink.write([StepEvent(step=s, values={"v": 1.0}, seq=s) for s in range(100)])
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, timeout=50, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = (tmp_path / "offline").iterdir()
    assert json.loads((folder / "task.json").read_text())["name"] == "name"
    assert len(json.loads((folder / "metrics.jsonl").read_text())) == 100
