"""Curves, facts and names, read back from the archive that `comet upload` takes."""

from __future__ import annotations

import json
import math
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
    RunStarted,
    StepEvent,
    SummaryUpdated,
)
from eventlog.exceptions import RefusedError
from eventlog.sinks.base import RunInfo
from eventlog_comet import CometSink
from eventlog_comet.sdk import has_key

WALL = 1_700_000_000_123_456_789


def opened(folder: Path, run: dict[str, Any] | None = None, /, **options: Any) -> CometSink:
    sink = CometSink(**options)
    known: dict[str, Any] = {"run_id": "r1", "project": "p", "run_dir": folder}
    sink.open(RunInfo(**(known | {"directory": folder / "comet"} | (run or {}))))
    return sink


def closed(sink: CometSink, events: list[Event], status: Any = "finished") -> Path:
    sink.write(events)
    sink.flush()
    sink.close(status)
    assert sink.url is not None
    return Path(sink.url)


def messages(archive: Path) -> list[tuple[str, dict[str, Any]]]:
    with zipfile.ZipFile(archive) as file:
        lines = file.read("messages.json").decode().splitlines()
    return [(line["type"], line["payload"]) for line in map(json.loads, lines)]


def metrics(archive: Path) -> list[dict[str, Any]]:
    return [payload["metric"] for kind, payload in messages(archive) if kind == "metric_msg"]


def points(archive: Path) -> dict[str, list[tuple[Any, Any, Any]]]:
    found: dict[str, list[tuple[Any, Any, Any]]] = {}
    for point in metrics(archive):
        here = (point["step"], point["epoch"], point["metricValue"])
        found.setdefault(point["metricName"], []).append(here)
    return found


def others(archive: Path) -> dict[str, Any]:
    return {p["key"]: p["value"] for kind, p in messages(archive) if kind == "log_other"}


def parameters(archive: Path) -> dict[str, Any]:
    found = [payload["param"] for kind, payload in messages(archive) if kind == "parameter_msg"]
    return {param["paramName"]: param["paramValue"] for param in found}


