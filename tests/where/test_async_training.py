"""Training code that is asynchronous itself may use a Run, on any loop."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from eventlog import Run, open_log
from eventlog.delivery import Deadlines
from eventlog.testing import AsyncMemorySink, Fault, FaultySink


async def test_a_run_inside_a_running_loop(tmp_path: Path) -> None:
    """It has a loop of its own: neither is in the other's way."""
    sink = AsyncMemorySink()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.lowlevel.checkpoint()

    with Run("p", dir=tmp_path, sinks=sink) as run:
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            for step in range(200):
                run.step(n=step)
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        report = await anyio.to_thread.run_sync(run.flush)
        assert report.complete
    assert ticks > 100
    assert [n for _, n in sink.values("n")] == list(range(200))
    assert run.dir is not None
    assert open_log(run.dir).status() == "finished"


async def test_tasks_log_to_one_run(tmp_path: Path) -> None:
    """Each value arrives once, whoever logged it."""

    async def work(run: Run, name: str) -> None:
        for n in range(50):
            run.log({name: n}, step=n)
            await anyio.lowlevel.checkpoint()

    with Run("p", dir=tmp_path) as run:
        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(work, run, name)
    assert run.dir is not None
    found = [item for e in open_log(run.dir).events(types=["step"]) for item in e.values.items()]
    assert sorted(found) == sorted((name, n) for name in "abc" for n in range(50))


async def test_a_loop_is_not_held_up_by_a_sink_that_hangs(tmp_path: Path) -> None:
    """Neither by logging, nor by a close that is waited for on another thread."""
    hung = FaultySink(write=Fault(hang=True))
    deadlines = Deadlines(write=60)
    run = Run("p", dir=tmp_path, sinks=hung, deadlines=deadlines, close_timeout=60)
    for step in range(1_000):
        run.step(n=step)
        await anyio.lowlevel.checkpoint()
    closing = threading.Event()

    def close() -> bool:
        closing.set()
        return run.close().complete

    complete = []
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            complete.append(await anyio.to_thread.run_sync(close))

        group.start_soon(wait)
        while not closing.is_set():
            await anyio.lowlevel.checkpoint()
        # the loop goes on meanwhile, and is who lets it end
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        hung.release()
    assert complete == [True]


async def test_a_cancelled_training_is_interrupted(tmp_path: Path) -> None:
    """A timeout or a Ctrl-C has ended it: it has not failed."""
    with anyio.move_on_after(0.05), Run("p", dir=tmp_path) as run:
        while True:
            run.step(x=1)
            await anyio.sleep(0.001)
    assert run.dir is not None
    assert open_log(run.dir).status() == "interrupted"


async def test_a_group_with_a_failure_is_a_failure(tmp_path: Path) -> None:
    """Whatever was cancelled because of it."""
    run = Run("p", dir=tmp_path)

    async def fail() -> None:
        raise RuntimeError("diverged")

    async def train() -> None:
        with run:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                group.start_soon(fail)

    with pytest.raises(BaseExceptionGroup):
        await train()
    assert run.dir is not None
    assert open_log(run.dir).status() == "failed"


CTRL_C = """
import sys
import anyio
import eventlog

async def train(run):
    while True:
        run.step(x=1)
        await anyio.sleep(0.001)

async def main():
    with eventlog.Run("p", dir=sys.argv[1]) as run:
        async with anyio.create_task_group() as group:
            group.start_soon(train, run)
            group.start_soon(anyio.sleep_forever)
            print("training", flush=True)

anyio.run(main, backend=sys.argv[2])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_interrupts_asynchronous_training(tmp_path: Path, backend: str) -> None:
    """The loop makes a cancellation of it, or a group of exceptions."""
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, str(tmp_path), backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(40) != 0
    (run_dir,) = (tmp_path / "p").glob("*/")
    assert open_log(run_dir).status() == "interrupted"
