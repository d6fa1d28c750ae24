"""Which run is meant."""

from __future__ import annotations

import json
from pathlib import Path

from eventlog.cli.runs import choose_run, find_runs

from .conftest import Cli, MakeRun


def test_a_directory_of_runs_means_the_newest(cli: Cli, make_run: MakeRun, tmp_path: Path) -> None:
    """A note on standard error says which one was taken."""
    make_run("zoo", "old")
    new = make_run("mnist", "new")
    result = cli("info", tmp_path / "runs", "--json")
    assert json.loads(result.stdout)["name"] == "new"
    assert result.stderr == f"eventlog: {new}, the newest of 2 runs\n"


def test_a_run_needs_no_note(cli: Cli, run_dir: Path) -> None:
    """Nor does the directory of one of its ranks."""
    assert cli("info", run_dir).stderr == ""
    assert cli("info", run_dir / "rank-0").stderr == ""
    assert cli("verify", run_dir / "rank-0").exit_code == 0


def test_a_rank_that_is_not_there_is_told(cli: Cli, run_dir: Path) -> None:
    """The ranks that are there are named."""
    result = cli("info", run_dir, "--rank", 3)
    assert result.exit_code == 2
    assert "has no log of rank 3; it has: 0" in result.stderr


def test_each_rank_can_be_read(cli: Cli, run_dir: Path) -> None:
    """All of them are listed and verified."""
    (run_dir / "rank-1").mkdir()
    for path in (run_dir / "rank-0").glob("*.elog"):
        (run_dir / "rank-1" / path.name).write_bytes(path.read_bytes())
    found = json.loads(cli("info", run_dir, "--rank", 1, "--json").stdout)
    assert (found["rank"], found["ranks"]) == (1, [0, 1])
    assert len(cli("verify", run_dir).stdout.splitlines()) == 2
    assert len(cli("verify", run_dir, "--rank", 1).stdout.splitlines()) == 1
    (row,) = json.loads(cli("ls", run_dir, "--json").stdout)
    assert (row["events"], row["ranks"]) == (96, [0, 1])


def test_hidden_and_deep_directories_are_not_searched(make_run: MakeRun, tmp_path: Path) -> None:
    """A home directory given by mistake does not take for ever."""
    run_dir = make_run()
    hidden = tmp_path / "above" / ".cache"
    hidden.mkdir(parents=True)
    (tmp_path / "runs").rename(hidden / "runs")
    assert find_runs(tmp_path / "above") == []
    assert find_runs(hidden) == [hidden / "runs" / "mnist" / run_dir.name]


def test_what_holds_nothing_is_left_to_the_core(cli: Cli, tmp_path: Path) -> None:
    """Its own error says what is missing."""
    assert choose_run(tmp_path) == tmp_path
    result = cli("cat", tmp_path)
    assert result.exit_code == 2
    assert "holds no event log" in result.stderr
