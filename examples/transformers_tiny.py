"""Transformers: a callback in a Trainer's list. The model is made from a configuration.

    python examples/transformers_tiny.py --dir runs --steps 40

It learns to say which of two words comes more often. With --beside FOLDER, the Trainer's own
TensorBoard callback gets the same values in the same run.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from eventlog.integrations import EventlogCallback


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Sentences of twelve words; the label says whether word 1 comes more often than word 2."""

    def __init__(self, size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(1, 8, (size, 12), generator=generator)
        self.labels = ((self.words == 1).sum(1) > (self.words == 2).sum(1)).long()

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.labels[index]}


def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=8,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )  # of two labels
    return BertForSequenceClassification(config)


def accuracy(predicted: Any) -> dict[str, float]:
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--output", type=Path, default=Path("trainer-output"))
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()

    if options.beside is not None:
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(options.beside)
    arguments = TrainingArguments(
        output_dir=str(options.output),
        max_steps=options.steps,
        per_device_train_batch_size=32,
        learning_rate=5e-3,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=10,
        save_steps=20,
        report_to=[] if options.beside is None else ["tensorboard"],
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    callback = EventlogCallback("transformers-tiny", dir=options.dir, sinks=["tensorboard"])
    trainer = Trainer(
        model=model(),
        args=arguments,
        train_dataset=Sentences(1000, seed=1),
        eval_dataset=Sentences(200, seed=2),
        compute_metrics=accuracy,
        callbacks=[callback],
    )
    trainer.remove_callback(PrinterCallback)
    with callback:  # the run fails if the block does
        trainer.train(resume_from_checkpoint=options.resume or None)
        found = trainer.evaluate()
    run = callback.run
    assert run is not None
    print(f"accuracy {found['eval_accuracy']:.3f}")
    print(f"run: {run.dir}")
    print(f"tensorboard: {run.sink('tensorboard').url}")


if __name__ == "__main__":
    main()
