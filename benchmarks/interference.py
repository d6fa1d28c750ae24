"""What logging costs a training loop: steps a second and p99 step, alternated in one run.

    python benchmarks/interference.py [--seconds 60]

A torch loop of about 1 ms a step runs in blocks of 100 steps, in turn with: nothing; the log
alone; a sink that is heavy on Python in the training process; the same sink in the sidecar. Bars:
the log alone at least 99 % of nothing, the sidecar at least 97 % with a core free (the loop itself
takes one of the machine's cores: torch is given one thread).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import eventlog

sys.path.insert(0, str(Path(__file__).parent))
BUSY = "busy:BusySink"
BLOCK = 100


def make_step() -> Callable[[], torch.Tensor]:
    """Return a training step of about 1 ms."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 192), torch.nn.ReLU(), torch.nn.Linear(192, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    return step


def block(step: Callable[[], torch.Tensor], run: eventlog.Run | None) -> list[float]:
    """Run a block of steps; return the seconds each took."""
    times = []
    for _ in range(BLOCK):
        start = time.perf_counter()
        loss = step()
        if run is not None:
            run.step(loss=loss, lr=1e-3)
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds: float = parser.parse_args().seconds
    step = make_step()
    for _ in range(300):
        step()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sinks: dict[str, Any] = {
            "log alone": None,
            "heavy sink in the process": {"busy": {"sink": BUSY}},
            "heavy sink in the sidecar": {"busy": {"sink": BUSY, "isolate": True}},
        }
        runs: dict[str, eventlog.Run | None] = {"nothing": None}
        for what, sink in sinks.items():
            runs[what] = eventlog.Run("interference", dir=folder, sinks=sink, close_timeout=120)
        times: dict[str, list[list[float]]] = {what: [] for what in runs}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for what, run in runs.items():
                times[what].append(block(step, run))
                if run is not None:
                    # what this case has left must not be done in the time of the next one
                    run.flush(60)
        for run in runs.values():
            if run is not None:
                run.close()
    report(times)


def report(times: dict[str, list[list[float]]]) -> None:
    """Print the rates, as ratios of the blocks beside them."""
    table = Table("with", "steps/s", "of nothing", "quartiles", "p99 step, ms", "bar")
    bars = {"log alone": ">= 0.99", "heavy sink in the sidecar": ">= 0.97, a core free"}
    base = [sum(b) for b in times["nothing"]]
    for what, blocks in times.items():
        ratios = [n / sum(b) for n, b in zip(base, blocks, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        every = sorted(t for b in blocks for t in b)
        table.add_row(
            what,
            f"{BLOCK / statistics.median(sum(b) for b in blocks):,.0f}",
            f"{middle:.4f}",
            f"{low:.3f} - {high:.3f}",
            f"{every[int(len(every) * 0.99)] * 1e3:.2f}",
            bars.get(what, ""),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
