"""What the sink writes into a SQLite store, read back with MLflow's own client."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
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
    RunStarted,
    Scalar,
    Status,
    StepEvent,
    SummaryUpdated,
)
from eventlog.exceptions import RefusedError
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink

WALL = 1_700_000_000_123_456_789
LARGEST = sys.float_info.max

Opener = Callable[..., MlflowSink]


def run_of(sink: MlflowSink) -> Any:
    return sink.tracker.get_run(sink.run_id)


def points(sink: MlflowSink, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in sink.tracker.get_metric_history(sink.run_id, key)]


def steps(first: int, last: int, attempt: int = 1, **more: float) -> list[Event]:
    return [
        StepEvent(
            step=n,
            values={"loss": 1 / (n + 1), **more},
            wall=WALL + (attempt * 1000 + n) * 10**9,
            seq=n + (attempt - 1) * 1000,
            attempt=attempt,
        )
        for n in range(first, last)
    ]


def test_value_step_and_wall_time_arrive(opened: Opener) -> None:
    """Each point has the value, the step and the wall time, to a millisecond, of its event."""
    sink = opened()
    events = steps(0, 100)
    sink.write(events[:37])
    sink.write(events[37:])
    found = sink.tracker.get_metric_history(sink.run_id, "loss")
    assert [(p.step, p.value, p.timestamp) for p in found] == [
        (e.step, e.values["loss"], e.wall // 10**6) for e in events
    ]
    assert run_of(sink).data.metrics["loss"] == 1 / 100
    assert sink.unshown == {}


def test_odd_values_arrive_or_are_counted(opened: Opener) -> None:
    """NaN and bools stay what they are; what a database cannot hold is counted."""
    sink = opened()
    values: dict[str, Scalar] = {
        "nan": math.nan,
        "inf": math.inf,
        "less": -math.inf,
        "true": True,
        "tiny": 5e-324,
        "odd": 2**53 + 1,
        "big": 10**400,
    }
    sink.write([StepEvent(step=1, values=values, wall=WALL, seq=0)])
    found = {key: points(sink, key)[0][1] for key in values}
    assert math.isnan(found.pop("nan"))
    assert found == {
        "inf": LARGEST,
        "less": -LARGEST,
        "true": 1.0,
        "tiny": 5e-324,
        "odd": float(2**53),
        "big": LARGEST,
    }
    assert sink.unshown == {
        "infinity shown as 1.797e308": 3,
        "integer rounded to 53 bits": 1,
        "integer beyond 64 bits: shown as infinity": 1,
    }


def test_the_quick_way_writes_what_log_batch_writes(opened: Opener) -> None:
    """Points, repeats, and what MLflow takes for a metric's latest value are the same."""
    events: list[Event] = [
        StepEvent(step=s, values={"a": v, "b": -v, "c": math.nan}, wall=WALL + t * 10**6, seq=n)
        for n, (s, v, t) in enumerate(
            [(5, 1.0, 0), (3, 9.0, 1), (5, 1.0, 0), (5, 2.0, 0), (5, 1.5, 2), (4, math.inf, 3)]
        )
    ]
    found: list[Any] = []
    for direct in (True, False):
        sink = opened(RunInfo(run_id=f"way{direct}", project="p"), direct=direct)
        sink.write(events[:4])
        sink.write(events[4:])
        sink._done = (0, -1)
        sink.write(events)  # once more
        histories = [sink.tracker.get_metric_history(sink.run_id, key) for key in "abc"]
        rows = [sorted((m.step, m.timestamp, repr(m.value)) for m in h) for h in histories]
        latest = {key: repr(value) for key, value in run_of(sink).data.metrics.items()}
        found.append((rows, latest))
    assert found[0] == found[1]
    assert found[0][1]["a"] == "1.5"


def test_names_that_mlflow_refuses_are_shown_under_others(opened: Opener, tmp_path: Path) -> None:
    """Each odd name has a curve of its own, also in the next process."""
    keys = [
        "",
        "timing(s)/gen",
        "val/AR@100",
        "../../x",
        "a\\b",
        "CON",
        "é/ü",
        "n:e",
        "😀",
        "\udc80",
    ]
    keys += ["?", "long" * 2500, "long" * 2499 + "gnol", "foo", "foo/bar", "Loss", "loss", "/a//b/"]
    run = RunInfo(run_id="names", project="p", directory=tmp_path / "own")
    values: dict[str, Any] = {key: float(n) for n, key in enumerate(keys)}
    sink = opened(run)
    sink.write([StepEvent(step=0, values=values, wall=WALL, seq=0)])
    names = sorted(run_of(sink).data.metrics)
    assert sorted(run_of(sink).data.metrics.values()) == [float(n) for n in range(len(keys))]
    assert {"foo", "foo/bar", "Loss", "loss", "timing_s_/gen", "a/b", "é/ü", "n:e"} < set(names)
    state = sink.state()
    sink.close("finished")
    again = opened(RunInfo(run_id="names", project="p", directory=run.directory, state=state))
    again.write([StepEvent(step=1, values=values, wall=WALL, seq=1)])
    assert sorted(run_of(again).data.metrics) == names
    kept = again.tracker.download_artifacts(again.run_id, "eventlog/names.json")
    assert "timing(s)/gen" in Path(kept).read_text()


