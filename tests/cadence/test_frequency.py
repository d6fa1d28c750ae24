"""The FrequencyManager and the stateless log_ready: published answers, and what those got wrong."""

import copy
import functools
import json
import math
import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventlog.cadence import FrequencyManager, log_ready

DATA = Path(__file__).parents[1] / "data"
EPOCHS = 100

frequencies = st.one_of(
    st.integers(1, 2**60),
    st.floats(1e-9, 1e9),
    st.integers(1, 10_000).map(lambda n: 1 / n),
)
strides = st.one_of(st.integers(0, 2**60), st.floats(0, 1e6))


def vectors(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def sums(n: int) -> Iterator[float]:
    return accumulate(repeat(1 / n, EPOCHS * n), initial=0.0)


def quotients(n: int) -> Iterator[float]:
    return (i / n for i in range(EPOCHS * n + 1))


def offsets(n: int) -> Iterator[float]:
    return (e + k / n for e in range(EPOCHS) for k in range(n))


def logged(manager: FrequencyManager, steps: Any) -> list[Any]:
    """Drive ``manager`` over ``steps``, an update at each, and return where it logged."""
    written = []
    for step in steps:
        manager.model_updated(step)
        if manager.log_ready(step):
            manager.log_written(step)
            written.append(step)
    return written


def test_stateless_answers_are_the_published_ones() -> None:
    """Each of the 1,500 published cases is answered alike, with a plain bool."""
    for case in vectors("log_ready.jsonl"):
        ready = case.pop("ready")
        assert log_ready(**case) is ready, case


def test_manager_answers_are_the_published_ones() -> None:
    """Each of the 150 published sequences is answered alike, call by call."""
    for script in vectors("frequency_manager.jsonl"):
        manager = FrequencyManager(
            script["log_frequency"], script["mode"], script["frequency_type"]
        )
        calls: dict[str, Callable[[Any], Any]] = {
            "log_ready": manager.log_ready,
            "log_ready_checked": functools.partial(manager.log_ready, check_model_update=True),
            "log_written": manager.log_written,
            "model_updated": manager.model_updated,
        }
        for name, step, expected in script["ops"]:
            assert calls[name](step) is expected, (manager, name, step)


@given(
    frequency=st.one_of(st.none(), frequencies),
    last=st.one_of(st.none(), strides),
    update=st.one_of(st.none(), strides),
    step=st.one_of(st.none(), strides),
    check=st.booleans(),
)
def test_manager_and_stateless_function_agree(
    frequency: Any, last: Any, update: Any, step: Any, check: bool
) -> None:
    """The same state gives the same answer, whichever of the two is asked."""
    manager = FrequencyManager(frequency)
    manager.last_log_step = last
    manager.last_model_update_step = update
    expected = log_ready(step, last, frequency, update, check)
    assert manager.log_ready(step, check) is expected
    assert manager.log_ready(step, check_model_update=check) is expected  # nothing changed


@pytest.mark.parametrize("anchor", ["last", "grid"])
@pytest.mark.parametrize("steps", [sums, quotients, offsets])
@pytest.mark.parametrize("n", [1, 3, 7, 10, 49, 128, 185, 200, 333, 1_000])
def test_a_frequency_of_one_nth_logs_each_of_n_steps_once(
    n: int, steps: Callable[[int], Iterator[float]], anchor: Any
) -> None:
    """With n steps an epoch and frequency 1/n, each step of 100 epochs is logged once."""
    manager = FrequencyManager(1 / n, anchor=anchor)
    times = list(steps(n))
    assert logged(manager, times) == times


@pytest.mark.slow
@pytest.mark.parametrize("anchor", ["last", "grid"])
@pytest.mark.parametrize("steps", [sums, quotients, offsets])
@pytest.mark.parametrize("n", [9_999, 10_000])
def test_a_frequency_of_one_nth_is_exact_for_many_steps(
    n: int, steps: Callable[[int], Iterator[float]], anchor: Any
) -> None:
    """Up to 10,000 steps an epoch, a million steps are logged once each."""
    manager = FrequencyManager(1 / n, anchor=anchor)
    assert sum(1 for _ in logged(manager, steps(n))) == sum(1 for _ in steps(n))


@given(n=st.integers(1, 10_000), epoch=st.integers(0, 99), every=st.integers(1, 50))
@example(n=10_000, epoch=99, every=1)
def test_multiples_of_a_step_are_exact_anywhere(n: int, epoch: int, every: int) -> None:
    """With frequency m/n each m-th step is logged, counted from any epoch."""
    manager = FrequencyManager(every / n)
    steps = [epoch + k / n for k in range(3 * every + 1)]
    assert logged(manager, steps) == steps[::every]


@pytest.mark.parametrize("steps", [sums, quotients, offsets])
@pytest.mark.parametrize("anchor", ["last", "grid"])
def test_whole_epochs_of_float_steps_are_exact(
    steps: Callable[[int], Iterator[float]], anchor: Any
) -> None:
    """An integer frequency over float epochs logs at each epoch, neither a step early nor late."""
    times = list(steps(1_000))
    assert logged(FrequencyManager(1, anchor=anchor), times) == times[::1_000]


@given(frequency=st.floats(5e-324, 5e-5), last=strides)
def test_a_tiny_frequency_never_fires_on_the_same_step_or_an_earlier_one(
    frequency: float, last: Any
) -> None:
    """However small the frequency, only a later step is ready."""
    manager = FrequencyManager(frequency)
    manager.log_written(last)
    for step in (last, math.nextafter(last, -math.inf), last / 2, 0):
        assert not manager.log_ready(step)
        assert not log_ready(step, last, frequency)


def test_a_tiny_frequency_is_not_rounded_up_either() -> None:
    """Between a tiny frequency and its next multiple, three quarters of the way are not enough."""
    manager = FrequencyManager(1e-9)
    manager.log_written(0.5)
    assert not manager.log_ready(0.5 + 0.8e-9)
    assert manager.log_ready(0.5 + 1e-9)


@pytest.mark.parametrize("huge", [2**53, 2**64, 10**400])
@pytest.mark.parametrize("frequency_type", ["epoch", "step", "batch"])
def test_integers_of_any_size_compare_exactly(huge: int, frequency_type: Any) -> None:
    """Past what a float holds, one step early is still not ready."""
    manager = FrequencyManager(3, frequency_type=frequency_type)
    manager.log_written(huge)
    assert [manager.log_ready(huge + i) for i in range(5)] == [False] * 3 + [True] * 2
    assert [log_ready(huge + i, huge, 3) for i in range(5)] == [False] * 3 + [True] * 2


@given(
    frequency=st.sampled_from([1, 10**400, 0.5, 1e300, 5e-324]),
    last=st.sampled_from([0, 0.5, 2**53 + 1, 10**400, 1e308]),
    update=st.sampled_from([None, 0, 10**400, 1e308]),
    step=st.sampled_from([0, 0.5, 2**53 + 1, 10**400, 1.7e308]),
    anchor=st.sampled_from(["last", "grid"]),
)
def test_integers_and_floats_mix_without_overflow(
    frequency: Any, last: Any, update: Any, step: Any, anchor: Any
) -> None:
    """An integer that no float can hold meets floats without an OverflowError."""
    manager = FrequencyManager(frequency, anchor=anchor)
    manager.log_written(last)
    manager.model_updated(update)
    assert manager.log_ready(step) in (True, False)
    assert not manager.log_ready(last)
    if anchor == "last":
        assert manager.log_ready(step, True) is log_ready(step, last, frequency, update, True)


def test_on_change_waits_for_an_update_to_settle() -> None:
    """With an update on every step, on_change logs once; the published rule stays as it is."""
    assert logged(FrequencyManager(10, "on_change", "step"), range(1_000)) == [0]


def test_on_update_does_not_wait() -> None:
    """With an update on every step, on_update logs at the frequency."""
    manager = FrequencyManager(10, "on_update", "step")
    assert logged(manager, range(1_000)) == list(range(0, 1_000, 10))


def test_on_update_is_silent_without_an_update_since_the_last_log() -> None:
    """On_update counts an update at the last log's step as new, and an earlier one as old."""
    manager = FrequencyManager(10, "on_update", "step")
    manager.log_written(20)
    manager.model_updated(19)
    assert not manager.log_ready(1_000)
    manager.model_updated(20)
    assert manager.log_ready(30)
    assert not manager.log_ready(29)


def test_check_model_update_adds_the_rule_and_cannot_take_it_away() -> None:
    """True asks an exact manager for a settled update; False leaves on_change on."""
    exact, on_change = FrequencyManager(10), FrequencyManager(10, "on_change")
    for manager in (exact, on_change):
        manager.log_written(20)
        manager.model_updated(25)
    assert exact.log_ready(30)
    assert not exact.log_ready(34, check_model_update=True)
    assert exact.log_ready(35, check_model_update=True)
    assert not on_change.log_ready(34, check_model_update=False)


def test_the_last_log_is_the_default_anchor() -> None:
    """At a stride of 7, frequency 10 counts from the log before."""
    assert logged(FrequencyManager(10, frequency_type="step"), range(0, 50, 7)) == [0, 14, 28, 42]


@pytest.mark.parametrize("scale", [1, 0.1])
def test_the_grid_fires_where_a_multiple_is_crossed(scale: float) -> None:
    """At a stride of 7, frequency 10 keeps to the multiples of 10, in integers and in tenths."""
    manager = FrequencyManager(10 * scale, anchor="grid")
    steps = [step * scale for step in range(0, 50, 7)]
    assert logged(manager, steps) == [step * scale for step in (0, 14, 21, 35, 42)]


def test_the_grid_fires_once_for_a_jump_over_several_multiples() -> None:
    """A jump over three multiples is one log, and the next multiple is the next."""
    manager = FrequencyManager(10, frequency_type="step", anchor="grid")
    assert logged(manager, [5, 37, 38, 39, 40, 41]) == [5, 37, 40]


def test_a_resume_at_an_earlier_step_stays_silent() -> None:
    """A manager by itself takes no lower step for a rewind, as published."""
    manager = FrequencyManager(10, frequency_type="step")
    manager.log_written(100)
    assert not any(manager.log_ready(step) for step in range(50, 110))
    assert manager.log_ready(110)


@pytest.mark.parametrize("frequency", [None, 1, 0.1])
@pytest.mark.parametrize("last", [None, 1])
@pytest.mark.parametrize("step", [math.nan, math.inf, np.float64("nan"), np.float32("inf")])
def test_no_step_that_is_not_finite_gets_in(frequency: Any, last: Any, step: Any) -> None:
    """NaN and infinity are refused by every method and change nothing."""
    manager = FrequencyManager(frequency)
    manager.log_written(last)
    calls: tuple[Callable[[Any], object], ...] = (
        manager.log_ready,
        lambda step: manager.log_ready(step, True),
        manager.log_written,
        manager.model_updated,
        lambda step: log_ready(step, last, frequency),
    )
    for call in calls:
        with pytest.raises(
            ValueError, match=r"^log step must be finite and greater .* given (nan|inf)"
        ):
            call(step)
    assert manager.state_dict() == {"last_log_step": last, "last_model_update_step": None}


@pytest.mark.parametrize(("last", "frequency"), [(math.nan, 1), (1, math.nan), (1, 0), (1.0, -1.0)])
def test_the_stateless_function_refuses_what_it_cannot_compare(last: Any, frequency: Any) -> None:
    """A last step that is NaN, or a frequency not above 0, is an error and no answer."""
    with pytest.raises(ValueError, match="must be"):
        log_ready(5, last, frequency)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "log frequency must be greater than 0, given 0"),
        ((-0.5,), ValueError, "log frequency must be greater than 0, given -0.5"),
        ((-1, "exact", "step"), ValueError, "log frequency must be greater than 0, given -1"),
        ((math.nan,), ValueError, "log frequency must be finite and greater than 0, given nan"),
        ((math.inf,), ValueError, "log frequency must be finite and greater than 0, given inf"),
        (
            (Fraction(10**400, 3),),
            ValueError,
            "log frequency must be finite and greater than 0, given inf",
        ),
        ((True,), TypeError, "log frequency must be a number or None, given <class 'bool'>"),
        (("1",), TypeError, "log frequency must be a number or None, given <class 'str'>"),
        (([],), TypeError, "log frequency must be a number or None, given <class 'list'>"),
        (
            (0.5, "exact", "step"),
            TypeError,
            "log frequency must be a number or None, given <class 'float'> "
            "(steps and batches are integers)",
        ),
        (
            (1.0, "exact", "batch"),
            TypeError,
            "log frequency must be a number or None, given <class 'float'> "
            "(steps and batches are integers)",
        ),
        (
            (0, "never", "hour"),
            ValueError,
            "logging mode must be one of 'exact', 'on_change', 'on_update', given 'never'",
        ),
        (
            (0, "exact", "hour"),
            ValueError,
            "frequency type must be one of 'epoch', 'step', 'batch', given 'hour'",
        ),
        ((1, None), TypeError, "logging mode must be a string, given <class 'NoneType'>"),
        ((1, "exact", 3), TypeError, "frequency type must be a string, given <class 'int'>"),
    ],
)
def test_arguments_are_checked_mode_first_then_type_then_frequency(
    arguments: Any, error: type[Exception], message: str
) -> None:
    """The first wrong argument is named with what it must be and what was given."""
    with pytest.raises(error) as caught:
        FrequencyManager(*arguments)
    assert str(caught.value) == message


