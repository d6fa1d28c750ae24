"""Delivering to a run's own sinks what they still lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run
from eventlog._platform import FileLock
from eventlog.cli import pending
from eventlog.log.archive import Log

from .conftest import Cli, install_plugin

SINKS = '''
from pathlib import Path
from eventlog import Sink
from eventlog.exceptions import RefusedError, UnavailableError

class Far(Sink):
    """Writes the seq of each event into a file; is down while there is a file called down."""

    name = "far"

    def __init__(self, at, picky=False):
        self.at, self.picky = Path(at), picky

    def open(self, run):
        self.url = str(self.at)

    def write(self, batch):
        if self.at.with_name("down").exists():
            raise UnavailableError("the tracker is down")
        if self.picky and any("acc" in event.values for event in batch):
            raise RefusedError("no accuracy")
        with self.at.open("a") as file:
            file.writelines(f"{event.seq}\\n" for event in batch)
'''


@pytest.fixture(autouse=True)
def _plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "site").mkdir()
    install_plugin(tmp_path / "site", "far", "far_away:Far", SINKS)
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield
    sys.modules.pop("far_away", None)


@pytest.fixture
def down(tmp_path: Path) -> Path:
    """Return the file that keeps the tracker down."""
    path = tmp_path / "down"
    path.touch()
    return path


RUN = """
import json, sys
from eventlog import Run
from eventlog.exceptions import UnavailableError
from eventlog.testing import FaultySink
runs, sinks = sys.argv[1], json.loads(sys.argv[2])
sinks = sinks or [FaultySink(write=UnavailableError("down"))]
with Run("p", dir=runs, sinks=sinks, close_timeout=0.2) as run:
    for i in range(20):
        run.step(loss=1 / (i + 1), acc=i)
print(run.dir)
"""


def run_with(tmp_path: Path, sinks: dict[str, object]) -> Path:
    """Make a run in a process of its own, which does not outlive it; returns its directory."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "runs"), json.dumps(sinks)],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    return Path(done.stdout.strip())


def make(tmp_path: Path, name: str = "one", **options: object) -> Path:
    """Make a run that writes to a file of that name."""
    return run_with(tmp_path, {"far": {"at": str(tmp_path / name), **options}})


def seqs(path: Path) -> list[int]:
    """Return what arrived."""
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_sink_that_was_down_gets_what_it_lacks(cli: Cli, tmp_path: Path, down: Path) -> None:
    """Everything arrives, once, and then there is nothing left to do."""
    run_dir = make(tmp_path)
    assert seqs(tmp_path / "one") == []
    down.unlink()
    result = cli("replay", "--pending", run_dir)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{run_dir}: far: complete, 22 events -> {tmp_path / 'one'}\n"
    assert seqs(tmp_path / "one") == list(range(22))
    again = cli("replay", "--pending", run_dir)
    assert again.exit_code == 0
    assert again.stdout == f"{run_dir}: nothing to deliver\n"
    assert seqs(tmp_path / "one") == list(range(22))


def test_a_sink_that_is_still_down_is_1(cli: Cli, tmp_path: Path, down: Path) -> None:
    """Its error is said, and what it lacks; the next try goes on."""
    run_dir = make(tmp_path)
    result = cli("replay", "--pending", run_dir, "--patience", 0.5)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{run_dir}: far: incomplete, 0 events")
    assert "far still lacks 22 events: UnavailableError: the tracker is down" in result.stderr
    down.unlink()
    assert cli("replay", "--pending", run_dir).exit_code == 0
    assert seqs(tmp_path / "one") == list(range(22))


def test_all_runs_of_a_directory_are_delivered(cli: Cli, tmp_path: Path, down: Path) -> None:
    """Those that lack nothing are passed over."""
    first, second = make(tmp_path, "one"), make(tmp_path, "two")
    down.unlink()
    make(tmp_path, "whole")
    result = cli("replay", "--pending", tmp_path / "runs")
    assert result.exit_code == 0, result.stderr
    said = {line.partition(": ")[0] for line in result.stdout.splitlines()}
    assert said == {str(first), str(second)}
    assert seqs(tmp_path / "one") == seqs(tmp_path / "two") == list(range(22))
    assert seqs(tmp_path / "whole") == list(range(22))


