"""eventlog: the log alone, and with sinks in the process and beside it. And what is the floor."""

from __future__ import annotations

import functools
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from peers.base import Case, Opened
from peers.trackers import read_tensorboard

OFFLINE: dict[str, dict[str, Any]] = {
    "tensorboard": {},
    "wandb": {"mode": "offline"},
    "comet": {"online": False},
    "aim": {},
    "mlflow": {},
    "clearml": {"offline": True},
    "dvclive": {},
}
"""All seven, with the options that keep them on this machine."""

FIVE = ("tensorboard", "wandb", "aim", "mlflow", "dvclive")
"""Those that the case with five trackers has, here and through Accelerate."""

PLUGINS = {name: f"eventlog_{name}" for name in OFFLINE}


class Floor(msgspec.Struct, gc=False):
    """The least that an event can be."""

    mono: int
    step: int
    values: dict[str, float]


def nothing(folder: Path) -> Opened:
    """Log nothing: what remains is the measuring."""
    return Opened(lambda step, loss, accuracy, lr: None)


def struct_deque(folder: Path) -> Opened:
    """Build a Struct with the clock and a dict of three, and append it to a deque."""
    queue: deque[Floor] = deque()
    clock, append = time.monotonic_ns, queue.append

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        append(Floor(clock(), step, {"loss": loss, "accuracy": accuracy, "lr": lr}))

    return Opened(log)


def run_with(sinks: dict[str, dict[str, Any]], folder: Path) -> Opened:
    """Open a run with these sinks."""
    import eventlog

    run = eventlog.Run("bench", dir=folder / "runs", sinks=sinks, close_timeout=120)
    step_of = run.step

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        step_of(loss=loss, accuracy=accuracy, lr=lr)

    return Opened(log, run.close)


def read_log(folder: Path) -> int:
    """Count the steps in the log."""
    import eventlog

    (place,) = folder.glob("runs/**/rank-0")
    return sum(1 for _ in eventlog.open_log(place.parent).events(types=["step"]))


def _case(name: str, call: str, sinks: dict[str, dict[str, Any]], weight: int = 1) -> Case:
    return Case(
        name,
        "ours",
        call,
        functools.partial(run_with, sinks),
        read_log,
        follow=read_tensorboard if "tensorboard" in sinks else None,
        needs=("eventlog", *(PLUGINS[alias] for alias in sinks)),
        weight=weight,
    )


CASES = [
    Case("nothing", "floor", "nothing", nothing, unread="nothing is logged", weight=3),
    Case(
        "struct-deque",
        "floor",
        "msgspec Struct + deque.append",
        struct_deque,
        unread="it keeps what it has in memory",
        weight=2,
    ),
    _case("eventlog", "run.step, the log alone", {}, weight=6),
    _case("eventlog+tensorboard", "run.step, TensorBoard in the process",
          {"tensorboard": {"isolate": False}}, weight=3),
    _case("eventlog+7-process", "run.step, seven trackers in the process",
          {name: {**options, "isolate": False} for name, options in OFFLINE.items()}),
    _case("eventlog+7-sidecar", "run.step, seven trackers in the sidecar",
          {name: {**options, "isolate": True} for name, options in OFFLINE.items()}, weight=3),
    _case("eventlog+5-sidecar", "run.step, five trackers in the sidecar",
          {name: {**OFFLINE[name], "isolate": True} for name in FIVE}),
]  # fmt: skip