def test_an_unknown_anchor_is_refused() -> None:
    """An anchor is one of two."""
    with pytest.raises(ValueError, match="anchor must be one of 'last', 'grid', given 'first'"):
        FrequencyManager(1, anchor="first")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["log_written", "model_updated"])
@pytest.mark.parametrize(
    ("frequency_type", "step", "error", "message"),
    [
        ("epoch", -1, ValueError, "log step must be greater than or equal to 0, given -1"),
        ("step", -1, ValueError, "log step must be greater than or equal to 0, given -1"),
        ("epoch", -math.inf, ValueError, "log step must be greater than or equal to 0, given -inf"),
        ("epoch", True, TypeError, "log step must be a number or None, given <class 'bool'>"),
        ("epoch", "3", TypeError, "log step must be a number or None, given <class 'str'>"),
        (
            "step",
            1.5,
            TypeError,
            "log step must be a number or None, given <class 'float'> "
            "(steps and batches are integers)",
        ),
    ],
)
def test_a_wrong_step_is_refused_and_changes_nothing(
    method: str, frequency_type: Any, step: Any, error: type[Exception], message: str
) -> None:
    """What is recorded is checked by the frequency type, with the published messages."""
    manager = FrequencyManager(2, frequency_type=frequency_type)
    manager.log_written(4)
    manager.model_updated(4)
    with pytest.raises(error) as caught:
        getattr(manager, method)(step)
    assert str(caught.value) == message
    assert (manager.last_log_step, manager.last_model_update_step) == (4, 4)