def test_a_run_that_goes_on_is_left_alone(cli: Cli, tmp_path: Path, down: Path) -> None:
    """It delivers itself; that is said, and is no failure."""
    with Run("p", dir=tmp_path / "runs", sinks={"far": {"at": str(tmp_path / "x")}},
             close_timeout=0.1) as run:  # fmt: skip
        run.step(loss=1.0)
        run.flush(timeout=0.2)
        result = cli("replay", "--pending", run.dir)
    assert result.exit_code == 0
    assert "still going on" in result.stderr
    assert seqs(tmp_path / "x") == []


def test_a_sink_that_was_an_object_is_named(cli: Cli, tmp_path: Path) -> None:
    """It cannot be made again from here, and so it lacks something still: that is 1."""
    run_dir = run_with(tmp_path, {})
    result = cli("replay", "--pending", run_dir)
    assert result.exit_code == 1
    assert "faulty lacks 22 events and cannot be made again here" in result.stderr
    assert "nothing to deliver" not in result.stdout
    assert cli("replay", "--pending", run_dir, "--sink", "faulty").exit_code == 1
    (line,) = [x for x in cli("info", run_dir).stdout.splitlines() if x.startswith("faulty ")]
    assert line.endswith("behind (not in sinks.json)")


def test_the_sinks_of_an_earlier_attempt_get_what_they_lack(
    cli: Cli, tmp_path: Path, down: Path
) -> None:
    """Also where the run was resumed with others."""
    run_dir = make(tmp_path)
    with Run("p", dir=run_dir.parent.parent, resume="must", sinks="log"):
        pass
    down.unlink()
    result = cli("replay", "--pending", run_dir)
    assert result.exit_code == 0, result.stderr
    assert f"{run_dir}: far: complete, 24 events" in result.stdout
    assert seqs(tmp_path / "one") == list(range(24))


def test_what_a_sink_refuses_is_1(cli: Cli, tmp_path: Path, down: Path) -> None:
    """It is counted, and has a log of its own that can be replayed."""
    run_dir = make(tmp_path, picky=True)
    down.unlink()
    result = cli("replay", "--pending", run_dir)
    assert result.exit_code == 1
    assert "far: incomplete, 2 events, 20 refused" in result.stdout
    assert cli("cat", run_dir / "dead" / "far").stdout.count("acc") == 20
    assert "nothing to deliver" in cli("replay", "--pending", run_dir).stdout


def test_a_sink_that_is_not_installed_here_is_1(
    cli: Cli, tmp_path: Path, down: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names it and what to do."""
    run_dir = make(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in sys.path if p != str(tmp_path / "site")])
    result = cli("replay", "--pending", run_dir)
    assert result.exit_code == 1
    assert "there is no sink named 'far'" in result.stderr


def test_another_delivery_is_not_disturbed(cli: Cli, tmp_path: Path, down: Path) -> None:
    """A sidecar may still be at it, long after the run."""
    run_dir = make(tmp_path)
    (path,) = (run_dir / "rank-0" / "checkpoints").glob("far-*.lock")
    lock = FileLock(path)
    assert lock.acquire()
    result = cli("replay", "--pending", run_dir)
    lock.release()
    assert result.exit_code == 0
    assert "another process delivers to far" in result.stderr


def test_one_of_the_sinks_can_be_chosen(cli: Cli, tmp_path: Path, down: Path) -> None:
    """By its alias; one that the run has not is wrong usage."""
    run_dir = make(tmp_path)
    down.unlink()
    result = cli("replay", "--pending", run_dir, "--sink", "near")
    assert result.exit_code == 2
    assert "'near' is no sink of" in result.stderr
    assert "it has: far" in result.stderr
    assert "far: complete" in cli("replay", "--pending", run_dir, "--sink", "far").stdout


def test_a_sink_that_no_run_has_is_wrong_usage(cli: Cli, tmp_path: Path, down: Path) -> None:
    """Also for many runs; one that only some have is delivered to there."""
    make(tmp_path, "one")
    run_with(tmp_path, {"copy": {"sink": "log"}})
    down.unlink()
    result = cli("replay", "--pending", tmp_path / "runs", "--sink", "farr")
    assert result.exit_code == 2
    assert f"--sink 'farr' is no sink of {tmp_path / 'runs'}" in result.stderr
    assert {*result.stderr.strip().rpartition("it has: ")[2].split(", ")} == {"far", "copy"}
    assert seqs(tmp_path / "one") == []
    result = cli("replay", "--pending", tmp_path / "runs", "--sink", "far")
    assert result.exit_code == 0, result.stderr
    assert seqs(tmp_path / "one") == list(range(22))


@pytest.mark.parametrize(
    "odd",
    [{"rate": 0}, {"rate": -1}, {"every": "no cadence"}, {"reduce": "none"}, {"types": ["nosuch"]}],
)
def test_a_list_of_sinks_that_was_edited_does_not_stop_the_others(
    cli: Cli, tmp_path: Path, down: Path, odd: dict[str, object]
) -> None:
    """Whatever is wrong in it is a line, and 1; the run after it is delivered."""
    first, second = sorted([make(tmp_path, "one"), make(tmp_path, "two")])
    plan = json.loads((first / "sinks.json").read_text())
    plan["far"] |= odd
    (first / "sinks.json").write_text(json.dumps(plan))
    down.unlink()
    result = cli("replay", "--pending", tmp_path / "runs")
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert f"{second}: far: complete, 22 events" in result.stdout
    assert f"{first}: far" in result.stdout + result.stderr


def test_whatever_goes_wrong_with_a_run_does_not_stop_the_others(
    cli: Cli, tmp_path: Path, down: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a fault of ours."""
    first, second = sorted([make(tmp_path, "one"), make(tmp_path, "two")])
    down.unlink()
    deliver = pending._deliver

    def broken(log: Log, aliases: list[str], *more: Any) -> bool:
        if log.run_dir == first:
            raise ZeroDivisionError("ours")
        return deliver(log, aliases, *more)

    monkeypatch.setattr(pending, "_deliver", broken)
    result = cli("replay", "--pending", tmp_path / "runs")
    assert result.exit_code == 1
    assert f"{first}: ZeroDivisionError: ours" in result.stderr
    assert f"{second}: far: complete, 22 events" in result.stdout


def test_events_that_are_lost_are_1(cli: Cli, tmp_path: Path, down: Path) -> None:
    """What cannot be read any more is not delivered, and that is said."""
    run_dir = make(tmp_path)
    (path,) = (run_dir / "rank-0").glob("*.elog")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"acc")] ^= 1
    path.write_bytes(data)
    down.unlink()
    result = cli("replay", "--pending", run_dir)
    assert result.exit_code == 1
    assert "far: incomplete" in result.stdout
    assert " lost ->" in result.stdout


