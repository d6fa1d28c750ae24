"""A real torch loop on one core of the CPU, of a step's length that is asked for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from peers.base import LR, Log

Step = Callable[[], float]
Size = tuple[int, int]
"""Hidden units (0: one linear layer) and batch."""

HIDDEN = {0.2: 0, 1.5: 192, 10.0: 512}
"""Hidden units for each length of a step, in ms; the batch is found by `calibrate`."""

STEP = 1.5
"""The length, in ms, for which everything is measured."""


def make_step(size: Size) -> Step:
    """Return a training step that gives its loss as a number."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    hidden, batch = size
    layers: list[Any] = [torch.nn.Linear(64, hidden or 10)]
    if hidden:
        layers += [torch.nn.ReLU(), torch.nn.Linear(hidden, 10)]
    model = torch.nn.Sequential(*layers)
    kind = torch.optim.Adam if hidden else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=LR)
    x, y = torch.randn(batch, 64), torch.randint(0, 10, (batch,))

    def step() -> float:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def length(step: Step, n: int) -> float:
    """Return the median of n steps, in ms."""
    spent = []
    for _ in range(n):
        start = time.perf_counter()
        step()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1e3


def calibrate() -> dict[float, Size]:
    """Find the batches with which steps take about as long as they should here."""
    found = {}
    for wanted, hidden in HIDDEN.items():
        batch, n = 8, 15
        while (took := length(make_step((hidden, batch)), n)) < wanted and batch < 2**14:
            below, batch = (batch, took), batch * 2
        if batch > 8:  # between the last two
            part = (wanted - below[1]) / max(took - below[1], 1e-9)
            batch = int(below[0] + (batch - below[0]) * part)
        found[wanted] = (hidden, max(8, batch))
    return found


def make_steps(sizes: Mapping[float, Size]) -> dict[float, Step]:
    """Return a step for each length, warmed up."""
    steps = {wanted: make_step(size) for wanted, size in sizes.items()}
    for wanted, step in steps.items():
        length(step, 20 if wanted > STEP else 100)
    return steps


class Trainer:
    """Runs blocks of steps, and counts them across blocks.

    Attributes:
        done: Steps that were logged.
    """

    def __init__(self, log: Log) -> None:
        self.log, self.done = log, 0

    def logged(self, step: Step, n: int, calls: list[int] | None = None) -> float:
        """Run n steps with a call of the logger after each; return the seconds they took.

        Args:
            step: The work.
            n: How many.
            calls: Gets the nanoseconds of each call.
        """
        log, clock, at, kept = self.log, time.perf_counter_ns, self.done, [0] * n
        start = clock()
        for i in range(n):
            loss = step()
            before = clock()
            log(at + i, loss, 1 / (1 + loss), LR)
            kept[i] = clock() - before
        spent = clock() - start
        self.done += n
        if calls is not None:
            calls += kept
        return spent / 1e9

    def burst(self, most: int, seconds: float) -> list[int]:
        """Call the logger in a tight loop; return the nanoseconds of each call."""
        log, clock, kept = self.log, time.perf_counter_ns, []
        end = clock() + int(seconds * 1e9)
        for i in range(self.done, self.done + most):
            before = clock()
            log(i, 0.5, 0.9, LR)
            after = clock()
            kept.append(after - before)
            if after > end:
                break
        self.done += len(kept)
        return kept


def bare(step: Step, n: int) -> float:
    """Run n steps as `Trainer.logged` does, with a call that does nothing."""
    return Trainer(lambda at, loss, accuracy, lr: None).logged(step, n)