@pytest.mark.parametrize("attribute", ["last_log_step", "last_model_update_step"])
def test_attributes_are_checked_when_set(attribute: str) -> None:
    """The published plain attributes can be set, and refuse what the methods refuse."""
    manager = FrequencyManager(2, frequency_type="step")
    setattr(manager, attribute, 3)
    with pytest.raises(TypeError, match="log step must be a number or None"):
        setattr(manager, attribute, 1.5)
    assert getattr(manager, attribute) == 3


@pytest.mark.parametrize("name", ["log_frequency", "_log_frequency"])
def test_a_new_frequency_counts_from_the_last_log(name: str) -> None:
    """Setting the frequency, by either published name, takes effect at once and is checked."""
    manager = FrequencyManager(10, frequency_type="step")
    manager.log_written(20)
    setattr(manager, name, 5)
    assert manager.log_ready(25)
    with pytest.raises(ValueError, match="log frequency must be greater than 0, given 0"):
        setattr(manager, name, 0)
    assert manager.log_frequency == 5
    manager.log_frequency = None
    assert not manager.log_ready(10**9)


@pytest.mark.parametrize("name", ["mode", "_logging_mode"])
def test_a_new_mode_takes_effect_at_once(name: str) -> None:
    """Setting the mode, by either name, decides anew from the same state."""
    manager = FrequencyManager(10, frequency_type="step")
    manager.log_written(20)
    manager.model_updated(29)
    assert manager.log_ready(30)
    setattr(manager, name, "on-change")
    assert getattr(manager, name) == "on_change"
    assert not manager.log_ready(30)


