"""EventlogLogger in a real Lightning Trainer, under both of Lightning's names."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import numpy as np
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Lightning's own imports
    from lightning.fabric import Fabric
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import Logger
    from lightning_utilities.core import rank_zero

from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eventlog import Run, open_log
from eventlog.delivery import Retry
from eventlog.events import ArtifactEvent, ImageEvent, RunFinished, StepEvent, TableEvent, TextEvent
from eventlog.integrations import EventlogLogger
from eventlog.testing import FaultySink, MemorySink

QUICK = Retry(first=0.001, most=0.002)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _rank_is_put_back() -> Iterator[None]:
    only: Any = rank_zero.rank_zero_only
    before = only.rank
    yield
    only.rank = before


class Line(LightningModule):
    def __init__(self, lr: float = 0.1, fails_at: int = -1, error: Any = RuntimeError) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["error"])
        self.layer = nn.Linear(2, 1)
        self.fails_at = fails_at
        self.error = error

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if self.global_step == self.fails_at:
            raise self.error("out of memory")
        (x,) = batch
        loss: torch.Tensor = self.layer(x).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val/loss", self.layer(batch[0]).square().mean())

    def test_step(self, batch: Any, index: int) -> None:
        self.log("test/loss", self.layer(batch[0]).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Resumed(Line):
    """Keeps where the run is in Lightning's checkpoints."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        assert isinstance(self.logger, EventlogLogger)
        checkpoint["eventlog"] = self.logger.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        assert isinstance(self.logger, EventlogLogger)
        self.logger.load_state_dict(checkpoint["eventlog"])


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(24, 2)), batch_size=4)


def trainer(logger: Any, **arguments: Any) -> Trainer:
    given = {
        "accelerator": "cpu",
        "max_epochs": 2,
        "logger": logger,
        "log_every_n_steps": 2,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    return Trainer(**(given | arguments))


def logger(folder: Path, **options: Any) -> EventlogLogger:
    return EventlogLogger("p", dir=folder, **({"sinks": []} | options))


def points(run: Run | None, key: str, *, latest: bool = False) -> list[tuple[Any, Any]]:
    """Return (step, epoch) of each value of that name."""
    assert run is not None
    assert run.dir is not None
    events = open_log(run.dir).events(types=[StepEvent], latest=latest)
    return [(e.step, e.epoch) for e in events if key in e.values]


def test_fitting_and_testing(tmp_path: Path) -> None:
    """One run, with epochs beside the steps, hyperparameters, the model, and a plain end."""
    one = logger(tmp_path)
    made = trainer(one)
    made.fit(Line(lr=0.5), loader(), loader())
    made.test(Line(), loader(), verbose=False)
    run = one.run
    one.close()
    one.close()
    assert points(run, "loss") == [(1, 0), (3, 0), (5, 0), (7, 1), (9, 1), (11, 1)]
    assert points(run, "val/loss") == [(5, 0), (11, 1)]
    assert [step for step, _ in points(run, "test/loss")] == [12]
    assert run is not None
    assert run.config["lr"] == 0.1  # testing was begun with another model
    assert run.config["parameters"] == {"all": 3, "trainable": 3}
    assert run.dir is not None
    texts = [e for e in open_log(run.dir).events(types=[TextEvent]) if isinstance(e, TextEvent)]
    assert "Linear(in_features=2" in texts[0].text
    assert open_log(run.dir).status() == "finished"
    assert isinstance(one, Logger)


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError, "failed"), (KeyboardInterrupt, "interrupted")]
)
def test_an_exception_ends_the_run(tmp_path: Path, error: Any, status: str) -> None:
    """As it happened; whatever is logged afterwards is another run's."""
    sink = MemorySink()
    one = logger(tmp_path, sinks=[sink])
    with pytest.raises((RuntimeError, SystemExit)):
        trainer(one).fit(Line(fails_at=4, error=error), loader())
    assert sink.statuses == [status]
    first = one.run
    assert first is not None
    assert first.dir is not None
    *_, end = open_log(first.dir).events()
    assert isinstance(end, RunFinished)
    assert end.error == f"{error.__name__}: out of memory"
    assert points(first, "loss") == [(1, 0), (3, 0)]
    one.log_metrics({"x": 1.0}, 0)
    one.close()
    assert one.run is not first


