"""Replaying from the command line."""

from __future__ import annotations

import datetime
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import Run, open_log
from eventlog._replay import Progress, ReplayReport
from eventlog.cli import replay as command
from eventlog.delivery import SinkStatistics

from .conftest import Cli, MakeRun, at_terminal, damage, install_plugin, segment_of

SINKS = '''
from eventlog import RunInfo, Sink
from eventlog.exceptions import RefusedError

class Lines(Sink):
    """Writes a line for each event, and its options first."""

    name = "lines"

    def __init__(self, mode="plain", n=1):
        self.options = (mode, n)

    def open(self, run):
        run.directory.mkdir(parents=True, exist_ok=True)
        self.path = run.directory / "lines.txt"
        self.path.write_text(f"{self.options}\\n")
        self.url = str(self.path)

    def write(self, batch):
        with self.path.open("a") as file:
            for event in batch:
                file.write(f"{event.seq} {dict(event.values)}\\n")

class Picky(Sink):
    name = "picky"

    def write(self, batch):
        if any("acc" in event.values for event in batch):
            raise RefusedError("no accuracy,\\nplease")
'''

SLOW = """
import time
from eventlog import Sink

class Slow(Sink):
    name = "slow"

    def open(self, run):
        run.directory.mkdir(parents=True, exist_ok=True)
        self.path = run.directory / "seqs.txt"

    def write(self, batch):
        with self.path.open("a") as file:
            file.writelines(f"{event.seq}\\n" for event in batch)
        print("written", flush=True)
        time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def _sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_plugin(tmp_path, "lines", "replayed_into:Lines", SINKS)
    install_plugin(tmp_path, "picky", "replayed_into:Picky")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("replayed_into", None)


def test_a_copy_is_made_and_named(cli: Cli, run_dir: Path) -> None:
    """By default in a new directory of the run."""
    result = cli("replay", run_dir, "--sink", "lines")
    assert result.exit_code == 0, result.stderr
    path = run_dir / "replays" / "1" / "lines" / "lines.txt"
    assert result.stdout == f"lines: complete, 48 events -> {path}\n"
    assert len(path.read_text().splitlines()) == 1 + 48
    assert "48 of 48 events" in result.stderr


def test_options_reach_their_sink(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """And files go where --dir says."""
    result = cli("replay", run_dir, "--sink", "lines", "--option", "lines.mode=rich",
                 "--option", "lines.n=3", "--dir", tmp_path / "out")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "out/lines/lines.txt").read_text().startswith("('rich', 3)\n")


def test_an_option_that_the_sink_has_not_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """The error names the options it has."""
    result = cli("replay", run_dir, "--sink", "lines", "--option", "lines.color=1")
    assert result.exit_code == 2
    assert "its options are: mode, n" in result.stderr


def test_an_unknown_sink_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """The error names the ones that are installed."""
    result = cli("replay", run_dir, "--sink", "nope")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    installed = line.partition("installed are: ")[2].partition(";")[0].split(", ")
    assert {"console", "lines", "tensorboard"} <= set(installed)


def test_what_is_replayed_can_be_chosen(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """By type, name and place in the log; what was left out is counted."""
    result = cli("replay", run_dir, "--sink", "lines", "--type", "step", "--keys", "loss",
                 "--start", "10", "--dir", tmp_path / "out")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    _, *lines = (tmp_path / "out/lines/lines.txt").read_text().splitlines()
    assert all("loss" in line and "acc" not in line for line in lines)
    assert lines[0].startswith("10 ")
    assert "left out by the cadence or a filter" in result.stdout


def test_a_cadence_and_a_reduction_hold(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """As for a live sink."""
    result = cli("replay", run_dir, "--sink", "lines", "--type", "step", "--every", "20 steps",
                 "--reduce", "max", "--dir", tmp_path / "out")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert 1 < len((tmp_path / "out/lines/lines.txt").read_text().splitlines()) < 6


def test_the_latest_attempt_is_replayed_or_all(cli: Cli, tmp_path: Path) -> None:
    """--all-attempts brings what was logged again as well."""
    with Run("p", dir=tmp_path / "runs") as run:
        for value in range(10):
            run.step(loss=value)
        run.rewind(5)
        for value in range(5, 10):
            run.step(loss=-value)
    counts = []
    for more in ([], ["--all-attempts"]):
        out = tmp_path / f"out{len(more)}"
        assert cli("replay", run.dir, "--sink", "lines", "--dir", out, *more).exit_code == 0
        counts.append((out / "lines/lines.txt").read_text().count("loss"))
    assert counts == [10, 15]


def test_an_incomplete_replay_is_1(cli: Cli, run_dir: Path) -> None:
    """Each sink is told of by itself, and what it refused is counted."""
    result = cli("replay", run_dir, "--sink", "picky", "--sink", "lines")
    assert result.exit_code == 1
    picky, lines = result.stdout.splitlines()
    assert picky.startswith("picky: incomplete, 8 events")
    assert "40 refused" in picky
    assert lines.startswith("lines: complete, 48 events")
    assert "--dir" not in result.stderr, "to go on would bring nothing"


def test_a_sink_that_failed_is_told_how_to_go_on(
    cli: Cli, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is one line, and the directory to give again is named."""
    statistics = SinkStatistics(delivered=7, state="failed", error="no\nnetwork")
    report = ReplayReport(False, {"lines": statistics}, {"lines": None}, tmp_path / "out", [])
    monkeypatch.setattr("eventlog._replay.replay", lambda *args, **options: report)
    result = cli("replay", run_dir, "--sink", "lines")
    assert result.exit_code == 1
    assert result.stdout == "lines: incomplete, 7 events\n"
    assert result.stderr == (
        "eventlog: lines: no network\n"
        f"eventlog: to go on where it stopped, say the same with --dir {tmp_path / 'out'}\n"
    )


