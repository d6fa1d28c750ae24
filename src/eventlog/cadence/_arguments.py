"""Checks of arguments, with the published messages."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any


def valid_step(value: object, integral: bool) -> int | float | None:
    """Return a log step as a plain number, or None.

    Raises:
        TypeError: ``value`` is not a number, or not an integer where ``integral`` asks for one.
        ValueError: It is negative, NaN or infinite.
    """
    if type(value) is int and value >= 0:
        return value
    if type(value) is float and 0 <= value < math.inf and not integral:
        return value
    number = _optional_number("log step", value, integral)
    if number is not None and not 0 <= number < math.inf:
        raise not_a_step(number)
    return number


def valid_frequency(value: object, integral: bool) -> int | float | None:
    """Return a log frequency as a plain number, or None; raise as `valid_step` does, also for 0."""
    number = _optional_number("log frequency", value, integral)
    if number is not None and not 0 < number < math.inf:
        finite = "" if number <= 0 else "finite and "
        raise ValueError(f"log frequency must be {finite}greater than 0, given {number}")
    return number


def not_a_step(number: int | float) -> ValueError:
    """Return the error for a number that no step can be."""
    finite = "" if number < 0 else "finite and "
    return ValueError(f"log step must be {finite}greater than or equal to 0, given {number}")


def _optional_number(name: str, value: object, integral: bool) -> int | float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral if integral else Real):
        why = " (steps and batches are integers)" if isinstance(value, float) else ""
        raise TypeError(f"{name} must be a number or None, given {type(value)}{why}")
    return plain(value)


def plain(value: Any) -> int | float:
    """Convert a scalar, also another library's; what no float can hold becomes infinity."""
    if type(value) is int or type(value) is float:
        return value
    if isinstance(value, Integral):
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf


def choice(name: str, value: object, accepted: Mapping[str, str]) -> str:
    """Return what ``accepted`` calls ``value``, stripped and in lower case.

    Raises:
        TypeError: ``value`` is not a string.
        ValueError: It is unknown; the message names what is accepted.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, given {type(value)}")
    try:
        return accepted[value.strip().lower()]
    except KeyError:
        names = ", ".join(repr(known) for known in dict.fromkeys(accepted.values()))
        raise ValueError(f"{name} must be one of {names}, given {value!r}") from None
