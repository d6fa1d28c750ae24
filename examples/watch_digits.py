"""Watch a network on handwritten digits: what its optimizer does, and what is done to itself.

    python examples/watch_digits.py --epochs 6

The first layer is frozen after the first epoch, the other one pruned after the second; before the
last epoch both are undone. Nobody says so to the run: `eventlog.watch` notices, at the optimizer's
next step. Four micro-batches make a step, which it counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, prune
from torch.utils.data import DataLoader, TensorDataset

import eventlog

ACCUMULATE = 4
PRUNED = 0.8


def change(model: nn.Sequential, epoch: int, epochs: int) -> None:
    """Do to the model what is due after an epoch."""
    if epoch == 0:
        model[0].requires_grad_(False)
    elif epoch == 1:
        prune.l1_unstructured(model[2], "weight", amount=PRUNED)  # type: ignore[no-untyped-call]
    elif epoch == epochs - 2:
        model[0].requires_grad_(True)
        prune.remove(model[2], "weight")  # type: ignore[no-untyped-call]


def train(run: eventlog.Run, epochs: int) -> None:
    """Train, with the run's counters kept by the loops and by the watch."""
    digits = load_digits()
    data = TensorDataset(
        torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    )
    loader = DataLoader(data, batch_size=38, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with eventlog.watch(model, optimizer, every="4 steps", updates="1 step", count=True):
        for epoch in run.epochs(epochs, progress=True):
            for n, (images, labels) in enumerate(run.steps(loader, progress=True), 1):
                loss = cross_entropy(model(images), labels)
                (loss / ACCUMULATE).backward()  # type: ignore[no-untyped-call]
                run.log({"loss": loss.detach()})
                if n % ACCUMULATE == 0:
                    clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            change(model, epoch, epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6, help="at least 4")
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with eventlog.Run("watch-digits", dir=arguments.dir) as run:
        train(run, arguments.epochs)
    assert run.dir is not None
    log = eventlog.open_log(run.dir)
    updates = [e for e in log.events() if isinstance(e, eventlog.ModelUpdateEvent)]
    for update in updates:
        was, now = update.values["sparsity_before"], update.values["sparsity"]
        trained, names = update.values["trained"], update.summary["changes"]
        print(f"step {update.step}: {update.kind} {names}; {trained} trained; ", end="")
        print(f"sparsity {was:.3f} -> {now:.3f}")
    *_, last = (e for e in log.events(types=["step"]) if "grad_norm" in e.values)
    print(f"last norms, at step {last.step}: {last.values}")


if __name__ == "__main__":
    main()