def test_a_frequency_type_that_the_state_contradicts_is_refused() -> None:
    """A manager that counts fractions of epochs does not become one that counts steps."""
    manager = FrequencyManager(0.5)
    with pytest.raises(TypeError, match="log frequency must be a number or None"):
        manager.frequency_type = "step"
    assert manager.is_epoch_frequency_manager
    manager.log_frequency = 1
    manager.frequency_type = "steps"
    assert manager.is_optim_frequency_manager
    assert not manager.is_epoch_frequency_manager


@pytest.mark.parametrize(
    ("mode", "frequency_type", "shown"),
    [
        (" Exact ", "EPOCHS", "mode=exact, frequency_type=epoch"),
        ("on-change", "steps", "mode=on_change, frequency_type=step"),
        ("ON_UPDATE", "batches\n", "mode=on_update, frequency_type=batch"),
    ],
)
def test_names_are_taken_in_any_case_and_spelling(
    mode: Any, frequency_type: Any, shown: str
) -> None:
    """Modes and types are stripped and lower-cased; hyphens and plurals are accepted."""
    manager = FrequencyManager(3, mode, frequency_type)
    assert repr(manager) == f"FrequencyManager(log_frequency=3, {shown})"
    names = f"mode={manager.mode}, frequency_type={manager.frequency_type}"
    assert names == shown


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2), np.float32(0.5), np.float64(0.5)])
def test_numpy_scalars_are_taken_and_converted(number: Any) -> None:
    """Frequencies and steps of numpy become plain numbers; the answer is a plain bool."""
    manager = FrequencyManager(number)
    manager.log_written(number)
    assert type(manager.log_frequency) in (int, float)
    assert type(manager.last_log_step) in (int, float)
    assert manager.log_ready(number) is False
    assert manager.log_ready(number + number) is True
    assert log_ready(number + number, number, number) is True


