"""Training code that is asynchronous itself may use a Run, on any loop."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel

from eventlog import Run, open_log
from eventlog.testing import AsyncMemorySink


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
