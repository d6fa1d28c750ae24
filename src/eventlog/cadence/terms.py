"""What a cadence is made of: frozen terms that count multiples, powers, nanoseconds and updates.

The grid that a term counts on starts at 0 and is the same in every process, so whatever decides
with it ticks alike live and in a replay.
"""

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from typing import TypeAlias

from eventlog.cadence._arguments import plain
from eventlog.cadence._threshold import drift

AXES = {"step": "steps", "batch": "batches", "epoch": "epochs"}
"""The axes that every event has, and their plurals; any other name is a counter, as written."""

AXIS_OF = {word: axis for axis, plural in AXES.items() for word in (axis, plural)}

UNITS = {"d": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6}
"""Nanoseconds by unit."""

_UNIT_WORDS = {
    "d": "d day days",
    "h": "h hr hrs hour hours",
    "m": "m min mins minute minutes",
    "s": "s sec secs second seconds",
    "ms": "ms msec msecs millisecond milliseconds",
}
UNIT_OF = {word: UNITS[unit] for unit, words in _UNIT_WORDS.items() for word in words.split()}
"""Nanoseconds by each word for a unit."""

_WHOLE = 2**53  # at and beyond it a float has no fraction
LONGEST_NS = 2**63 - 1
RESERVED = frozenset({"every", "or", "update", "updates"})
NAME = r"[A-Za-z_][\w./-]*"

_UNIT = "|".join(sorted(UNIT_OF, key=len, reverse=True))
DURATION = re.compile(rf"(?:{_UNIT})(?:[0-9]+(?:\.[0-9]+)?(?:{_UNIT}))*", re.IGNORECASE | re.ASCII)
"""What may follow a number in a duration: ``s``, ``minutes``, ``h30m``."""


@dataclass(frozen=True, slots=True)
class AxisTerm:
    """Due at each multiple of ``n`` on ``axis``: step, batch, epoch or the name of a counter."""

    axis: str
    n: Fraction
    _above: int = field(init=False, repr=False, compare=False)
    _below: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_axis(self.axis)
        object.__setattr__(self, "n", Fraction(self.n))
        object.__setattr__(self, "_above", self.n.numerator)
        object.__setattr__(self, "_below", self.n.denominator)
        if self.n <= 0:
            raise ValueError(f"n must be greater than 0, not {self.n}")
        if self.axis in ("step", "batch") and self.n.denominator != 1:
            raise ValueError(f"n must be a whole number of {AXES[self.axis]}, not {self.n}")

    def index(self, x: float | Fraction) -> int:
        """Return how many multiples above 0 are at or below ``x``.

        Exact for integers and fractions; a float counts as the multiple that it stands for, so that
        ``e + k / m`` at ``n = 1 / m`` gives ``e * m + k``.

        Raises:
            ValueError: ``x`` is NaN or infinite.
        """
        number = _finite(x)
        if not isinstance(number, float):
            return int(number * self._below // self._above)
        try:
            quotient = number * self._below / self._above
        except OverflowError:
            quotient = math.inf
        if abs(quotient) >= _WHOLE:
            return int(Fraction(number) // self.n)
        return math.floor(quotient + min(0.25, drift(number) * self._below / self._above))

    def next_after(self, x: float | Fraction) -> int | Fraction:
        """Return the smallest multiple greater than ``x``, by the count of `index`."""
        multiple = (self.index(x) + 1) * self.n
        return multiple.numerator if multiple.denominator == 1 else multiple

    def __str__(self) -> str:
        unit = AXES.get(self.axis, self.axis) if self.n != 1 else self.axis
        return f"{_decimal(self.n)} {unit}"


@dataclass(frozen=True, slots=True)
class PowTerm:
    """Due at 1 and each power of ``base`` on ``axis``."""

    axis: str
    base: int = 2

    def __post_init__(self) -> None:
        _check_axis(self.axis)
        if type(self.base) is not int or not 2 <= self.base < 10**9:
            raise ValueError(f"base must be an integer from 2 to 999_999_999, not {self.base!r}")

    def index(self, x: float | Fraction) -> int:
        """Return how many powers, 1 among them, are at or below ``x``; see `AxisTerm.index`."""
        number = _finite(x)
        whole = (
            math.floor(number + drift(number)) if isinstance(number, float) else math.floor(number)
        )
        if whole < 1:
            return 0
        if self.base == 2:
            return whole.bit_length()
        power = max(0, int((whole.bit_length() - 1) / math.log2(self.base)) - 1)
        while self.base ** (power + 1) <= whole:
            power += 1
        return power + 1

    def next_after(self, x: float | Fraction) -> int:
        """Return the smallest power greater than ``x``, by the count of `index`."""
        return int(self.base ** self.index(x))

    def __str__(self) -> str:
        return f"pow{self.base} {AXES.get(self.axis, self.axis)}"


@dataclass(frozen=True, slots=True)
class TimeTerm:
    """Due each ``ns`` nanoseconds of the monotonic stamp that events carry."""

    ns: int

    def __post_init__(self) -> None:
        if type(self.ns) is not int or not 0 < self.ns <= LONGEST_NS:
            raise ValueError(f"ns must be an integer from 1 to 2**63 - 1, not {self.ns!r}")

    def __str__(self) -> str:
        if self.ns < UNITS["s"]:
            return f"{_decimal(Fraction(self.ns, UNITS['ms']))} ms"
        parts, rest = [], self.ns
        for unit in ("d", "h", "m"):
            count, rest = divmod(rest, UNITS[unit])
            if count:
                parts.append(f"{count}{unit}")
        if rest:
            parts.append(f"{_decimal(Fraction(rest, UNITS['s']))}s")
        return "".join(parts) if len(parts) > 1 else f"{parts[0][:-1]} {parts[0][-1]}"


@dataclass(frozen=True, slots=True)
class UpdateTerm:
    """Due at each update of the model."""

    def __str__(self) -> str:
        return "every update"


Term: TypeAlias = AxisTerm | PowTerm | TimeTerm | UpdateTerm


@dataclass(frozen=True, slots=True)
class Cadence:
    """Terms of which the first to come due decides; ``str`` gives a text that parses back."""

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError("terms must hold one term or more, not ()")

    def __or__(self, other: "Cadence") -> "Cadence":
        if not isinstance(other, Cadence):
            return NotImplemented
        return Cadence(self.terms + other.terms)

    def __str__(self) -> str:
        return " or ".join(map(str, self.terms))


def _check_axis(axis: str) -> None:
    if not isinstance(axis, str):
        raise TypeError(f"axis must be a string, not {axis!r}")
    word = axis.lower()
    if not re.fullmatch(NAME, axis) or word in RESERVED or DURATION.fullmatch(axis):
        raise ValueError(f"axis must be step, batch, epoch or the name of a counter, not {axis!r}")
    if AXIS_OF.get(word, axis) != axis:
        raise ValueError(f"axis must be {AXIS_OF[word]!r}, not {axis!r}")


def _finite(x: object) -> int | float | Fraction:
    if type(x) is int or type(x) is Fraction:
        return x
    if type(x) is not float and not isinstance(x, Real):
        raise TypeError(f"x must be a number, not {x!r}")
    number = plain(x)
    if number - number != 0:
        raise ValueError(f"x must be finite, not {x!r}")
    return number


def _decimal(number: Fraction) -> str:
    """Write a fraction as an integer or a short decimal where it is one, else as ``1/3``."""
    for places in range(31):
        scaled = number * 10**places
        if scaled.denominator == 1:
            digits = f"{scaled.numerator:0{places + 1}d}"
            return f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"{number.numerator}/{number.denominator}"
