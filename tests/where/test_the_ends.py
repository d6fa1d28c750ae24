"""However a program ends, its run has the right status, and its last step is in TensorBoard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eventlog import open_log

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
pytest.importorskip("eventlog_tensorboard")

PROGRAM = """
import sys, time
import eventlog
how = sys.argv[2]
if how == "sigterm, asked for":
    eventlog.close_on_sigterm()
isolate = how == "sigterm, a sidecar"
run = eventlog.Run("p", dir=sys.argv[1], sinks={"tensorboard": {"isolate": isolate}})
for step in range(1000):
    run.log(loss=1 / (step + 1), step=step)
if how == "exception":
    raise RuntimeError("diverged")
if how != "end":
    run.sync()
    if isolate:
        # by now there is one
        assert run.flush().complete
        run.log(loss=1 / 1001, step=1000)
        run.sync()
    print("logged", flush=True)
    time.sleep(60)
"""


def end(folder: Path, how: str) -> int:
    """Run the program to its end; return its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    if how not in ("end", "exception"):
        assert process.stdout.readline() == "logged\n"
        process.send_signal(signal.SIGINT if how == "ctrl-c" else signal.SIGTERM)
    code = process.wait(60)
    process.stdout.close()
    return code


@pytest.mark.parametrize(
    ("how", "status", "codes"),
    [
        ("end", "finished", [0]),
        ("exception", "failed", [1]),
        # the interpreter forgets that it was interrupted when any thread calls exec() meanwhile
        ("ctrl-c", "interrupted", [-signal.SIGINT, 1]),
        ("sigterm, asked for", "interrupted", [-signal.SIGTERM]),
        ("sigterm", "killed", [-signal.SIGTERM]),
    ],
)
def test_the_end_is_told_and_the_last_step_shown(
    tmp_path: Path, how: str, status: str, codes: list[int]
) -> None:
    """A SIGTERM that nobody handles kills: the rest is delivered afterwards, or by the sidecar."""
    assert end(tmp_path, how) in codes
    (run_dir,) = (tmp_path / "p").glob("*/")
    log = open_log(run_dir)
    assert log.status() == status
    if how == "sigterm":
        done = subprocess.run(
            [sys.executable, "-m", "eventlog", "replay", "--pending", str(run_dir)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ | {"NO_COLOR": "1"},
        )
        assert done.returncode == 0, done.stderr
    last = 1000 if how == "sigterm, a sidecar" else 999
    deadline = time.monotonic() + 30
    while not (points := points_in(run_dir)) or points[-1][0] != last:
        assert how == "sigterm, a sidecar", f"the last step is not there: {points[-1:]}"
        assert time.monotonic() < deadline, "the sidecar has not delivered the last step"
        time.sleep(0.05)
    assert [step for step, _ in points] == list(range(last + 1))
    assert [value for _, value in points] == pytest.approx([1 / (n + 1) for n in range(last + 1)])


CHAINED = """
import os, signal, sys
import eventlog
signal.signal(signal.SIGTERM, lambda number, frame: print("the framework's own", flush=True))
restore = eventlog.close_on_sigterm()
run = eventlog.Run("p", dir=sys.argv[1])
run.step(x=1)
os.kill(os.getpid(), signal.SIGTERM)
print(eventlog.open_log(run.dir).status(), flush=True)
restore()
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_former_handler_is_called_and_put_back(tmp_path: Path) -> None:
    """After the runs are closed; the program decides whether it goes on."""
    done = subprocess.run(
        [sys.executable, "-c", CHAINED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "the framework's own",
        "interrupted",
        "the framework's own",
    ]


def test_no_handler_is_installed_unasked(tmp_path: Path) -> None:
    """Opening and closing a run leaves every signal as it was."""
    from eventlog import Run

    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with Run("p", dir=tmp_path) as run:
        run.step(x=1)
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
