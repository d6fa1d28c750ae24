"""What the tests of the MLflow sink share: a database that is made once, and a server."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink
from eventlog_mlflow.sdk import calls

Opener = Callable[..., MlflowSink]


@pytest.fixture(scope="session", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make an empty database once: MLflow takes seconds for each new one."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    with warnings.catch_warnings(), calls():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        store: Any = MlflowClient(f"sqlite:///{path}")._tracking_client.store
        store.engine.dispose()
    os.environ["EVENTLOG_TEST_MLFLOW_DATABASE"] = str(path)
    yield path
    del os.environ["EVENTLOG_TEST_MLFLOW_DATABASE"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Path:
    """Return a folder with a database that is ready; the runs of a module share it."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copy(template, folder / "mlflow.db")
    return folder


@pytest.fixture
def opened(place: Path, tmp_path: Path) -> Iterator[Opener]:
    """Return a function that opens a sink; what is still open at the end is closed."""
    sinks: list[MlflowSink] = []

    def open_sink(run: RunInfo | None = None, **options: Any) -> MlflowSink:
        if "tracking_uri" not in options:
            options.setdefault("dir", place)
        sink = MlflowSink(**options)
        sinks.append(sink)
        sink.open(run or RunInfo(run_id="r", project="p", name="n", directory=tmp_path / "own"))
        return sink

    yield open_sink
    for sink in sinks:
        with contextlib.suppress(Exception):
            sink.close("killed")


class Server:
    """A real MLflow server, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        environment = os.environ | {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + 50
        while True:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):  # noqa: S310 - loopback
                    return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "server.log").read_text()) from None
                time.sleep(0.1)

    def stop(self) -> None:
        """End it with the processes that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Server]:
    """Start a server, which the tests of a module share."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(template, folder / "mlflow.db")
    found = Server(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
