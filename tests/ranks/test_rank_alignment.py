"""What of several ranks belongs together, in whatever order it comes."""

import math
import random
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.cadence.window import Reduction
from eventlog.events import BatchEvent, EpochEvent, Event, RunStarted, StepEvent, TextEvent
from eventlog.ranks._align import Aligner

MEAN = Reduction("mean")


def step(at: int, attempt: int = 1, **values: Any) -> StepEvent:
    return StepEvent(step=at, values=values, attempt=attempt)


def what(events: list[Event]) -> list[tuple[Any, ...]]:
    """Return place, values but for the number of ranks, and how many ranks each event holds."""
    return [
        (
            e.step,
            {k: v for k, v in e.values.items() if k != "ranks/n"},
            e.window and e.window.n,
        )
        for e in events
    ]


def test_a_value_goes_out_when_the_last_rank_has_it() -> None:
    """Without a later step having to come; it says how many ranks it holds."""
    aligner = Aligner(MEAN, range(3), 10.0)
    for rank in range(2):
        aligner.take(rank, step(0, loss=float(rank)), 0.0)
    assert aligner.ready(1.0) == []
    aligner.take(2, step(0, loss=5.0), 1.0)
    (event,) = aligner.ready(1.0)
    assert event.values == {"loss": 2.0, "ranks/n": 3}
    assert event.window is not None
    assert (event.window.first, event.window.last, event.window.n) == (0, 0, 3)


@pytest.mark.parametrize(
    ("how", "result"),
    [
        ("mean", 2.0),
        ("min", 0.0),
        ("max", 5.0),
        ("sum", 6.0),
        ("std", math.sqrt(14 / 3)),
        ("count", 3),
        ({"l*": "max"}, 5.0),
        ({"other": "max"}, 0.0),  # of what has no reducer, the lowest rank's
    ],
)
def test_values_are_reduced_as_declared(how: Any, result: float) -> None:
    """By key; texts stay those of the lowest rank."""
    aligner = Aligner(Reduction(how), range(3), 10.0)
    for rank, value in ((2, 5.0), (0, 0.0), (1, 1.0)):
        aligner.take(rank, step(0, loss=value, host=f"h{rank}"), 0.0)
    (event,) = aligner.ready(0.0)
    assert event.values["loss"] == pytest.approx(result)
    if isinstance(how, dict) or how != "count":
        assert event.values["host"] == "h0"


def test_a_nan_is_seen() -> None:
    """In the result, and in the number of them."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, step(0, loss=math.nan), 0.0)
    aligner.take(1, step(0, loss=1.0), 0.0)
    (event,) = aligner.ready(0.0)
    assert math.isnan(event.values["loss"])  # type: ignore[arg-type]
    assert event.window is not None
    assert event.window.nans == 1


def test_what_one_rank_alone_logs_waits_until_the_others_have_passed() -> None:
    """Also where the others log nothing of the kind: their steps tell."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, step(5, loss=1.0), 0.0)
    aligner.take(0, step(5, val=3.0), 0.0)
    aligner.take(0, EpochEvent(step=5, epoch=1, values={"acc": 0.5}), 0.0)
    aligner.take(1, step(5, loss=2.0), 0.0)
    assert what(aligner.ready(0.0)) == [(5, {"loss": 1.5}, 2)]
    aligner.take(1, step(6, loss=2.0), 0.0)
    out = aligner.ready(0.0)
    assert what(out) == [(5, {"val": 3.0}, 1), (5, {"acc": 0.5}, 1)]
    assert all("ranks/n" not in event.values for event in out)


def test_each_kind_is_placed_on_its_own_axis() -> None:
    """Batches by batch, epochs by epoch."""
    aligner = Aligner(MEAN, range(2), 10.0)
    for rank in range(2):
        aligner.take(rank, BatchEvent(step=0, batch=7, values={"x": float(rank)}), 0.0)
        aligner.take(rank, EpochEvent(step=0, epoch=0.5, values={"x": float(rank)}), 0.0)
    windows = [event.window for event in aligner.ready(0.0)]
    assert [w and w.first for w in windows] == [7, 0.5]


