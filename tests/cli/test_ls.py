"""Listing runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventlog import Log
from eventlog.log import LogSummary

from .conftest import Cli, MakeRun, damage, segment_of


def test_runs_are_listed_newest_first(cli: Cli, make_run: MakeRun, tmp_path: Path) -> None:
    """Runs of all projects under the directory, with what they hold."""
    old, new = make_run("mnist", "old"), make_run("cifar", "new", steps=20)
    result = cli("ls", tmp_path / "runs", "--json")
    assert result.exit_code == 0
    first, second = json.loads(result.stdout)
    assert (first["name"], second["name"]) == ("new", "old")
    assert first["project"] == "cifar"
    assert first["status"] == "finished"
    assert first["steps"] == [0, 20]
    assert first["path"] == str(new)
    assert first["events"] == 20 + 2 + 1 + 1 + 2
    assert first["bytes"] == segment_of(new).stat().st_size
    assert first["started"] > second["started"]
    assert second["run_id"] == old.name


def test_the_table_is_not_cut_in_a_pipe(cli: Cli, make_run: MakeRun, tmp_path: Path) -> None:
    """Long names stay whole: what reads a pipe has no width."""
    run_dir = make_run("p" * 60, "n" * 70)
    shown = cli("ls", tmp_path / "runs").stdout
    head, line = shown.splitlines()
    assert head.split()[:4] == ["project", "run", "name", "status"]
    assert line.split()[:4] == ["p" * 60, run_dir.name, "n" * 70, "finished"]


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_any_directory_above_does(
    levels: int, cli: Cli, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run, its project, all projects, and the working directory of the training."""
    above = [run_dir, *run_dir.parents][levels]
    assert run_dir.name in cli("ls", above).stdout
    monkeypatch.chdir(above)
    assert run_dir.name in cli("ls", ".").stdout or levels == 0


def test_damage_shows_in_the_status(cli: Cli, run_dir: Path) -> None:
    """A run that cannot be read whole is not listed as if nothing were."""
    damage(segment_of(run_dir))
    assert "damaged" in cli("ls", run_dir).stdout


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    cli: Cli, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed as unreadable, and why is said beside the table."""
    bad, good = make_run("bad"), make_run("good")
    summary = Log.summary

    def fail_for_one(log: Log) -> LogSummary:
        if log.run_dir == bad:
            raise PermissionError(13, "Permission denied", str(log.directory))
        return summary(log)

    monkeypatch.setattr(Log, "summary", fail_for_one)
    result = cli("ls", tmp_path / "runs", "--json")
    assert {row["path"]: row["status"] for row in json.loads(result.stdout)} == {
        str(good): "finished",
        str(bad): "unreadable",
    }
    assert result.stderr == f"eventlog: {bad}: {bad / 'rank-0'}: Permission denied\n"


def test_no_runs_is_an_empty_list(cli: Cli, tmp_path: Path) -> None:
    """A script gets an empty document, a person a note."""
    result = cli("ls", tmp_path, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == []
    assert result.stderr == f"eventlog: {tmp_path} holds no runs\n"


@pytest.mark.parametrize("odd", [5, None, ["x"], {"a": 1}, 1.5, True])
def test_a_manifest_of_other_types_is_read_past(cli: Cli, run_dir: Path, odd: object) -> None:
    """A line for the run all the same, by its directory's names."""
    (run_dir / "manifest.json").write_text(json.dumps({"run_id": odd, "project": odd, "name": odd}))
    result = cli("ls", run_dir.parent.parent)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1].split()[:2] == ["mnist", run_dir.name]
    (row,) = json.loads(cli("ls", run_dir.parent.parent, "--json").stdout)
    assert (row["project"], row["run_id"], row["name"]) == ("mnist", run_dir.name, run_dir.name)
