"""The smallest step that is due, and how far a float may lie from the number it stands for.

A fractional epoch is a float: ``e + k / n``, ``i / n``, or a sum of many ``1 / n``. The first two
are off by an ulp or two; the sum drifts by half an ulp for each addition, about 1e-8 after 100
epochs of 10,000 steps. What is granted here covers both and stays far below the distance of two
steps. Integers compare exactly and never pass through a float.
"""

import math
from fractions import Fraction

_LIMIT = 1e-6
"""The most that is granted beyond four ulps, so that floats which count steps stay exact."""

_FOUR_ULPS = 2**-50
"""Of 1; of ``x`` it is four to eight ulps."""

_FINE = 2**48
"""Below it, floats tell integers apart with room to spare for the error granted."""

_WHOLE = 2**53
"""Below it, each integer is a float."""


def drift(x: float) -> float:
    """Return the error granted to ``x`` beside a multiple of a frequency."""
    size = abs(x)
    granted = size * 1e-9
    if granted <= _LIMIT:
        return granted
    return max(_LIMIT, size * _FOUR_ULPS)


def after(last: int | float, frequency: int | float, integral: bool) -> int | float:
    """Return the smallest step that is one frequency after ``last``.

    Args:
        last: The step to count from.
        frequency: The distance, above 0.
        integral: Whether steps are integers by contract, so that no error is granted.
    """
    if type(last) is int or type(frequency) is int:
        if type(last) is type(frequency):
            due = last + frequency
            return due if integral or due >= _FINE else due - min(_LIMIT, frequency * 1e-7)
        if _is_huge(last) or _is_huge(frequency):
            return math.ceil(Fraction(last) + Fraction(frequency))
    nominal = last + frequency
    # Drift cancels in a difference of two sums, but for the additions between them.
    slack = frequency * 1e-7
    if slack > _LIMIT:
        slack = _LIMIT
    if slack < nominal * _FOUR_ULPS:
        slack = min(frequency / 4, nominal * _FOUR_ULPS)
    due = nominal - slack
    return due if due > last else math.nextafter(last, math.inf)


def grid_after(last: int | float, frequency: int | float, integral: bool) -> int | float:
    """Return the smallest step at the multiple of ``frequency`` next to ``last``; see `after`."""
    if type(last) is int and type(frequency) is int:
        due = (last // frequency + 1) * frequency
        return due if integral or due >= _FINE else due - min(frequency / 4, drift(due))
    if _is_huge(last) or _is_huge(frequency):
        return math.ceil((Fraction(last) // Fraction(frequency) + 1) * Fraction(frequency))
    quotient = last / frequency
    if quotient >= _WHOLE:
        return math.nextafter(last, math.inf)
    index = math.floor(quotient + min(0.25, drift(last) / frequency))
    nominal = float((index + 1) * frequency)
    return max(nominal - min(frequency / 4, drift(nominal)), math.nextafter(last, math.inf))


def _is_huge(number: int | float) -> bool:
    return type(number) is int and number >= _WHOLE
