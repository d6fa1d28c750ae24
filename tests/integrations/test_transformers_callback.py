"""EventlogCallback in a real Trainer: runs, their ends, checkpoints, and going on from these."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from eventlog import Run, open_log
from eventlog.delivery import Retry
from eventlog.events import ArtifactEvent, RunFinished, StepEvent
from eventlog.integrations import EventlogCallback
from eventlog.testing import FaultySink, MemorySink

QUICK = Retry(first=0.001, most=0.002)

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::UserWarning")


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Accelerate, which the Trainer uses, keeps its state for the whole process."""
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


class Line(nn.Module):
    """A model that is no PreTrainedModel, and has no config."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


DATA = [{"x": torch.tensor([i / 64, 1.0]), "labels": torch.tensor(i / 32)} for i in range(64)]


class Stops(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Ends training by an exception, at a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.at:
            raise RuntimeError("out of memory")


def trainer(folder: Path, *callbacks: Any, steps: int = 8, **arguments: Any) -> Trainer:
    given: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "max_steps": steps,
        "per_device_train_batch_size": 8,
        "logging_steps": 2,
        "save_steps": 4,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
    }
    made = Trainer(
        model=Line(),
        args=TrainingArguments(**(given | arguments)),
        train_dataset=DATA,
        eval_dataset=DATA[:8],
        callbacks=list(callbacks),
    )
    made.remove_callback(PrinterCallback)
    return made


def losses(run: Run | None, *, latest: bool = False) -> list[tuple[int | None, int]]:
    """Return (step, attempt) of each training loss."""
    assert run is not None
    assert run.dir is not None
    events = open_log(run.dir).events(types=[StepEvent], latest=latest)
    return [(e.step, e.attempt) for e in events if "train/loss" in e.values]


def status(run: Run | None) -> str:
    assert run is not None
    assert run.dir is not None
    return open_log(run.dir).status()


def callback(folder: Path, **options: Any) -> EventlogCallback:
    return EventlogCallback("p", dir=folder / "runs", **({"sinks": []} | options))


def test_training_and_what_follows(tmp_path: Path) -> None:
    """One run from train() to close(); epochs are the trainer's, checkpoints are artifacts."""
    one = callback(tmp_path)
    assert one.run is None
    made = trainer(tmp_path, one)
    made.train()
    made.evaluate()
    one.close()
    one.close()
    run = one.run
    assert losses(run) == [(2, 1), (4, 1), (6, 1), (8, 1)]
    assert run is not None
    events = list(open_log(run.dir).events())
    assert [e.step for e in events if "eval/loss" in e.values] == [8]
    epochs = {e.step: e.epoch for e in events if "train/loss" in e.values}
    assert epochs == {2: 0.25, 4: 0.5, 6: 0.75, 8: 1}
    artifacts = [e for e in events if isinstance(e, ArtifactEvent)]
    assert [(e.name, e.kind, e.step, e.blob) for e in artifacts] == [
        ("checkpoint-4", "checkpoint", 4, None),
        ("checkpoint-8", "checkpoint", 8, None),
    ]
    assert run.config["max_steps"] == 8
    assert status(run) == "finished"


def test_going_on_from_a_checkpoint_in_another_process(tmp_path: Path) -> None:
    """The run that the checkpoint names goes on; what was logged after the checkpoint is void."""
    first = callback(tmp_path)
    with pytest.raises(RuntimeError, match="out of memory"), first:
        trainer(tmp_path, first, Stops(7)).train()
    assert status(first.run) == "failed"
    assert losses(first.run) == [(2, 1), (4, 1), (6, 1)]

    second = callback(tmp_path)
    with second:
        trainer(tmp_path, second).train(resume_from_checkpoint=True)
    assert first.run is not None
    assert second.run is not None
    assert second.run.id == first.run.id
    assert [step for step, _ in losses(second.run)] == [2, 4, 6, 6, 8]
    kept = losses(second.run, latest=True)
    assert [step for step, _ in kept] == [2, 4, 6, 8]
    assert [attempt > 1 for _, attempt in kept] == [False, False, True, True]
    assert status(second.run) == "finished"


def test_going_on_in_the_same_process(tmp_path: Path) -> None:
    """As in a notebook, after an interrupt: the open run goes back to the checkpoint."""
    one = callback(tmp_path)
    made = trainer(tmp_path, one, Stops(7))
    with pytest.raises(RuntimeError):
        made.train()
    first = one.run
    made.remove_callback(Stops)
    made.train(resume_from_checkpoint=True)
    one.close()
    assert one.run is first
    assert losses(first, latest=True) == [(2, 1), (4, 1), (6, 2), (8, 2)]


