"""A real MLflow server behind a proxy that fails in each way that a network does.

Training does not notice, `close` keeps its deadline, and once the proxy is well again the run, or
a replay, brings every point to MLflow, once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import eventlog
from eventlog.events import StepEvent

from ..kill.conftest import sidecars_of, wait_for
from .proxy import Fault, Proxy
from .trackers import Shown, make_mlflow_store, mlflow_server, replay_pending

pytest.importorskip("mlflow")
pytest.importorskip("eventlog_mlflow")

CHILD = Path(__file__).with_name("child") / "tracked.py"
PATIENCE = 60.0
CLOSE_SECONDS = 3.0
GRACE = 10.0
"""Seconds that a busy machine may add to a deadline."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found in /proc"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real MLflow server, which the tests of this module share."""
    template = tmp_path_factory.mktemp("store") / "mlflow.db"
    make_mlflow_store(template)
    found = mlflow_server(tmp_path_factory.mktemp("server"), template)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def proxy(server: Any) -> Iterator[Proxy]:
    """A proxy before the server."""
    found = Proxy(server.port)
    yield found
    found.close()


class Training:
    """The process of ``child/tracked.py``."""

    def __init__(self, directory: Path, project: str, sink: dict[str, Any]) -> None:
        options = {"dir": str(directory / "runs"), "project": project, "sink": sink}
        self._errors = directory / "errors"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(CHILD), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.run_dir = Path(self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._errors.read_text()
        return json.loads(line)

    def ask(self, call: str) -> Any:
        """Have a call made; return its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(call + "\n")
        self.process.stdin.flush()
        return self._answer()

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait for the account to be like that; return it."""
        deadline = time.monotonic() + PATIENCE
        while not condition(found := self.ask("statistics()")):
            assert time.monotonic() < deadline, (found, self._errors.read_text())
            time.sleep(0.02)
        return dict(found)

    def end(self) -> None:
        """Let the process end: it must by itself, and well."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(GRACE) == 0, self._errors.read_text()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Start a training process; what a failed test leaves is ended."""
    made: list[Training] = []

    def start(project: str, **sink: Any) -> Training:
        made.append(Training(tmp_path, project, {"sink": "mlflow", **sink}))
        return made[-1]

    yield start
    for training in made:
        if training.process.poll() is None:
            training.process.kill()
            training.process.communicate()
        for pid in sidecars_of(training.run_dir):
            os.kill(pid, signal.SIGKILL)


def check(server: Any, training: Training, steps: int) -> None:
    """Check that log and MLflow have every step, once and with its value."""
    events = list(eventlog.open_log(training.run_dir).events())
    assert [e.seq for e in events] == list(range(steps + 2))
    values = {
        (key, event.step or 0): value
        for event in events
        if type(event) is StepEvent
        for key, value in event.values.items()
    }
    assert len(values) == 2 * steps
    shown = Shown(server.uri, training.run_dir.parent.name)
    assert shown.points == Counter(values.keys())
    assert shown.values == values
    assert len(shown.runs) == 1
    assert shown.empty == []
    assert shown.runs[0].info.status == "FINISHED"


QUICK = {("silent", True), ("429", False)}


def cases() -> Iterator[Any]:
    """Each fault in both places; most of them with the slow tests, as each takes many seconds."""
    for fault in get_args(Fault):
        for isolate in (False, True):
            marks = [] if (fault, isolate) in QUICK else [pytest.mark.slow]
            place = "sidecar" if isolate else "process"
            yield pytest.param(fault, isolate, id=f"{fault} in the {place}", marks=marks)


@pytest.mark.parametrize(("fault", "isolate"), list(cases()))
def test_a_network_that_fails_costs_time_and_no_points(
    server: Any, proxy: Proxy, train: Callable[..., Training], fault: Fault, isolate: bool
) -> None:
    """At the start of the run, where it heals, and at its end, where it does not."""
    proxy.fail(fault)
    training = train(f"{fault}-{isolate}", tracking_uri=proxy.uri, isolate=isolate)
    # that these are answered while the fault lasts is what shows that training is not held up
    assert training.ask("steps(100)") == 100
    down = training.until(lambda s: proxy.met or s["error"])
    assert training.ask("steps(100)") == 200
    # where an answer is cut behind its status, the tracker has taken the batch and said so
    sure = fault != "cut"
    assert not (sure and down["delivered"])
    proxy.heal()
    training.until(lambda s: s["delivered"] == 201)

    proxy.fail(fault)
    assert training.ask("steps(100)") == 300
    training.until(lambda s: proxy.met or s["error"])
    assert training.ask("steps(100)") == 400
    assert not sure or training.ask("statistics()")["delivered"] == 201
    report = training.ask(f"close({CLOSE_SECONDS})")
    assert report["written"]
    assert not (sure and report["complete"])
    assert report["seconds"] < CLOSE_SECONDS + GRACE
    training.end()

    proxy.heal()
    # a sidecar goes on by itself, and ends then
    wait_for(lambda: not sidecars_of(training.run_dir), PATIENCE, "the end of the sidecar")
    code, said = replay_pending(training.run_dir)
    assert code == 0, said
    check(server, training, 400)


@pytest.mark.parametrize(
    "isolate",
    [
        pytest.param(False, id="in the process", marks=pytest.mark.slow),
        pytest.param(True, id="in the sidecar"),
    ],
)
def test_a_server_that_stops_and_comes_back(
    server: Any, train: Callable[..., Training], isolate: bool
) -> None:
    """What was logged meanwhile arrives in the run itself: nothing is left to a replay."""
    training = train(f"back-{isolate}", tracking_uri=server.uri, isolate=isolate)
    training.ask("steps(100)")
    training.until(lambda s: s["delivered"] == 101)
    server.stop()
    training.ask("steps(100)")
    training.until(lambda s: s["state"] == "retrying")
    training.ask("steps(100)")
    training.until(lambda s: s["delivered"] == 101)
    server.start()
    training.until(lambda s: s["delivered"] == 301)
    assert training.ask("close(60)")["complete"]
    training.end()
    wait_for(lambda: not sidecars_of(training.run_dir), PATIENCE, "the end of the sidecar")
    assert replay_pending(training.run_dir) == (0, f"{training.run_dir}: nothing to deliver\n")
    check(server, training, 300)
