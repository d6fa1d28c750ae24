"""A loop that an async sink blocks for ever: no deadline in it passes, but no process stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from eventlog import open_log
from eventlog._standstill import Standstill
from eventlog.sidecar import read_status
from eventlog.testing.faults import MENDED, STRUCK, taken

TRAINER = """
import sys, time
import eventlog
from eventlog.delivery import Deadlines
run = eventlog.Run("p", dir=sys.argv[1], deadlines=Deadlines(2, 2, 2, 2), sinks={
    "broken": {
        "sink": "eventlog.testing.faults:AsyncBrokenSink",
        "at": "write", "fault": "block", "seconds": 1000.0, "isolate": True,
    },
})
print(run.dir, flush=True)
for step in range(20_000):
    run.step(x=1.0)
    time.sleep(0.003)
"""


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.02)


def test_a_sidecar_whose_loop_is_blocked_ends_when_its_run_is_killed(tmp_path: Path) -> None:
    """It says so; what is left is delivered afterwards."""
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert trainer.stdout is not None
        run_dir = Path(trainer.stdout.readline().strip())
        wait_for((run_dir / "broken" / STRUCK).exists, 30, "the first write")
        status = read_status(run_dir, 0)
    finally:
        trainer.kill()
        trainer.wait()
        assert trainer.stdout is not None
        trainer.stdout.close()
    assert status is not None
    process = Path(f"/proc/{status.pid}/cmdline")
    # one that is dead and not reaped has no command line
    wait_for(lambda: not process.exists() or not process.read_bytes(), 40, "the sidecar's end")
    assert "an async sink blocks its loop" in (run_dir / "sidecar-0.log").read_text()
    (run_dir / "broken" / MENDED).touch()
    command = [sys.executable, "-m", "eventlog", "replay", "--pending", str(run_dir)]
    allowed = os.environ | {"EVENTLOG_ALLOW": "eventlog.testing.faults:AsyncBrokenSink"}
    subprocess.run(command, check=True, timeout=50, capture_output=True, env=allowed)
    assert len(taken(run_dir / "broken")) == open_log(run_dir).summary().events


def test_a_loop_that_turns_is_left_alone_and_one_that_does_not_is_noticed_once() -> None:
    """Whoever waits with the loop does not hold it up."""
    noticed: list[int] = []
    came = threading.Event()

    def notice() -> None:
        noticed.append(threading.get_ident())
        came.set()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(Standstill(2.0, notice).watch)
            await anyio.sleep(4.5)
            assert not noticed
            assert came.wait(20)  # it blocks the loop, on purpose
            await anyio.sleep(0.5)
            group.cancel_scope.cancel()

    anyio.run(main)
    assert len(noticed) == 1
    assert noticed[0] != threading.get_ident()
