"""Accelerate: a tracker of eventlog's in place of Accelerate's own; nothing else changes.

    python examples/accelerate_digits.py --dir runs --epochs 5

With --beside FOLDER, Accelerate's own TensorBoard tracker gets the same values in the same run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eventlog.integrations import EventlogTracker


def loaders(batch_size: int) -> tuple[DataLoader[Any], DataLoader[Any]]:
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    data = TensorDataset(images, torch.tensor(digits.target))
    train = torch.utils.data.Subset(data, range(1437))
    test = torch.utils.data.Subset(data, range(1437, 1797))
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, 360)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()

    tracker = EventlogTracker("accelerate-digits", dir=options.dir, sinks=["tensorboard"])
    log_with = [tracker] if options.beside is None else [tracker, "tensorboard"]
    accelerator = Accelerator(cpu=True, log_with=log_with, project_dir=options.beside)
    settings = {"lr": 3e-3, "batch_size": 64, "epochs": options.epochs}
    accelerator.init_trackers("accelerate-digits", config=settings)

    set_seed(0)
    train, test = loaders(64)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)

    step = 0
    for epoch in range(options.epochs):
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            # the own tracker takes numbers only; ours takes `loss` itself, on any device
            accelerator.log({"loss": loss.item(), "lr": 3e-3}, step=step)
            step += 1
        with torch.no_grad():
            for images, labels in test:
                right = (model(images).argmax(1) == labels).float().mean()
        accelerator.log({"accuracy": right.item(), "epoch": epoch}, step=step)
    run = tracker.run
    accelerator.end_training()
    print(f"accuracy {right.item():.3f} after {step} steps")
    print(f"run: {run.dir}")
    print(f"tensorboard: {run.sink('tensorboard').url}")


if __name__ == "__main__":
    main()
