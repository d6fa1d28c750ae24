"""However a program ends, its run has the right status, and its last step is in TensorBoard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
run = eventlog.Run("p", dir=sys.argv[1], sinks="tensorboard")
for step in range(1000):
    run.log(loss=1 / (step + 1), step=step)
if how == "exception":
    raise RuntimeError("diverged")
if how != "end":
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
    """A SIGTERM that nobody handles kills: then the rest is delivered afterwards."""
    assert end(tmp_path, how) in codes
    (run_dir,) = (tmp_path / "p").glob("*/")
    log = open_log(run_dir)
    assert log.status() == status
    if status == "killed":
        done = subprocess.run(
            [sys.executable, "-m", "eventlog", "replay", "--pending", str(run_dir)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ | {"NO_COLOR": "1"},
        )
        assert done.returncode == 0, done.stderr
    guidance = {"scalars": 0}
    reader = accumulator.EventAccumulator(str(run_dir / "tensorboard"), size_guidance=guidance)
    points = [(p.step, p.value) for p in reader.Reload().Scalars("loss")]
    steps = [step for step, _ in points]
    # killed between a write and its confirmation, the sink is given that batch again
    assert (sorted(set(steps)) if status == "killed" else steps) == list(range(1000))
    assert points[-1] == (999, pytest.approx(1 / 1000))


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
