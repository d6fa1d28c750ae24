"""Events as JSON lines."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, UnknownEvent
from eventlog.cli.event_json import event_record, json_line

from .conftest import Cli, program

FOREIGN = """
import sys
from eventlog import Event, Run
class Checkpointed(Event, tag="checkpointed", frozen=True, kw_only=True):
    path: str = ""
    data: bytes = b""
with Run("p", dir=sys.argv[1]) as run:
    run.step(loss=1.0)
    run.emit(Checkpointed(path="weights.pt", data=b"abc", values={"size": 3}))
"""


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_event_is_a_line_with_every_field(cli: Cli, run_dir: Path) -> None:
    """The type first, then where it is in the log, then what it says; defaults included."""
    result = cli("cat", run_dir)
    assert result.exit_code == 0
    events = _lines(result.stdout)
    assert [event["seq"] for event in events] == list(range(48))
    step = events[1]
    assert list(step) == ["type", "seq", "wall", "mono", "rank", "attempt", "step", "batch",
                          "epoch", "axis", "values", "window"]  # fmt: skip
    assert step["type"] == "step"
    assert step["wall"] > 0
    assert (step["rank"], step["attempt"], step["step"]) == (0, 1, 0)
    assert step["values"] == {"loss": 1.0, "acc": 0.0}
    assert events[0]["config"] == {"lr": 0.1, "model": {"depth": 3}}
    assert events[-1]["status"] == "finished"
    assert events[-1]["error"] is None


def test_nan_and_infinities_survive(cli: Cli, run_dir: Path) -> None:
    """As Python's literals, or as texts where the reader wants JSON by the letter."""
    (odd,) = _lines(cli("cat", run_dir, "--keys", "odd", "--keys", "big", "--type", "step").stdout)
    assert math.isnan(odd["values"]["odd"])
    assert odd["values"]["big"] == -math.inf
    shown = cli("cat", run_dir, "--strict", "--start", 46, "--stop", 47).stdout
    (odd,) = _lines(shown)
    assert odd["values"] == {"odd": "NaN", "big": "-Infinity", "word": "Größe"}
    assert "Größe" in shown


def test_events_can_be_chosen(cli: Cli, run_dir: Path) -> None:
    """By type, by name, by place in the log, and by a cadence with reduction."""
    assert len(_lines(cli("cat", run_dir, "--type", "epoch").stdout)) == 4
    seqs = [e["seq"] for e in _lines(cli("cat", run_dir, "--start", 5, "--stop", 9).stdout)]
    assert seqs == [5, 6, 7, 8]
    reduced = _lines(
        cli("cat", run_dir, "--type", "step", "--key", "acc", "--every", "20 steps",
            "--reduce", "max").stdout
    )  # fmt: skip
    assert all(set(event["values"]) == {"acc"} for event in reduced)
    assert all(event["window"]["n"] >= 1 for event in reduced)
    assert len(reduced) < 5


def test_a_window_is_shown(cli: Cli, run_dir: Path) -> None:
    """What a reduced event stands for is part of it."""
    reduced = _lines(cli("cat", run_dir, "--every", "10 steps", "--reduce", "mean").stdout)
    windows = [event["window"] for event in reduced if event["window"]]
    assert windows
    assert set(windows[0]) == {"first", "last", "n", "nans"}


def test_reduce_without_a_cadence_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """The core's own words reach the user."""
    result = cli("cat", run_dir, "--reduce", "mean")
    assert result.exit_code == 2
    assert "reduce needs a cadence" in result.stderr


def test_latest_leaves_out_what_was_logged_again(cli: Cli, tmp_path: Path) -> None:
    """A rewound step is there once, by its latest attempt."""
    with Run("p", dir=tmp_path) as run:
        for value in range(10):
            run.step(loss=value)
        run.rewind(5)
        for value in range(5, 10):
            run.step(loss=-value)
    every = _lines(cli("cat", tmp_path, "--type", "step").stdout)
    latest = _lines(cli("cat", tmp_path, "--type", "step", "--latest").stdout)
    assert len(every) == 15
    assert [event["step"] for event in latest] == list(range(10))
    assert {event["attempt"] for event in latest} == {1, 2}


def test_an_event_of_a_type_that_is_not_here_is_decoded(cli: Cli, tmp_path: Path) -> None:
    """The log is enough: its type's own fields are shown without the code that defines it."""
    subprocess.run([sys.executable, "-c", FOREIGN, str(tmp_path)], check=True)
    result = cli("cat", tmp_path, "--type", "checkpointed")
    assert result.exit_code == 0
    (event,) = _lines(result.stdout)
    assert event["type"] == "checkpointed"
    assert event["path"] == "weights.pt"
    assert event["data"] == "YWJj"
    assert event["values"] == {"size": 3}
    assert event["seq"] == 2
    assert event["wall"] > 0
    assert event["attempt"] == 1


def test_what_cannot_be_decoded_is_shown_raw() -> None:
    """Bytes in base64 are better than nothing."""
    record = event_record(UnknownEvent(type_name="odd", raw=b"\xc1", seq=7))
    assert (record["type"], record["seq"], record["raw"]) == ("odd", 7, "wQ==")


def test_a_type_that_nobody_knows_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """A typing error does not look like a log without such events."""
    result = cli("cat", run_dir, "--type", "stpe")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "not stpe; known: step," in result.stderr


def test_lines_are_ascii_where_the_output_is(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that has no umlauts gets escapes that JSON reads back."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    shown = program("cat", run_dir, "--start", 46, "--stop", 47)
    assert "Gr\\u00f6\\u00dfe" in shown.stdout
    assert json.loads(shown.stdout)["values"]["word"] == "Größe"


def test_both_ways_to_write_a_line_agree(run_dir: Path) -> None:
    """The fast way for plain events writes what the slow one does."""
    from eventlog import open_log

    for event in open_log(run_dir).events():
        if event.values.keys().isdisjoint({"odd"}):
            fast, slow = json_line(event), json_line(event, ascii_only=True)
            assert json.loads(fast) == json.loads(slow)
            assert list(json.loads(fast)) == list(json.loads(slow))
