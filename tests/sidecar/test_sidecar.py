"""The delivering process: real processes, killed at will; every point arrives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import eventlog
from eventlog.log.checkpoint import list_checkpoints
from eventlog.sidecar import read_status

TRAINER = """
    import sys, time
    import eventlog
    run = eventlog.Run("p", dir=sys.argv[1], close_timeout=20, sinks={
        "far": {"sink": "log", "isolate": True},
        "near": {"sink": "log", "every": "10 steps"},
    })
    print(run.dir, flush=True)
    for i in range(int(sys.argv[2])):
        run.step(loss=float(i))
        time.sleep(0.0005)
"""


def start(tmp_path: Path, steps: int, code: str = TRAINER) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), str(steps)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        return process, Path(process.stdout.readline().strip())


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def losses(log_dir: Path) -> list[float]:
    return [float(e.values["loss"]) for e in eventlog.open_log(log_dir).events(types=["step"])]


def test_everything_arrives_and_the_process_ends(tmp_path: Path) -> None:
    """At a plain end both sinks have every event, and no process is left."""
    process, run_dir = start(tmp_path, 500)
    wait_for(lambda: read_status(run_dir, 0) is not None)
    status = read_status(run_dir, 0)
    assert status is not None
    assert process.wait(30) == 0
    wait_for(lambda: not alive(status.pid))
    assert losses(run_dir / "far") == [float(i) for i in range(500)]
    assert losses(run_dir / "near") == [float(i) for i in (*range(0, 500, 10), 499)]
    assert all(c.done for c in list_checkpoints(run_dir / "rank-0"))


def test_the_training_process_does_not_run_the_sink(tmp_path: Path) -> None:
    """An isolated sink is opened in another process; its state and url are known in this one."""
    with eventlog.Run("p", dir=tmp_path, sinks={"far": {"sink": "log", "isolate": True}}) as run:
        run.step(loss=1.0)
        assert run.flush(20).complete
        handle = run.sink("far")
        assert handle.state == "open"
        assert handle.tracker is None
        assert run.dir is not None
        assert handle.url == str(run.dir / "far")
        status = read_status(run.dir, 0)
        assert status is not None
        assert status.pid != os.getpid()
    assert run.sink("far").state == "closed"
    assert run.statistics().sinks["far"].delivered == 3


def test_a_killed_trainer_is_delivered_for(tmp_path: Path) -> None:
    """After SIGKILL of the trainer the sidecar delivers what is in the log, and ends."""
    process, run_dir = start(tmp_path, 10**6)
    wait_for(lambda: read_status(run_dir, 0) is not None)
    status = read_status(run_dir, 0)
    assert status is not None
    wait_for(lambda: eventlog.open_log(run_dir).summary().events > 300)
    process.kill()
    process.wait()
    wait_for(lambda: not alive(status.pid))
    assert losses(run_dir / "far") == losses(run_dir)
    assert eventlog.open_log(run_dir).status() == "killed"


def test_a_killed_sidecar_is_started_again(tmp_path: Path) -> None:
    """After SIGKILL of the sidecar another one goes on: nothing is missing, nothing twice."""
    process, run_dir = start(tmp_path, 3000)
    for _ in range(2):
        wait_for(lambda: read_status(run_dir, 0) is not None)
        status = read_status(run_dir, 0)
        assert status is not None
        first = status.pid
        os.kill(first, signal.SIGKILL)

        def another(before: int = first) -> bool:
            now = read_status(run_dir, 0)
            return now is not None and now.pid != before

        wait_for(another)
    assert process.wait(40) == 0
    assert losses(run_dir / "far") == [float(i) for i in range(3000)]


def test_both_killed_and_finished_by_hand(tmp_path: Path) -> None:
    """After SIGKILL of both, the module run by hand delivers the rest."""
    process, run_dir = start(tmp_path, 10**6)
    wait_for(lambda: read_status(run_dir, 0) is not None)
    status = read_status(run_dir, 0)
    assert status is not None
    wait_for(lambda: eventlog.open_log(run_dir).summary().events > 300)
    os.kill(status.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_for(lambda: not alive(status.pid))
    command = [sys.executable, "-m", "eventlog.sidecar", str(run_dir)]
    assert subprocess.run(command, timeout=40, check=False).returncode == 0
    everything = losses(run_dir)
    assert losses(run_dir / "far") == everything
    assert losses(run_dir / "near") == sorted({*everything[::10], everything[-1]})


def test_no_log_no_traceback(tmp_path: Path) -> None:
    """By hand on something that is no run: exit code 2 and a line that says so."""
    command = [sys.executable, "-m", "eventlog.sidecar", str(tmp_path / "nothing")]
    done = subprocess.run(command, timeout=40, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_instance_cannot_be_isolated(tmp_path: Path) -> None:
    """What cannot be made again in another process is refused with the reason."""
    with pytest.raises(ValueError, match="cannot be isolated"):
        eventlog.Run("p", dir=tmp_path, sinks={"x": {"sink": print, "isolate": True}})
    with pytest.raises(ValueError, match="cannot be isolated"):
        eventlog.Run("p", dir=None, sinks={"x": {"sink": "log", "isolate": True}})