def test_what_was_removed_on_purpose_is_said_and_not_lost(
    cli: Cli, tmp_path: Path, down: Path
) -> None:
    """A sink that has nothing yet begins with the first event that is there."""
    run_dir = make(tmp_path)
    (path,) = (run_dir / "rank-0").glob("*.elog")
    with Run("p", dir=tmp_path / "runs", resume="must") as run:
        run.step(loss=1.0)
    path.unlink()
    down.unlink()
    result = cli("replay", "--pending", run.dir)
    assert result.exit_code == 0, result.stderr
    assert "the events before 22 were removed from the log" in result.stderr
    assert seqs(tmp_path / "one") == [22, 23, 24]


def test_a_run_that_cannot_be_read_does_not_stop_the_others(
    cli: Cli, tmp_path: Path, down: Path
) -> None:
    """It is named, and the exit code is 1."""
    broken = make(tmp_path, "one")
    make(tmp_path, "two")
    down.unlink()
    (broken / "sinks.json").write_text("{")
    result = cli("replay", "--pending", tmp_path / "runs")
    assert result.exit_code == 1
    assert "sinks.json cannot be read" in result.stderr
    assert "far: complete" in result.stdout
    assert cli("replay", "--pending", broken).exit_code == 2


def test_what_is_delivered_cannot_be_changed(cli: Cli, tmp_path: Path) -> None:
    """The sinks are as the run had them: other options are wrong usage."""
    for more in (["--every", "10 steps"], ["--start", 3], ["--dir", "x"], ["--no-resume"],
                 ["--speed", 2], ["--follow"], ["--all-attempts"]):  # fmt: skip
        result = cli("replay", "--pending", tmp_path, *more)
        assert result.exit_code == 2
        assert "--pending takes only" in result.stderr


def test_the_sinks_of_a_run_are_part_of_what_is_known_of_it(
    cli: Cli, tmp_path: Path, down: Path
) -> None:
    """Info says where each is, what it lacks, and how many events it refused."""
    run_dir = make(tmp_path, picky=True)
    (line,) = [x for x in cli("info", run_dir).stdout.splitlines() if x.startswith("far ")]
    assert line.split() == ["far", "0", "22", "0", "behind"]
    down.unlink()
    cli("replay", "--pending", run_dir)
    (line,) = [x for x in cli("info", run_dir).stdout.splitlines() if x.startswith("far ")]
    assert line.split() == ["far", "22", "0", "20", "complete"]
