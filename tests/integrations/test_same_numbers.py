"""The examples' numbers are those of the framework's own TensorBoard logger, point by point."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog import open_log
from eventlog.events import ArtifactEvent

EXAMPLES = Path(__file__).parents[2] / "examples"


def both(
    program: Callable[..., Any], name: str, *arguments: str, folder: Path
) -> tuple[Path, Path, Path]:
    """Run an example with both loggers; return our run, our TensorBoard folder, and the other."""
    done = program(EXAMPLES / name, *arguments, "--beside", folder / "own")
    assert "eventlog: " not in done.stderr, done.stderr
    run, tensorboard = re.findall(r"^(?:run|tensorboard): (.*)$", done.stdout, re.MULTILINE)
    (events,) = {path.parent for path in (folder / "own").rglob("events.out.*.0")} - {
        path.parent for path in (folder / "own").rglob("hparams.yml")
    }
    return Path(run), Path(tensorboard), events


def test_accelerate(
    program: Callable[..., Any], points: Callable[[Path], Any], tmp_path: Path
) -> None:
    """A tracker of Accelerate's beside ours, in one Accelerator."""
    pytest.importorskip("accelerate")
    run, ours, _ = both(program, "accelerate_digits.py", "--epochs", "1", folder=tmp_path)
    theirs = points(tmp_path / "own" / "accelerate-digits")
    assert points(ours) == theirs
    assert {tag: len(curve) for tag, curve in theirs.items()} == {
        "loss": 23,
        "lr": 23,
        "accuracy": 1,
        "epoch": 1,
    }
    assert open_log(run).run_info().config["batch_size"] == 64


def test_transformers(
    program: Callable[..., Any], points: Callable[[Path], Any], tmp_path: Path
) -> None:
    """The Trainer's own callback beside ours, with evaluation in training and after it."""
    pytest.importorskip("transformers")
    run, ours, own = both(program, "transformers_tiny.py", "--steps", "20", folder=tmp_path)
    theirs = points(own)
    assert points(ours) == theirs
    assert [step for step, _ in theirs["train/loss"]] == [5, 10, 15, 20]
    # the last one is said twice: by the training, and by evaluate() after it
    assert [step for step, _ in theirs["eval/accuracy"]] == [10, 20, 20]
    log = open_log(run)
    assert log.status() == "finished"
    (artifact,) = log.events(types=[ArtifactEvent])
    assert isinstance(artifact, ArtifactEvent)
    assert (artifact.name, artifact.step) == ("checkpoint-20", 20)
    config = log.run_info().config
    assert (config["learning_rate"], config["model"]["hidden_size"]) == (5e-3, 32)


def test_lightning(
    program: Callable[..., Any], points: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Lightning's own logger beside ours, in fitting, validation and testing."""
    pytest.importorskip("lightning")
    run, ours, own = both(program, "lightning_digits.py", "--epochs", "2", folder=tmp_path)
    theirs = points(own)
    assert points(ours) == theirs
    assert {"train/loss", "val/loss", "val/accuracy", "test/accuracy", "epoch"} == set(theirs)
    assert len(theirs["val/accuracy"]) == 2
    log = open_log(run)
    assert log.status() == "finished"
    artifacts = [e for e in log.events() if isinstance(e, ArtifactEvent)]
    assert {artifact.kind for artifact in artifacts} == {"checkpoint"}
    config = log.run_info().config
    assert (config["hidden"], config["parameters"]["all"]) == (48, 64 * 48 + 48 + 48 * 10 + 10)
