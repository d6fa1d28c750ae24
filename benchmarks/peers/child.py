"""The process of one case: it logs, and tells its parent what that took.

    python -m peers.child MODE CASE FOLDER IN OUT     (two file descriptors)

It says where it is, a line of JSON each time, and goes on when it is told to: so the parent can
look at the processor time and memory of all processes at exactly these places.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from peers.base import LR, Case
from peers.loop import STEP, Step, Trainer, bare, calibrate, make_steps
from peers.plan import Plan

COUNTER = "counter"
TICK = 10
"""Each so many paced steps, the parent is told when one was logged."""


class Parent:
    """The other side of the two pipes."""

    def __init__(self, read: int, write: int) -> None:
        for fd in (read, write):
            os.set_inheritable(fd, False)
        self._in, self._out = os.fdopen(read), os.fdopen(write, "w", buffering=1)

    def tell(self, at: str, **what: Any) -> None:
        """Say something."""
        self._out.write(json.dumps({"at": at, **what}) + "\n")

    def stop(self, at: str, **what: Any) -> None:
        """Say something, and wait until told to go on."""
        self.tell(at, cpu=time.process_time(), **what)
        if not self._in.readline():
            raise SystemExit("the parent is gone")

    def order(self) -> dict[str, Any]:
        """Take what the parent sends first."""
        found: dict[str, Any] = json.loads(self._in.readline())
        return found


def pairs(trainer: Trainer, step: Step, count: int, block: int, seconds: float) -> dict[str, Any]:
    """Run blocks in pairs, one with the logger and one without, in changing order."""
    ratios: list[float] = []
    calls: list[int] = []
    end = time.monotonic() + seconds
    for i in range(count):
        if i % 2:
            without = bare(step, block)
            logged = trainer.logged(step, block, calls)
        else:
            logged = trainer.logged(step, block, calls)
            without = bare(step, block)
        ratios.append(logged / without)
        if time.monotonic() > end:
            break
    return {"ratios": ratios, "calls": calls}


def measure_loop(case: Case, folder: Path, parent: Parent, order: dict[str, Any]) -> None:
    """Time the calls and the loop, with everything around it."""
    plan = msgspec.convert(order["plan"], Plan)
    sizes = {float(ms): (h, b) for ms, (h, b) in order["sizes"].items() if ms in plan.pairs}
    steps = make_steps(sizes)
    step = steps[STEP]
    parent.stop("bare")
    before = bare(step, plan.whole)
    parent.stop("before")
    start = time.perf_counter()
    opened = case.open(folder)
    opening = time.perf_counter() - start
    trainer = Trainer(opened.log)
    trainer.burst(1, 60.0)  # what a first call does is part of the start
    parent.stop("opened")
    burst = trainer.burst(plan.burst, plan.burst_seconds)
    parent.stop("settle")
    found = {
        ms: pairs(trainer, steps[float(ms)], n, plan.block[ms], plan.pair_seconds)
        for ms, n in plan.pairs.items()
    }
    parent.stop("settle")
    calls = found[str(STEP)].pop("calls")
    parent.stop("whole")
    whole = trainer.logged(step, plan.whole, calls)
    start = time.perf_counter()
    opened.close()
    closing = time.perf_counter() - start
    parent.stop("closed")
    after = bare(step, plan.whole)
    result = {
        "opening": opening,
        "burst": burst,
        "between": calls,
        "pairs": {ms: one["ratios"] for ms, one in found.items()},
        "whole": whole,
        "closing": closing,
        "bare": [before, after],
        "steps": plan.whole,
        "logged": trainer.done,
    }
    parent.stop("result", result=result)


def be_killed(case: Case, folder: Path, parent: Parent, order: dict[str, Any]) -> None:
    """Log a step each 10 ms until somebody kills this process."""
    opened = case.open(folder)
    with (folder / COUNTER).open("w+b") as file:
        file.truncate(8)
        counter = mmap.mmap(file.fileno(), 8)  # what is written here outlives the process
    parent.stop("opened")
    step, next_one = 0, time.monotonic()
    while True:
        at = time.monotonic_ns()
        opened.log(step, 1 / (step + 1), 0.9, LR)
        step += 1
        counter[:8] = struct.pack("<q", step)
        if step % TICK == 0:
            parent.tell("tick", count=step, mono=at)
        next_one = max(next_one + 0.01, time.monotonic())
        time.sleep(max(0.0, next_one - time.monotonic()))


def main(mode: str, name: str, folder: Path, read: int, write: int) -> None:
    """Do what the parent wants."""
    parent = Parent(read, write)
    order = parent.order()
    if mode == "calibrate":
        parent.tell("result", result={str(ms): size for ms, size in calibrate().items()})
        return
    from peers.cases import CASES

    if mode == "template":
        from peers.mlflow_cases import make_template

        make_template(folder / "mlflow.db")
        parent.tell("result", result={})
        return
    case = CASES[name]
    with case.serve(folder):
        {"loop": measure_loop, "kill": be_killed}[mode](case, folder, parent, order)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