def test_several_events_with_the_same_names_stay_apart() -> None:
    """The first of a rank belongs to the first of the others."""
    aligner = Aligner(MEAN, range(2), 10.0)
    for rank in range(2):
        for value in (1.0, 10.0):
            aligner.take(rank, step(0, x=value + rank), 0.0)
    assert what(aligner.ready(0.0)) == [(0, {"x": 1.5}, 2), (0, {"x": 10.5}, 2)]


def test_a_late_rank_is_waited_for_once() -> None:
    """Then values go out without it, what it brings is counted, until it has caught up."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, step(0, x=1.0), 0.0)
    assert aligner.ready(9.0) == []
    assert what(aligner.ready(10.0)) == [(0, {"x": 1.0}, 1)]
    assert aligner.behind == {1}
    aligner.take(0, step(1, x=1.0), 11.0)
    assert what(aligner.ready(11.0)) == [(1, {"x": 1.0}, 1)]
    aligner.take(1, step(0, x=3.0), 12.0)
    aligner.take(1, step(1, x=3.0), 12.0)
    aligner.take(1, step(2, x=3.0), 12.0)
    aligner.take(0, step(2, x=1.0), 12.0)
    assert what(aligner.ready(12.0)) == [(2, {"x": 2.0}, 2)]
    assert aligner.late == {1: 2}


def test_a_rank_that_left_is_not_waited_for() -> None:
    """What it had brought is part of the result, and the number says so."""
    aligner = Aligner(MEAN, range(3), 10.0)
    for rank in range(3):
        aligner.take(rank, step(0, x=float(rank)), 0.0)
    for rank in range(2):
        aligner.take(rank, step(1, x=float(rank)), 0.0)
    assert what(aligner.ready(0.0)) == [(0, {"x": 1.0}, 3)]
    aligner.awaited.discard(2)
    (event,) = aligner.ready(0.0)
    assert event.values == {"x": 0.5, "ranks/n": 2}
    aligner.awaited.discard(1)
    aligner.take(0, step(2, x=7.0), 0.0)
    (event,) = aligner.ready(0.0)
    assert event.values == {"x": 7.0, "ranks/n": 1}


def test_an_attempt_begins_when_all_have_begun_it() -> None:
    """What a slow rank still says of the one before is part of that."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, RunStarted(run_id="r"), 0.0)
    aligner.take(0, step(5, x=1.0), 0.0)
    aligner.take(0, step(3, attempt=2, x=10.0), 0.0)
    aligner.take(0, TextEvent(tag="t", text="x", attempt=2), 0.0)
    aligner.take(1, step(5, x=2.0), 1.0)
    assert [e.attempt for e in aligner.ready(1.0)] == [1, 1]
    aligner.take(1, step(3, attempt=2, x=20.0), 2.0)
    out = aligner.ready(2.0)
    assert [e.attempt for e in out] == [2, 2]
    assert {e.values.get("x") for e in out} == {None, 15.0}


