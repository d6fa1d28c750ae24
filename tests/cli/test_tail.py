"""The last events."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog import Run, open_log
from eventlog.cli import tail as command
from eventlog.sinks.console import format_event

from .conftest import Cli, at_terminal

LIVE = """
import sys
from eventlog import Run
with Run("p", dir=sys.argv[1], segment_bytes=4096) as run:
    run.flush()
    print("ready", flush=True)
    while n := int(sys.stdin.readline() or 0):
        for _ in range(n):
            run.step(loss=0.5)
        run.flush()
        print("logged", flush=True)
"""


def test_the_last_events_are_lines_as_on_the_console(cli: Cli, run_dir: Path) -> None:
    """Ten by default, in the console sink's words."""
    lines = [format_event(event) for event in open_log(run_dir).events()]
    assert cli("tail", run_dir).stdout.splitlines() == lines[-10:]
    assert cli("tail", run_dir, "-n", 3).stdout.splitlines() == lines[-3:]
    assert cli("tail", run_dir, "-n", 1000).stdout.splitlines() == lines


def test_it_reads_from_the_end(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long log only the end is read, and more where events there are left out."""
    log = open_log(run_dir)
    starts: list[int] = []
    events = type(log).events

    def watched(self: object, *, start: int = 0, **choice: object) -> object:
        starts.append(start)
        return (e for e in events(log, start=start) if e.seq != 44)

    monkeypatch.setattr(type(log), "events", watched)
    start, found = command._last(log, 4, {"types": None, "keys": None, "every": None})
    assert [event.seq for event in found] == [43, 45, 46, 47]
    assert starts == [44, 32]
    assert start == 32


def test_a_terminal_gets_colours(run_dir: Path) -> None:
    """Text by itself in a pipe, styled where a person looks."""
    code, seen = at_terminal("tail", run_dir, "-n", 2)
    assert code == 0
    assert "\x1b[" in seen
    assert "finished" in seen


def test_what_is_shown_can_be_chosen(cli: Cli, run_dir: Path) -> None:
    """The last ones of those that pass, however far back they are."""
    assert cli("tail", run_dir, "--type", "epoch", "-n", 2).stdout.splitlines() == [
        "epoch 2  val/loss=0.0666667",
        "epoch 3  val/loss=0.05",
    ]
    shown = cli("tail", run_dir, "--key", "acc", "--type", "step", "-n", 1).stdout
    assert shown == "step 39  acc=0.975\n"
    shown = cli("tail", run_dir, "--type", "step", "--every", "15 steps", "-n", 3).stdout
    assert [line.split()[1] for line in shown.splitlines()] == ["15", "30", "40"]


def test_a_run_that_is_over_is_followed_to_its_end(cli: Cli, run_dir: Path) -> None:
    """That is at once; how it ended is said, and is the exit code."""
    result = cli("tail", "-f", run_dir, "-n", 2)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == cli("tail", run_dir, "-n", 2).stdout.splitlines()
    assert result.stderr == "eventlog: the run has ended: finished\n"
    result = cli("tail", "-f", run_dir, "-n", 3, "--type", "step", "--every", "15 steps")
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["15", "30", "40"]


def test_a_run_that_failed_is_1(cli: Cli, tmp_path: Path) -> None:
    """A script that waits for it need not look further."""
    with pytest.raises(ZeroDivisionError), Run("p", dir=tmp_path) as run:
        run.step(loss=1 / 0)
    result = cli("tail", "-f", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.endswith("the run has ended: failed\n")


@contextmanager
def live(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Have a run that logs as many steps as it is told to, in small segments."""
    with subprocess.Popen(
        [sys.executable, "-c", LIVE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        try:
            yield child
        finally:
            child.kill()


def tell(child: subprocess.Popen[str], number: int) -> None:
    """Have so many more steps logged."""
    assert child.stdin is not None
    child.stdin.write(f"{number}\n")
    child.stdin.flush()


@contextmanager
def following(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Follow the run."""
    with subprocess.Popen(
        [sys.executable, "-m", "eventlog", "tail", "-f", str(tmp_path), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def lines_of(child: subprocess.Popen[str], n: int) -> list[str]:
    """Wait for so many lines."""
    assert child.stdout is not None
    return [child.stdout.readline().rstrip() for _ in range(n)]


def test_a_run_is_followed_through_its_segments(tmp_path: Path) -> None:
    """Every event comes, once and in order, whichever file it is in; the end is said."""
    with live(tmp_path) as run:
        tell(run, 3)
        assert run.stdout is not None
        assert run.stdout.readline() == "logged\n"
        with following(tmp_path, "-n", "2", "--type", "step") as tail:
            assert lines_of(tail, 2) == ["step 1  loss=0.5", "step 2  loss=0.5"]
            for _ in range(4):
                tell(run, 100)
            steps = [int(line.split()[1]) for line in lines_of(tail, 400)]
            assert steps == list(range(3, 403))
            tell(run, 0)
            assert tail.wait(timeout=30) == 0
            assert tail.stderr is not None
            assert tail.stderr.read().endswith("the run has ended: finished\n")
    assert len(list(tmp_path.rglob("*.elog"))) > 1


def test_a_run_that_dies_is_followed_to_its_last_event(tmp_path: Path) -> None:
    """That it died without a word is said, and is the exit code."""
    with live(tmp_path) as run, following(tmp_path, "--type", "step") as tail:
        tell(run, 5)
        assert lines_of(tail, 5)[-1] == "step 4  loss=0.5"
        run.kill()
        assert tail.wait(timeout=30) == 1
        assert tail.stderr is not None
        assert tail.stderr.read().endswith("the run died without a word\n")


def test_following_ends_with_ctrl_c(tmp_path: Path) -> None:
    """Exit code 130, and no traceback."""
    with live(tmp_path) as run, following(tmp_path, "--type", "step") as tail:
        tell(run, 1)
        lines_of(tail, 1)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(timeout=30) == 130
        assert tail.stderr is not None
        assert tail.stderr.read().endswith("eventlog: interrupted\n")


def test_a_directory_that_is_made_again_is_followed_on(tmp_path: Path) -> None:
    """The lock goes with the directory, and comes with the new one: the run still lives."""
    with live(tmp_path) as run, following(tmp_path, "--type", "step") as tail:
        tell(run, 3)
        assert lines_of(tail, 3)[-1] == "step 2  loss=0.5"
        (directory,) = tmp_path.glob("p/*/rank-0")
        shutil.rmtree(directory)
        # the writer notices when it syncs, once a second, and what it writes then is there
        shown: list[str] = []

        def read() -> None:
            shown.extend(lines_of(tail, 1))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        deadline = time.monotonic() + 20
        while reader.is_alive():
            assert time.monotonic() < deadline, "nothing came after the directory was removed"
            tell(run, 1)
            assert run.stdout is not None
            assert run.stdout.readline() == "logged\n"
            reader.join(0.2)
        assert shown[0].startswith("step ")