def test_a_replay_goes_on_where_it_stopped(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """Into the same directory nothing goes twice, unless it is to begin anew."""
    again = ["replay", run_dir, "--sink", "lines", "--dir", tmp_path / "out"]
    assert "48 events" in cli(*again).stdout
    assert "complete, 0 events" in cli(*again).stdout
    assert "48 events" in cli(*again, "--no-resume").stdout


def test_a_damaged_log_is_1(cli: Cli, make_run: MakeRun) -> None:
    """What can be read is replayed; the exit code says that it was not all."""
    run_dir = make_run(steps=5000)
    damage(segment_of(run_dir), 0.3)
    result = cli("replay", run_dir, "--sink", "lines")
    assert result.exit_code == 1
    assert "lines: incomplete" in result.stdout
    assert " lost -> " in result.stdout
    assert "see: eventlog verify" in result.stderr


def test_a_terminal_gets_a_bar(make_run: MakeRun) -> None:
    """With the rate and the events; the result is below it."""
    code, seen = at_terminal("replay", make_run(steps=2000), "--sink", "console",
                             "--type", "run_finished")  # fmt: skip
    assert code == 0
    assert "━" in seen
    assert "/s" in seen
    assert "2204/2204" in seen.replace(",", "").replace(" ", "")
    assert "console: complete" in seen


def test_without_a_terminal_lines_come_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten calls a second are not ten lines a second; the last one is said once."""
    now = 0
    monkeypatch.setattr(command, "monotonic_ns", lambda: now)
    lines = command._Lines()
    for tenth in range(1, 301):
        now = tenth * 100_000_000
        lines(Progress(min(tenth * 100, 10_000), 10_000, {}))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "eventlog: 5,000 of 10,000 events, 1,000/s, 5 s left",
        "eventlog: 10,000 of 10,000 events, 1,000/s",
    ]


def test_a_part_of_the_run_is_replayed(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """By steps, epochs and time; what is said about the run comes in any case."""

    def seqs(*part: str) -> list[int]:
        out = tmp_path / "-".join(("out", *part)).replace(":", "_")
        result = cli("replay", run_dir, "--sink", "lines", "--dir", out, *part)
        assert result.exit_code == 0, result.stderr
        _, *lines = (out / "lines/lines.txt").read_text().splitlines()
        return [int(line.split()[0]) for line in lines]

    events = {event.seq: event for event in open_log(run_dir).events()}
    found = seqs("--steps", "10:20")
    assert found == [0, *(s for s, e in events.items() if 10 <= (e.step or 0) < 20), 47]
    assert len(found) == 2 + 11
    found = seqs("--epochs", "3:")
    assert found == [0, *(s for s, e in events.items() if 0 < s < 47 and (e.epoch or 0) >= 3), 47]
    when = datetime.datetime.fromtimestamp(events[20].wall / 1e9, datetime.UTC)
    late = (when + datetime.timedelta(days=1)).isoformat()
    assert seqs("--time", f"{late}..") == [0, 47]
    assert len(seqs("--time", f"..{late}")) == 48


def test_a_part_that_is_none_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """One line says what it must be."""
    for part, said in (
        (["--steps", "10"], "--steps must be A:B"),
        (["--epochs", "2:1"], "--epochs must end after it starts"),
        (["--time", "noon.."], "ISO 8601"),
        (["--speed", "0"], "speed must be greater than 0"),
    ):
        result = cli("replay", run_dir, "--sink", "lines", *part)
        assert result.exit_code == 2
        assert said in result.stderr


def test_run_and_sink_must_be_said(cli: Cli, run_dir: Path) -> None:
    """Unless it is about what is pending."""
    assert "RUN is missing" in cli("replay").stderr
    result = cli("replay", run_dir)
    assert result.exit_code == 2
    assert "--sink is missing: eventlog replay RUN --sink NAME" in result.stderr
    assert "eventlog sinks" in result.stderr
    assert f"eventlog replay --pending {run_dir}" in result.stderr


def test_a_pace_can_be_given(cli: Cli, run_dir: Path) -> None:
    """A thousand times as fast as it was logged is soon over."""
    result = cli("replay", run_dir, "--sink", "lines", "--speed", 1000)
    assert result.exit_code == 0, result.stderr
    assert "lines: complete, 48 events" in result.stdout


def test_a_run_that_is_over_can_be_followed(cli: Cli, run_dir: Path) -> None:
    """To its end, which is at once."""
    result = cli("replay", run_dir, "--sink", "lines", "--follow")
    assert result.exit_code == 0, result.stderr
    assert "lines: complete, 48 events" in result.stdout


def test_ctrl_c_leaves_it_resumable(cli: Cli, make_run: MakeRun, tmp_path: Path) -> None:
    """The line says how to go on; what was confirmed does not come again."""
    run_dir = make_run(steps=20_000)
    (tmp_path / "slowly.py").write_text(SLOW)
    command = [sys.executable, "-m", "eventlog", "replay", str(run_dir), "--sink", "slowly:Slow"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "written\n"
        assert child.stdout.readline() == "written\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=50) == 130
        said = child.stderr.read()
    (out,) = re.findall(
        r"interrupted; to go on where it stopped, say the same with (--dir .*)", said
    )
    done = subprocess.run(
        [*command, *out.split()], capture_output=True, text=True, env=environment, check=True
    )
    assert ": complete, " in done.stdout
    (path,) = (run_dir / "replays").rglob("seqs.txt")
    seqs = [int(line) for line in path.read_text().splitlines()]
    assert sorted(set(seqs)) == list(range(22_004))
    assert len(seqs) <= 22_004 + 512, "at most one batch comes again"


def test_a_log_that_was_trimmed_says_so(cli: Cli, run_dir: Path, tmp_path: Path) -> None:
    """What is there is replayed whole."""
    segment = segment_of(run_dir)
    with Run("mnist", dir=tmp_path / "runs", resume="must") as run:
        run.step(loss=1.0)
    segment.unlink()
    result = cli("replay", run.dir, "--sink", "lines")
    assert result.exit_code == 0, result.stderr
    assert "lines: complete, 3 events" in result.stdout
    assert "the log begins with event 48: those before it were removed" in result.stderr
