"""The clock that tests hold in their hands."""

import pytest

from eventlog.clock import SYSTEM_CLOCK, Clock
from eventlog.testing import FakeClock


def test_time_stands_still_until_it_is_told() -> None:
    """Both clocks advance together, and the wall clock alone can be set."""
    clock: Clock = FakeClock(monotonic=5, wall=100)
    assert isinstance(clock, FakeClock)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (5, 100)
    clock.advance(1.5)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (1_500_000_005, 1_500_000_100)
    clock.step_wall(-2)
    assert (clock.monotonic_ns(), clock.wall_ns()) == (1_500_000_005, -499_999_900)


def test_time_does_not_go_back() -> None:
    """A monotonic clock that went back would be none."""
    with pytest.raises(ValueError, match="seconds must be 0 or more, not -1"):
        FakeClock().advance(-1)


def test_the_system_s_clock_goes_on() -> None:
    """The default is the machine's own time."""
    first = SYSTEM_CLOCK.monotonic_ns()
    assert SYSTEM_CLOCK.monotonic_ns() >= first
    assert SYSTEM_CLOCK.wall_ns() > 1_600_000_000_000_000_000
