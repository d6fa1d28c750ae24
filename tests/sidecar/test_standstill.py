"""A loop that an async sink blocks for ever: no deadline in it passes, but no process stays."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from eventlog import open_log
from eventlog._care import Meter, Turn
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


def test_only_a_call_that_stops_the_loop_beyond_its_deadline_is_noticed() -> None:
    """Whoever awaits does not stop it; a disk that does is no sink; and some may take for ever."""
    noticed: list[str] = []
    came = threading.Event()

    def notice(what: str) -> None:
        noticed.append(what)
        came.set()

    async def awaits() -> None:
        await anyio.sleep(2.5)

    async def blocks(seconds: float) -> None:
        came.wait(seconds)  # it blocks the loop, on purpose

    async def main() -> None:
        meter = Meter()
        async with anyio.create_task_group() as group:
            group.start_soon(Standstill(0.5, notice).watch)
            await meter.wait(awaits(), Turn("waits", 0.1))
            time.sleep(3.5)  # noqa: ASYNC251 - as a disk would
            await meter.wait(blocks(3.5), Turn("for ever", math.inf))
            assert not noticed
            await meter.wait(blocks(30.0), Turn("stops", 1.0))
            await anyio.sleep(0.5)
            group.cancel_scope.cancel()

    anyio.run(main)
    assert noticed == ["stops"]