def test_each_axis_has_its_curve(opened: Opener) -> None:
    """One key on several axes is several curves, each at the places of its own axis."""
    sink = opened()
    at: dict[str, Any] = {"step": 10, "batch": 40, "epoch": 2, "wall": WALL}
    sink.write(
        [
            StepEvent(**at, values={"v": 1.0}, seq=0),
            BatchEvent(**at, values={"v": 2.0}, seq=1),
            EpochEvent(**at, values={"v": 3.0}, seq=2),
            EpochEvent(step=11, epoch=2.5, values={"half": 4.0}, wall=WALL, seq=3),
            EpochEvent(epoch=3.5, values={"late": 5.0}, wall=WALL, seq=4),
            StepEvent(**at, axis="val_step", values={"v": 6.0}, seq=5),
            StepEvent(step=2**70, values={"far": 7.0}, wall=WALL, seq=6),
            *(StepEvent(values={"none": 8.0 + n}, wall=WALL, seq=7 + n) for n in range(2)),
        ]
    )
    expected = {
        "v": [(10, 1.0)],
        "v_batch": [(40, 2.0)],
        "v_epoch": [(2, 3.0)],
        "half": [(11, 4.0)],
        "late": [(3, 5.0)],
        "v_val_step": [(10, 6.0)],
        "far": [(0, 7.0)],
        "none": [(1, 8.0), (2, 9.0)],
    }
    assert {key: points(sink, key) for key in expected} == expected
    assert sink.unshown == {
        "fractional epoch shown at its step": 1,
        "fractional epoch rounded down": 1,
        "step beyond 64 bits: counted up instead": 1,
        "event without a step: counted up": 2,
    }
    assert sink.state()["unstepped"] == 3


def test_strings_have_a_history_and_a_tag(opened: Opener) -> None:
    """A string's history is an artifact, and its latest value a tag to search by."""
    sink = opened()
    words = ["warmup", "train\n", "täst"]
    sink.write(
        [StepEvent(step=n, values={"ph/ase": w}, wall=WALL, seq=n) for n, w in enumerate(words)]
    )
    assert run_of(sink).data.tags["ph/ase"] == "täst"
    path = sink.tracker.download_artifacts(sink.run_id, "strings/ph/ase/1-0.jsonl")
    assert [line.count('"text"') for line in Path(path).read_text().splitlines()] == [1, 1, 1]


def test_config_of_any_shape(opened: Opener) -> None:
    """Hyperparameters are params; a changed one is a tag, and none ever raises."""
    config = {
        "lr": 0.1,
        "none": None,
        "list": [1, "a"],
        "empty": {},
        "blank": "",
        "model": {"dim": 3, "odd(key)": "\udc80\0"},
        "long": "x" * 7000,
        **{f"k{n}": n for n in range(300)},
    }
    sink = opened(RunInfo(run_id="config", project="p", config=config))
    events = [
        RunStarted(run_id="config", config=config, wall=WALL, seq=0),
        ConfigUpdated(config={"lr": 0.2, "late": 1, "model": {"dim": 4}}, wall=WALL, seq=1),
        ConfigUpdated(config={"lr": 0.1}, wall=WALL, seq=2),
    ]
    sink.write(events)
    data = run_of(sink).data
    assert {key: data.params[key] for key in ("lr", "none", "list", "empty", "blank", "late")} == {
        "lr": "0.1",
        "none": "None",
        "list": '[1, "a"]',
        "empty": "{}",
        "blank": "",
        "late": "1",
    }
    assert data.params["model/odd_key_"] == "?\ufffd"
    assert len(data.params) == 309
    assert len(data.params["long"]) == 6000
    assert data.params["long"].endswith("(7000 characters)")
    assert (data.tags["config/lr"], data.tags["config/model/dim"]) == ("0.1", "4")
    assert sink.unshown == {
        "config value cut to 6000 characters": 1,
        "config value that changed: the new one is a tag": 3,
    }


