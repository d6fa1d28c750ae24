"""The training process's side: when the delivering process is started again, and whom it asks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventlog import _supervisor
from eventlog._supervisor import Supervisor
from eventlog._terms import TERMS, Deadlines, Retry, keep_terms, kept_terms
from eventlog.exceptions import EventlogError
from eventlog.sidecar import (
    BROKEN,
    Orders,
    SidecarStatus,
    SinkReport,
    status_path,
)
from eventlog.sinks.plan import unkept_options


class Scripted(Supervisor):
    """Starts processes that end with the codes of a list; an exception cannot be started."""

    def __init__(self, run_dir: Path, codes: list[int | OSError]) -> None:
        super().__init__(run_dir, 0, ["a"], attempt=1)
        self.codes: Iterator[int | OSError] = iter(codes)
        self.started = 0

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.started += 1
        code = next(self.codes)
        if isinstance(code, OSError):
            raise code
        end = f"import os; os._exit({code})" if code >= 0 else f"import os; os.kill(0, {-code})"
        return subprocess.Popen([sys.executable, "-c", end], start_new_session=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_supervisor, "FIRST_PAUSE", 0.001)


@pytest.mark.parametrize(
    ("codes", "started"),
    [
        ([0], 1),  # everything was delivered
        ([1], 1),  # a sink did not take everything: its report says so
        ([-9, 0], 2),
        ([BROKEN, -11, 2, 0], 4),
        ([OSError("no memory"), 0], 2),
        ([-9] * 6, 6),  # that is enough
    ],
)
def test_what_may_help_is_tried_again(
    tmp_path: Path, codes: list[int | OSError], started: int
) -> None:
    """A process that was killed or failed is started again, one that has ended by itself is not."""
    supervisor = Scripted(tmp_path, codes)
    supervisor.start()
    assert supervisor.end(time.monotonic() + 20)
    assert supervisor.started == started
    assert supervisor.pid is None
    assert supervisor.report("a").state == "failed"


def test_a_process_that_lived_long_has_its_tries_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of weeks may lose its delivering process every few days."""
    monkeypatch.setattr(_supervisor, "SETTLED", 0.0)
    supervisor = Scripted(tmp_path, [*[-9] * 12, 0])
    supervisor.start()
    assert supervisor.end(time.monotonic() + 30)
    assert supervisor.started == 13


def test_only_its_own_process_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier attempt's process says, or one started by hand, is not about this run.

    Also when both trainers have one process id: one program that resumes, or PID 1 in containers.
    """

    def say(token: str | None, **report: Any) -> None:
        status = SidecarStatus(pid=os.getpid(), token=token, sinks={"a": SinkReport(**report)})
        path = status_path(tmp_path, 0)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.encode(status))

    commands: list[list[str]] = []

    def started(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        commands.append(command)
        return popen([sys.executable, "-c", ""], **options)

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", started)
    say("of an attempt before", state="closed", flushed_to=100)
    supervisor = Supervisor(tmp_path, 0, ["a"], attempt=2)
    assert supervisor.report("a").state == "waiting"
    assert supervisor.lacking(100) == {"a": 100}
    supervisor._spawn().wait()
    assert not status_path(tmp_path, 0).exists(), "nobody is to take it for the new one's"
    say("of an attempt before", state="closed", flushed_to=100)  # it may still be at work
    assert supervisor.lacking(100) == {"a": 100}
    token = commands[0][commands[0].index("--token") + 1]
    say(token, state="open", flushed_to=70)
    assert supervisor.lacking(100) == {"a": 30}
    for other in (None, token[:-1]):
        say(other, state="closed", flushed_to=100)
        assert supervisor.report("a").state == "open"
        assert supervisor.lacking(100) == {"a": 30}
    status_path(tmp_path, 0).unlink()
    assert supervisor.lacking(100) == {"a": 30}
    supervisor._spawn().wait()
    assert commands[1][commands[1].index("--token") + 1] != token


def test_what_is_handed_over_arrives_as_it_was() -> None:
    """Secrets of any shape, and what the run grants; a line that is something else is an error."""
    options = {"api_key": "a\nb", "uri": "https://me:pw@host/", "auth": {"password": "x"}, "n": 3}
    kept_out = unkept_options(options)
    assert set(kept_out) == {"api_key", "uri", "auth"}
    orders = Orders(
        options={"a": kept_out}, deadlines=Deadlines(open=float("inf")), retry=Retry(first=0.5)
    )
    line = orders.write()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert Orders.read(line) == orders
    for nonsense in (b"", b"\n", b"{}", line[3:]):
        with pytest.raises(EventlogError, match="no orders"):
            Orders.read(nonsense)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"deadlines": {"open": "x"}}'])
def test_terms_that_cannot_be_read_are_the_usual_ones(tmp_path: Path, content: str) -> None:
    """And those that are kept come back; the usual ones leave no file."""
    keep_terms(tmp_path, Deadlines(), Retry())
    assert list(tmp_path.iterdir()) == []
    terms = Deadlines(write=float("inf")), Retry(most=7)
    keep_terms(tmp_path, *terms)
    assert kept_terms(tmp_path) == terms
    keep_terms(tmp_path, Deadlines(), Retry())
    assert kept_terms(tmp_path) == (Deadlines(), Retry())
    (tmp_path / TERMS).write_text(content)
    assert kept_terms(tmp_path) == (Deadlines(), Retry())


def test_its_output_needs_no_directory(tmp_path: Path) -> None:
    """Where the run's directory was removed, the process can be started all the same."""
    supervisor = Supervisor(tmp_path / "gone", 0, ["a"], attempt=1)
    with supervisor._open_output() as file:
        assert file.name == os.devnull
