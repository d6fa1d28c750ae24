"""What a run records of what it is given: values, steps of every kind, threads, configuration."""

import argparse
import dataclasses
import enum
import logging
import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eventlog import Run, current_run, open_log
from eventlog.events import (
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    ModelUpdateEvent,
    RunFinished,
    RunStarted,
    StepEvent,
    SummaryUpdated,
    TextEvent,
)
from eventlog.exceptions import ValueRejectedError
from eventlog.testing import MemorySink


def record(work: Callable[[Run], object], **options: Any) -> tuple[list[Event], Run]:
    """Return all events of a run in which `work` was done."""
    sink = MemorySink()
    with Run("p", dir=None, sinks=[sink], **options) as run:
        work(run)
    return sink.events, run


def steps(events: list[Event]) -> list[Event]:
    return [e for e in events if type(e) is StepEvent]


def log_account(run: Run) -> None:
    log = run.statistics().log
    assert log.emitted == log.written + sum(log.dropped.values()) + log.queued
    for s in run.statistics().sinks.values():
        assert s.read == s.delivered + s.filtered + s.dead + s.in_flight


# -- values -----------------------------------------------------------------------------------


def test_nested_mappings_are_flattened_with_slashes() -> None:
    """And mixed with single values."""
    given: dict[Any, Any] = {"val": {"acc": 0.5, "x": {"y": 1}}, 3: 2.0}
    events, _ = record(lambda run: run.step(given, loss=1.0))
    assert steps(events)[0].values == {"val/acc": 0.5, "val/x/y": 1, "3": 2.0, "loss": 1.0}


def test_scalars_of_all_kinds_are_taken_exactly() -> None:
    """NaN, infinities, NumPy's, 0-d arrays, integers of any size, strings, functions."""
    torch = pytest.importorskip("torch")
    given = {
        "nan": math.nan,
        "inf": -math.inf,
        "np64": np.float64(1.5),
        "np32": np.float32(0.5),
        "np16": np.float16(np.inf),
        "int": np.int64(3),
        "bool": np.bool_(True),
        "zero_d": np.array(2.5),
        "one": np.array([2.5]),
        "tensor": torch.tensor(1.5, requires_grad=True),
        "bf16": torch.tensor([1.5], dtype=torch.bfloat16),
        "big": 2**63,
        "text": "hello",
        "emoji": "\N{GRINNING FACE}",
        "lazy": lambda: 7.0,
    }
    events, run = record(lambda run: run.log(given))
    values = steps(events)[0].values
    assert math.isnan(values.pop("nan"))  # type: ignore[arg-type]
    assert values == {
        "inf": -math.inf, "np64": 1.5, "np32": 0.5, "np16": math.inf, "int": 3, "bool": True,
        "zero_d": 2.5, "one": 2.5, "tensor": 1.5, "bf16": 1.5, "big": 2**63, "text": "hello",
        "emoji": "\N{GRINNING FACE}", "lazy": 7.0,
    }  # fmt: skip
    assert run.statistics().rejected == {}


def _raise() -> float:
    raise RuntimeError("boom")


class _Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


CYCLE: dict[str, Any] = {"a": 1.0}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    "value",
    [None, 1j, b"x", [1.0], (1,), {1}, range(3), np.zeros(3), object(), _Odd(), _raise, CYCLE],
)
def test_what_is_no_value_is_counted_and_costs_nothing_else(value: Any) -> None:
    """The others of the same call are recorded; nothing is raised."""
    events, run = record(lambda run: run.step({"good": 1.0, "bad": value}))
    assert steps(events)[0].values["good"] == 1.0
    assert sum(run.statistics().rejected.values()) == 1
    log_account(run)


def test_an_event_without_any_value_left_is_counted_as_dropped() -> None:
    """It is not recorded empty; the step is counted."""

    def work(run: Run) -> None:
        run.step(x=None)
        run.step(x=1.0)

    events, run = record(work)
    assert [(e.step, e.values) for e in steps(events)] == [(1, {"x": 1.0})]
    assert run.statistics().log.dropped == {"no_value": 1}
    log_account(run)


def test_values_that_are_no_mapping_are_counted() -> None:
    """A list or a number in place of a mapping raises nothing."""
    events, run = record(lambda run: run.log([1, 2], loss=1.0))  # type: ignore[arg-type]
    assert steps(events)[0].values == {"loss": 1.0}
    assert run.statistics().rejected == {"not_a_mapping": 1}


