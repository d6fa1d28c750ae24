"""SIGKILL at any moment, of a run with real trackers: all points are there after one replay.

TensorBoard is in the training process or in the sidecar by turns, MLflow in the sidecar, with a
SQLite store. ``EVENTLOG_KILLS`` says how many kills of each kind; `make kill` has 100.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog.events import StepEvent
from eventlog.port import BATCH

from ..kill.conftest import Processes
from ..kill.test_kill import check_log, strike
from .trackers import Points, Shown, make_mlflow_store, replay_pending, tensorboard_points

pytest.importorskip("mlflow")
pytest.importorskip("eventlog_mlflow")
pytest.importorskip("eventlog_tensorboard")

KILLS = int(os.environ.get("EVENTLOG_KILLS", "1"))
LONGEST = 5.0
"""Seconds until the kill, at most: a sidecar needs half of them to import and to open MLflow."""

LEFT_AFTER = 60.0
"""Seconds after which a sidecar without its trainer has delivered the rest and ended."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found in /proc"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store of MLflow's."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    make_mlflow_store(path)
    return path


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Trainers in a directory, which are removed with it: the loop makes hundreds."""
    made = Processes(tmp_path)
    yield made
    made.clear()
    shutil.rmtree(tmp_path)


def logged(run_dir: Path, due: dict[int, int]) -> tuple[Points, int]:
    """Return the points of the log, which has what it must have, and how many steps these are."""
    events = list(eventlog.open_log(run_dir).events())
    steps = check_log(events, due)
    points = Counter(
        (key, event.step or 0)
        for event in events
        if type(event) is StepEvent
        for key in event.values
    )
    return points, sum(steps.values())


def check_tensorboard(shown: Points, points: Points) -> int:
    """Check that all is there, and twice at most one batch; return how many steps that are."""
    assert shown.keys() == points.keys()
    assert set(shown.values()) <= {1, 2}
    twice = sorted({step for (_, step), n in shown.items() if n == 2})
    assert len(twice) <= BATCH
    assert not twice or twice[-1] - twice[0] + 1 == len(twice)
    return len(twice)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("victim", ["trainer", "sidecar", "both"])
def test_a_kill_costs_no_tracker_a_point(
    processes: Processes, store: Path, victim: str, seed: int
) -> None:
    """After one replay at most, each point of the log is in each tracker exactly once."""
    rng = random.Random(f"{victim} {seed}")
    place = processes.directory / "mlflow"
    place.mkdir()
    shutil.copy(store, place / "mlflow.db")
    isolated = seed % 2 == 0
    sinks: dict[str, Any] = {
        "tensorboard": {"isolate": isolated},
        "mlflow": {"dir": str(place)},
    }
    trainer = processes.start(isolate=True, sinks=sinks)
    trainer.wait_for(1)
    if victim != "trainer":
        while not processes.sidecars():
            time.sleep(0.005)
    delay = rng.uniform(0, LONGEST)
    time.sleep(delay)
    expected = strike(processes, trainer, victim, rng)
    if victim == "sidecar":
        assert trainer.end() == 0, trainer.errors.read_text()
    processes.wait_until_gone(LEFT_AFTER)

    run_dir = processes.run_dir
    code, said = replay_pending(run_dir)
    assert code == 0, said
    # a sidecar that the kill caught in its very start may show up only now, and end
    processes.wait_until_gone(LEFT_AFTER)
    assert replay_pending(run_dir) == (0, f"{run_dir}: nothing to deliver\n"), said
    points, steps = logged(run_dir, {} if expected is None else {trainer.number: expected})
    twice = check_tensorboard(tensorboard_points(run_dir), points)
    assert not twice or victim == "both" or isolated == (victim == "sidecar")
    shown = Shown(f"sqlite:///{place / 'mlflow.db'}")
    assert shown.points == points
    assert len(shown.runs) == bool(points)  # none was in the log yet, after a very early kill
    by_replay = [name for name in sinks if f"{name}: complete" in said]
    print(
        f"{victim} {seed}: killed after {delay:.2f} s, {steps} steps; TensorBoard has {twice} of "
        f"them twice, MLflow none, and {len(shown.empty)} runs without points; "
        f"by replay: {', '.join(by_replay) or 'nothing'}"
    )