def test_summary_and_labels(opened: Opener) -> None:
    """Summary values are metrics or tags; name, notes, group, tags and rank have their places."""
    run = RunInfo(
        run_id="labels",
        project="labelled",
        name="my run",
        tags=("red", "mlflow.runName"),
        group="g",
        notes="*why*",
        rank=1,
        world_size=2,
        provenance={"git_commit": "abc"},
    )
    sink = opened(run, tags={"team": "vision"}, parent_run_id="f" * 32)
    sink.write(
        [
            SummaryUpdated(summary={"best": {"acc": 0.5}, "kind": "good"}, wall=WALL, seq=0),
            SummaryUpdated(summary={"best": {"acc": 0.25}}, wall=WALL, seq=1),
            RunFinished(summary={"done": True}, wall=WALL + 10**9, seq=2),
        ]
    )
    found = run_of(sink)
    tags = found.data.tags
    assert found.info.run_name == "my run rank 1"
    assert found.data.metrics == {"summary/best/acc": 0.25, "summary/done": 1.0}
    assert (tags["summary/kind"], tags["red"], tags["_mlflow.runName"]) == ("good", "true", "true")
    assert (tags["group"], tags["mlflow.note.content"], tags["team"]) == ("g", "*why*", "vision")
    assert (tags["rank"], tags["mlflow.source.git.commit"]) == ("1", "abc")
    assert tags["mlflow.parentRunId"] == "f" * 32
    assert "mlflow.user" not in tags
    experiment = sink.tracker.get_experiment(found.info.experiment_id)
    assert experiment.name == "labelled"
    assert experiment.artifact_location.endswith("/artifacts/labelled")


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("finished", "FINISHED"),
        ("failed", "FAILED"),
        ("interrupted", "KILLED"),
        ("killed", "KILLED"),
    ],
)
def test_status(opened: Opener, status: Status, shown: str) -> None:
    """The end has MLflow's own word, its time, and the error in a tag."""
    sink = opened(RunInfo(run_id=status, project="p"))
    sink.write([RunFinished(status="failed", error="ValueError: no", wall=WALL, seq=0)])
    sink.close(status)
    sink.close(status)
    found = run_of(sink)
    assert (found.info.status, found.info.end_time) == (shown, WALL // 10**6)
    assert found.data.tags["eventlog.status"] == status
    assert found.data.tags["eventlog.error"] == "ValueError: no"
    with pytest.raises(RuntimeError, match="must be open"):
        sink.write(steps(0, 1))


def test_a_resumed_run_that_finishes_has_no_error(opened: Opener) -> None:
    """The error of the former attempt is gone once the run has ended without one."""
    sink = opened(RunInfo(run_id="mended", project="p"))
    sink.write([RunFinished(status="failed", error="ValueError: no", wall=WALL, seq=0)])
    sink.close("failed")
    sink = opened(RunInfo(run_id="mended", project="p", state=sink.state()))
    assert run_of(sink).data.tags["eventlog.error"] == "ValueError: no"
    sink.write([RunFinished(status="finished", wall=WALL, seq=1)])
    sink.close("finished")
    assert "eventlog.error" not in run_of(sink).data.tags


def test_a_resume_goes_on_with_the_run(opened: Opener) -> None:
    """What a checkpoint kept names the run, which runs again; what came before is left out."""
    sink = opened()
    sink.write(steps(0, 10))
    state = sink.state()
    sink.close("interrupted")
    again = opened(RunInfo(run_id="r", project="p", state=state, attempt=2))
    assert again.run_id == sink.run_id
    assert run_of(again).info.status == "RUNNING"
    again.write(steps(5, 12))
    again.write(steps(12, 15, attempt=2))
    assert [step for step, _ in points(again, "loss")] == list(range(15))


def test_a_run_that_is_gone_is_replaced(opened: Opener) -> None:
    """A state that names a deleted run starts another one; an option that does is refused."""
    sink = opened()
    state = sink.state()
    sink.close("finished")
    sink.tracker.delete_run(sink.run_id)
    again = opened(RunInfo(run_id="r", project="p", state=state))
    assert again.run_id != sink.run_id
    for wrong in (sink.run_id, "0" * 32, "no such/run"):
        with pytest.raises(RefusedError, match="no run"):
            opened(run_id=wrong)
    third = opened(run_id=again.run_id)
    assert third.run_id == again.run_id


def test_both_attempts_of_a_rewind_are_kept(opened: Opener) -> None:
    """Nothing of a lower step is lost; a tag says where the latest attempt begins."""
    sink = opened(RunInfo(run_id="rewound", project="p"))
    sink.write(steps(0, 10))
    sink.write([Rewound(to_step=5, wall=WALL, seq=1000, attempt=2), *steps(6, 8, attempt=2)])
    assert sorted(step for step, _ in points(sink, "loss")) == sorted([*range(10), 6, 7])
    assert run_of(sink).data.tags["eventlog.rewinds"] == "attempt 2 from step 5"


def test_a_deleted_experiment_is_named(opened: Opener) -> None:
    """An experiment that was deleted gives an error that says what to do."""
    sink = opened(RunInfo(run_id="r", project="deleted"))
    sink.tracker.delete_experiment(run_of(sink).info.experiment_id)
    with pytest.raises(RefusedError, match="deleted"):
        sink.close("finished")
    with pytest.raises(RefusedError, match=r"'deleted' was deleted: restore it \(mlflow exp"):
        opened(RunInfo(run_id="r", project="deleted"))
    assert opened(RunInfo(run_id="r", project="deleted"), experiment="other").run_id


def test_written_points_survive_sigkill(place: Path, tmp_path: Path, opened: Opener) -> None:
    """A process that is killed after write() loses nothing of it."""
    code = f"""
import os, signal
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink
sink = MlflowSink(dir={str(place)!r})
sink.open(RunInfo(run_id="killed", project="p"))
sink.write([StepEvent(step=n, values={{"v": 0.5 * n}}, wall={WALL}, seq=n) for n in range(50)])
print(sink.run_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    sink = opened(run_id=done.stdout.strip())
    assert points(sink, "v") == [(n, 0.5 * n) for n in range(50)]


def test_what_a_log_call_says_for_mlflow(opened: Opener) -> None:
    """A data set of a point goes to MLflow; what it does not know is counted."""
    sink = opened(RunInfo(run_id="call", project="p", alias="ml"))
    given = {"mlflow": {"dataset_name": "d", "dataset_digest": "x"}, "ml": {"dataset_name": "e"}}
    sink.write(
        [
            StepEvent(step=0, values={"v": 1.0}, wall=WALL, seq=0, options={"ml": given["mlflow"]}),
            StepEvent(step=1, values={"v": 2.0}, wall=WALL, seq=1, options={"ml": given["ml"]}),
            StepEvent(step=2, values={"v": 3.0}, wall=WALL, seq=2, options={"ml": {"sync": True}}),
        ]
    )
    assert points(sink, "v") == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert sink.unshown == {
        "option dataset_name or dataset_digest without the other": 1,
        "option 'sync' of a log call": 1,
    }


def test_many_names_and_values_at_once(opened: Opener) -> None:
    """More than MLflow takes in one request goes over in several."""
    run = RunInfo(run_id="many", project="p", tags=tuple(f"t{n}" for n in range(250)))
    sink = opened(run, direct=False)
    values: dict[str, Scalar] = {f"m{n}": float(n) for n in range(600)}
    sink.write([StepEvent(step=n, values=values, wall=WALL, seq=n) for n in range(4)])
    data = run_of(sink).data
    assert len(data.metrics) == 600
    assert len([name for name in data.tags if name.startswith("t")]) == 250
    assert points(sink, "m599") == [(n, 599.0) for n in range(4)]


def test_where_runs_are_kept(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the environment's tracking URI, or else a database in the run's directory."""
    own = tmp_path / "100% mine" / "sinks"
    own.mkdir(parents=True)
    (own / "mlflow.db").write_bytes(template.read_bytes())
    sink = MlflowSink()
    sink.open(RunInfo(run_id="r", directory=own))
    sink.close("finished")
    assert sink.url == str(own / "mlflow.db")
    assert sink.target() == ""
    assert sorted(path.name for path in own.iterdir() if path.suffix != ".json") == [
        ".eventlog.lock",
        "mlflow.db",
    ]
    other = tmp_path / "other.db"
    other.write_bytes(template.read_bytes())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}")
    monkeypatch.chdir(tmp_path)
    sink = MlflowSink()
    sink.open(RunInfo(run_id="r", project="x"))
    sink.close("finished")
    assert sink.url == str(other)
    assert sink.target() == f"sqlite:///{other}"
    assert sorted(os.listdir(tmp_path)) == [".eventlog.lock", "100% mine", "other.db"]
    assert MlflowSink(dir="x").target() == str(tmp_path / "x")
