"""EventlogTracker in a real Accelerator: what its calls leave in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS

from eventlog import Run, open_log, watch
from eventlog.delivery import Retry
from eventlog.events import ArtifactEvent, Event, FigureEvent, ImageEvent, StepEvent, TableEvent
from eventlog.integrations import EventlogTracker
from eventlog.testing import FaultySink, MemorySink

QUICK = Retry(first=0.001, most=0.002)


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Accelerate keeps its state for the whole process."""
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def tracker(tmp_path: Path, **options: Any) -> EventlogTracker:
    return EventlogTracker("p", dir=tmp_path, **({"sinks": []} | options))


def begun(one: EventlogTracker, **arguments: Any) -> Accelerator:
    accelerator = Accelerator(cpu=True, log_with=one)
    accelerator.init_trackers("ignored by Accelerate", **arguments)
    return accelerator


def steps(run: Run) -> list[tuple[int | None, dict[str, Any]]]:
    assert run.dir is not None
    return [(e.step, e.values) for e in open_log(run.dir).events(types=[StepEvent])]


def one_of(run: Run, kind: type[Event]) -> Any:
    assert run.dir is not None
    (event,) = open_log(run.dir).events(types=[kind])
    return event


def test_values_config_and_the_end(tmp_path: Path) -> None:
    """Steps as given, nested values and tensors as they are, config of any shape."""
    sink = MemorySink()
    accelerator = begun(
        tracker(tmp_path, sinks=[sink]), config={"lr": 0.1, "layers": [1, 2], "who": None}
    )
    run = accelerator.get_tracker("eventlog", unwrap=True)
    assert isinstance(run, Run)
    accelerator.log({"loss": torch.tensor(0.5), "eval": {"acc": np.float32(0.25)}}, step=10)
    accelerator.log({"loss": 0.25, "note": "x"}, step=20)
    accelerator.end_training()
    accelerator.end_training()
    assert steps(run) == [(10, {"loss": 0.5, "eval/acc": 0.25}), (20, {"loss": 0.25, "note": "x"})]
    assert run.config.as_dict() == {"lr": 0.1, "layers": [1, 2], "who": None}
    assert sink.statuses == ["finished"]
    assert run.project == "p"


def test_calls_without_a_step_count(tmp_path: Path) -> None:
    """Until a call has named a step; then they go to the last one that was named."""
    accelerator = begun(tracker(tmp_path))
    for loss in (3.0, 2.0):
        accelerator.log({"loss": loss})
    accelerator.log({"loss": 1.0}, step=7)
    accelerator.log({"acc": 0.5})
    accelerator.end_training()
    run = accelerator.get_tracker("eventlog").run
    assert [(step, *values) for step, values in steps(run)] == [
        (0, "loss"),
        (1, "loss"),
        (7, "loss"),
        (7, "acc"),
    ]


def test_a_watch_that_counts_is_the_only_one_that_does(tmp_path: Path) -> None:
    """With accumulated gradients, the optimizer's steps are the run's."""
    tracker = EventlogTracker("p", dir=tmp_path, sinks=[])
    accelerator = Accelerator(cpu=True, log_with=tracker, gradient_accumulation_steps=4)
    accelerator.init_trackers("p")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    watched = watch(model, optimizer, run=tracker.run, norms=False, count=True)
    for _ in tracker.run.steps(range(16)):
        with accelerator.accumulate(model):
            loss = model(torch.ones(4, 2)).square().mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.log({"loss": loss})
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()
    assert (watched.steps, tracker.run.state_dict()["step"]) == (4, 4)
    assert tracker.run.dir is not None
    events = open_log(tracker.run.dir).events(types=["step"])
    assert [e.step for e in events if "loss" in e.values] == [0, 1, 2, 3]