def test_stateless_integers_of_numpy_do_not_wrap_around() -> None:
    """Eight bits of a step and eight of a frequency make nine."""
    assert not log_ready(np.uint8(44), np.uint8(200), np.uint8(100))  # type: ignore[arg-type]


def test_none_forgets_a_step_and_is_always_ready() -> None:
    """Without a last log, or without a current step, a log is due; without a frequency none is."""
    manager = FrequencyManager(10, "on_change", "step")
    manager.log_written(5)
    assert manager.log_ready(None)
    assert not manager.log_ready(6)
    manager.log_written()
    assert manager.log_ready(6)
    assert not FrequencyManager().log_ready(None)
    assert not FrequencyManager().log_ready(3)


@settings(max_examples=300)
@given(data=st.data())
def test_next_due_is_the_smallest_ready_step(data: st.DataObject) -> None:
    """No step below next_due is ready, and next_due itself is; None stands for never."""
    mode: Any = data.draw(st.sampled_from(["exact", "on_change", "on_update"]))
    anchor: Any = data.draw(st.sampled_from(["last", "grid"]))
    integral = data.draw(st.booleans())
    amount = st.integers(1, 2**60)
    manager = FrequencyManager(
        data.draw(st.one_of(st.none(), amount if integral else frequencies)),
        mode,
        "step" if integral else "epoch",
        anchor=anchor,
    )
    step = st.one_of(st.none(), amount if integral else strides)
    manager.log_written(data.draw(step))
    manager.model_updated(data.draw(step))
    due = manager.next_due()
    if due is None:
        assert not manager.log_ready(data.draw(amount))
        return
    assert manager.log_ready(due)
    if due > 0:
        assert not manager.log_ready(math.ceil(due) - 1)
        assert not manager.log_ready(data.draw(st.integers(0, math.ceil(due) - 1)))
        if isinstance(due, float):
            assert not manager.log_ready(math.nextafter(due, 0))


def test_state_travels_between_managers_of_other_settings() -> None:
    """State_dict holds the steps, as JSON can carry them, and leaves the settings alone."""
    manager = FrequencyManager(10, "on_change", "step")
    manager.log_written(20)
    manager.model_updated(22)
    other = FrequencyManager(5, frequency_type="step")
    other.load_state_dict(json.loads(json.dumps(manager.state_dict())))
    assert other.state_dict() == manager.state_dict()
    assert [other.log_ready(step) for step in (24, 25)] == [False, True]
    assert (other.log_frequency, other.mode) == (5, "exact")


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({}, ValueError, "state must hold last_log_step and last_model_update_step, given {}"),
        ({"last_log_step": 3}, ValueError, "state must hold last_model_update_step"),
        (
            {"last_log_step": 3, "last_model_update_step": 0.5},
            TypeError,
            "log step must be a number",
        ),
    ],
)
def test_a_state_that_is_refused_changes_nothing(
    state: Any, error: type[Exception], message: str
) -> None:
    """A state is checked as a whole before any of it is taken."""
    manager = FrequencyManager(5, frequency_type="step")
    manager.log_written(7)
    with pytest.raises(error, match=message):
        manager.load_state_dict(state)
    assert manager.state_dict() == {"last_log_step": 7, "last_model_update_step": None}


@pytest.mark.parametrize(
    "twin",
    [FrequencyManager.copy, copy.copy, copy.deepcopy, lambda of: pickle.loads(pickle.dumps(of))],  # noqa: S301 - our own bytes
)
def test_a_copy_goes_its_own_way(twin: Callable[[FrequencyManager], FrequencyManager]) -> None:
    """A copy has the settings and the state, and shares neither afterwards."""
    manager = FrequencyManager(10, "on_update", "step", anchor="grid")
    manager.log_written(14)
    other = twin(manager)
    assert repr(other) == repr(manager)
    assert other.anchor == manager.anchor == "grid"
    assert other.next_due() == manager.next_due() == 20
    other.log_written(21)
    assert manager.next_due() == 20


def test_a_fresh_copy_starts_anew() -> None:
    """A fresh copy keeps the settings and forgets what happened."""
    manager = FrequencyManager(10, frequency_type="step")
    manager.log_written(14)
    fresh = manager.copy(fresh=True)
    assert fresh.next_due() == 0
    assert fresh.state_dict() == {"last_log_step": None, "last_model_update_step": None}
    assert repr(fresh) == repr(manager)
