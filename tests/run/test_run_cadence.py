"""When things are due: every=, due(), record=, and model updates."""

from typing import Any

import pytest

from eventlog import BatchEvent, FrequencyManager, ModelUpdateEvent, Run, StepEvent
from eventlog.cadence.text import CadenceError
from eventlog.events import Event, TextEvent
from eventlog.testing import MemorySink


def steps(events: list[Event], key: str) -> list[int | None]:
    return [e.step for e in events if key in e.values]


def test_all_calls_at_a_step_agree() -> None:
    """Three metrics by three calls arrive at the same steps, through a sink's cadence."""
    sink = MemorySink()
    with Run("p", dir=None, sinks={"s": {"sink": sink, "every": "10 steps"}}) as run:
        for _ in range(35):
            run.log(a=1.0)
            run.log(b=1.0)
            run.step(c=1.0)
    for key in "abc":
        assert steps(sink.events, key) == [0, 10, 20, 30, 34]


def test_every_of_a_call_leaves_out_what_is_not_due() -> None:
    """For all calls with the same text at a step alike; the step is counted in any case."""
    sink = MemorySink()
    with Run("p", dir=None, sinks=[sink]) as run:
        for _ in range(30):
            run.log({"a": 1.0}, every="10 steps")
            run.log({"b": 1.0}, every="10 steps")
            run.step({"c": 1.0}, every="7 steps")
    assert steps(sink.events, "a") == steps(sink.events, "b") == [0, 10, 20]
    assert steps(sink.events, "c") == [0, 7, 14, 21, 28]


def test_functions_are_called_only_when_due() -> None:
    """A metric that is dear to compute costs nothing else."""
    calls: list[int] = []

    def dear() -> float:
        calls.append(1)
        return 1.0

    with Run("p", dir=None) as run:
        for _ in range(30):
            run.step({"dear": dear}, every="10 steps")
            run.text("t", lambda: str(dear()), every="10 steps")
            if run.due("10 steps"):
                dear()
    assert len(calls) == 3 * 3


def test_due_answers_alike_at_a_step() -> None:
    """However often it is asked."""
    with Run("p", dir=None) as run:
        answers = []
        for _ in range(20):
            answers.append([run.due("5 steps") for _ in range(3)])
            run.step()
    assert [a[0] for a in answers] == [i % 5 == 0 for i in range(20)]
    assert all(len(set(a)) == 1 for a in answers)


def test_due_follows_batches_where_only_these_are_counted() -> None:
    """A loop that counts batches alone, or several batches in a step."""
    with Run("p", dir=None) as run:
        due = []
        for batch in range(30):
            if run.due("10 batches"):
                due.append(batch)
            run.batch(x=1.0)
    assert due == [0, 10, 20]


def test_due_follows_epochs_where_only_these_are_counted() -> None:
    """A loop that logs once an epoch."""
    sink = MemorySink()
    with Run("p", dir=None, sinks=[sink]) as run:
        for _ in range(6):
            run.text("t", "x", every="2 epochs")
            run.epoch(x=1.0)
    assert [e.epoch for e in sink.of(TextEvent)] == [0, 2, 4]


def test_a_wrong_cadence_is_an_error_of_the_caller() -> None:
    """At the call that has it."""
    with Run("p", dir=None) as run:
        with pytest.raises(CadenceError):
            run.due("every now and then")
        with pytest.raises(CadenceError):
            run.step({"x": 1.0}, every="every now and then")


@pytest.mark.parametrize("every", ["10 stps", "1_000 tokens", "10 steps or 5 tokens"])
def test_what_a_run_does_not_count_is_an_error_of_the_caller(every: str) -> None:
    """It would never be due, and nothing would be said."""
    with Run("p", dir=None) as run:
        with pytest.raises(CadenceError, match="a run counts steps, batches and epochs, and no"):
            run.due(every)
        with pytest.raises(CadenceError):
            run.log({"tokens": 1_000}, every=every)


def test_record_thins_what_is_recorded_at_all_and_counts_it() -> None:
    """Epochs and what is said about the run are recorded in any case."""
    sink = MemorySink()
    with Run("p", dir=None, sinks=[sink], record="10 steps") as run:
        for i in range(50):
            run.log(a=1.0)
            run.step(b=1.0)
            if i % 25 == 24:
                run.epoch(e=1.0)
    assert steps(sink.events, "a") == steps(sink.events, "b") == [0, 10, 20, 30, 40]
    assert steps(sink.events, "e") == [25, 50]
    assert run.statistics().thinned == 90


@pytest.mark.parametrize("types", [None, [StepEvent], ["step"]])
@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("every update", [0, 5, 22, 39]),
        # ten steps after a change, as the manager has it
        (FrequencyManager(10, "on_change", frequency_type="step"), [0, 15, 32, 39]),
    ],
)
def test_model_updates_reach_a_cadence_whatever_types_its_sink_takes(
    types: Any, rule: Any, wanted: list[int]
) -> None:
    """The cadence knows of an update that the sink itself is not given."""
    sink = MemorySink()
    spec = {"s": {"sink": sink, "every": rule, "types": types}}
    with Run("p", dir=None, sinks=spec) as run:
        for i in range(40):
            if i in (5, 22):
                run.model_updated("prune")
            run.step(x=1.0)
    assert steps(sink.events, "x") == wanted
    assert bool(sink.of(ModelUpdateEvent)) == (types is None)


def test_due_and_record_follow_model_updates() -> None:
    """ "every update" is due after each."""
    sink = MemorySink()
    with Run("p", dir=None, sinks=[sink], record="every update") as run:
        due = []
        for i in range(10):
            if i in (3, 7):
                run.model_updated()
            if run.due("every update"):
                due.append(i)
            run.step(x=1.0)
    assert due == [0, 3, 7]
    assert steps(sink.events, "x") == [0, 3, 7]


def test_sinks_have_cadences_of_their_own() -> None:
    """A text, a manager that stays as it is, one per type, and the run's for the rest."""
    manager = FrequencyManager(20, frequency_type="step")
    plain, managed, typed, default = (MemorySink() for _ in range(4))
    sinks = {
        "plain": {"sink": plain, "every": "7 steps"},
        "managed": {"sink": managed, "every": manager},
        "typed": {"sink": typed, "every": {"step": "30 steps", BatchEvent: "10 batches"}},
        "default": default,
    }
    before = manager.state_dict()
    with Run("p", dir=None, sinks=sinks, every="25 steps") as run:
        for _ in range(60):
            run.batch(b=1.0)
            run.step(x=1.0)
    assert manager.state_dict() == before
    assert steps(plain.events, "x") == [*range(0, 60, 7), 59]
    assert {0, 20, 40} <= set(steps(managed.events, "x"))
    assert steps(typed.events, "x") == [0, 30, 59]
    assert [e.batch for e in typed.of(BatchEvent)] == [0, 10, 20, 30, 40, 50, 59]
    assert steps(default.events, "x") == [0, 25, 50, 59]


def test_a_rewind_starts_all_cadences_anew() -> None:
    """Steps that are done again are due again."""
    sink = MemorySink()
    with Run("p", dir=None, sinks={"s": {"sink": sink, "every": "10 steps"}}) as run:
        for _ in range(25):
            run.step(x=1.0)
        run.rewind(10)
        due = []
        for i in range(10, 25):
            if run.due("10 steps"):
                due.append(i)
            run.step(x=1.0)
    assert steps(sink.events, "x") == [0, 10, 20, 24, 10, 20, 24]
    assert due == [10, 20]
    assert {e.attempt for e in sink.events} == {1, 2}