def test_log_kwargs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are arguments of Run.log, and what single sinks are told; else they are named, once."""
    accelerator = begun(tracker(tmp_path))
    told = {"wandb": {"commit": False}, "epoch": 3}
    accelerator.log({"x": 1}, step=1, log_kwargs={"eventlog": told})
    for step in (2, 3):
        accelerator.log({"x": 1}, step=step, log_kwargs={"eventlog": {"commit": False}})
    accelerator.end_training()
    run = accelerator.get_tracker("eventlog").run
    first = next(iter(open_log(run.dir).events(types=[StepEvent])))
    assert (first.epoch, first.options) == (3, {"wandb": {"commit": False}})
    assert len(steps(run)) == 3
    assert caplog.text.count("'commit' is neither") == 1


def test_media(tmp_path: Path) -> None:
    """The media methods of Accelerate's trackers, in the shapes that they take."""
    pytest.importorskip("PIL")
    one = tracker(tmp_path)
    accelerator = begun(one)
    got = accelerator.get_tracker("eventlog")
    assert got is one
    file = tmp_path / "weights.bin"
    file.write_bytes(b"123")
    got.log_images({"batch": np.zeros((3, 4, 5, 3), np.uint8)}, step=2, dataformats="NHWC")
    got.log_table("t", columns=["a", "b"], data=[[1, "x"]], step=3)
    got.log_artifact(str(file), "models")
    accelerator.end_training()
    image = one_of(one.run, ImageEvent)
    assert (image.tag, image.step, len(image.blobs), image.width) == ("batch", 2, 3, 5)
    table = one_of(one.run, TableEvent)
    assert (table.columns, table.rows, table.step) == (["a", "b"], [[1, "x"]], 3)
    artifact = one_of(one.run, ArtifactEvent)
    assert (artifact.name, artifact.path) == ("models/weights.bin", str(file.resolve()))


def test_other_shapes_of_media(tmp_path: Path) -> None:
    """An image with its caption, a table whose first row names its columns, a figure, a folder."""
    pytest.importorskip("PIL")
    figures = pytest.importorskip("matplotlib.figure")
    one = tracker(tmp_path)
    one.start()
    one.log_images({"one": (np.zeros((4, 5)), "what it is")})
    one.log_table("t", data=[["a"], [1]])
    one.log_figure(figures.Figure(), "plots/fit.png")
    one.log_artifacts(str(tmp_path), "all")
    one.finish()
    assert one_of(one.run, ImageEvent).caption == "what it is"
    assert (one_of(one.run, TableEvent).columns, one_of(one.run, FigureEvent).tag) == (
        ["a"],
        "plots/fit",
    )
    assert one_of(one.run, ArtifactEvent).name == "all"


