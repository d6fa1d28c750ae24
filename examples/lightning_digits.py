"""Lightning: a logger for its Trainer.

    python examples/lightning_digits.py --dir runs --epochs 3

With --beside FOLDER, Lightning's own TensorBoard logger gets the same values in the same run.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from eventlog.integrations import EventlogLogger


class Digits(LightningModule):
    def __init__(self, lr: float = 3e-3, hidden: int = 48) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def training_step(self, batch: Any, index: int) -> Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        images, labels = batch
        logits = self.net(images)
        self.log("val/loss", nn.functional.cross_entropy(logits, labels))
        self.log("val/accuracy", (logits.argmax(1) == labels).float().mean())

    def test_step(self, batch: Any, index: int) -> None:
        images, labels = batch
        self.log("test/accuracy", (self.net(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    data = TensorDataset(images, torch.tensor(digits.target))
    train, test = Subset(data, range(1437)), Subset(data, range(1437, 1797))
    return DataLoader(train, 64, shuffle=True), DataLoader(test, 360)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()

    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    seed_everything(0, verbose=False)
    ours = EventlogLogger("lightning-digits", dir=options.dir, sinks=["tensorboard"])
    loggers: list[Any] = [ours]
    if options.beside is not None:
        loggers.append(TensorBoardLogger(options.beside, name="own", default_hp_metric=False))
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=options.epochs,
        logger=loggers,
        log_every_n_steps=5,
        callbacks=[ModelCheckpoint(monitor="val/accuracy", mode="max")],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, test = loaders()
    with ours:  # the run fails if the block does
        trainer.fit(Digits(), train, test)
        (found,) = trainer.test(dataloaders=test, ckpt_path="best", verbose=False)
    run = ours.run
    assert run is not None
    print(f"accuracy {found['test/accuracy']:.3f}")
    print(f"run: {run.dir}")
    print(f"tensorboard: {run.sink('tensorboard').url}")


if __name__ == "__main__":
    main()