def test_a_checkpoint_whose_run_is_gone(tmp_path: Path) -> None:
    """A new run begins where the checkpoint is."""
    with callback(tmp_path) as first:
        trainer(tmp_path, first, steps=4).train()
    shutil.rmtree(tmp_path / "runs")
    with callback(tmp_path) as second:
        trainer(tmp_path, second).train(resume_from_checkpoint=True)
    assert first.run is not None
    assert second.run is not None
    assert second.run.id != first.run.id
    assert losses(second.run, latest=True) == [(6, 1), (8, 1)]


def test_training_again_is_another_run(tmp_path: Path) -> None:
    """The one before has ended as it did: here, by an exception that somebody caught."""
    one = callback(tmp_path)
    made = trainer(tmp_path, one, Stops(3))
    with pytest.raises(RuntimeError):
        made.train()
    first = one.run
    made.remove_callback(Stops)
    made.train()
    second = one.run
    made.train()
    one.close()
    assert [status(run) for run in (first, second, one.run)] == ["failed", "finished", "finished"]
    assert first is not second


def test_a_training_that_stopped_in_the_middle_is_closed_as_failed(tmp_path: Path) -> None:
    """Also where somebody caught the exception long before; in its handler, it is named."""
    later, within, well = (callback(tmp_path) for _ in range(3))
    with pytest.raises(RuntimeError):
        trainer(tmp_path, later, Stops(3)).train()
    later.close()
    try:
        trainer(tmp_path, within, Stops(3)).train()
    except RuntimeError:
        within.close()
    trainer(tmp_path, well).train()
    well.close()
    assert [status(one.run) for one in (later, within, well)] == ["failed", "failed", "finished"]
    assert within.run is not None
    assert within.run.dir is not None
    (end,) = open_log(within.run.dir).events(types=[RunFinished])
    assert isinstance(end, RunFinished)
    assert end.error == "RuntimeError: out of memory"


def test_mistakes_are_said_where_they_are_made(tmp_path: Path) -> None:
    """And not when training begins."""
    with pytest.raises(TypeError, match="Run has no argument 'sink'; did you mean 'sinks'"):
        callback(tmp_path, sink=[])
    with pytest.raises(TypeError, match="run must be a Run"):
        EventlogCallback(run="mine")  # type: ignore[arg-type]


def test_a_run_that_is_given(tmp_path: Path) -> None:
    """It is used, and ended by whoever made it; the trainer's names are kept if wanted."""
    with Run("mine", dir=tmp_path, sinks=[]) as run:
        one = EventlogCallback(run=run, rename=False, checkpoints=False)
        trainer(tmp_path, one).train()
        one.close()
        run.text("after", "it is open")
    assert run.dir is not None
    events = list(open_log(run.dir).events())
    assert [e.step for e in events if "loss" in e.values] == [2, 4, 6, 8]
    assert not any(isinstance(e, ArtifactEvent) for e in events)
    with pytest.raises(TypeError, match="cannot be given with it"):
        EventlogCallback("p", run=run)


def test_evaluation_alone(tmp_path: Path) -> None:
    """It needs no training to be logged."""
    with callback(tmp_path) as one:
        trainer(tmp_path, one).evaluate()
    assert one.run is not None
    assert one.run.dir is not None
    (event,) = open_log(one.run.dir).events(types=[StepEvent])
    assert "eval/loss" in event.values


def test_a_faulty_sink_does_not_end_training(tmp_path: Path) -> None:
    """The trainer comes to its end, and the other sink gets all."""
    good = MemorySink()
    sinks = {"bad": FaultySink(write=RuntimeError("no")), "good": good}
    with callback(tmp_path, sinks=sinks, retry=QUICK) as one:
        trainer(tmp_path, one).train()
    assert [step for step, _ in good.values("train/loss")] == [2, 4, 6, 8]


def test_restoring_callbacks_is_no_trouble(tmp_path: Path) -> None:
    """The trainer makes no copy of this callback, whose sinks a checkpoint cannot hold."""
    with callback(tmp_path) as first:
        trainer(tmp_path, first, steps=4).train()
    sink = MemorySink()
    with callback(tmp_path, sinks=[sink]) as second:
        made = trainer(tmp_path, second, restore_callback_states_from_checkpoint=True)
        made.train(resume_from_checkpoint=True)
    assert second in made.callback_handler.callbacks
    assert [step for step, _ in sink.values("train/loss")][-2:] == [6, 8]
