"""Real trackers for the fault tests: an MLflow store and server, and what each tracker holds."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

MLFLOW_TESTS = Path(__file__).parents[2] / "plugins" / "eventlog-mlflow" / "tests"

Points = Counter[tuple[str, int]]
"""How often a tracker has a point, by name and step."""


def make_mlflow_store(path: Path) -> None:
    """Make an empty SQLite store of MLflow's: it takes seconds, so the tests copy one."""
    from eventlog_mlflow.sdk import calls, let_go

    with warnings.catch_warnings(), calls():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        let_go(MlflowClient(f"sqlite:///{path}"))


def mlflow_server(folder: Path, template: Path) -> Any:
    """Return a server that is not started yet: that of the MLflow plugin's own tests."""
    spec = importlib.util.spec_from_file_location("mlflow_conftest", MLFLOW_TESTS / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.copy(template, folder / "mlflow.db")
    return module.Server(folder)


class Shown:
    """What MLflow has, read by its own client.

    Args:
        uri: Of the server or the store.
        experiment: Its name; None for all.

    Attributes:
        runs: The runs with points in them.
        empty: The runs without any.
        points: Over all runs.
        values: Of the points.
    """

    def __init__(self, uri: str, experiment: str | None = None) -> None:
        from eventlog_mlflow.sdk import calls, let_go

        self.runs: list[Any] = []
        self.empty: list[Any] = []
        self.points: Points = Counter()
        self.values: dict[tuple[str, int], float] = {}
        with warnings.catch_warnings(), calls():
            warnings.simplefilter("ignore")
            from mlflow import MlflowClient

            client = MlflowClient(uri)
            experiments = [
                found.experiment_id
                for found in client.search_experiments()
                if experiment in (None, found.name)
            ]
            for run in client.search_runs(experiments):
                (self.runs if run.data.metrics else self.empty).append(run)
                for key in run.data.metrics:
                    for metric in client.get_metric_history(run.info.run_id, key):
                        self.points[key, metric.step] += 1
                        self.values[key, metric.step] = metric.value
            let_go(client)


def tensorboard_points(folder: Path) -> Points:
    """Return what TensorBoard's loader finds in all files of a folder, nothing put together."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    points: Points = Counter()
    for path in sorted(folder.rglob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name in ("scalars", ""):
                    points[value.tag, event.step] += 1
    return points


def replay_pending(run_dir: Path, patience: float = 30.0) -> tuple[int, str]:
    """Run ``eventlog replay --pending``; return its exit code and what it said."""
    command = [sys.executable, "-m", "eventlog", "replay", "--pending", str(run_dir)]
    command += ["--patience", str(patience)]
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout
