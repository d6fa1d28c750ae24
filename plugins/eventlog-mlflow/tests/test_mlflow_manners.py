"""The sink as a guest: options, what it leaves as it was, whether it is ready, and files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import eventlog_mlflow.places
from eventlog.events import Event, StepEvent, TextEvent
from eventlog.exceptions import UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink
from eventlog_mlflow.bulk import Point
from eventlog_mlflow.outbox import File, Outbox
from eventlog_mlflow.places import Place, RunMaker, experiment_of, plain_uri
from eventlog_mlflow.sdk import calls

WALL = 1_700_000_000_123_456_789

Opener = Callable[..., MlflowSink]


def steps(first: int, last: int, key: str = "loss") -> list[Event]:
    return [
        StepEvent(step=n, values={key: n / 3}, wall=WALL + n * 10**9, seq=n)
        for n in range(first, last)
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"tracking_uri": ""},
        {"tracking_uri": 5},
        {"experiment": " "},
        {"run_id": b"x"},
        {"tags": ["a"]},
        {"sdk_options": {1: 2}},
    ],
)
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    """An option that is not what it must be raises when the sink is made."""
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a "):
        MlflowSink(**options)


def test_whether_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It always is, but for a database without the whole of MLflow, or without any of it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert MlflowSink.unready({}) is None
    assert MlflowSink.unready({"tracking_uri": "sqlite:///x.db"}) is None

    def find_spec(name: str) -> object:
        return None if name == "sqlalchemy" else "there"

    monkeypatch.setattr(eventlog_mlflow.places, "find_spec", find_spec)
    assert MlflowSink.unready({}) is None
    assert MlflowSink.unready({"tracking_uri": "http://u:p@h"}) is None
    assert "pip install mlflow" in str(MlflowSink.unready({"tracking_uri": "sqlite:///x.db"}))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://u:secret@h/d")
    assert (
        MlflowSink.unready({}) == "postgresql://h/d needs the whole of MLflow: pip install mlflow"
    )
    assert MlflowSink.unready({"dir": "x"}) is None
    assert Place.in_folder(Path("/a b/c")).uri == "file:///a%20b/c/mlruns"


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("http://h:5000", (True, False, False, True)),
        ("databricks", (False, False, False, True)),
        ("databricks://profile", (False, False, False, True)),
        ("sqlite:////a/b.db", (False, False, True, False)),
        ("sqlite:///:memory:", (False, False, True, False)),
        ("postgresql+psycopg2://u:p@h/d", (False, False, True, False)),
        ("mysql+pymysql://u:p@h/d", (False, False, True, True)),
        ("file:///a/b%20c", (False, True, False, True)),
        ("./mlruns", (False, True, False, True)),
    ],
)
def test_kinds_of_places(uri: str, kind: tuple[bool, ...]) -> None:
    """A tracking URI says whether it is a server, files, or a database, and of which kind."""
    found = Place(uri)
    assert (found.server, found.files, found.database, found.fold_case) == kind


def test_no_password_is_shown() -> None:
    """What is shown of a tracking URI has neither user nor password."""
    assert plain_uri("https://u:p@h:1/x?token=y#z") == "https://h:1/x"
    assert MlflowSink(tracking_uri="http://u:p@h", experiment="e").target() == "http://h e"


def test_it_leaves_the_process_as_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the package imports no MLflow; opening the sink changes nothing that is shared."""
    # a process that has imported MLflow says so to its children
    monkeypatch.setenv("_MLFLOW_TELEMETRY_SESSION_ID", "the parent's")
    code = f"""
import logging, os, signal, socket, sys, threading, warnings
def refused(*_): raise AssertionError("no network")
socket.getaddrinfo = socket.socket.connect = refused
def state():
    return (dict(os.environ), sys.stdout, sys.stderr, sys.excepthook, threading.excepthook,
        list(warnings.filters), warnings.showwarning, list(logging.root.handlers),
        {{s: signal.getsignal(s) for s in signal.valid_signals()}}, threading.enumerate())
from eventlog.events import StepEvent, TextEvent
from eventlog.sinks.base import RunInfo
import eventlog_mlflow
assert not {{"mlflow", "sqlalchemy", "requests"}} & set(sys.modules)
before = state()
sink = eventlog_mlflow.MlflowSink(dir={str(place)!r})
sink.open(RunInfo(run_id="guest", project="p", config={{"lr": 0.1}}))
assert state() == before, [p for p in zip(state(), before) if p[0] != p[1]]
sink.write([StepEvent(step=0, values={{"v": 1.0}}, seq=0), TextEvent(tag="t", text="x", seq=1)])
sink.close("finished")
assert state() == before
assert "torch" not in sys.modules
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_environment_is_restored_when_sinks_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sinks on two threads leave the environment as it was before the first."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "99")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with calls():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with calls():
        thread.start()
        assert inside.wait(10)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "10"
    leave.set()
    thread.join()
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "99"
    assert "MLFLOW_DISABLE_TELEMETRY" not in os.environ


def test_extras_of_the_sdk_are_on_demand(opened: Opener) -> None:
    """MLflow's own tags and its watching of the machine are there when they are asked for."""
    extras = {"resolve_tags": True, "log_system_metrics": True}
    sink = opened(RunInfo(run_id="extras", project="p"), sdk_options=extras)
    tags = sink.tracker.get_run(sink.run_id).data.tags
    assert {"mlflow.user", "mlflow.source.name"} <= set(tags)
    assert sink._monitor is not None
    sink.close("finished")
    with pytest.raises(TypeError, match="no_such_option"):
        opened(RunInfo(run_id="r"), sdk_options={"no_such_option": 1})


def test_a_store_of_files(opened: Opener, tmp_path: Path) -> None:
    """Without a database there are files: names fit, infinity is exact, repeats are left out."""
    uri = (tmp_path / "ml runs").as_uri()
    values: dict[str, Any] = {"foo": 1.0, "foo/bar": 2.0, "Loss": 3.0, "loss": float("inf")}
    values |= {"é" * 250: 5.0, "a\nb": 6.0}
    run = RunInfo(run_id="files", project="p", config={"lr": 1, "text": "a\r\nb"})
    sink = opened(run, tracking_uri=uri)
    sink.write([StepEvent(step=0, values=values, wall=WALL, seq=0), *steps(1, 9, "curve")])
    state = sink.state() | {"seq": 3}
    metrics = sink.tracker.get_run(sink.run_id).data.metrics
    assert sorted(metrics.values())[:6] == [1.0, 2.0, 8 / 3, 3.0, 5.0, 6.0]
    assert metrics["loss_2"] == float("inf")
    assert sink.url == str(tmp_path / "ml runs")
    again = opened(
        RunInfo(run_id="files", project="p", config=run.config, state=state), tracking_uri=uri
    )
    again.write(steps(4, 7, "curve"))
    again.write([*steps(7, 12, "curve"), TextEvent(tag="t", text="x", seq=12, wall=WALL)])
    found = sorted(
        (m.step, m.value) for m in again.tracker.get_metric_history(again.run_id, "curve")
    )
    assert found == [(n, n / 3) for n in range(1, 12)]
    assert again.unshown == {"event without a step: counted up": 1}


def test_without_the_whole_of_mlflow(tmp_path: Path) -> None:
    """With its client alone, and what that depends on, a run is kept in files."""
    missing = ("sqlalchemy", "alembic", "pandas", "numpy", "pyarrow", "scipy", "sklearn", "PIL")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from eventlog.events import StepEvent, TableEvent, TextEvent
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink
sink = MlflowSink(dir={str(tmp_path)!r})
sink.open(RunInfo(run_id="skinny", project="p", config={{"lr": 0.1}}, tags=("a",)))
sink.write([StepEvent(step=n, values={{"v": 0.5}}, seq=n) for n in range(3)])
sink.write([TextEvent(tag="t", text="x", seq=3), TableEvent(tag="t", columns=["a"], seq=4)])
sink.close("finished")
found = sink.tracker.get_run(sink.run_id)
print(found.info.status, found.data.metrics, found.data.params, sink.url)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wanted = f"FINISHED {{'v': 0.5}} {{'lr': '0.1'}} {tmp_path / 'mlruns'}\n"
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr


class FailingClient:
    """Takes what it is given, but for the calls that are to fail."""

    def __init__(self, fail_at: Sequence[int]) -> None:
        self.fail_at = set(fail_at)
        self.calls = 0
        self.metrics: list[Any] = []
        self.files: list[str] = []

    def _call(self) -> None:
        self.calls += 1
        if self.calls in self.fail_at:
            raise UnavailableError("down")

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        self._call()
        self.metrics += [(m.key, m.step) for m in metrics]

    def log_artifact(self, run_id: str, local: str, where: str | None) -> None:
        self._call()
        self.files.append(f"{where}/{Path(local).name}:{Path(local).read_text()}")


def test_a_batch_that_failed_goes_on_where_it_stopped() -> None:
    """What got through before an outage is not sent again when the batch comes again."""
    client = FailingClient([2, 5])
    out = Outbox(client, "r", {}, None, lambda reason: None)
    for _ in range(3):
        out.points += [Point("k", float("nan"), 0, step) for step in range(2500)]
        out.files += [File(f"d/{n}.txt", str(n).encode()) for n in range(3)]
        try:
            out.send()
        except UnavailableError:
            out.clear()
    assert client.metrics == [("k", step) for step in range(2500)]
    assert client.files == ["d/0.txt:0", "d/1.txt:1", "d/2.txt:2"]


