"""What an offline run holds, read back from its file."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import (
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    RunFinished,
    RunStarted,
    StepEvent,
    SummaryUpdated,
    UnknownEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.reading import OfflineRun, read_offline

WALL = 1_700_000_000_000_000_000
ODD = {
    "": "(no name)",
    "timing(s)/gen": "timing(s)/gen",
    "val/AR@100": "val/AR@100",
    "../../x": "--/--/x",
    "a\\b": "a\\b",
    "CON": "CON",
    "k" * 10_000: "k" * 250,
    "\N{COLLISION SYMBOL}": "\N{COLLISION SYMBOL}",
    "s\udc80": "s?",
    "foo": "foo",
    "foo/bar": "foo/bar",
    "Loss": "Loss",
    "_hidden": "-hidden",
    "_eventlog": "-eventlog",
    "*": "-",
    "a.b": "a.b",
}
CONFIG: dict[str, Any] = {
    "lr": 0.1,
    "model": {"layers": [1, 2, None], "": 1, "s\udc80": "s\udc80", "x.y": {}},
    "_wandb": "mine",
    "-dash-": 1,
    "dash": 2,
    "nan": math.nan,
    "big": 2**70,
    "long": "x" * 200_000,
    "none": None,
    **{f"key{number}": number for number in range(300)},
}


class Custom(Event, tag="wandb_custom", frozen=True, kw_only=True):
    """A user's own type."""

    path: str = ""
    extra: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


class Made:
    """A run that was written and read back."""

    def __init__(self, where: Path, batches: list[list[Event]], status: Any, **run: Any) -> None:
        self.sink = WandbSink(mode="offline", dir=where)
        self.sink.open(RunInfo(run_id="r1", directory=where / "names", **run))
        for batch in batches:
            self.sink.write(batch)
        self.url = self.sink.url
        self.sink.close(status)
        self.run: OfflineRun = read_offline(where, str(self.sink.run_id))
        self.unshown = dict(self.sink.unshown)

    def points(self, column: str) -> list[tuple[Any, Any]]:
        axis = self.run.axes.get(column, "_step")
        return [(row.get(axis), row[column]) for row in self.run.rows if column in row]


