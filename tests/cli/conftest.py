"""Runs to look at, and ways to call the command line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from eventlog import Run
from eventlog.cli.app import app

Cli = Callable[..., Result]
MakeRun = Callable[..., Path]


@pytest.fixture
def cli() -> Cli:
    """Call the command line in this process."""

    def call(*args: object) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args])

    return call


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Make a run that is over, with steps, epochs, a model update and odd values."""

    def make(project: str = "mnist", name: str | None = "baseline", steps: int = 40) -> Path:
        with Run(
            project,
            name,
            dir=tmp_path / "runs",
            config={"lr": 0.1, "model": {"depth": 3}},
            tags=["demo"],
            notes="a note",
        ) as run:
            for i in range(steps):
                run.step(loss=1 / (i + 1), acc=i / steps)
                if i % 10 == 9:
                    run.epoch({"val": {"loss": 2 / (i + 1)}})
                if i == steps // 2:
                    run.model_updated("prune", sparsity=0.5)
            run.log(odd=float("nan"), big=float("-inf"), word="Größe")
        assert run.dir is not None
        return run.dir

    return make


@pytest.fixture
def run_dir(make_run: MakeRun) -> Path:
    """Return the directory of a run that is over."""
    return make_run()


def install_plugin(
    site: Path, name: str, target: str, source: str = "", package: str | None = None
) -> None:
    """Put a plugin into a directory as an installer would: its module and its metadata."""
    package = package or f"eventlog-{name}"
    metadata = site / f"{package.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[eventlog.sinks]\n{name} = {target}\n")
    if source:
        (site / f"{target.partition(':')[0]}.py").write_text(source)


def segment_of(run_dir: Path) -> Path:
    """Return the only segment of a run."""
    (path,) = (run_dir / "rank-0").glob("*.elog")
    return path


def damage(path: Path, at: float = 0.5, length: int = 8) -> None:
    """Turn some bytes of a file into others."""
    data = bytearray(path.read_bytes())
    start = int(len(data) * at)
    for i in range(start, start + length):
        data[i] ^= 0xFF
    path.write_bytes(data)


def program(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call the command line as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "eventlog", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=50,
        check=False,
    )


def at_terminal(*args: object) -> tuple[int, str]:
    """Call the command line at a terminal of 100 columns; return its exit code and the screen."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "eventlog", *map(str, args)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm-256color"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            break
        if not data:
            break
        seen += data
    os.close(ours)
    return child.wait(timeout=50), seen.decode()
