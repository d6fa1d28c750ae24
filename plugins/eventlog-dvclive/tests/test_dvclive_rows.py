"""Rows of metrics: the very bytes of DVCLive, and what its readers make of them."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from dvclive import serialize, utils
from dvclive.live import Live

from eventlog.events import BatchEvent, EpochEvent, Event, StepEvent, SummaryUpdated
from eventlog.sinks.base import RunInfo
from eventlog_dvclive import DvcliveSink

WALL = 1_700_000_000_123_456_789
SDK: Any = utils
YAML: Any = serialize


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVCLive looks for repositories where the process is."""
    monkeypatch.chdir(tmp_path)


def opened(folder: Path, /, **run: Any) -> DvcliveSink:
    sink = DvcliveSink(dir=folder)
    sink.open(RunInfo(**({"run_id": "r1"} | run)))
    return sink


def rows(folder: Path, name: str) -> list[tuple[int, str]]:
    path = folder / "plots" / "metrics" / f"{name}.tsv"
    column = name.rpartition("/")[2]
    return [(int(row["step"]), row[column]) for row in SDK.parse_tsv(path)]


def metrics(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = SDK.parse_json(folder / "metrics.json")
    return found


def names(folder: Path) -> set[str]:
    found = (folder / "plots" / "metrics").rglob("*.tsv")
    return {path.relative_to(folder / "plots/metrics").as_posix()[:-4] for path in found}


def test_the_files_are_byte_for_byte_those_of_dvclive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same points by log_metric and by the sink make equal files, hyperparameters as well."""
    values: list[dict[str, Any]] = [
        {"train/loss": 1 / (s + 1), "n": s, "tiny": -1e-300, "huge": 2**70 + s, "odd name(s)": 1e22}
        for s in range(20)
    ]
    values[3] |= {"train/loss": math.nan, "n": math.inf, "word": 'a\tb "quoted"'}
    values[4] |= {"word": "plain", "télé": "🙂 "}
    config = {"lr": 1e-5, "layers": [1, [2]], "none": None, "deep": {"x": {"y": "no"}}, "f": 1e22}
    live: Any = Live(dir=str(tmp_path / "sdk"), save_dvc_exp=False, dvcyaml=None)
    monkeypatch.setattr(time, "time", lambda: WALL / 1e9)
    live.log_params(config)
    for step, given in enumerate(values):
        live.step = step
        for key, value in given.items():
            live.log_metric(key, value, timestamp=True)
    live.make_summary()
    monkeypatch.undo()
    sink = opened(tmp_path / "own", config=config)
    sink.write([StepEvent(step=s, values=v, wall=WALL, seq=s) for s, v in enumerate(values)])
    sink.close("finished")

    def contents(folder: Path) -> dict[str, bytes]:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        return {name: data for name, data in found.items() if not name.startswith("eventlog/")}

    own, sdk = contents(tmp_path / "own"), contents(tmp_path / "sdk")
    # DVCLive puts the summary in the order of its last points, which says nothing
    assert json.loads(own.pop("metrics.json")) == json.loads(sdk.pop("metrics.json"))
    assert own == sdk


def test_every_axis_has_rows_of_its_own(tmp_path: Path) -> None:
    """One key on four axes makes four metrics, each at the places of its axis."""
    sink = opened(tmp_path)
    value: dict[str, Any] = {"v": 1.5}
    events: list[Event] = [
        StepEvent(step=7, batch=30, epoch=1, values=value, wall=WALL, seq=0),
        BatchEvent(step=7, batch=31, epoch=1, values=value, wall=WALL, seq=1),
        EpochEvent(step=8, epoch=2, values=value, wall=WALL, seq=2),
        EpochEvent(step=9, epoch=2.5, values={"half": 1.0}, wall=WALL, seq=3),
        EpochEvent(epoch=3.5, values={"lone": 1.0}, wall=WALL, seq=4),
        StepEvent(step=3, axis="val_step", values=value, wall=WALL, seq=5),
    ]
    sink.write(events)
    sink.flush()
    assert rows(tmp_path, "v") == [(7, "1.5")]
    assert rows(tmp_path, "v_batch") == [(31, "1.5")]
    assert rows(tmp_path, "v_epoch") == [(2, "1.5")]
    assert rows(tmp_path, "v_val_step") == [(3, "1.5")]
    assert rows(tmp_path, "half") == [(9, "1.0")]
    assert rows(tmp_path, "lone") == [(3, "1.0")]
    assert metrics(tmp_path)["step"] == 9
    assert sink.unshown == {
        "fractional epoch shown at its step": 1,
        "fractional epoch rounded down": 1,
    }


def test_odd_values_are_exact_or_counted(tmp_path: Path) -> None:
    """NaN, infinities and large whole numbers are read back as they were; the rest is counted."""
    sink = opened(tmp_path)
    values: dict[str, Any] = {
        "nan": math.nan,
        "inf": -math.inf,
        "big": 2**64 + 1,
        "yes": True,
        "endless": 10**5000,
        "nothing": None,
        "half": "\udc80x",
        "lines": "a\nb",
    }
    sink.write([StepEvent(step=2**70, values=values, wall=WALL, seq=0)])
    sink.close("finished")
    found = {name: rows(tmp_path, name)[0][1] for name in names(tmp_path)}
    assert found == {"nan": "nan", "inf": "-inf", "big": str(2**64 + 1), "yes": "1", "half": "?x"}
    assert rows(tmp_path, "nan")[0][0] == 2**70
    assert metrics(tmp_path)["nan"] == "nan"
    text = tmp_path / "eventlog" / "text" / "lines" / f"{2**70}.md"
    assert text.read_text() == "a\nb"
    assert sink.unshown == {
        "value that cannot be written as a number or a string": 2,
        "string of several lines shown as a text": 1,
    }


def test_values_without_any_place_are_counted_up(tmp_path: Path) -> None:
    """Events that have no step get the next one, also after a restart, and are counted."""
    sink = opened(tmp_path)
    sink.write([StepEvent(values={"v": float(i)}, wall=WALL + i, seq=i) for i in range(3)])
    sink.close("interrupted")
    again = opened(tmp_path, state=sink.state())
    again.write([StepEvent(values={"v": 3.0}, wall=WALL + 10**9, seq=3)])
    assert rows(tmp_path, "v") == [(i, f"{i}.0") for i in range(4)]
    assert sink.unshown == {"no axis: steps counted up": 3}


ODD = [
    "", "timing(s)/gen", "val/AR@100", "../../x", "a\\b", "CON", "x" * 10_000, "\U0001f600" * 90,
    "\udc80", "foo", "foo/bar", "foo/bar/baz", "Loss", "loss", "/etc/passwd", "a//b", "a/", ".",
    "..", ".git/x", "nul.txt/x", "step", "timestamp", "a.tsv/b", "a", "x.json", "a\tb", "a\x00b",
    "C:/x", "a/" * 2000, "e\u0301", "\u00e9", "trail. /x ",
]  # fmt: skip


def test_odd_names_stay_in_the_folder_and_apart(tmp_path: Path) -> None:
    """Each name has a file of its own below the folder, in every order, and can be found again."""
    for order, keys in (("there", ODD), ("back", ODD[::-1])):
        folder = tmp_path / order / "run"
        sink = opened(folder)
        for seq, key in enumerate(keys):
            sink.write([StepEvent(step=1, values={key: float(seq)}, wall=WALL, seq=seq)])
        sink.close("finished")
        assert list((tmp_path / order).iterdir()) == [folder]
        found = names(folder)
        assert len({name.casefold() for name in found}) == len(ODD)
        values = {rows(folder, name)[0][1] for name in found}
        assert values == {f"{seq}.0" for seq in range(len(ODD))}
        assert "../../x" in sink.names.originals().values()
        # nested names do not take each other's place in metrics.json
        assert str(metrics(folder)).count(".0") == len(ODD)


def test_names_are_the_same_in_the_next_process(tmp_path: Path) -> None:
    """What a name became depends on what came before it; a resumed run keeps it."""
    sink = opened(tmp_path)
    sink.write([StepEvent(step=1, values={"a?": 1.0, "a*": 2.0}, wall=WALL, seq=0)])
    sink.close("interrupted")
    again = opened(tmp_path, state=sink.state())
    again.write([StepEvent(step=2, values={"a*": 3.0, "a?": 4.0}, wall=WALL + 10**9, seq=1)])
    assert rows(tmp_path, "a_") == [(1, "1.0"), (2, "4.0")]
    assert rows(tmp_path, "a__2") == [(1, "2.0"), (2, "3.0")]


def test_the_summary_is_beside_the_last_values(tmp_path: Path) -> None:
    """A summary value of a metric's name does not take its place, and both stay on a resume."""
    sink = opened(tmp_path)
    sink.write(
        [
            StepEvent(step=1, values={"loss": 0.5, "acc/top1": 1}, wall=WALL, seq=0),
            SummaryUpdated(summary={"loss": 0.1, "best": {"acc": math.nan}}, wall=WALL, seq=1),
        ]
    )
    sink.close("interrupted")
    again = opened(tmp_path, state=sink.state())
    again.close("finished")
    assert metrics(tmp_path) == {
        "loss": 0.5,
        "acc": {"top1": 1},
        "loss_summary": 0.1,
        "best": {"acc": "nan"},
        "step": 1,
    }


def test_metrics_json_keeps_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written with the first points, then at most once a second, and when flushed."""
    now = 1000.0
    monkeypatch.setattr("eventlog_dvclive.sink.time.monotonic", lambda: now)
    sink = opened(tmp_path)

    def write(step: int) -> Any:
        sink.write([StepEvent(step=step, values={"v": step}, wall=WALL, seq=step)])
        return metrics(tmp_path)["v"]

    assert [write(0), write(1)] == [0, 0]
    now += 1.0
    assert [write(2), write(3)] == [2, 2]
    sink.flush()
    assert metrics(tmp_path) == {"v": 3, "step": 3}


def test_options_of_a_log_call(tmp_path: Path) -> None:
    """plot=False keeps a value out of the history, as in log_metric; unknown ones are counted."""
    sink = opened(tmp_path, alias="mine")
    options = {"mine": {"plot": False, "timestamp": True, "nonsense": 1}}
    sink.write([StepEvent(step=1, values={"v": 0.5}, options=options, wall=WALL, seq=0)])
    sink.close("finished")
    assert metrics(tmp_path)["v"] == 0.5
    assert names(tmp_path) == set()
    assert sink.unshown == {"option 'nonsense' of a log call": 1}
