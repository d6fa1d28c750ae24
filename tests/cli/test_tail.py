"""The last events."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventlog import open_log
from eventlog.cli import tail as command
from eventlog.sinks.console import format_event

from .conftest import Cli, at_terminal


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

    def watched(self: object, *, start: int = 0) -> object:
        starts.append(start)
        return (e for e in events(log, start=start) if e.seq != 44)

    monkeypatch.setattr(type(log), "events", watched)
    assert [event.seq for event in command._last(log, 4)] == [43, 45, 46, 47]
    assert starts == [44, 32]


def test_a_terminal_gets_colours(run_dir: Path) -> None:
    """Text by itself in a pipe, styled where a person looks."""
    code, seen = at_terminal("tail", run_dir, "-n", 2)
    assert code == 0
    assert "\x1b[" in seen
    assert "finished" in seen
