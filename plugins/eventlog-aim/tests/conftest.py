"""Reading a repository back with Aim's own reader, and an Aim server on the loopback."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from eventlog.sinks.plain import flatten
from eventlog.testing.shown import Shown

_AIM = "from aim.cli.cli import cli_entry_point; cli_entry_point()"
Read = Callable[[Any, "str | None"], Shown]


def _label(name: str, context: Mapping[str, Any]) -> str:
    """Return a name for a sequence of a context: Aim tells them apart by both."""
    if not context:
        return name
    return f"{name} [{', '.join(f'{key}={context[key]}' for key in sorted(context))}]"


def _scalars(run: Any, shown: Shown) -> None:
    for metric in run.metrics():
        context = metric.context.to_dict()
        steps, (values, epochs, times) = metric.data.items_list()
        rows = []
        for step, value, epoch, wall in zip(steps, values, epochs, times, strict=True):
            at: int | float = int(step)
            if context.get("axis") == "epoch" and not math.isnan(epoch):
                at = int(epoch) if epoch == int(epoch) else float(epoch)
            rows.append((at, float(value), float(wall)))
        rows.sort(key=lambda row: row[0])
        label = _label(metric.name, context)
        shown.scalars[label] = [(at, value) for at, value, _ in rows]
        shown.wall_times[label] = [wall for _, _, wall in rows]


def _media(repo: Any, run_hash: str, shown: Shown) -> None:
    queries: tuple[tuple[Any, dict[str, Any], Callable[[Any], Any]], ...] = (
        (repo.query_texts, shown.texts, lambda text: text.data),
        (repo.query_images, shown.images, lambda image: bytes(image.storage["data"])),
        (repo.query_distributions, shown.histograms, lambda d: (list(d.weights), list(d.ranges))),
    )
    for query, field, decode in queries:
        for collection in query(f"run.hash == '{run_hash}'", report_mode=0).iter_runs():
            for sequence in collection:
                points = field.setdefault(_label(sequence.name, sequence.context.to_dict()), [])
                for step, value in sequence.values.items():
                    several = value if isinstance(value, list | tuple) else [value]
                    points += [(step, decode(one)) for one in several]


def _artifacts(run: Any, shown: Shown) -> None:
    copied = run.artifacts
    for name in run.get("artifacts", {}):
        shown.artifacts[name] = None
    for name, artifact in copied.items():
        path = Path(artifact.uri.removeprefix("file://"))
        shown.artifacts[name] = path.read_bytes() if path.is_file() else None


def read_run(repo_path: Any, run_hash: str | None) -> Shown:
    """Return all that Aim shows of a run."""
    with warnings.catch_warnings():  # its object mapper's style warns when it is imported
        warnings.simplefilter("ignore")
        aim = importlib.import_module("aim")
        index = importlib.import_module("aim.sdk.index_manager")
    repo = aim.Repo(str(repo_path))
    index.RepoIndexManager(repo).index(run_hash)
    repo.container_pool.clear()
    run = repo.get_run(run_hash)
    shown = Shown()
    _scalars(run, shown)
    _media(repo, str(run_hash), shown)
    params = run[...]
    shown.config = flatten(params.get("hparams", {}))
    shown.summary = flatten(params.get("summary", {}))
    about = params.get("eventlog", {})
    shown.error = about.get("error")
    shown.status, shown.group = about.get("status"), about.get("group")
    shown.name, shown.notes, shown.tags = run.name, run.description, list(run.tags)
    _artifacts(run, shown)
    return shown


@pytest.fixture(scope="session")
def read_back() -> Read:
    """Return a function that reads a run of a repository."""
    return read_run


class AimServer:
    """An Aim server of the installed package, which can be stopped and started again.

    Attributes:
        repo: The folder of its repository.
        port: Where it listens, always the same.
    """

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What a sink is told."""
        return f"aim://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "-y"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AIM, *arguments, "--repo", str(self.repo)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 40
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < until, "the Aim server does not come up"
                assert self._process.poll() is None, "the Aim server ended"
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it: Aim's command, and the server that it started, are one process group."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(20)
        until = time.monotonic() + 20
        while _alive(process.pid) and time.monotonic() < until:
            time.sleep(0.02)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="session")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AimServer]:
    """Return a server that the tests share; it is stopped by its process' number."""
    server = AimServer(tmp_path_factory.mktemp("aim-server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(running_server: AimServer) -> AimServer:
    """Return the shared server, which is up whatever the last test did with it."""
    if running_server._process is None:
        running_server.start()
    return running_server
