"""Which part of a log: ranges of steps, epochs and times, exact to the nanosecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.events import BatchEvent, Event, RunStarted, StepEvent
from eventlog.log.layout import Content
from eventlog.log.source import Block, describe
from eventlog.selection import Selection, instant

EVENTS: tuple[Event, ...] = tuple(
    kind(step=step, epoch=epoch, wall=wall)
    for kind in (StepEvent, BatchEvent)
    for step in (None, 0, 5, 9)
    for epoch in (None, 0, 1.5)
    for wall in (0, 10**9, 10**18)
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0),
        (1_700_000_000, 1_700_000_000 * 10**9),
        (2**53 + 1, (2**53 + 1) * 10**9),
        (1.5, 1_500_000_000),
        ("1970-01-01T00:00:01+00:00", 10**9),
        ("1970-01-01T02:00:01+02:00", 10**9),
        (datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC), 1_700_000_000_000_001_000),
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=1))), -3600 * 10**9),
    ],
)
def test_a_time_is_an_instant(given: Any, expected: int) -> None:
    """Whole seconds and microseconds are exact."""
    assert instant(given) == expected


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
def test_a_time_that_is_written_out_is_the_same_instant(when: datetime) -> None:
    """As a datetime, as text, and without a zone as this machine's own time."""
    aware = when.replace(tzinfo=UTC)
    assert instant(aware) == instant(aware.isoformat())
    microseconds = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert instant(aware) == microseconds * 1000
    assert instant(when) == instant(when.astimezone())


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ("yesterday", ValueError, "ISO 8601"),
        (float("nan"), ValueError, "finite"),
        (float("inf"), ValueError, "finite"),
        (True, TypeError, "datetime, a text or seconds"),
        (b"1", TypeError, "datetime, a text or seconds"),
    ],
)
def test_what_is_no_time(given: Any, error: type[Exception], text: str) -> None:
    """It is named, and said what it must be."""
    with pytest.raises(error, match=text):
        instant(given)
    with pytest.raises(error, match=text):
        Selection(time=(None, given))


@pytest.mark.parametrize("name", ["steps", "epochs", "time"])
@pytest.mark.parametrize("given", [5, [0, 5], (1, 2, 3), (None,)])
def test_a_range_is_a_pair(name: str, given: Any) -> None:
    """Nothing else is guessed at."""
    with pytest.raises(TypeError, match=f"{name} must be a pair"):
        Selection(**{name: given})


@pytest.mark.parametrize("name", ["steps", "epochs"])
@pytest.mark.parametrize("given", [("a", None), (None, "5"), (True, None), (None, [])])
def test_the_ends_of_a_range_are_numbers(name: str, given: Any) -> None:
    """It is said when the range is given, not by each sink when it meets the first event."""
    with pytest.raises(TypeError, match=f"{name} must be a pair of numbers or None"):
        Selection(**{name: given})


def bounds(*values: Any) -> st.SearchStrategy[tuple[Any, Any] | None]:
    """Return ranges between some values, open ones among them."""
    ends = st.sampled_from([None, *values])
    return st.none() | st.tuples(ends, ends)


@given(bounds(0, 1, 5, 9, 10), bounds(0, 0.5, 1, 1.5), bounds(0, 1.0, 1.5, 10**9))
def test_an_event_passes_where_it_lies_in_all_ranges(steps: Any, epochs: Any, time: Any) -> None:
    """From the first on, up to but without the stop; who has no place lies in no range."""
    selection = Selection(steps, epochs, time)

    def within(value: Any, given: Any, scale: float = 1) -> bool:
        first, stop = given or (None, None)
        if first is None and stop is None:
            return True
        if value is None:
            return False
        low = first is None or value >= first * scale
        return low and (stop is None or value < stop * scale)

    for event in EVENTS:
        passes = (
            within(event.step, steps)
            and within(event.epoch, epochs)
            and within(event.wall, time, 10**9)
        )
        assert selection.excludes(event) != passes
    assert not selection.excludes(RunStarted(run_id="r", step=7, wall=5))
    unbounded = all(given in (None, (None, None)) for given in (steps, epochs, time))
    assert selection.everything == unbounded


@given(
    st.lists(st.sampled_from((*EVENTS, RunStarted(run_id="r"))), min_size=1, max_size=6),
    bounds(0, 1, 5, 9, 10),
    bounds(0, 1),
)
def test_a_block_is_passed_by_only_where_none_of_its_events_passes(
    events: list[Event], steps: Any, epochs: Any
) -> None:
    """Its header tells, or it does not; it never tells wrong."""
    flags, placed = describe(events)
    block = Block(0, len(events), flags, placed, attempt=1, first_time=0, size=1, events=events)
    selection = Selection(steps, epochs)
    if selection.excludes_all(block):
        assert not flags & Content.RUN
        assert all(map(selection.excludes, events))
    assert not selection.spares(block)
