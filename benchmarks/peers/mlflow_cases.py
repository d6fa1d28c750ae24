"""MLflow: on a database, and with a real server on the loopback."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from peers.base import LR, NAMES, Case, Opened, fewest, sdk

START = 90.0
"""Seconds that the server has for its start."""


TEMPLATE = "BENCH_MLFLOW_DATABASE"
"""Names an empty database: MLflow takes seconds to make one, which is not what is measured."""


def database(folder: Path) -> str:
    """Return the address of the database in a folder, which is a copy of the template."""
    path, template = folder / "mlflow.db", Path(os.environ.get(TEMPLATE, ""))
    if not path.exists() and template.is_file():
        shutil.copy(template, path)
    return f"sqlite:///{path}"


def make_template(path: Path) -> None:
    """Have MLflow make an empty database."""
    sdk("mlflow").MlflowClient(f"sqlite:///{path}").search_experiments()


def address(folder: Path) -> str:
    """Return the server's address, which `serve` has left in the folder."""
    return (folder / "address").read_text()


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[None]:
    """Run a server on a free port of the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1", "--backend-store-uri", database(folder)]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}", folder)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _wait(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    deadline = time.monotonic() + START
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 - the loopback
                break
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "server.log").read_text()[-2000:]) from None
            time.sleep(0.1)
    (folder / "address").write_text(url)


def mlflow(server: bool, synchronous: bool, folder: Path) -> Opened:
    module = sdk("mlflow")
    module.set_tracking_uri(address(folder) if server else database(folder))
    module.set_experiment("bench")
    module.start_run()
    module.log_param("lr", LR)

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        module.log_metrics({"loss": loss, "accuracy": accuracy, "lr": lr}, step=step)

    def log_later(step: int, loss: float, accuracy: float, lr: float) -> None:
        module.log_metrics(
            {"loss": loss, "accuracy": accuracy, "lr": lr}, step=step, synchronous=False
        )

    def close() -> None:
        if not synchronous:
            module.flush_async_logging()
        module.end_run()

    return Opened(log if synchronous else log_later, close)


def read_mlflow(server: bool, folder: Path) -> int:
    client = sdk("mlflow").MlflowClient(address(folder) if server else database(folder))
    experiment = client.get_experiment_by_name("bench")
    (run,) = client.search_runs([experiment.experiment_id])
    return fewest({n: len(client.get_metric_history(run.info.run_id, n)) for n in NAMES})


def _case(name: str, call: str, server: bool, synchronous: bool) -> Case:
    case = functools.partial(
        Case,
        name,
        "trackers",
        f"mlflow.log_metrics, {call}",
        functools.partial(mlflow, server, synchronous),
        functools.partial(read_mlflow, server),
        needs=("mlflow", "sqlalchemy"),
    )
    return case(serve=serve) if server else case()


CASES = [
    _case("mlflow-sqlite", "sqlite", False, True),
    _case("mlflow-sqlite-async", "sqlite, synchronous=False", False, False),
    _case("mlflow-server", "a local server", True, True),
    _case("mlflow-server-async", "a local server, synchronous=False", True, False),
]