def test_an_attempt_begins_without_a_rank_that_is_late() -> None:
    """What it says of the former one comes too late."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, step(3, attempt=2, x=10.0), 0.0)
    assert aligner.ready(9.0) == []
    assert aligner.ready(10.0) == []
    assert aligner.attempt == 2
    aligner.take(1, step(9, x=1.0), 11.0)
    aligner.take(1, step(3, attempt=2, x=20.0), 11.0)
    assert what(aligner.ready(11.0)) == [(3, {"x": 15.0}, 2)]
    assert aligner.late == {1: 1}


def test_the_end_lets_everything_out() -> None:
    """With the ranks that it has."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, step(0, x=1.0), 0.0)
    aligner.take(0, step(1, attempt=2, x=2.0), 0.0)
    assert what(aligner.finish()) == [(0, {"x": 1.0}, 1), (1, {"x": 2.0}, 1)]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that does not come does not fill it, however short the time."""
    monkeypatch.setattr("eventlog.ranks._align.MOST", 100)
    aligner = Aligner(MEAN, range(2), 1e9)
    out = []
    for i in range(1000):
        aligner.take(0, step(i, x=1.0), 0.0)
        out += aligner.ready(0.0)
    assert len(out) >= 899


@settings(max_examples=200, deadline=None)
@given(
    ranks=st.integers(1, 4),
    plan=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", "ab"])), min_size=1, max_size=20
    ),
    seed=st.integers(0, 2**32),
)
def test_the_order_in_which_ranks_come_does_not_matter(
    ranks: int, plan: list[tuple[int, str]], seed: int
) -> None:
    """Each event of the plan comes out once, with all ranks, in the order of the steps."""
    rng = random.Random(seed)
    at, events = 0, []
    for forward, keys in plan:
        at += forward
        events.append((at, keys))
    left = {
        rank: deque(
            StepEvent(step=at, values=dict.fromkeys(keys, float(rank))) for at, keys in events
        )
        for rank in range(ranks)
    }
    aligner = Aligner(MEAN, range(ranks), 10.0)
    out: list[Event] = []
    while left:
        rank = rng.choice(sorted(left))
        for _ in range(rng.randint(1, 5)):
            if left[rank]:
                aligner.take(rank, left[rank].popleft(), 0.0)
        if not left[rank]:
            del left[rank]
        out += aligner.ready(0.0)
    mean = (ranks - 1) / 2
    expected = sorted((at, "".join(sorted(keys))) for at, keys in events)
    found = [(at, "".join(sorted(values))) for at, values, _ in what(out)]
    assert [at for at, _ in found] == [at for at, _ in expected]
    assert sorted(found) == expected
    assert all(n == ranks for _, _, n in what(out))
    assert all(set(values.values()) == {mean} for _, values, _ in what(out))
    assert aligner.late == {}


def test_a_rank_that_logs_more_than_the_others_is_reduced_with_them() -> None:
    """What it alone has is its own; there is one value of the rest, of all ranks."""
    aligner = Aligner(MEAN, range(3), 10.0)
    aligner.take(0, step(0, lr=0.1, loss=0.0, acc=0.5), 0.0)
    aligner.take(1, step(0, loss=1.0, acc=0.5), 0.0)
    aligner.take(2, step(0, loss=5.0, time=7.0), 0.0)
    assert what(aligner.ready(0.0)) == [(0, {"loss": 2.0}, 3)]
    for rank in range(3):
        aligner.take(rank, step(1, loss=0.0), 0.0)
    out = aligner.ready(0.0)
    assert what(out) == [
        (0, {"lr": 0.1}, 1),
        (0, {"acc": 0.5}, 2),
        (0, {"time": 7.0}, 1),
        (1, {"loss": 0.0}, 3),
    ]
    assert [event.values.get("ranks/n") for event in out] == [None, 2, None, 3]
    assert aligner.late == {}


def test_one_call_or_two_are_the_same() -> None:
    """What a rank logs in two calls belongs to what another one logs in one."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, step(0, loss=1.0, acc=0.0), 0.0)
    aligner.take(1, step(0, loss=3.0), 0.0)
    aligner.take(1, step(0, acc=1.0), 0.0)
    aligner.take(1, step(0, loss=9.0), 0.0)
    assert what(aligner.ready(0.0)) == [(0, {"loss": 2.0}, 2), (0, {"acc": 0.5}, 2)]
    assert what(aligner.finish()) == [(0, {"loss": 9.0}, 1)]


def test_what_comes_late_in_part_is_counted_once() -> None:
    """The names that went out without it are left out, the others are not."""
    aligner = Aligner(MEAN, range(2), 10.0)
    aligner.take(0, step(0, a=1.0, b=1.0), 0.0)
    assert what(aligner.ready(10.0)) == [(0, {"a": 1.0, "b": 1.0}, 1)]
    aligner.take(1, step(0, a=3.0, b=3.0, c=3.0), 11.0)
    assert aligner.late == {1: 1}
    assert what(aligner.finish()) == [(0, {"c": 3.0}, 1)]


def test_events_without_values_are_one() -> None:
    """The end of an epoch, say."""
    aligner = Aligner(MEAN, range(2), 10.0)
    for rank in range(2):
        aligner.take(rank, EpochEvent(step=4, epoch=1), 0.0)
    (event,) = aligner.ready(0.0)
    assert (event.epoch, event.values) == (1, {"ranks/n": 2})
