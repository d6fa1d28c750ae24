"""What `watch` costs: an optimizer's step with nothing due, and a look at a large model.

python benchmarks/watch.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import torch

import eventlog


def median_us(work: Callable[[], object], times: int) -> float:
    """Return what a call takes, in microseconds: the median of many."""
    spent = []
    for _ in range(times):
        start = time.perf_counter_ns()
        work()
        spent.append(time.perf_counter_ns() - start)
    return statistics.median(spent) / 1e3


def main() -> None:
    layers = [torch.nn.Linear(64, 64) for _ in range(100)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    plain = median_us(optimizer.step, 200)
    with tempfile.TemporaryDirectory() as folder, eventlog.Run("watch", dir=folder) as run:
        watched = eventlog.watch(model, optimizer, every="1000000 steps", updates=None, count=True)
        optimizer.step()
        hook = median_us(lambda: watched._stepped(), 2000)
        watched._updates = "1000000 steps"
        both = median_us(lambda: watched._stepped(), 2000)
        look = median_us(watched.check, 50)
        values = median_us(watched._norm_values, 50)
        print("100 linear layers of 64 x 64, 200 parameters, on the CPU")
        print(f"the optimizer's step       {plain:8.1f} us")
        print(f"the hook, nothing due      {hook:8.1f} us   {hook / plain:.4f} of it")
        print(f"  and no look due          {both:8.1f} us   {both / plain:.4f} of it")
        print(f"a look for changes         {look:8.1f} us   {look / plain:.2f} of it")
        print(f"norms                      {values:8.1f} us   {values / plain:.2f} of it")
        run.flush(10)


if __name__ == "__main__":
    main()
