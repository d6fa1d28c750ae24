"""Loops that keep the run's counters."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from eventlog import Run, open_log, watch
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
        run.advance(numpy.int64(5))
        assert list(run.epochs(numpy.int64(0))) == []
        run.log(x=1)
        for wrong in (-1, 1.5, True, "3"):
            with pytest.raises(ValueError, match="steps must be a number of steps"):
                run.advance(wrong)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="n must be a number of epochs"):
                run.epochs(wrong)  # type: ignore[arg-type]
    assert [e.step for e in events(run, StepEvent)] == [8]


def test_a_loader_whose_length_raises(tmp_path: Path) -> None:
    """As torch's over a stream of data; the bar does without a total."""

    class Stream:
        def __len__(self) -> int:
            raise TypeError("a stream has no length")

        def __iter__(self) -> Iterator[int]:
            yield from range(3)

    with Run("p", dir=tmp_path) as run:
        assert list(run.steps(Stream(), progress=True)) == [0, 1, 2]
        assert run.state_dict()["step"] == 3


def test_a_loader_that_fails_is_seen(tmp_path: Path) -> None:
    """Its error is the program's, and what came before is counted."""

    def loader() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    with Run("p", dir=tmp_path) as run:
        with pytest.raises(OSError, match="the disk is gone"):
            list(run.steps(loader()))
        assert run.state_dict()["step"] == 1


def test_validation_is_no_training(tmp_path: Path) -> None:
    """A plain loop counts nothing, nor does one that is there for its bar."""
    with Run("p", dir=tmp_path) as run:
        for _ in run.epochs(2):
            for _ in run.steps(range(3)):
                run.log(loss=1.0)
            for n, _ in enumerate(run.steps(range(2), count=False, progress=True)):
                run.log({"val/loss": 2.0}, step=n, axis="val_step")
    assert [e.step for e in events(run, EpochEvent)] == [3, 6]
    assert [e.step for e in events(run, StepEvent) if e.axis == "step"] == list(range(6))
    assert [e.step for e in events(run, StepEvent) if e.axis == "val_step"] == [0, 1, 0, 1]


def test_a_loop_that_was_left_and_is_kept_does_no_harm(tmp_path: Path) -> None:
    """As a traceback keeps it: whenever it goes, the counters and the next loop are unmoved."""
    with Run("p", dir=tmp_path) as run:
        left = run.steps(range(5), progress=True)
        next(left)
        outer = run.epochs(3, progress=True)
        assert next(outer) == 0
        for n in run.steps(range(3)):
            if n == 1:
                del left
                gc.collect()
        assert run.state_dict()["step"] == 3
        outer.close()  # type: ignore[attr-defined]
        assert run.state_dict()["epoch"] == 0


def test_somebody_else_who_counts_is_not_disturbed(tmp_path: Path) -> None:
    """Micro-batches pass through the loop; a step is one when the optimizer makes it."""
    torch: Any = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Run("p", dir=tmp_path) as run:
        with watch(model, optimizer, every="1000 steps", count=True):
            for n in run.steps(range(8)):
                model(torch.ones(1, 2)).sum().backward()
                if n % 4 == 3:
                    optimizer.step()
                run.log(n=n)
        assert run.state_dict()["step"] == 2
        for _ in run.steps(range(3)):
            pass
        assert run.state_dict()["step"] == 5
        watch(model, torch.optim.SGD(model.parameters(), lr=0.1), count=True)
        gc.collect()
        for _ in run.steps(range(3)):
            pass
        assert run.state_dict()["step"] == 8
    found = [(e.step, e.values["n"]) for e in events(run, StepEvent) if "n" in e.values]
    assert found == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (1, 6), (2, 7)]


def test_a_loop_after_the_end_still_yields(tmp_path: Path) -> None:
    """The training goes on; what it says is counted as dropped."""
    with Run("p", dir=tmp_path) as run:
        pass
    assert list(run.epochs(2, progress=True)) == [0, 1]
    assert list(run.steps("ab", progress=True)) == ["a", "b"]
    assert run.statistics().log.dropped == {"closed": 2}


BARS = """
import sys, eventlog
rank, what = int(sys.argv[2]), sys.argv[3]
if what == "without rich":
    sys.modules["rich"] = None
with eventlog.Run("p", dir=sys.argv[1], rank=rank, world_size=2, run_id="r") as run:
    for epoch in run.epochs(2, progress=what != "plain"):
        for n in run.steps(range(3), progress=what != "plain"):
            if what == "raise" and n == 1:
                raise ZeroDivisionError
        print("epoch", epoch)
print("done")
"""
SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"


def at_a_terminal(tmp_path: Path, rank: int, what: str) -> tuple[str, str]:
    """Run `BARS` with standard error at a terminal; returns what came there, and the output."""
    import pty

    here, there = pty.openpty()
    code = [sys.executable, "-c", BARS, str(tmp_path), str(rank), what]
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(
        code, stdout=subprocess.PIPE, stderr=there, text=True, env=environment | {"TERM": "xterm"}
    ) as child:
        os.close(there)
        seen = b""
        while True:
            try:
                part = os.read(here, 65536)
            except OSError:  # Linux's word for the end
                break
            if not part:
                break
            seen += part
        assert child.stdout is not None
        out = child.stdout.read()
    os.close(here)
    return seen.decode(), out


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_bar_stands_at_the_terminal_and_nowhere_else(tmp_path: Path) -> None:
    """What the program prints stays on its output, and the cursor is there again at the end."""
    seen, out = at_a_terminal(tmp_path, 0, "bar")
    assert "epoch 0" in seen
    assert "step" in seen
    assert out == "epoch 0\nepoch 1\ndone\n"
    assert seen.rindex(SHOWN) > seen.rindex(HIDDEN)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_an_exception_leaves_the_terminal_whole(tmp_path: Path) -> None:
    """The bars are gone before the traceback is printed."""
    seen, _ = at_a_terminal(tmp_path, 0, "raise")
    assert seen.rindex(SHOWN) < seen.index("Traceback")
    assert seen.rindex(SHOWN) > seen.rindex(HIDDEN)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("rank", "what"), [(0, "plain"), (1, "bar"), (0, "without rich")])
def test_where_no_bar_is_shown(tmp_path: Path, rank: int, what: str) -> None:
    """Not asked for, on another rank, without the library: the training goes on."""
    seen, out = at_a_terminal(tmp_path, rank, what)
    assert HIDDEN not in seen
    assert out == "epoch 0\nepoch 1\ndone\n"
    assert ("no progress is shown" in seen) == (what == "without rich")


def test_nothing_is_shown_in_a_file(tmp_path: Path) -> None:
    """Where standard error is no terminal, nothing is printed, with `progress` or without."""
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
        assert done.stderr == ""
