"""SIGTERM: with nobody to handle it, with a sidecar, with `close_on_sigterm`, in a child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog import close_on_sigterm, open_log

ISOLATED = """
import sys, time
import eventlog
run = eventlog.Run("p", dir=sys.argv[1], sinks={"tensorboard": {"isolate": True}})
for step in range(1000):
    run.log(loss=1 / (step + 1), step=step)
    if step == 499:
        assert run.flush().complete
run.sync()
print("logged", flush=True)
time.sleep(60)
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program in a process group of its own, and wait until it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "logged\n"
    return process


def run_in(folder: Path) -> Path:
    (found,) = (folder / "p").glob("*/")
    return found


def test_a_sidecar_delivers_the_last_step_of_a_program_that_was_terminated(tmp_path: Path) -> None:
    """Also when the whole process group is: TensorBoard has all 1,000 without a replay."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    pytest.importorskip("eventlog_tensorboard")
    process = start(ISOLATED, str(tmp_path))
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(40) == -signal.SIGTERM
    run_dir = run_in(tmp_path)
    assert open_log(run_dir).status() == "killed"
    reader = accumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0})
    deadline = time.monotonic() + 40
    points: list[tuple[int, float]] = []
    while [step for step, _ in points][-1:] != [999]:
        assert time.monotonic() < deadline, f"the sidecar left {len(points)} points"
        time.sleep(0.05)
        reader.Reload()
        if "loss" in reader.Tags()["scalars"]:
            points = [(point.step, point.value) for point in reader.Scalars("loss")]
    assert [step for step, _ in points] == list(range(1000))
    assert [x for _, x in points] == pytest.approx([1 / (n + 1) for n in range(1000)])


HANGS = """
import sys, threading, time
import eventlog

class Hang(eventlog.Sink):
    name = "hang"
    def write(self, batch):
        threading.Event().wait()

eventlog.close_on_sigterm(timeout=0.5)
with eventlog.Run("p", dir=sys.argv[1], sinks=Hang()) as run:
    run.step(x=1)
    run.sync()
    print("logged", flush=True)
    time.sleep(60)
"""


def test_the_end_asked_for_is_prompt_whatever_a_sink_does(tmp_path: Path) -> None:
    """Within its timeout, with the status and the last step in the log."""
    process = start(HANGS, str(tmp_path))
    before = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == -signal.SIGTERM
    assert time.monotonic() - before < 10
    log = open_log(run_in(tmp_path))
    assert log.status() == "interrupted"
    assert [e.values for e in log.events(types=["step"])] == [{"x": 1}]


RAISES = """
import signal, sys, time
import eventlog

def leave(number, frame):
    raise SystemExit(7)

signal.signal(signal.SIGTERM, leave)
eventlog.close_on_sigterm()
with eventlog.Run("p", dir=sys.argv[1]) as run:
    run.step(x=1)
    print("logged", flush=True)
    time.sleep(60)
"""


def test_a_former_handler_that_leaves_by_an_exception_does(tmp_path: Path) -> None:
    """With its own exit code; that the run was closed already is no harm to its block."""
    process = start(RAISES, str(tmp_path))
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 7
    assert open_log(run_in(tmp_path)).status() == "interrupted"


FORKS = """
import os, signal, sys, time, warnings
warnings.simplefilter("ignore")
import eventlog

eventlog.close_on_sigterm()
with eventlog.Run("p", dir=sys.argv[1]) as run:
    run.step(x=1)
    run.sync()
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == -signal.SIGTERM, code
    assert eventlog.open_log(run.dir).status() == "running"
    run.step(x=2)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_is_terminated_leaves_its_parent_s_run_alone(tmp_path: Path) -> None:
    """As workers of a pool are, even as soon as they are forked; they die of it all the same."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    log = open_log(run_in(tmp_path))
    assert log.status() == "finished"
    assert [e.values["x"] for e in log.events(types=["step"])] == [1, 2]


def test_another_thread_cannot_ask_and_is_told_so() -> None:
    """Python lets only the main thread install handlers."""
    said: list[str] = []

    def ask() -> None:
        try:
            close_on_sigterm()
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert said == ["close_on_sigterm must be called on the main thread"]


@pytest.mark.parametrize("timeout", ["20", -1, float("nan")])
def test_a_time_that_is_none_is_refused_before_it_is_needed(timeout: Any) -> None:
    """Not in the handler, where the runs would stay open for it; the former one is still there."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(TypeError, match="timeout must be seconds"):
        close_on_sigterm(timeout)
    assert signal.getsignal(signal.SIGTERM) is before
