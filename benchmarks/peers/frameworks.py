"""What the frameworks call when they log: Accelerate, Lightning, Transformers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers.base import LR, Case, Opened, sdk
from peers.mlflow_cases import database, read_mlflow
from peers.ours import FIVE, read_log
from peers.trackers import read_aim, read_dvclive, read_tensorboard, read_wandb

READERS: dict[str, Callable[[Path], int]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "aim": read_aim,
    "mlflow": functools.partial(read_mlflow, False),
    "dvclive": read_dvclive,
}
MODULES = {"tensorboard": "tensorboard", "wandb": "wandb", "aim": "aim", "mlflow": "mlflow",
           "dvclive": "dvclive"}  # fmt: skip


def accelerate(trackers: tuple[str, ...], folder: Path) -> Opened:
    os.environ["MLFLOW_TRACKING_URI"] = database(folder)
    kwargs: dict[str, Any] = {
        "wandb": {"mode": "offline", "dir": str(folder)},
        "dvclive": {"dir": str(folder / "dvclive"), "save_dvc_exp": False},
    }
    accelerator = sdk("accelerate").Accelerator(
        cpu=True, log_with=list(trackers), project_dir=str(folder)
    )
    accelerator.init_trackers(
        "bench", {"lr": LR}, {name: kwargs[name] for name in trackers if name in kwargs}
    )
    return _logging(accelerator)


def accelerate_eventlog(folder: Path) -> Opened:
    """Open Accelerate with eventlog as its tracker."""
    from eventlog.integrations import EventlogTracker

    tracker = EventlogTracker("bench", dir=folder / "runs", sinks={"tensorboard": {}})
    accelerator = sdk("accelerate").Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("bench", {"lr": LR})
    return _logging(accelerator)


def _logging(accelerator: Any) -> Opened:
    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        accelerator.log({"loss": loss, "accuracy": accuracy, "lr": lr}, step=step)

    return Opened(log, accelerator.end_training)


def read_all(trackers: tuple[str, ...], folder: Path) -> int:
    """Count the steps that every one of the trackers can show."""
    return min(READERS[name](folder) for name in trackers)


def lightning(folder: Path) -> Opened:
    logger = sdk("lightning.pytorch.loggers").TensorBoardLogger(str(folder))

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        logger.log_metrics({"loss": loss, "accuracy": accuracy, "lr": lr}, step=step)

    return Opened(log, lambda: logger.finalize("success"))


def transformers(folder: Path) -> Opened:
    """Give its callback what `Trainer.log` gives it."""
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tb")
    module = sdk("transformers")
    arguments = module.TrainingArguments(output_dir=str(folder / "out"), report_to=[], use_cpu=True)
    state, control = module.TrainerState(is_world_process_zero=True), module.TrainerControl()
    callback = sdk("transformers.integrations").TensorBoardCallback()
    callback.on_train_begin(arguments, state, control)

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        state.global_step = step
        callback.on_log(
            arguments, state, control, logs={"loss": loss, "accuracy": accuracy, "lr": lr}
        )

    return Opened(log, lambda: callback.on_train_end(arguments, state, control))


def _accelerate(name: str, call: str, trackers: tuple[str, ...]) -> Case:
    return Case(
        name,
        "frameworks",
        f"Accelerator.log, {call}",
        functools.partial(accelerate, trackers),
        functools.partial(read_all, trackers),
        needs=("accelerate", *(MODULES[name] for name in trackers)),
    )


CASES = [
    _accelerate("accelerate-1", "TensorBoard", FIVE[:1]),
    _accelerate("accelerate-3", "TensorBoard + wandb + Aim", FIVE[:3]),
    _accelerate("accelerate-5", "the five trackers", FIVE),
    Case("accelerate-eventlog", "frameworks", "Accelerator.log, eventlog + TensorBoard",
         accelerate_eventlog, read_log, needs=("accelerate", "eventlog_tensorboard")),
    Case("lightning", "frameworks", "Lightning's TensorBoardLogger.log_metrics", lightning,
         read_tensorboard, needs=("lightning", "tensorboard")),
    Case("transformers", "frameworks", "Transformers' TensorBoardCallback.on_log", transformers,
         read_tensorboard, needs=("transformers", "tensorboard")),
]  # fmt: skip