def test_strict_mode_raises_for_what_cannot_be_recorded() -> None:
    """For tests of training code."""
    with Run("p", dir=None, strict=True) as run:
        with pytest.raises(ValueRejectedError, match="'x' cannot be recorded: None"):
            run.step(x=None)
        with pytest.raises(ValueRejectedError, match="step must be an integer"):
            run.log({"x": 1.0}, step=-1)
        run.step(x=1.0)


def test_a_rejection_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """And counted each time."""

    def work(run: Run) -> None:
        for _ in range(10):
            run.step(x=None)

    with caplog.at_level(logging.WARNING, "eventlog"):
        _, run = record(work)
    assert caplog.text.count("'x' cannot be recorded") == 1
    assert run.statistics().rejected == {"none": 10}


def test_a_mapping_that_changes_later_does_not_change_what_was_logged() -> None:
    """Values are a snapshot."""

    def work(run: Run) -> None:
        values = {"a": 1.0, "b": {"c": np.array(1.0)}}
        run.step(values)
        values["a"] = 2.0
        values["b"]["c"][...] = 5.0  # type: ignore[index]

    events, _ = record(work)
    assert steps(events)[0].values == {"a": 1.0, "b/c": 1.0}


# -- steps and axes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        (5, 5),
        (np.int64(5), 5),
        (np.uint8(5), 5),
        (np.array(5), 5),
        (5.0, 5),
        (np.float32(5), 5),
        (2**62, 2**62),
        (-1, 2),
        (1.5, 2),
        (True, 2),
        (2**63 - 1, 2),
        (2**64, 2),
        (-(2**70), 2),
        (math.nan, 2),
        (math.inf, 2),
        ("7", 2),
        ([1], 2),
        (np.zeros(2), 2),
        (_Odd(), 2),
        (None, 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_user_s_own_steps_are_taken_or_replaced_and_values_never_lost(
    tmp_path: Path, given: Any, recorded: int
) -> None:
    """A step that is none costs its place: the run's own step stands in. The log stays whole."""
    with Run("p", dir=tmp_path) as run:
        run.step(x=0.0)
        run.step(x=1.0)
        run.step({"x": 2.0}, step=given)
        run.step(x=3.0)
        run.step(x=4.0)
    events = steps(list(open_log(run.dir).events()))  # type: ignore[arg-type]
    assert [e.values["x"] for e in events] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [e.step for e in events] == [0, 1, recorded, recorded + 1, recorded + 2]
    bad = recorded == 2 and given is not None
    assert run.statistics().rejected == ({"bad_step": 1} if bad else {})
    assert run.statistics().log.dropped == {}


def test_a_tensor_is_a_step() -> None:
    """0-d, on the host."""
    torch = pytest.importorskip("torch")
    events, _ = record(lambda run: run.log({"x": 1.0}, step=torch.tensor(9)))
    assert steps(events)[0].step == 9


def test_counters_fill_all_axes_of_each_event() -> None:
    """Two batches in a step, three steps in an epoch."""

    def work(run: Run) -> None:
        for _ in range(2):
            for _ in range(3):
                for _ in range(2):
                    run.batch(loss=1.0)
                run.step(lr=1.0)
            run.epoch(acc=1.0)

    events, _ = record(work)
    batches = [e for e in events if type(e) is BatchEvent]
    epochs = [e for e in events if type(e) is EpochEvent]
    assert [e.batch for e in batches] == list(range(12))
    assert [e.step for e in batches] == [i // 2 for i in range(12)]
    assert [(e.step, e.batch, e.epoch) for e in steps(events)] == [
        (i, 2 * i + 2, i // 3) for i in range(6)
    ]
    assert [(e.step, e.batch, e.epoch) for e in epochs] == [(3, 6, 0), (6, 12, 1)]


def test_log_counts_nothing_and_goes_on_from_a_step_that_was_given() -> None:
    """`log(step=)` moves the run there; `step()` counts on."""

    def work(run: Run) -> None:
        run.log(a=1.0)
        run.log({"a": 2.0}, step=10)
        run.log(a=3.0)
        run.step(a=4.0)
        run.step(a=5.0)

    events, _ = record(work)
    assert [e.step for e in steps(events)] == [0, 10, 10, 10, 11]


def test_a_named_axis_counts_for_itself() -> None:
    """Validation steps leave the training's steps alone."""

    def work(run: Run) -> None:
        run.step(loss=1.0)
        run.log({"val/loss": 1.0}, step=500, axis="val_step")
        run.step(loss=1.0)

    events, _ = record(work)
    assert [(e.axis, e.step) for e in steps(events)] == [
        ("step", 0),
        ("val_step", 500),
        ("step", 1),
    ]


def test_the_user_s_own_batches_and_epochs_are_followed() -> None:
    """As steps are."""

    def work(run: Run) -> None:
        run.batch({"a": 1.0}, batch=7)
        run.batch(a=1.0)
        run.step({"a": 1.0}, epoch=2.5, batch=3)
        run.epoch(a=1.0)
        run.epoch({"a": 1.0}, epoch=9)
        run.epoch(a=1.0)
        run.batch({"a": 1.0}, batch=-1)
        run.epoch({"a": 1.0}, epoch="x")  # type: ignore[arg-type]

    events, run = record(work)
    assert [e.batch for e in events if type(e) is BatchEvent] == [7, 8, 3]
    assert [(e.batch, e.epoch) for e in steps(events)] == [(3, 2.5)]
    assert [e.epoch for e in events if type(e) is EpochEvent] == [2, 9, 10, 11]
    assert run.statistics().rejected == {"bad_batch": 1, "bad_epoch": 1}


def test_fractional_epochs_follow_the_steps() -> None:
    """Where the number of steps in an epoch is known; never beyond the epoch's end."""

    def work(run: Run) -> None:
        for _ in range(2):
            for _ in range(5):
                run.step(a=1.0)
            run.epoch(a=1.0)
        run.log({"a": 1.0}, epoch=7)
        run.step(a=1.0)
        run.step(a=1.0)

    events, _ = record(work, steps_per_epoch=4)
    assert [e.epoch for e in steps(events)] == [
        0, 0.25, 0.5, 0.75, 1.0, 1, 1.25, 1.5, 1.75, 2.0, 7, 7, 7.25
    ]  # fmt: skip
    assert [e.epoch for e in events if type(e) is EpochEvent] == [0, 1]


# -- threads ----------------------------------------------------------------------------------


def test_logging_from_eight_threads_loses_nothing(tmp_path: Path) -> None:
    """Each thread's values are there once, in its own order, in the log and in the sink."""
    sink = MemorySink()
    with Run("p", dir=tmp_path, sinks=[sink]) as run:

        def work(name: int) -> None:
            for i in range(2_000):
                run.log({"thread": name, "i": i})

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for events in (list(open_log(run.dir).events()), sink.events):  # type: ignore[arg-type]
        for name in range(8):
            mine = [e.values["i"] for e in events if e.values.get("thread") == name]
            assert mine == list(range(2_000))
    assert [e.seq for e in sink.events] == list(range(len(sink.events)))
    log_account(run)


def test_a_sink_that_logs_on_its_own_run_does_not_block_it() -> None:
    """What it logs comes back to it, until the run is closed."""
    seen: list[Event] = []

    def echo(event: Event) -> None:
        seen.append(event)
        if "x" in event.values:
            run.log({"echo": event.values["x"]})

    with Run("p", dir=None, sinks=[echo]) as run:
        for i in range(100):
            run.step(x=float(i))
        run.flush(10)
        assert run.flush(10).complete
    assert [e.values["echo"] for e in seen if "echo" in e.values] == [float(i) for i in range(100)]


# -- configuration, summary, model, events of other kinds -------------------------------------


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    nested: dict[str, Any] = dataclasses.field(default_factory=lambda: {"path": Path("/x")})


class WithDict:
    def to_dict(self) -> dict[str, Any]:
        return {"hidden": 128}


@pytest.mark.parametrize(
    ("config", "plain"),
    [
        (None, {}),
        ({"lr": 0.1, "n": {"a": [1, (2, 3)]}}, {"lr": 0.1, "n": {"a": [1, [2, 3]]}}),
        (Settings(), {"lr": 0.1, "nested": {"path": "/x"}}),
        (argparse.Namespace(lr=0.1), {"lr": 0.1}),
        (SimpleNamespace(lr=0.1), {"lr": 0.1}),
        (WithDict(), {"hidden": 128}),
        ({"colour": Colour.RED, "range": range(3)}, {"colour": "RED", "range": "range(0, 3)"}),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        ({"big": 2**70, "nan": np.float64(2)}, {"big": str(2**70), "nan": 2.0}),
        ({"api_key": "abc", "token": ""}, {"api_key": "[redacted]", "token": ""}),
        ({str(i): i for i in range(300)}, {str(i): i for i in range(300)}),
        ({"long": "x" * 7_000}, {"long": "x" * 7_000}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_configurations_of_all_shapes_become_plain(
    tmp_path: Path, config: Any, plain: dict[str, Any]
) -> None:
    """In the log's first event, and in what sinks are told when they are opened."""
    sink = MemorySink()
    with Run("p", dir=tmp_path, config=config, sinks=[sink]) as run:
        assert run.config.as_dict() == plain
    started = next(iter(open_log(run.dir).events()))  # type: ignore[arg-type]
    assert isinstance(started, RunStarted)
    assert started.config == sink.runs[0].config == plain


def test_hyperparameters_that_cannot_be_shown_do_not_stop_training() -> None:
    """Functions, cycles, and objects whose text raises."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    with Run("p", dir=None, config={"f": len, "odd": _Odd(), "cycle": cycle}) as run:
        values = run.config.as_dict()
    assert values["cycle"] == {"self": "[cycle]"}
    assert values["f"] == "builtins.len"
    assert "RuntimeError" in values["odd"]


def test_a_configuration_that_is_none_is_refused() -> None:
    """A number or a text is a mistake."""
    for config in (3, "lr=3", [1]):
        with pytest.raises(TypeError, match="config must be a mapping"):
            Run("p", dir=None, config=config)


def test_config_and_summary_are_updated() -> None:
    """Each change is an event, and the summary comes with the end."""

    def work(run: Run) -> None:
        run.config.update({"lr": 0.1}, batch=3)
        run.config["seed"] = 1
        run.config.update({})
        assert run.config["batch"] == 3
        run.summary["best"] = np.float32(0.5)
        run.summary.update(best=0.75)
        assert run.summary["best"] == 0.75

    events, run = record(work, config={"lr": 1.0})
    updates = [e.config for e in events if isinstance(e, ConfigUpdated)]
    assert updates == [{"lr": 0.1, "batch": 3}, {"seed": 1}]
    assert run.config.as_dict() == {"lr": 0.1, "batch": 3, "seed": 1}
    assert [e.summary for e in events if isinstance(e, SummaryUpdated)] == [
        {"best": 0.5},
        {"best": 0.75},
    ]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].summary == {"best": 0.75}


def test_model_updates_carry_their_numbers_as_values() -> None:
    """And whatever else in their summary."""
    events, _ = record(lambda run: run.model_updated("prune", sparsity=0.5, layers=["a"]))
    (update,) = [e for e in events if isinstance(e, ModelUpdateEvent)]
    assert (update.kind, update.values, update.summary) == (
        "prune",
        {"sparsity": 0.5},
        {"sparsity": 0.5, "layers": ["a"]},
    )


def test_events_of_any_kind_can_be_emitted() -> None:
    """Axes that they lack are filled in; what is no event is an error."""

    class Custom(Event, tag="test_run_logging_custom", frozen=True, kw_only=True):
        extra: int = 0

    def work(run: Run) -> None:
        run.step(x=1.0)
        assert run.emit(Custom(extra=3, values={"a": np.float32(1)}))  # type: ignore[dict-item]
        assert run.emit(TextEvent(step=7, tag="t", text="x"))
        with pytest.raises(TypeError, match="event must be an Event, not str"):
            run.emit("x")  # type: ignore[arg-type]

    events, _ = record(work)
    (custom,) = [e for e in events if isinstance(e, Custom)]
    assert (custom.step, custom.extra, custom.values) == (1, 3, {"a": 1.0})
    assert [e.step for e in events if isinstance(e, TextEvent)] == [7]


# -- where it lies, and which one is current --------------------------------------------------


@pytest.mark.parametrize(
    "project",
    ["../../x", "/etc", "..", ".", "a/b", "\N{GRINNING FACE}", "CON", "x" * 10_000, "\ud800"],
)
def test_a_project_s_name_stays_inside_the_directory(tmp_path: Path, project: str) -> None:
    """Whatever it is called, it is one folder there; the name itself is kept."""
    base = tmp_path / "runs"
    with Run(project, dir=base, name=project, sinks={project: MemorySink()}) as run:
        run.step(x=1.0)
    assert run.dir is not None
    assert run.dir.resolve().parent.parent == base.resolve()
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]
    assert len(list(open_log(run.dir).events())) == 3


@pytest.mark.parametrize("project", ["", None, 3])
def test_a_project_must_be_a_text(project: Any) -> None:
    """An error at once, by name."""
    with pytest.raises(TypeError, match="project must be a text"):
        Run(project, dir=None)


def test_a_run_without_a_directory_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a file."""
    monkeypatch.chdir(tmp_path)
    _, run = record(lambda run: run.step(x=1.0))
    assert run.dir is None
    assert list(tmp_path.iterdir()) == []


def test_the_current_run_is_the_newest_that_is_open() -> None:
    """As code without a reference to it wants it."""
    before = current_run()
    with Run("a", dir=None) as first:
        assert current_run() is first
        with Run("b", dir=None) as second:
            assert current_run() is second
        assert current_run() is first
        third = Run("c", dir=None)
        first.close()
        assert current_run() is third
        third.close()
    assert current_run() is before
