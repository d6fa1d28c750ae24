"""Train a small network on handwritten digits, and say what happens while it trains.

    python examples/digits.py --dir runs --epochs 10

The digits are real scans and come with scikit-learn; nothing is downloaded. Two micro-batches make
a step (gradient accumulation), and halfway the network is pruned.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, prune

import eventlog
from eventlog import BatchEvent, Event

MICRO_BATCH = 32
ACCUMULATE = 2
LEARNING_RATE = 1e-2
SHOWN = ["run_started", "step", "epoch", "model_update", "summary_updated", "run_finished"]


async def watch(event: Event) -> None:
    """Take the mean over each epoch's micro-batches; runs in the delivery's own loop."""
    if event.window is not None:
        first, last, n = event.window.first, event.window.last, event.window.n
        loss = event.values["micro_batch/loss"]
        line = f"  watch: mean loss of {n} micro-batches, {first} to {last}: {loss:.4f}"
        print(f"{line}\n", end="", flush=True)  # in one piece, between the console's lines


def load(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images and labels, then those that the network is tested with."""
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    test, train = order[:360], order[360:]
    return images[train], labels[train], images[test], labels[test]


def sparsity(model: nn.Module) -> float:
    """Return which share of the weights is 0."""
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    return float(sum((w == 0).sum() for w in weights)) / sum(w.numel() for w in weights)


def grid(images: Tensor, columns: int = 8) -> Tensor:
    """Return up to 32 digits side by side as one image, four pixels for each of theirs."""
    tiles = nn.functional.pad(images[:32].reshape(-1, 8, 8), (1, 1, 1, 1))
    blanks = tiles.new_zeros(-len(tiles) % columns, 10, 10)
    rows = torch.cat([tiles, blanks]).reshape(-1, columns, 10, 10)
    sheet = rows.transpose(1, 2).flatten(2).flatten(0, 1)
    return sheet.repeat_interleave(4, 0).repeat_interleave(4, 1)


def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    """Return the loss, and what the model takes each image for."""
    with torch.no_grad():
        logits = model(images)
        return float(cross_entropy(logits, labels)), logits.argmax(1)


def readers() -> dict[str, Any]:
    """Return the sinks of this example: a terminal, TensorBoard, and a function."""
    return {
        "console": {"every": "50 steps or 1 epoch", "types": SHOWN},
        "tensorboard": {},  # every step and every micro-batch
        "watch": {"sink": watch, "types": [BatchEvent], "every": "1 epoch", "reduce": "mean"},
    }


def train(directory: Path, epochs: int, seed: int, sinks: dict[str, Any]) -> eventlog.Run:
    """Train, with these readers of what happens; return the run, closed."""
    torch.manual_seed(seed)
    images, labels, test_images, test_labels = load(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    best = 0.0
    run = eventlog.Run(
        "digits",
        dir=directory,
        config={"epochs": epochs, "seed": seed, "lr": LEARNING_RATE, "accumulate": ACCUMULATE},
        tags=["example"],
        sinks=sinks,
        close_timeout=120,
    )
    with run:
        run.config.update(parameters=sum(p.numel() for p in model.parameters()))
        run.text("about", "A **two-layer network** on 8 x 8 scans of handwritten digits.")
        for epoch in range(epochs):
            if epoch == epochs // 2:
                before = sparsity(model)
                for layer in model:
                    if isinstance(layer, nn.Linear):
                        prune.l1_unstructured(layer, "weight", amount=0.5)  # type: ignore[no-untyped-call]
                after = sparsity(model)
                run.model_updated("prune", sparsity_before=before, sparsity_after=after)

            for step in torch.split(torch.randperm(len(images)), MICRO_BATCH * ACCUMULATE):
                optimizer.zero_grad()
                losses = []
                for rows in torch.split(step, MICRO_BATCH):
                    loss = cross_entropy(model(images[rows]), labels[rows])
                    (loss / ACCUMULATE).backward()  # type: ignore[no-untyped-call]
                    run.batch({"micro_batch/loss": loss})  # a tensor; nobody calls item() here
                    losses.append(loss.detach())
                norm = clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                lr = scheduler.get_last_lr()[0]
                run.step(loss=torch.stack(losses).mean(), grad_norm=norm, lr=lr)
            scheduler.step()

            val_loss, guesses = evaluate(model, test_images, test_labels)
            wrong = guesses != test_labels
            accuracy = 1 - wrong.float().mean().item()
            best = max(best, accuracy)
            for name, parameter in model.named_parameters():
                run.histogram(f"weights/{name}", parameter)
            if wrong.any():
                misread = test_images[wrong]
                run.image("misread", partial(grid, misread), every="2 epochs")
            run.epoch({"val": {"loss": val_loss, "accuracy": accuracy}})

        run.table("confusion", confusion(test_labels, guesses), columns=["digit", *"0123456789"])
        run.summary.update(best_accuracy=best, sparsity=sparsity(model))
    return run


def confusion(labels: Tensor, guesses: Tensor) -> list[list[int]]:
    """Return a row for each digit: the digit, then how often it was taken for 0, 1, ... 9."""
    counts = torch.bincount(labels * 10 + guesses, minlength=100).reshape(10, 10)
    return [[digit, *row] for digit, row in enumerate(counts.tolist())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"), help="where runs lie")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"--epochs must be 1 or more, not {options.epochs}")
    run = train(options.dir, options.epochs, options.seed, readers())
    statistics = run.statistics()
    print(f"log         {run.dir}")
    print(f"tensorboard {run.sink('tensorboard').url}")
    print(f"events      {statistics.log.written} written, dropped: {statistics.log.dropped or 0}")
    for alias, sink in statistics.sinks.items():
        print(f"{alias:<11} {sink.delivered} delivered, {sink.filtered} left out or reduced")


if __name__ == "__main__":
    main()
