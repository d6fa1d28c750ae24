"""What a log is about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventlog import Run
from eventlog.log.checkpoint import Checkpoint, CheckpointFile, checkpoint_path

from .conftest import Cli, damage, segment_of


def test_everything_is_in_the_document(cli: Cli, run_dir: Path) -> None:
    """The JSON document has the run, its config, its size and its metrics, and is strict JSON."""
    result = cli("info", run_dir, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout, parse_constant=_refuse)
    assert found["run_id"] == run_dir.name
    assert found["project"] == "mnist"
    assert found["config"] == {"lr": 0.1, "model": {"depth": 3}}
    assert found["tags"] == ["demo"]
    assert found["provenance"]["python"]
    assert found["status"] == "finished"
    assert found["attempts"] == 1
    assert found["damage"] == []
    assert found["types"] == {
        "run_started": 1, "step": 41, "epoch": 4, "model_update": 1, "run_finished": 1
    }  # fmt: skip
    assert found["events"] == 48
    metrics = {m["key"]: m for m in found["metrics"]}
    assert metrics["loss"] == {"key": "loss", "axis": "step", "count": 40, "last": 1 / 40, "at": 39}
    assert metrics["odd"]["last"] == "NaN"
    assert metrics["big"]["last"] == "-Infinity"


def _refuse(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def test_the_text_says_the_same(cli: Cli, run_dir: Path) -> None:
    """A person reads names and values, a line each."""
    shown = cli("info", run_dir).stdout
    for text in (run_dir.name, "a note", "model.depth = 3", "0..40", "val/loss", "1 segment"):
        assert text in shown


def test_metrics_can_be_left_out(cli: Cli, run_dir: Path) -> None:
    """--no-metrics reads no events."""
    assert "metrics" not in json.loads(cli("info", run_dir, "--json", "--no-metrics").stdout)
    assert "val/loss" not in cli("info", run_dir, "--no-metrics").stdout


def test_metrics_are_counted_once_after_a_rewind(cli: Cli, tmp_path: Path) -> None:
    """What a later attempt logged again is not counted."""
    with Run("p", dir=tmp_path) as run:
        for value in range(10):
            run.step(loss=value)
        run.rewind(5)
        for value in range(5, 10):
            run.step(loss=-value)
    (metric,) = json.loads(cli("info", tmp_path, "--json").stdout)["metrics"]
    assert (metric["count"], metric["last"]) == (10, -9)


def test_damage_is_told_in_bytes(cli: Cli, run_dir: Path) -> None:
    """Where and how much; info itself ends well, verify is there to fail."""
    damage(segment_of(run_dir))
    result = cli("info", run_dir)
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("damage")]
    assert "bytes at" in line


def test_a_sink_that_has_everything_is_complete(cli: Cli, tmp_path: Path) -> None:
    """Its position is the log's end; that it cannot be made again is of no account then."""
    got: list[object] = []
    with Run("p", dir=tmp_path, sinks={"mine": got.append}) as run:
        run.step(loss=1.0)
    (sink,) = json.loads(cli("info", run.dir, "--json").stdout)["sinks"]
    assert sink["alias"] == "mine"
    assert (sink["position"], sink["lag"], sink["done"], sink["complete"]) == (3, 0, True, True)
    assert (sink["kept"], sink["state"], sink["dead"]) == (False, None, 0)
    (line,) = [x for x in cli("info", run.dir).stdout.splitlines() if x.startswith("mine ")]
    assert line.split() == ["mine", "3", "0", "0", "complete"]


def test_the_delivering_process_is_heard(cli: Cli, run_dir: Path) -> None:
    """What it said last of a sink that lacks something, with its error."""
    (run_dir / "sinks.json").write_text('{"far": {"name": "far"}}')
    report = {"state": "retrying", "error": "UnavailableError:\n down", "url": "http://x"}
    status = {"pid": 1, "sinks": {"far": report}}
    (run_dir / "rank-0" / "sidecar.json").write_text(json.dumps(status))
    (line,) = [x for x in cli("info", run_dir).stdout.splitlines() if x.startswith("far ")]
    assert " ".join(line.split()) == ("far 0 48 0 retrying: UnavailableError: down -> http://x")


def test_a_sink_whose_target_changed_is_there_for_each(cli: Cli, run_dir: Path) -> None:
    """A position belongs to what is written to."""
    (run_dir / "sinks.json").write_text('{"far": {"name": "far"}}')
    for target, seq in (("there", 48), ("elsewhere", 7)):
        file = CheckpointFile(checkpoint_path(run_dir / "rank-0", "far", target))
        file.save(
            Checkpoint(alias="far", fingerprint=target, seq=seq, done=target == "there"), sync=False
        )
        file.close()
    lines = [x.split() for x in cli("info", run_dir).stdout.splitlines() if x.startswith("far ")]
    assert lines == [
        ["far", "(there)", "48", "0", "0", "complete"],
        ["far", "(elsewhere)", "7", "41", "0", "behind"],
    ]


@pytest.mark.parametrize("plan", ["{", "[]", '{"x": {"name": "log", "every": {"mode": "steps"}}}',
                                  '{"x": {"name": "log", "every": {"by_type": 3}}}',
                                  '{"x": {"name": "log", "every": 3}}'])  # fmt: skip
def test_a_damaged_list_of_sinks_hides_nothing_else(cli: Cli, tmp_path: Path, plan: str) -> None:
    """The rest is shown, with what the positions say; it is named, and the exit code is 1."""
    with Run("p", dir=tmp_path, sinks={"copy": {"sink": "log"}}) as run:
        run.step(loss=1.0)
    assert run.dir is not None
    (run.dir / "sinks.json").write_text(plan)
    result = cli("info", run.dir)
    assert result.exit_code == 1
    assert result.stderr.count("sinks.json cannot be read") == 1
    assert "finished" in result.stdout
    (line,) = [x for x in result.stdout.splitlines() if x.startswith("copy ")]
    assert line.split() == ["copy", "3", "0", "0", "complete"]
    assert json.loads(cli("info", run.dir, "--json").stdout)["sinks"][0]["alias"] == "copy"
