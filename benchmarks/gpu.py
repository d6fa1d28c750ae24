"""What logging a value that lies on a GPU costs a training step.

    python benchmarks/gpu.py

A step of a small network on the GPU, with no logging, with `run.step(loss=loss)`, and with
`loss.item()` into a list, alternated in blocks of 200; then a profile of each, of which the calls
that wait for the device are counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import eventlog

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def make_step(torch: Any, width: int) -> Callable[[], Any]:
    """Return a training step that gives its loss, on the device."""
    model = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(1024, width, device="cuda"), torch.randn(1024, 1, device="cuda")

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def rate(torch: Any, step: Callable[[], Any], use: Callable[[Any], object], n: int) -> float:
    """Return steps per second, the device's work included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        use(step())
    torch.cuda.synchronize()
    return n / (time.perf_counter() - start)


def waits(torch: Any, step: Callable[[], Any], use: Callable[[Any], object], n: int) -> int:
    """Return how often the host waited for the device in n steps."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(n):
            use(step())
    # the profiler itself waits once at its end
    return sum(int(e.count) for e in profile.key_averages() if e.key in WAITS) - 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--width", type=int, default=1024)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("torch is not installed")
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device here")
    step = make_step(torch, options.width)
    kept: list[float] = []
    with tempfile.TemporaryDirectory() as folder, eventlog.Run("gpu", dir=folder) as run:
        uses: dict[str, Callable[[Any], object]] = {
            "nothing": lambda loss: None,
            "eventlog": lambda loss: run.step(loss=loss),
            "item()": lambda loss: kept.append(loss.item()),
        }
        for use in uses.values():
            rate(torch, step, use, 50)
        rates: dict[str, list[float]] = {name: [] for name in uses}
        for _ in range(options.blocks):
            for name, use in uses.items():
                rates[name].append(rate(torch, step, use, 200))
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
        print(f"{'':10} {'steps/s':>9} {'of nothing':>11} {'waits in 100 steps':>19}")
        for name, use in uses.items():
            pairs = [a / b for a, b in zip(rates[name], rates["nothing"], strict=True)]
            print(
                f"{name:10} {statistics.median(rates[name]):9.0f} {statistics.median(pairs):11.3f} "
                f"{waits(torch, step, use, 100):19}"
            )


if __name__ == "__main__":
    main()
