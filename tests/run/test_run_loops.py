"""Loops that keep the run's counters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, open_log
from eventlog.events import EpochEvent, Event, StepEvent


def events(run: Run, kind: type[Event]) -> list[Any]:
    assert run.dir is not None
    return [e for e in open_log(run.dir).events() if isinstance(e, kind)]


def test_what_passes_through_is_counted(tmp_path: Path) -> None:
    """Several calls of `log` in a body are at one step; each epoch leaves its event."""
    with Run("p", dir=tmp_path) as run:
        for epoch in run.epochs(2):
            for batch in run.steps("abc"):
                run.log(loss=float(ord(batch)))
                run.log(epoch_seen=epoch)
    found = [(e.step, e.epoch, *e.values.items()) for e in events(run, StepEvent)]
    assert found[:3] == [
        (0, 0, ("loss", 97.0)),
        (0, 0, ("epoch_seen", 0)),
        (1, 0, ("loss", 98.0)),
    ]
    assert found[-1] == (5, 1, ("epoch_seen", 1))
    assert [(e.epoch, e.step) for e in events(run, EpochEvent)] == [(0, 3), (1, 6)]


def test_a_body_that_counts_is_not_counted_twice(tmp_path: Path) -> None:
    """`run.step` and `run.epoch` go on as without the iterators."""
    with Run("p", dir=tmp_path) as run:
        for _ in run.epochs(2):
            for _ in run.steps(range(3)):
                run.step(loss=1.0)
            run.epoch({"val/acc": 0.5})
    assert [e.step for e in events(run, StepEvent)] == [0, 1, 2, 3, 4, 5]
    assert [(e.epoch, e.values) for e in events(run, EpochEvent)] == [
        (0, {"val/acc": 0.5}),
        (1, {"val/acc": 0.5}),
    ]


def test_leaving_early_counts_what_was_done(tmp_path: Path) -> None:
    """A body that breaks is not over: its step is not counted; the next loop goes on there."""
    with Run("p", dir=tmp_path) as run:
        for n in run.steps(range(10)):
            if n == 3:
                break
        run.log(at=1)
        for _ in run.steps(range(2)):
            pass
        run.log(at=2)
    assert [e.step for e in events(run, StepEvent)] == [3, 5]


def test_an_exception_ends_the_run_where_it_was(tmp_path: Path) -> None:
    """The step that raised is the last one, and the run has failed."""
    run = Run("p", dir=tmp_path)

    def train() -> None:
        with run:
            for _ in run.epochs(3):
                for n in run.steps(range(5)):
                    run.log(n=n)
                    if n == 2:
                        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert [e.step for e in events(run, StepEvent)] == [0, 1, 2]
    assert events(run, EpochEvent) == []
    assert run.dir is not None
    assert open_log(run.dir).summary().status == "failed"


def test_a_resumed_run_goes_on_with_its_epoch(tmp_path: Path) -> None:
    """`epochs(n)` is how many there are to be in all."""
    with Run("p", dir=tmp_path) as run:
        for epoch in run.epochs(5):
            for _ in run.steps(range(4)):
                pass
            if epoch == 1:
                break
        state = run.state_dict()
    assert (state["epoch"], state["step"]) == (1, 8)
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.load_state_dict(state)
        assert list(again.epochs(3)) == [1, 2]
        assert list(again.epochs(3)) == []


def test_a_rewind_in_the_body_is_respected(tmp_path: Path) -> None:
    """What the body sets the counter to stays, though it is what it was before."""
    with Run("p", dir=tmp_path) as run:
        for n in run.steps(range(3)):
            run.log(n=n)
            if n == 1:
                run.rewind(1)
    assert [(e.step, e.attempt) for e in events(run, StepEvent)] == [(0, 1), (1, 1), (1, 2)]


def test_loaders_of_any_kind(tmp_path: Path) -> None:
    """Empty ones, generators without a length, and steps that are counted by hand."""

    def generator() -> Iterator[int]:
        yield from range(3)

    with Run("p", dir=tmp_path) as run:
        assert list(run.steps([])) == []
        assert list(run.steps(generator(), progress=True)) == [0, 1, 2]
        run.advance(5)
        run.log(x=1)
        for wrong in (-1, 1.5, True, "3"):
            with pytest.raises(ValueError, match="steps must be a number of steps"):
                run.advance(wrong)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="n must be a number of epochs"):
                run.epochs(wrong)  # type: ignore[arg-type]
    assert [e.step for e in events(run, StepEvent)] == [8]


def test_a_bar_is_on_standard_error_and_only_when_asked(tmp_path: Path) -> None:
    """Nothing is printed by default; with `progress`, standard output stays the program's own."""
    code = (
        "import sys, eventlog\n"
        "with eventlog.Run('p', dir=sys.argv[1]) as run:\n"
        "    for _ in run.epochs(2, progress=sys.argv[2] == 'bar'):\n"
        "        for _ in run.steps(range(3), progress=sys.argv[2] == 'bar'):\n"
        "            pass\n"
        "print('done')\n"
    )
    for how in ("bar", "plain"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), how],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == "done\n"
        assert "Traceback" not in done.stderr
        assert how == "bar" or done.stderr == ""