def test_checkpoints_are_artifacts(tmp_path: Path) -> None:
    """Each one once, by reference, in the run's own directory, with its score."""
    with logger(tmp_path) as one:
        saver = ModelCheckpoint(monitor="val/loss", save_top_k=-1)
        made = trainer(one, enable_checkpointing=True, callbacks=[saver])
        made.fit(Line(), loader(), loader())
    run = one.run
    assert run is not None
    assert run.dir is not None
    events = open_log(run.dir).events(types=[ArtifactEvent])
    found = [e for e in events if isinstance(e, ArtifactEvent)]
    assert [e.kind for e in found] == ["checkpoint"] * 2
    assert {Path(e.path).parent for e in found} == {run.dir / "checkpoints"}
    assert all("score" in e.metadata for e in found)


def test_going_on_from_a_checkpoint(tmp_path: Path) -> None:
    """With two hooks in the module, a resumed run takes the place of what came after it."""
    first = logger(tmp_path)
    saver = ModelCheckpoint(dirpath=tmp_path / "saved", every_n_epochs=1, save_top_k=-1)
    made = trainer(first, enable_checkpointing=True, callbacks=[saver])
    with pytest.raises(RuntimeError):
        made.fit(Resumed(fails_at=9), loader())
    run = first.run
    assert run is not None
    (checkpoint,) = (tmp_path / "saved").iterdir()
    with logger(tmp_path, resume=run.id) as second:
        trainer(second).fit(Resumed(), loader(), ckpt_path=checkpoint)
    assert second.run is not None
    assert second.run.id == run.id
    assert points(run, "loss") == [(s, s // 6) for s in (1, 3, 5, 7, 7, 9, 11)]
    kept = points(run, "loss", latest=True)
    assert kept == [(1, 0), (3, 0), (5, 0), (7, 1), (9, 1), (11, 1)]


def test_media(tmp_path: Path) -> None:
    """What a module says to Weights & Biases' logger, it can say here."""
    pytest.importorskip("PIL")
    with logger(tmp_path) as one:
        one.log_image("i", [np.zeros((4, 5, 3), np.uint8)] * 2, step=3, caption=["a", "b"])
        one.log_table("t", columns=["a"], data=[[1]])
        one.log_text("note", "hello")
        one.log_text("rows", columns=["said"], data=[["hello"]])
        one.log_hyperparams({"lr": 1}, {"hp/metric": 0.5})
    assert one.run is not None
    assert one.run.dir is not None
    events = list(open_log(one.run.dir).events())
    (image,) = (e for e in events if isinstance(e, ImageEvent))
    assert (image.caption, len(image.blobs), image.step) == ("a | b", 2, 3)
    assert [e.tag for e in events if isinstance(e, TableEvent)] == ["t", "rows"]
    assert [e.text for e in events if isinstance(e, TextEvent)] == ["hello"]
    assert [e.values for e in events if isinstance(e, StepEvent)] == [{"hp/metric": 0.5}]


def test_copies(tmp_path: Path) -> None:
    """A copy shares the run; one that was pickled opens its own, in another process."""
    with logger(tmp_path, tags=["a"]) as one:
        run = one.experiment
        assert copy.deepcopy(one).experiment is run
        assert copy.copy(one).experiment is run
        other = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own bytes
        with other:
            assert other.experiment.id != run.id
            assert other.experiment.project == "p"


def test_other_ranks_do_nothing(tmp_path: Path) -> None:
    """The same calls, no directory, no run."""
    only: Any = rank_zero.rank_zero_only
    only.rank = 1
    with logger(tmp_path) as one:
        one.log_metrics({"x": 1.0}, 0)
        one.experiment.text("a", "b")
        assert (one.version, one.save_dir, one.name) == (None, None, "p")
        one.after_save_checkpoint(None)
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_and_a_run_that_is_given(tmp_path: Path) -> None:
    """The run goes on after the logger's end."""
    with Run("mine", dir=tmp_path, sinks=[]) as run:
        with EventlogLogger(run=run, prefix="a") as one:
            one.log_metrics({"x": torch.tensor(1.5), "epoch": 1}, step=4)
        run.log(y=1.0)
    assert points(run, "a/x") == [(4, 1)]
    assert len(points(run, "y")) == 1


def test_a_faulty_sink_does_not_end_training(tmp_path: Path) -> None:
    """Lightning comes to its end, and the other sink gets all."""
    good = MemorySink()
    sinks = {"bad": FaultySink(write=RuntimeError("no")), "good": good}
    with logger(tmp_path, sinks=sinks, retry=QUICK) as one:
        trainer(one).fit(Line(), loader())
    assert [step for step, _ in good.values("loss")] == [1, 3, 5, 7, 9, 11]


def test_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning then saves where it is told to."""
    monkeypatch.chdir(tmp_path)
    sink = MemorySink()
    with EventlogLogger("p", dir=None, sinks=[sink]) as one:
        made = trainer(one, enable_checkpointing=True, default_root_dir=tmp_path / "root")
        made.fit(Line(), loader())
        assert (one.save_dir, one.log_dir) == (None, None)
    assert len(sink.values("loss")) == 6
    assert list((tmp_path / "root").rglob("*.ckpt"))


def test_fabric(tmp_path: Path) -> None:
    """The logger is one for Fabric's loops, too."""
    with logger(tmp_path) as one:
        fabric = Fabric(accelerator="cpu", loggers=one)
        fabric.log_dict({"loss": torch.tensor(0.5)}, step=3)
    assert points(one.run, "loss") == [(3, 0)]


def test_the_older_name(program: Callable[..., Any], tmp_path: Path) -> None:
    """Imported after pytorch_lightning, the logger is one of its own, and brings in no other."""
    pytest.importorskip("pytorch_lightning")
    text = """
import sys, warnings
warnings.simplefilter("ignore")
import pytorch_lightning
from pytorch_lightning.demos.boring_classes import BoringModel
from eventlog.integrations import EventlogLogger
assert "lightning.pytorch" not in sys.modules
class Model(BoringModel):
    def training_step(self, batch, index):
        step = super().training_step(batch, index)
        self.log("loss", step["loss"])
        return step
with EventlogLogger("p", dir="runs", sinks=[]) as logger:
    assert isinstance(logger, pytorch_lightning.loggers.Logger)
    pytorch_lightning.Trainer(
        accelerator="cpu", logger=logger, enable_progress_bar=False, enable_checkpointing=False,
        max_epochs=1, log_every_n_steps=1, enable_model_summary=False,
        limit_train_batches=3, limit_val_batches=1,
    ).fit(Model())
"""
    program("-c", text)
    (run_dir,) = (path.parent for path in tmp_path.glob("runs/p/*/manifest.json"))
    events = open_log(run_dir).events(types=[StepEvent])
    assert [e.step for e in events if "loss" in e.values] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_two_processes(program: Callable[..., Any], tmp_path: Path, strategy: str) -> None:
    """One run, on rank 0, which ends well: also in a child that nothing but Lightning ends."""
    (tmp_path / "two.py").write_text(f"""
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from eventlog.integrations import EventlogLogger
class Model(BoringModel):
    def training_step(self, batch, index):
        step = super().training_step(batch, index)
        self.log("loss", step["loss"])
        return step
if __name__ == "__main__":
    with EventlogLogger("p", dir="runs", sinks=[]) as logger:
        Trainer(
            accelerator="cpu", devices=2, strategy={strategy!r}, logger=logger, max_epochs=1,
            limit_train_batches=4, limit_val_batches=1, log_every_n_steps=1,
            enable_progress_bar=False, enable_model_summary=False,
        ).fit(Model())
""")
    program(tmp_path / "two.py")
    (run_dir,) = (path.parent for path in tmp_path.glob("runs/p/*/manifest.json"))
    log = open_log(run_dir)
    assert [e.step for e in log.events(types=[StepEvent]) if "loss" in e.values] == [0, 1, 2, 3]
    assert log.status() == "finished"