def numbered(events: list[Event], first: int = 0) -> list[Event]:
    fields = [{name: getattr(e, name) for name in e.__struct_fields__} for e in events]
    return [
        type(event)(**told | {"seq": seq, "wall": WALL + seq * 10**9})
        for seq, (event, told) in enumerate(zip(events, fields, strict=True), first)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One run with a bit of everything."""
    events = numbered(
        [
            RunStarted(run_id="r1", config=CONFIG),
            *(
                StepEvent(step=s, batch=4 * s, epoch=s / 10, values={"loss": 1 / (s + 1), "n": s})
                for s in range(20)
            ),
            StepEvent(step=20, epoch=2, values={"loss": 0.5, "epoch": 2, "step": 3, "phase": "up"}),
            BatchEvent(step=20, batch=81, values={"loss": 2.0}),
            EpochEvent(step=20, epoch=2.5, values={"loss": 3.0}),
            StepEvent(step=5, axis="val_step", values={"loss": 4.0}),
            StepEvent(step=6, axis="epoch", values={"loss": 5.0}),
            StepEvent(values={"loss": 6.0}),
            StepEvent(step=3, values={"loss": 7.0}),
            StepEvent(step=21, values=dict.fromkeys(ODD, 1.0)),
            StepEvent(
                step=22,
                values={
                    "nan": math.nan,
                    "inf": -math.inf,
                    "big": 2**53 + 1,
                    "huge": 2**70,
                    "beyond": 10**400,
                    "bool": True,
                    "word": "x\udc80",
                    "novel": "y" * 200_000,
                },
            ),
            StepEvent(step=2**60, values={"far": 1.0}),
            Custom(step=23, values={"loss": 8.0}, path="p", extra={"a": 1, "b": [1], "c": {}}),
            UnknownEvent(step=24, values={"loss": 9.0}, type_name="new"),
            StepEvent(step=25, values={"x": 1.0}, options={"wandb": {"commit": False, "odd": 1}}),
            StepEvent(step=25, values={"y": 1.0}),
            ConfigUpdated(config={"lr": 0.2, "late": {"a": 1}}),
            SummaryUpdated(summary={"best": {"acc": 0.9}, "loss": 0.01}),
            StepEvent(step=26, values={"loss": 10.0}),
            RunFinished(status="failed", error="ValueError: no", summary={"n": 1}),
        ]
    )
    return Made(
        tmp_path_factory.mktemp("wandb"),
        [events[:11], events[11:]],
        "failed",
        project="my/project",
        name="a name",
        group="a group",
        notes="some notes",
        tags=("a", "b" * 70, "a", ""),
        config={"lr": 0.1},
        rank=1,
    )


def test_values_steps_and_wall_times_arrive(made: Made) -> None:
    """Each event is a row with its values, its place on every axis, and when it happened."""
    rows = [row for row in made.run.rows if "n" in row][:20]
    assert [(r["step"], r["batch"], r["epoch"], r["loss"], r["n"]) for r in rows] == [
        (s, 4 * s, s / 10, 1 / (s + 1), s) for s in range(20)
    ]
    assert [row["_timestamp"] for row in rows] == [WALL / 1e9 + s for s in range(1, 21)]
    assert [row["_step"] for row in made.run.rows] == list(range(len(made.run.rows)))


def test_each_axis_has_its_column(made: Made) -> None:
    """One key on several axes is several columns, each over its own axis, none of them lost."""
    assert made.points("loss")[20:] == [
        (20, 0.5),
        (3, 7.0),
        (23, 8.0),
        (24, 9.0),
        (26, 10.0),
    ]
    assert made.points("loss_batch") == [(81, 2.0)]
    assert made.points("loss_epoch") == [(2.5, 3.0)]
    assert made.points("loss_val_step") == [(5, 4.0)]
    assert made.points("loss_epoch axis") == [(6, 5.0)]
    assert [value for _, value in made.points("loss_unstepped")] == [6.0]
    assert made.unshown["event without a step: shown at W&B's own"] == 1
    assert made.points("far") == [(2**60, 1.0)]


def test_a_value_that_repeats_an_axis_is_no_column(made: Made) -> None:
    """Many log the epoch among the values: it is the axis' column, unless it says another thing."""
    row = next(row for row in made.run.rows if "phase" in row)
    assert row["epoch"] == 2
    assert row["step"] == 20
    assert "epoch_step" not in row
    assert row["step_step"] == 3
    assert row["phase"] == "up"


def test_odd_names_have_columns_of_their_own(made: Made) -> None:
    """Every name arrives under one that W&B takes, always the same."""
    row = next(row for row in made.run.rows if "timing(s)/gen" in row)
    for column in ODD.values():
        assert row[column] == 1.0, column
    assert len(set(ODD.values())) == len(ODD)


def test_odd_values_arrive_or_are_counted(made: Made) -> None:
    """NaN and infinities are exact; what cannot be is near, and counted."""
    row = next(row for row in made.run.rows if "nan" in row)
    assert math.isnan(row["nan"])
    assert row["inf"] == -math.inf
    assert row["big"] == 2**53 + 1
    assert row["huge"] == float(2**70)
    assert row["beyond"] == math.inf
    assert row["bool"] == 1
    assert row["word"] == "x?"
    assert row["novel"].endswith("... (200000 characters)")
    assert len(row["novel"]) == 100_000
    assert made.unshown["integer beyond 53 bits: the page rounds it"] == 2
    assert made.unshown["integer beyond 64 bits: rounded"] == 2
    assert made.unshown["integer beyond floats: shown as infinity"] == 1


def test_events_of_other_types(made: Made) -> None:
    """A user's event shows its fields; one of an unknown type only its values."""
    row = next(row for row in made.run.rows if "wandb_custom/path" in row)
    assert row["loss"] == 8.0
    assert row["wandb_custom/path"] == "p"
    assert row["wandb_custom/extra/a"] == 1
    assert row["wandb_custom/extra/b"] == "[1]"
    assert made.unshown["event of an unknown type: only its values"] == 1


def test_options_of_a_call(made: Made) -> None:
    """A row that is not committed is one with the next; options that the SDK lacks are counted."""
    row = next(row for row in made.run.rows if "x" in row)
    assert (row["x"], row["y"]) == (1.0, 1.0)
    assert made.unshown["option 'odd' of a log call"] == 1


def test_config_of_any_shape(made: Made) -> None:
    """Hyperparameters stay nested; what JSON or W&B does not take becomes text; all may change."""
    config = made.run.config
    assert config["lr"] == 0.2
    assert config["late"] == {"a": 1}
    assert config["model"] == {"layers": [1, 2, None], "(no name)": 1, "s?": "s?", "x.y": {}}
    assert config["wandb"] == "mine"
    assert {config["dash"], config["dash_2"]} == {1, 2}
    assert config["nan"] == "NaN"
    assert config["big"] == str(2**70)
    assert config["long"].endswith("... (200000 characters)")
    assert config["none"] is None
    assert all(config[f"key{number}"] == number for number in range(300))
    assert made.unshown["integer beyond 64 bits in config or summary: shown as text"] == 1


def test_summary_status_and_facts_of_the_run(made: Made) -> None:
    """The summary outlasts later rows; the run has its status, error, name, tags and rank."""
    run = made.run
    assert run.summary["best/acc"] == 0.9
    assert run.summary["loss"] == 0.01
    assert run.summary["n"] == 1
    assert run.summary["eventlog/status"] == "failed"
    assert run.summary["eventlog/error"] == "ValueError: no"
    assert run.exit_code == 1
    assert (run.run_id, run.project, run.name) == ("r1-rank1", "my-project", "a name")
    assert (run.group, run.notes) == ("a group", "some notes")
    assert run.tags == ["a", "b" * 64, "rank1"]
    assert made.url == str(run.folders[0])


def test_names_are_kept_in_a_file(made: Made) -> None:
    """The original of each name that was changed can be looked up."""
    rows = json.loads((made.sink.run.directory / "names.json").read_text())  # type: ignore[operator]
    assert {"name": "--/--/x", "key": "../../x", "axis": "step", "kind": "scalar"} in rows


def test_the_tracker_is_the_sdk_s_run(made: Made) -> None:
    """The sink gives the SDK's own object, and does not make it the process' one."""
    import wandb

    assert type(made.sink.tracker) is wandb.Run
    assert wandb.run is None


def test_the_sdk_reads_the_file(made: Made) -> None:
    """W&B's own command reads as many rows as ours, up to the end of the run."""
    command = [
        str(Path(sys.executable).with_name("wandb")),
        "leet",
        "inspect",
        "--json",
        str(made.url),
    ]
    env = os.environ | {"WANDB_ERROR_REPORTING": "false"}
    out = subprocess.run(command, env=env, capture_output=True, check=True, text=True).stdout
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert kinds.count("history") == len(made.run.rows)
    assert kinds[-1] == "exit"
