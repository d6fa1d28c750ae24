"""Train on several processes: each says what it has, and the values are reduced over all of them.

    torchrun --standalone --nproc-per-node 4 examples/ranks.py --dir runs

or without torchrun, which is then started from here::

    python examples/ranks.py --processes 4

Each process trains on its part of scikit-learn's digits. What it logs is in a log of its own; the
mean over the processes is in ``reduced`` beside these. No value is gathered for that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import eventlog

BATCH = 32


def train(directory: Path, epochs: int) -> Path:
    """Train as one process of a group; return where the run lies."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)[rank::world_size]
    labels = torch.tensor(digits.target)[rank::world_size]
    steps = len(digits.data) // world_size // BATCH
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with eventlog.Run(
        "digits",
        dir=directory,
        config={"epochs": epochs, "batch": BATCH},
        sinks=[],
        ranks="all",
        reduce_ranks="mean",
    ) as run:
        for _ in range(epochs):
            for i in range(steps):
                part = slice(i * BATCH, (i + 1) * BATCH)
                loss = cross_entropy(model(images[part]), labels[part])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                run.step(loss=loss)
            right = (model(images).argmax(1) == labels).float().mean()
            run.epoch({"accuracy": right})
    dist.destroy_process_group()
    assert run.dir is not None
    return run.dir


def show(run_dir: Path) -> None:
    """Print what each rank and the reduction say of the last step."""
    ranks = eventlog.open_log(run_dir).ranks
    logs = {f"rank {rank}": eventlog.open_log(run_dir, rank) for rank in ranks}
    logs["reduced"] = eventlog.open_log(run_dir / "reduced")
    for name, log in logs.items():
        *_, last = log.events(types=[eventlog.StepEvent])
        print(f"{name}: step {last.step}, loss {last.values['loss']:.4f}")
    assert last.values["ranks/n"] == len(ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4, help="where torchrun is started here")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        launch = ["-m", "torch.distributed.run", "--standalone"]
        launch += ["--nproc-per-node", str(options.processes), __file__, *sys.argv[1:]]
        sys.exit(subprocess.run([sys.executable, *launch], check=False).returncode)
    torch.set_num_threads(1)
    run_dir = train(options.dir, options.epochs)
    if os.environ["RANK"] == "0":
        show(run_dir)


if __name__ == "__main__":
    main()
