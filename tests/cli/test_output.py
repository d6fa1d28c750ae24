"""Numbers and times as text."""

from __future__ import annotations

import math

import pytest

from eventlog.cli.output import duration, iso_time, local_time, quantity, strict_json


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (150_000, "146 KiB"), (5 << 30, "5.0 GiB"),
     (3 << 40, "3.0 TiB")],
)  # fmt: skip
def test_bytes_have_about_three_digits(size: int, text: str) -> None:
    """In powers of 1024, and called so."""
    assert quantity(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "0.0123 s"), (119.9, "120 s"), (125, "2 min 5 s"), (3 * 3600 + 61, "3 h 1 min")],
)
def test_durations_are_said_as_people_do(seconds: float, text: str) -> None:
    """Seconds, minutes, hours."""
    assert duration(seconds) == text


def test_times_are_utc_for_machines_and_local_for_people() -> None:
    """None is no time."""
    assert iso_time(1_500_000_000) == "1970-01-01T00:00:01.500000+00:00"
    assert iso_time(None) is None
    assert local_time(1_700_000_000_000_000_000).startswith("2023-11-1")
    assert local_time(None) == "-"


def test_strict_json_has_no_numbers_that_are_none() -> None:
    """At any depth."""
    assert strict_json({"a": [math.nan, (math.inf, 1.5)], "b": {"c": -math.inf}}) == {
        "a": ["NaN", ["Infinity", 1.5]],
        "b": {"c": "-Infinity"},
    }
