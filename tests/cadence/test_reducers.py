"""Reducers: what becomes of the values of a window, at once or by parts."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.cadence.window import REDUCERS, Reducer, Reduction, ReductionWindow
from eventlog.events import BatchEvent, EpochEvent, Event, StepEvent, Window

NAN, INF = math.nan, math.inf
moderate = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6) | st.booleans()
anything = st.floats() | st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.text(max_size=3)


def reducer(values: list[Any]) -> Reducer:
    made = Reducer()
    for value in values:
        made.add(value)
    return made


def results(made: Reducer) -> dict[str, Any]:
    return {how: made.result(how) for how in REDUCERS}


@given(st.lists(moderate, min_size=1))
def test_numbers_are_reduced_by_the_book(values: list[Any]) -> None:
    """As the statistics module does it."""
    found = results(reducer(values))
    assert found["last"] is values[-1]
    assert found["count"] == len(values)
    assert found["min"] == min(values)
    assert found["max"] == max(values)
    assert found["sum"] == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-6)
    assert found["mean"] == pytest.approx(math.fsum(values) / len(values), rel=1e-9, abs=1e-6)
    deviation = statistics.pstdev([float(value) for value in values])
    assert found["std"] == pytest.approx(deviation, rel=1e-6, abs=1e-3)


@given(st.lists(anything), st.lists(anything))
@example([], [1e200])
@example([], [INF])
@example([1.0], ["text"])
@example([1.0], [])
@example([INF], [-INF])
def test_merged_parts_give_what_all_give_at_once(one: list[Any], other: list[Any]) -> None:
    """Across ranks, or windows: also with NaN, infinities, texts, and parts without values."""
    merged, at_once = reducer(one), reducer(one + other)
    merged.merge(reducer(other))
    assert (merged.n, merged.nans) == (at_once.n, at_once.nans)
    numbers = [float(x) for x in one + other if not isinstance(x, str)]
    tame = all(abs(x) < 1e100 for x in numbers)
    for how in REDUCERS:
        left, right = merged.result(how), at_once.result(how)
        if isinstance(right, str):
            assert left == right
        elif how in ("last", "count", "min", "max") or not tame:
            if how in ("last", "count", "min", "max"):
                assert left == right or (left != left and right != right)
        else:
            assert not isinstance(left, str)
            scale = max([1.0, *map(abs, numbers)])
            assert left == pytest.approx(right, rel=1e-6, abs=1e-6 * scale, nan_ok=True)


@pytest.mark.parametrize("values", [[NAN], [1.0, NAN], [NAN, 1.0, 2.0], [INF, NAN]])
def test_a_nan_is_kept_and_counted(values: list[float]) -> None:
    """It is part of the result, as the arithmetic says, and never replaced."""
    made = reducer(values)
    found = results(made)
    assert made.nans == 1
    assert found["count"] == len(values)
    assert all(math.isnan(found[how]) for how in ("mean", "min", "max", "sum", "std"))
    assert found["last"] is values[-1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([INF], {"mean": INF, "sum": INF, "min": INF, "max": INF, "std": NAN}),
        ([1.0, INF], {"mean": INF, "sum": INF, "min": 1.0, "max": INF, "std": NAN}),
        ([-INF, 1.0], {"mean": -INF, "sum": -INF, "min": -INF, "max": 1.0, "std": NAN}),
        ([INF, -INF], {"mean": NAN, "sum": NAN, "min": -INF, "max": INF, "std": NAN}),
        ([1e308, 1e308], {"mean": 1e308, "sum": INF, "std": 0.0}),
        ([1e308, -1e308], {"mean": 0.0, "sum": 0.0}),
        ([3], {"mean": 3.0, "sum": 3, "std": 0.0, "count": 1}),
        ([True, False, True], {"sum": 2, "mean": 2 / 3, "count": 3}),
        (["a", "b"], {"last": "b", "mean": "b", "sum": "b", "count": 0}),
        ([1.0, "b"], {"last": "b", "mean": 1.0, "count": 1}),
        ([], {"last": NAN, "mean": NAN, "count": 0}),
    ],
)
def test_what_is_no_plain_number_is_reduced_as_arithmetic_does(
    values: list[Any], expected: dict[str, Any]
) -> None:
    """Infinities, sums that overflow, texts and truth values."""
    found = results(reducer(values))
    for how, value in expected.items():
        assert found[how] == value or (math.isnan(value) and math.isnan(found[how])), how


def test_each_key_has_the_reducer_of_the_first_rule_that_matches() -> None:
    """And the last value where none does."""
    reduction = Reduction({"val/*": "max", "*loss": "mean", "lr": "min"})
    assert [reduction.of(k) for k in ("val/loss", "loss", "lr", "acc")] == [
        "max", "mean", "min", "last",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="reduce must be one of last, mean"):
        Reduction({"loss": "median"})
    with pytest.raises(TypeError, match="reduce must be a reducer's name or a mapping"):
        Reduction(["mean"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("events", "window"),
    [
        ([StepEvent(step=2, batch=9), StepEvent(step=5, batch=12)], Window(2, 5, 2)),
        ([BatchEvent(step=2, batch=9), BatchEvent(step=2, batch=12)], Window(9, 12, 2)),
        ([BatchEvent(step=2)], Window(2, 2, 1)),
        ([EpochEvent(step=2, epoch=0.5), EpochEvent(step=3, epoch=1)], Window(0.5, 1, 2)),
        ([StepEvent()], Window(None, None, 1)),
        ([StepEvent(step=1, values={"a": NAN, "b": NAN}), StepEvent(step=2, values={"a": 1.0})],
         Window(1, 2, 2, 2)),
    ],
)  # fmt: skip
def test_a_window_says_what_it_stands_for(events: list[Event], window: Window) -> None:
    """First and last place on the events' own axis, how many, how many NaN; then it is empty."""
    made = ReductionWindow()
    for event in events:
        made.add(event)
    assert (made.n, made.first_seq) == (len(events), -1)
    reduced = made.close(Reduction("mean"))
    assert reduced is not None
    assert reduced.window == window
    assert (reduced.step, reduced.mono) == (events[-1].step, events[-1].mono)
    assert (made.n, made.first_seq, made.close(Reduction("mean"))) == (0, None, None)