def test_a_server_that_refuses_a_nan_that_it_has() -> None:
    """Older servers do so when a batch comes again; the rest of the batch arrives all the same."""
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException

    class Client(FailingClient):
        def log_batch(
            self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()
        ) -> None:
            if len(metrics) == 3:
                raise MlflowException("UNIQUE constraint failed: metrics.key")
            super().log_batch(run_id, metrics)

        def get_metric_history(self, run_id: str, key: str) -> list[Metric]:
            return [Metric("k", float("nan"), 5, n) for n in (0, 1)] if key == "k" else []

    client = Client([])
    out = Outbox(client, "r", {}, None, lambda reason: None)
    out.points = [Point("k", float("nan"), 5, 0), Point("k", 1.0, 5, 1), Point("l", 2.0, 5, 1)]
    out.send()
    assert client.metrics == [("k", 1), ("l", 1)]


def test_heavy_params_go_in_several_requests() -> None:
    """A request stays below MLflow's megabyte."""
    sizes: list[int] = []

    class Client(FailingClient):
        def log_batch(
            self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()
        ) -> None:
            sizes.append(len(json.dumps({p.key: p.value for p in params})))

    out = Outbox(Client([]), "r", {}, None, lambda reason: None)
    out.params = {f"k{n}": "é" * 6000 for n in range(100)}
    out.send()
    assert len(sizes) > 1
    assert max(sizes) < 1_000_000


def test_a_run_whose_making_was_not_heard_of_is_found(place: Path, opened: Opener) -> None:
    """When the answer to create_run is lost, the next try finds the run instead of making one."""
    client = opened().tracker
    experiment = experiment_of(client, Place(client.tracking_uri), "lost")

    class Lost:
        def create_run(self, *args: Any, **kwargs: Any) -> None:
            client.create_run(*args, **kwargs)
            raise UnavailableError("the answer is lost")

    maker = RunMaker()
    with pytest.raises(UnavailableError):
        maker.make(Lost(), experiment, "n", 5)
    found = maker.make(client, experiment, "n", 6)
    assert found.info.start_time == 5
    assert len(client.search_runs([experiment])) == 1


def test_an_experiment_that_others_make_meanwhile_is_taken(opened: Opener) -> None:
    """Between looking for an experiment and making it, another process may be quicker."""
    client = opened().tracker

    class Slow:
        looked = 0

        def get_experiment_by_name(self, name: str) -> Any:
            self.looked += 1
            return None if self.looked == 1 else client.get_experiment_by_name(name)

        def create_experiment(self, name: str, artifact_location: str | None) -> Any:
            client.create_experiment(name, artifact_location=artifact_location)
            return client.create_experiment(name, artifact_location=artifact_location)

    found = experiment_of(Slow(), Place(client.tracking_uri), "raced")
    assert found == client.get_experiment_by_name("raced").experiment_id


_DIES_MIDWAY = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink

@event.listens_for(Engine, "after_cursor_execute")
def die(connection, cursor, statement, *rest):
    if "CREATE TABLE secrets" in statement:
        os.kill(os.getpid(), signal.SIGKILL)

MlflowSink(dir=sys.argv[1]).open(RunInfo(run_id="r", project="p"))
"""


def test_a_process_that_is_killed_while_it_makes_the_database(
    tmp_path: Path, opened: Opener
) -> None:
    """What it left is no database, and the next process makes one."""
    folder = tmp_path / "new"
    command = [sys.executable, "-W", "ignore", "-c", _DIES_MIDWAY, str(folder)]
    died = subprocess.run(command, capture_output=True, timeout=50, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert list(folder.glob("mlflow.db*"))
    sink = opened(dir=folder)
    assert sink.tracker.get_run(sink.run_id).info.status == "RUNNING"
    assert [path.name for path in folder.glob("mlflow.db*")] == ["mlflow.db"]


def test_a_database_that_others_made_meanwhile_is_kept(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new database takes no place that is taken by the time that it is ready."""
    place = Place.in_folder(tmp_path)
    contents = template.read_bytes()

    def make(uri: str) -> None:
        made = Place(uri).sqlite
        assert made is not None
        shutil.copy(template, made)
        (tmp_path / "mlflow.db").write_bytes(contents + b"theirs")

    monkeypatch.setattr("mlflow.MlflowClient", make)
    place.make_database()
    assert [path.name for path in tmp_path.glob("mlflow.db*")] == ["mlflow.db"]
    assert (tmp_path / "mlflow.db").read_bytes() == contents + b"theirs"


@pytest.mark.slow
def test_processes_that_open_at_once(tmp_path: Path) -> None:
    """Several processes share a new database and a new experiment."""
    code = f"""
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink
sink = MlflowSink(dir={str(tmp_path)!r})
sink.open(RunInfo(run_id="r", project="together"))
sink.close("finished")
print(sink.tracker.get_run(sink.run_id).info.experiment_id)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    several = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    done = [(process.communicate(timeout=50), process.returncode) for process in several]
    assert {(out, code) for (out, _), code in done} == {("1\n", 0)}, done