def test_trackers_that_are_begun_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Accelerate lists a tracker twice then and calls it twice; what is logged comes once."""
    accelerator = begun(tracker(tmp_path))
    accelerator.init_trackers("again", config={"lr": 1})
    assert len(accelerator.trackers) == 2
    values = {"loss": 1.0}
    accelerator.log(values, step=1)
    accelerator.log(values, step=2)
    values["loss"] = 2.0
    accelerator.log(values, step=2)
    accelerator.end_training()
    run = accelerator.trackers[0].run
    assert steps(run) == [(1, {"loss": 1.0}), (2, {"loss": 1.0}), (2, {"loss": 2.0})]
    assert caplog.text.count("init_trackers was called twice") == 1


def test_a_second_training(tmp_path: Path) -> None:
    """After end_training, as in a notebook, init_trackers begins another run."""
    accelerator = begun(tracker(tmp_path))
    first = accelerator.get_tracker("eventlog", unwrap=True)
    accelerator.log({"x": 1}, step=0)
    accelerator.end_training()
    accelerator.init_trackers("p")
    second = accelerator.get_tracker("eventlog", unwrap=True)
    accelerator.log({"x": 2}, step=0)
    accelerator.end_training()
    assert first.id != second.id
    assert (steps(first), steps(second)) == ([(0, {"x": 1})], [(0, {"x": 2})])


def test_a_tracker_that_accelerate_makes(tmp_path: Path) -> None:
    """By name, it gets the project, the folder and init_kwargs from Accelerate."""
    tracking = pytest.importorskip("accelerate.tracking")
    if not hasattr(tracking, "register_tracker_class"):
        pytest.skip("this Accelerate has no register_tracker_class")
    sink = MemorySink()
    tracking.register_tracker_class(EventlogTracker)
    try:
        accelerator = Accelerator(cpu=True, log_with=["eventlog"], project_dir=tmp_path / "out")
        accelerator.init_trackers("digits", init_kwargs={"eventlog": {"sinks": [sink]}})
        run = accelerator.get_tracker("eventlog", unwrap=True)
        accelerator.log({"x": 1.0}, step=5)
        accelerator.end_training()
    finally:
        del LOGGER_TYPE_TO_CLASS["eventlog"]
    assert run.dir.parent == tmp_path / "out" / "digits"
    assert [e.step for e in sink.events if isinstance(e, StepEvent)] == [5]


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("nan"), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_an_end_because_of_an_exception(tmp_path: Path, error: BaseException, status: str) -> None:
    """end_training in a ``finally`` says how the run ended."""
    sink = MemorySink()
    accelerator = begun(tracker(tmp_path, sinks=[sink]))

    def train() -> None:
        try:
            raise error
        finally:
            accelerator.end_training()

    with pytest.raises(type(error)):
        train()
    assert sink.statuses == [status]


def test_an_exception_from_before_the_run_is_not_its_end(tmp_path: Path) -> None:
    """A second try, inside the handler of what ended the first one, is a run of its own."""
    sink = MemorySink()
    try:
        raise MemoryError("too large a batch")
    except MemoryError:
        accelerator = begun(tracker(tmp_path, sinks=[sink]))
        accelerator.end_training()
    assert sink.statuses == ["finished"]


def test_a_faulty_sink_does_not_end_training(tmp_path: Path) -> None:
    """Neither one that raises, nor one that cannot be opened."""
    accelerator = begun(
        tracker(
            tmp_path,
            sinks={
                "a": FaultySink(open=RuntimeError("no")),
                "b": FaultySink(write=RuntimeError("no")),
            },
            retry=QUICK,
        )
    )
    for step in range(5):
        accelerator.log({"loss": object(), "x": 1.0}, step=step)
    accelerator.end_training()
    assert len(steps(accelerator.get_tracker("eventlog").run)) == 5


def test_a_call_before_the_start(tmp_path: Path) -> None:
    """The tracker opens its run when it is first needed, so that nothing logged on it is lost."""
    one = tracker(tmp_path)
    assert list(tmp_path.iterdir()) == []
    one.log({"x": 1.0}, step=0)
    one.start()
    one.finish()
    assert steps(one.run) == [(0, {"x": 1.0})]


def test_a_checkpoint_of_accelerates(tmp_path: Path) -> None:
    """Registered for checkpointing, the tracker goes back with the training; later steps go."""
    one = tracker(tmp_path)
    accelerator = begun(one)
    accelerator.register_for_checkpointing(one)
    for step in range(6):
        accelerator.log({"x": float(step)}, step=step)
        if step == 2:
            accelerator.save_state(str(tmp_path / "state"))
    accelerator.load_state(str(tmp_path / "state"))
    for step in range(3, 5):
        accelerator.log({"x": step + 0.5}, step=step)
    accelerator.end_training()
    assert one.run.dir is not None
    latest = open_log(one.run.dir).events(types=[StepEvent], latest=True)
    assert [e.values["x"] for e in latest] == [0.0, 1.0, 2.0, 3.5, 4.5]


def test_other_ranks_have_the_same_calls(program: Callable[..., Any], tmp_path: Path) -> None:
    """Two processes, one run; on the second one, the tracker's calls work and do nothing."""
    (tmp_path / "two.py").write_text(
        """
import sys
from accelerate import Accelerator
from eventlog.integrations import EventlogTracker
tracker = EventlogTracker("p", dir="runs", sinks=[])
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("p", config={"lr": 1})
accelerator.log({"x": accelerator.process_index}, step=1)
tracker.log_table("t", ["a"], [[accelerator.process_index]])
accelerator.wait_for_everyone()
accelerator.end_training()
print(f"rank {accelerator.process_index} {tracker.run.rank}\\n", end="", flush=True)
"""
    )
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
    done = program(*launcher, tmp_path / "two.py")
    assert sorted(done.stdout.split("\n"))[-2:] == ["rank 0 0", "rank 1 1"]
    (run_dir,) = (path.parent for path in tmp_path.glob("runs/p/*/manifest.json"))
    events = list(open_log(run_dir).events(types=[StepEvent, TableEvent]))
    assert [type(e) for e in events] == [StepEvent, TableEvent]
    assert events[0].values == {"x": 0}


def test_accelerate_is_not_asked_who_is_main(tmp_path: Path) -> None:
    """Used by itself, the tracker makes no state of Accelerate's."""
    one = tracker(tmp_path)
    one.start()
    one.log({"x": 1})
    one.finish()
    assert PartialState._shared_state == {}
