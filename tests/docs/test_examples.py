"""The examples run as their users run them: by their command lines, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import open_log
from eventlog.events import BatchEvent, EpochEvent, Event, ImageEvent, ModelUpdateEvent, StepEvent

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK: dict[str, list[str]] = {
    "accelerate_digits.py": ["--epochs", "1"],
    "all_trackers.py": ["--epochs", "1"],
    "async_bus.py": ["--epochs", "1"],
    "cadence.py": [],
    "demo.py": ["--epochs", "2"],
    "digits.py": ["--epochs", "2"],
    "lightning_digits.py": ["--epochs", "1"],
    "own_sink.py": [],
    "ranks.py": ["--processes", "2", "--epochs", "2"],
    "replay_elsewhere.py": [],
    "transformers_tiny.py": ["--steps", "20"],
    "watch_digits.py": ["--epochs", "4"],
}
# These are run, and what they log is compared, in tests/integrations/test_same_numbers.py.
FRAMEWORKS = {"accelerate_digits.py", "lightning_digits.py", "transformers_tiny.py"}


def run(name: str, *arguments: str, folder: Path) -> str:
    """Run an example; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", EXAMPLES / name, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    assert "eventlog: sink" not in done.stderr, done.stderr
    return done.stdout


def test_each_example_is_tried_here() -> None:
    """An example that is added is added to these tests."""
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == sorted(QUICK)


@pytest.mark.parametrize(
    "name",
    sorted(
        set(QUICK) - {"all_trackers.py", "demo.py", "digits.py", "watch_digits.py"} - FRAMEWORKS
    ),
)
def test_an_example_runs_in_an_empty_folder(name: str, tmp_path: Path) -> None:
    """An example ends well, says something, and warns of nothing."""
    assert run(name, *QUICK[name], folder=tmp_path)


def test_the_bus_runs_on_trio(tmp_path: Path) -> None:
    """What the asynchronous example prints does not depend on the loop."""
    trio = run("async_bus.py", "--epochs", "1", "--backend", "trio", folder=tmp_path)
    plain = run("async_bus.py", "--epochs", "1", folder=tmp_path)
    assert sorted(trio.splitlines()) == sorted(plain.splitlines())


def test_a_replay_brings_the_latest_attempt(tmp_path: Path) -> None:
    """Of 180 steps, those that the second attempt took again, 150 to 179, are superseded."""
    out = run("replay_elsewhere.py", folder=tmp_path)
    assert "step 50  loss=" in out
    assert ", 30 of them superseded" in out


def test_the_digits_leave_all_kinds_of_events(tmp_path: Path) -> None:
    """The log holds each step, micro-batch and epoch, the update, and the images."""
    pytest.importorskip("torch")
    out = run("digits.py", *QUICK["digits.py"], "--dir", "here", folder=tmp_path)
    assert "dropped: 0" in out
    assert "watch: mean loss of 44 micro-batches, 1 to 44" in out
    (run_dir,) = (tmp_path / "here" / "digits").iterdir()
    log = open_log(run_dir)
    assert log.status() == "finished"

    def count(kind: type[Event]) -> int:
        return sum(1 for _ in log.events(types=[kind]))

    assert (count(StepEvent), count(BatchEvent), count(EpochEvent)) == (46, 90, 2)
    assert (count(ModelUpdateEvent), count(ImageEvent)) == (1, 1)


def test_what_is_done_to_a_model_is_in_the_log(tmp_path: Path) -> None:
    """Each of the three changes is one update, and a step is one of the optimizer's."""
    pytest.importorskip("torch")
    out = run("watch_digits.py", *QUICK["watch_digits.py"], folder=tmp_path)
    kinds = [line.split()[2] for line in out.splitlines() if line.startswith("step ")]
    assert kinds == ["freeze", "prune", "unprune+unfreeze"]
    (run_dir,) = (tmp_path / "runs" / "watch-digits").iterdir()
    log = open_log(run_dir)
    assert [e.kind for e in log.events() if isinstance(e, ModelUpdateEvent)] == kinds
    assert [e.step for e in log.events(types=[EpochEvent])] == [12, 24, 36, 48]


@pytest.mark.timeout(180)
def test_all_trackers_take_one_run(tmp_path: Path) -> None:
    """Each one that is installed has everything, and says where it is."""
    pytest.importorskip("torch")
    out = run("all_trackers.py", *QUICK["all_trackers.py"], folder=tmp_path)
    assert out.splitlines()[-1] == "complete"
    places = [line.split()[1] for line in out.splitlines() if line.startswith("  at ")]
    assert len(places) >= 7 - out.count("is not installed")
    assert all(Path(place).exists() for place in places)


def test_the_demo_finds_both_folders_equal_twice_in_a_row(tmp_path: Path) -> None:
    """The demo can be run again in the same folder, and adds a run."""
    pytest.importorskip("torch")
    for number in (1, 2):
        out = run("demo.py", *QUICK["demo.py"], folder=tmp_path)
        assert "the same: " in out
        assert "the plot: demo-output/" in out
        assert len(list((tmp_path / "demo-output" / "replayed").iterdir())) == number