def test_value_step_epoch_and_wall_time_arrive(tmp_path: Path) -> None:
    """Each point has its value, step, epoch and the wall time of its event; no more."""
    sink = opened(tmp_path)
    events: list[Event] = [
        StepEvent(
            step=s, epoch=s // 3, values={"loss": s / 3, "n": s}, wall=WALL + s * 10**9, seq=s
        )
        for s in range(9)
    ]
    archive = closed(sink, events)
    assert points(archive) == {
        "loss": [(s, s // 3, s / 3) for s in range(9)],
        "n": [(s, s // 3, s) for s in range(9)],
    }
    stamps = [p["local_timestamp"] for kind, p in messages(archive) if kind == "metric_msg"]
    assert stamps[::2] == [1_700_000_000_123 + s * 1000 for s in range(9)]
    assert "curr_step" not in parameters(archive)
    assert sink.unshown == {}


def test_an_epoch_does_not_stick(tmp_path: Path) -> None:
    """An event without an epoch has none, also after one that has."""
    archive = closed(
        opened(tmp_path),
        [
            StepEvent(step=5, epoch=1, values={"a": 1.0}, seq=0),
            StepEvent(step=3, values={"a": 2.0}, seq=1),
            StepEvent(values={"a": 3.0}, seq=2),
        ],
    )
    assert points(archive)["a"] == [(5, 1, 1.0), (3, None, 2.0), (None, None, 3.0)]


def test_odd_values_arrive_or_are_counted(tmp_path: Path) -> None:
    """NaN and infinities are spelled as Comet does; what has no 64 bits is rounded and counted."""
    values: dict[str, Any] = {
        "nan": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "true": True,
        "exact": 2**60 + 1,
        "long": 10**30,
        "huge": -(10**400),
    }
    sink = opened(tmp_path)
    archive = closed(
        sink,
        [StepEvent(step=2**70, values=values, seq=0), StepEvent(step=-1, values=values, seq=1)],
    )
    found = {name: value for name, (_, (_, _, value)) in points(archive).items()}
    assert found == {
        "nan": "NaN",
        "inf": "Infinity",
        "-inf": "-Infinity",
        "true": 1,
        "exact": 2**60 + 1,
        "long": 1e30,
        "huge": "-Infinity",
    }
    assert [step for step, _, _ in points(archive)["true"]] == [None, -1]
    assert sink.unshown == {
        "integer beyond 64 bits: rounded": 4,
        "step beyond 64 bits: left out": 1,
    }


def test_each_axis_has_a_curve_of_its_own(tmp_path: Path) -> None:
    """One key on several axes is several curves; an epoch's point has its step, too."""
    at: dict[str, Any] = {"step": 10, "batch": 40, "epoch": 2, "values": {"v": 1.0}}
    archive = closed(
        opened(tmp_path),
        [
            StepEvent(**at, seq=0),
            BatchEvent(**at, seq=1),
            EpochEvent(**at, seq=2),
            EpochEvent(**(at | {"epoch": 2.5}), seq=3),
            StepEvent(**at, axis="val_step", seq=4),
        ],
    )
    assert points(archive) == {
        "v": [(10, 2, 1.0)],
        "v_batch": [(40, 2, 1.0)],
        "v_epoch": [(10, 2, 1.0), (10, 2.5, 1.0)],
        "v_val_step": [(10, 2, 1.0)],
    }


ODD = [
    "",
    "timing(s)/gen",
    "val/AR@100",
    "../../x",
    "a\\b",
    "CON",
    "x" * 10_000,
    "x" * 10_000 + "y",
    "\N{GRINNING FACE}",
    "\udc80",
    "foo",
    "foo/bar",
    "Loss",
    "loss",
    "two\nlines",
    "two_lines",
]


def test_odd_names_stay_apart_and_are_valid(tmp_path: Path) -> None:
    """Names of any kind become names that the uploader takes, each its own, and keep them."""
    from comet_ml.schemas import get_metric_msg_validator

    sink = opened(tmp_path)
    values: dict[str, Any] = {key: float(i) for i, key in enumerate(ODD)}
    archive = closed(sink, [StepEvent(step=0, values=values, seq=0)])
    found = metrics(archive)
    assert [point["metricValue"] for point in found] == [float(i) for i in range(len(ODD))]
    names = [point["metricName"] for point in found]
    assert len(set(names)) == len(ODD)
    assert max(map(len, names)) <= 100
    assert {"timing(s)/gen", "val/AR@100", "foo", "foo/bar", "Loss", "loss"} <= set(names)
    for kind, payload in messages(archive):
        if kind == "metric_msg":
            get_metric_msg_validator().validate(payload)
            assert "\n" not in payload["metric"]["metricName"]
    again = opened(tmp_path, {"state": sink.state()})
    later = closed(again, [StepEvent(step=1, values=dict(reversed(values.items())), seq=1)])
    assert [point["metricName"] for point in metrics(later)] == names[::-1]


class Color:
    """Not plain, as config can be where a sink is used directly."""

    def __str__(self) -> str:
        return "red"


def test_config_of_any_shape(tmp_path: Path) -> None:
    """Nested config is flat with its prefixes; what Comet has no type for is text."""
    config: dict[str, Any] = {
        "lr": 1e-3,
        "train": {"loss": "mse", "sizes": [1, 2], "none": None, "nan": math.nan, "on": True},
        "eval": {"loss": "mae"},
        "long": "x" * 7000,
        "color": Color(),
        "huge": 10**30,
        "empty": {},
    } | {f"key{i}": i for i in range(300)}
    sink = opened(tmp_path, {"config": config})
    archive = closed(
        sink,
        [ConfigUpdated(config={"lr": 2e-3, "new": "later"}, seq=0), RunStarted(run_id="r1", seq=1)],
    )
    found = parameters(archive)
    assert found["train/loss"] == "mse"
    assert found["eval/loss"] == "mae"
    assert found["train/sizes"] == "[1, 2]"
    assert (found["train/none"], found["train/nan"], found["train/on"]) == (None, "NaN", True)
    assert (found["lr"], found["new"], found["key299"]) == (2e-3, "later", 299)
    assert found["color"] == '"red"'
    assert found["huge"] == str(10**30)
    assert found["empty"] == "{}"
    assert len(found["long"]) == 1000
    assert found["long"].endswith("(7000 characters)")
    assert sink.unshown == {"hyperparameter longer than 1000 characters: cut": 1}


def test_the_run_introduces_itself(tmp_path: Path) -> None:
    """Name, project, tags, group, notes, rank and provenance are told, once."""
    about: dict[str, Any] = {
        "name": "my run",
        "tags": ("a", "b\n", ""),
        "group": "g",
        "notes": "n" * 2000,
        "rank": 1,
        "world_size": 4,
        "provenance": {"git": {"commit": "abc"}},
    }
    sink = opened(tmp_path, about)
    archive = closed(sink, [StepEvent(step=1, values={"x": 1.0}, seq=0)])
    told = others(archive)
    assert told["Name"] == "my run"
    assert (told["run/id"], told["run/group"], told["run/rank"]) == ("r1", "g", 1)
    assert told["run/world_size"] == 4
    assert told["run/notes"].endswith("(2000 characters)")
    with zipfile.ZipFile(archive) as file:
        about_it = json.loads(file.read("experiment.json"))
        kept = {
            p["additional_params"]["fileName"]: file.read(p["file_path"])
            for kind, p in messages(archive)
            if kind == "file_upload"
        }
    assert sorted(about_it["tags"]) == ["a", "b_"]
    assert about_it["project_name"] == "p"
    assert json.loads(kept["provenance.json"]) == {"git": {"commit": "abc"}}
    again = opened(tmp_path, about | {"state": sink.state()}, project="other", workspace="w")
    later = closed(again, [StepEvent(step=2, values={"x": 1.0}, seq=1)])
    assert "Name" not in others(later)
    with zipfile.ZipFile(later) as file:
        about_it = json.loads(file.read("experiment.json"))
    assert (about_it["project_name"], about_it["workspace"]) == ("other", "w")


@pytest.mark.parametrize("status", ["finished", "failed", "interrupted", "killed"])
def test_status_and_summary(tmp_path: Path, status: Any) -> None:
    """The status is told, a failure as Comet's own error; the summary cannot rename the run."""
    sink = opened(tmp_path, {"name": "good"})
    error = None if status == "finished" else "ValueError: boom"
    archive = closed(
        sink,
        [
            StepEvent(step=1, values={"Name": "evil", "phase": "warmup"}, seq=0),
            SummaryUpdated(summary={"best": {"acc": 0.9}, "Name": "evil"}, seq=1),
            SummaryUpdated(summary={"best": {"acc": 0.95}}, seq=2),
            RunFinished(status="finished", error=error, seq=3),
        ],
        status,
    )
    told = others(archive)
    assert (told["run/status"], told.get("run/error"), told["Name"]) == (status, error, "good")
    assert (told["summary/best/acc"], told["summary/Name"], told["phase"]) == (
        0.95,
        "evil",
        "warmup",
    )
    with zipfile.ZipFile(archive) as file:
        about_it = json.loads(file.read("experiment.json"))
    crashed = status in ("failed", "killed")
    assert about_it["customer_error_reported"] is crashed
    assert about_it["customer_error_message"] == (error if crashed else None)


def test_a_run_that_ends_well_has_no_error(tmp_path: Path) -> None:
    """What went wrong in a former attempt is written over in the experiment that both are."""
    sink = opened(tmp_path)
    failed = closed(sink, [RunFinished(status="failed", error="boom", seq=0)], "failed")
    assert others(failed)["run/error"] == "boom"
    again = opened(tmp_path, {"state": sink.state(), "attempt": 2})
    told = others(closed(again, [StepEvent(step=1, values={"v": 1.0}, attempt=2, seq=1)]))
    assert (told["run/status"], told["run/error"]) == ("finished", "-")
    assert again.run_id == sink.run_id


def test_a_rewind_loses_nothing(tmp_path: Path) -> None:
    """After a rewind lower steps follow, and both attempts are there, the later one last."""
    first: list[Event] = [StepEvent(step=s, values={"v": 1.0}, seq=s) for s in range(4)]
    archive = closed(
        opened(tmp_path),
        [
            *first,
            Rewound(to_step=2, attempt=2, seq=4),
            *(StepEvent(step=s, values={"v": 2.0}, attempt=2, seq=s + 3) for s in (2, 3)),
        ],
    )
    assert points(archive)["v"] == [
        *((s, None, 1.0) for s in range(4)),
        (2, None, 2.0),
        (3, None, 2.0),
    ]


def test_a_batch_that_comes_again_is_logged_once(tmp_path: Path) -> None:
    """What was confirmed is skipped, in the same process and in the next one."""
    events: list[Event] = [StepEvent(step=s, values={"v": float(s)}, seq=s) for s in range(6)]
    sink = opened(tmp_path)
    sink.write(events[:4])
    archive = closed(sink, events[2:5])
    again = opened(tmp_path, {"state": sink.state()})
    assert again.run_id == sink.run_id
    later = closed(again, events)
    assert points(archive)["v"] == [(s, None, float(s)) for s in range(5)]
    assert points(later)["v"] == [(5, None, 5.0)]


def test_options_of_a_log_call(tmp_path: Path) -> None:
    """What Comet's own log call takes is taken; other options are counted."""
    sink = opened(tmp_path)
    sink.tracker.context = "train"
    options = {"comet": {"step": 7, "epoch": 3, "include_context": False, "what": 1}}
    archive = closed(
        sink,
        [
            StepEvent(step=1, values={"v": 1.0}, options=options, seq=0),
            StepEvent(step=2, values={"v": 2.0}, seq=1),
        ],
    )
    assert points(archive)["v"] == [(7, 3, 1.0), (2, None, 2.0)]
    assert [p.get("context") for kind, p in messages(archive) if kind == "metric_msg"] == [
        None,
        "train",
    ]
    assert sink.unshown == {"option 'what' of a log call": 1}


def test_points_that_an_upload_samples_away_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All points are in the archive; those that `comet upload` may leave out are counted."""
    monkeypatch.setenv("COMET_OFFLINE_SAMPLING_SIZE", "20")
    sink = opened(tmp_path)
    events: list[Event] = [
        StepEvent(step=s, values={"v": 1.0, "w" if s < 20 else f"w{s}": 1.0}, seq=s)
        for s in range(25)
    ]
    archive = closed(sink, events)
    assert len(points(archive)["v"]) == 25
    assert sink.unshown == {"point beyond 20 of its metric: Comet keeps a sample": 5}


@pytest.mark.parametrize(
    "options",
    [
        {"project": ""},
        {"workspace": 3},
        {"server": ""},
        {"online": "yes"},
        {"experiment_key": "short"},
        {"experiment_key": "-" * 32},
        {"sdk_options": [1]},
        {"sdk_options": {1: 2}},
    ],
)
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    """An option that cannot be is refused when the sink is made, by name."""
    with pytest.raises(ValueError, match=f"^{next(iter(options))} must be .* not "):
        CometSink(**options)


def test_unknown_sdk_options_are_refused(tmp_path: Path) -> None:
    """An option that Comet's SDK does not know is an error when the run is opened."""
    with pytest.raises(RefusedError, match="nonsense"):
        opened(tmp_path, sdk_options={"nonsense": 1})


def test_unready_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline is always ready; online needs a key, in the environment or one of Comet's files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("COMET_API_KEY", raising=False)
    monkeypatch.delenv("COMET_CONFIG", raising=False)
    assert CometSink.unready({}) is None
    assert "COMET_API_KEY" in str(CometSink.unready({"online": True}))
    (tmp_path / ".comet.config").write_text("[comet]\nworkspace = w\n")
    assert CometSink.unready({"online": True}) is not None
    (tmp_path / ".comet.config").write_text("[comet]\napi_key = k%k\n")
    assert CometSink.unready({"online": True}) is None
    (tmp_path / ".comet.config").write_text("no section")
    assert CometSink.unready({"online": True}) is not None
    (tmp_path / ".env").write_text("# c\nexport COMET_API_KEY=k\n")
    assert CometSink.unready({"online": True}) is None
    (tmp_path / ".env").unlink()
    other = tmp_path / "other"
    other.mkdir()
    (other / ".comet.config").write_text("[comet]\napi_key = k\n")
    monkeypatch.setenv("COMET_CONFIG", str(other))
    assert CometSink.unready({"online": True}) is None
    monkeypatch.delenv("COMET_CONFIG")
    monkeypatch.setenv("COMET_API_KEY", "k")
    assert CometSink.unready({"online": True}) is None


def test_online_without_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do and leaves nothing; a key that the SDK was told in this process counts."""
    from comet_ml import config

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("COMET_API_KEY", raising=False)
    monkeypatch.delenv("COMET_CONFIG", raising=False)
    monkeypatch.setattr(config, "get_api_key", lambda *_: None)
    with pytest.raises(RefusedError, match="comet login"):
        opened(tmp_path, online=True)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(config, "get_api_key", lambda *_: "k" * 25)
    assert has_key()


def test_targets_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another place, server or experiment is another target; closing what never opened is fine."""
    monkeypatch.delenv("COMET_URL_OVERRIDE", raising=False)
    many: list[dict[str, Any]] = [
        {},
        {"dir": "a"},
        {"experiment_key": "k" * 32},
        {"online": True},
        {"online": True, "workspace": "w"},
        {"online": True, "server": "http://localhost"},
    ]
    assert len({CometSink(**options).target() for options in many}) == len(many)
    sink = CometSink()
    sink.close("finished")
    assert sink.state() == {}
    with pytest.raises(RuntimeError, match="open"):
        sink.write([StepEvent(step=1, values={"v": 1.0})])


def test_a_run_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives go where Comet's own go, or where `dir` says, under the key that was asked for."""
    monkeypatch.chdir(tmp_path)
    key = "k" * 32
    nowhere = {"run_dir": None, "directory": None}
    events: list[Event] = [StepEvent(step=1, values={"v": 1.0}, seq=0)]
    first = closed(opened(tmp_path, nowhere, experiment_key=key), events)
    assert first.parent == tmp_path / ".cometml-runs"
    assert first.name.startswith(key)
    second = closed(opened(tmp_path, nowhere, experiment_key=key, dir=tmp_path / "a/b"), events)
    assert second.parent == tmp_path / "a" / "b"
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == [second.name]
