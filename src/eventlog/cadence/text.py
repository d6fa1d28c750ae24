"""Cadences as text: ``every("10 steps or 30 s")`` and the frozen value that it is parsed to.

::

    cadence  = ["every"] term { "or" ["every"] term }
    term     = [number] axis | number counter | duration | "update" | "pow2" axis | "pow10" counter
    axis     = "step" | "batch" | "epoch", singular or plural
    counter  = any other name that events carry, as written: tokens, val/step
    duration = [number] unit { number unit }    of ms, s, min (m), h, d: "30 s", "1h30m"
    number   = 10 | 1_000 | 0.1 | 1e3 | 1/3

Counts are kept as fractions, so ``0.1 epochs`` is one tenth and not the float next to it.
"""

import functools
import re
from fractions import Fraction
from typing import NoReturn

from eventlog.cadence.terms import (
    AXES,
    AXIS_OF,
    DURATION,
    LONGEST_NS,
    NAME,
    RESERVED,
    UNIT_OF,
    AxisTerm,
    Cadence,
    PowTerm,
    Term,
    TimeTerm,
    UpdateTerm,
)

_EXAMPLES = "'10 steps', '0.1 epochs', '1h30m or 1_000 tokens', 'every update', 'pow2 steps'"
_EXPECTED_UNIT = (
    "expected a unit: steps, batches, epochs, the name of a counter, or ms, s, min, h, d"
)
_LONGEST_TEXT = 1_000
_LARGEST_EXPONENT = 300
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})

_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_NUMBER = rf"(?:{_DIGITS}(?:\.{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?[0-9]+)?(?:/{_DIGITS})?"
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_TOKEN = re.compile(rf"\s*(?:(?P<number>{_NUMBER})|(?P<word>{NAME})|(?P<other>\S)|(?P<end>\Z))")
_DURATION_PART = re.compile(r"([0-9.]*)([A-Za-z]+)")
_CUT_DURATION = re.compile(DURATION.pattern + r"[0-9.]+", DURATION.flags)
_POWER = re.compile(r"pow([0-9]{1,9})")


class CadenceError(ValueError):
    """A text is no cadence.

    Attributes:
        text: The text as given.
        column: Where it goes wrong, counted from 1; one past its end if something is missing there.
        problem: What was expected there.
    """

    def __init__(self, text: str, column: int, problem: str) -> None:
        super().__init__(text, column, problem)
        self.text = text
        self.column = column
        self.problem = problem

    def __str__(self) -> str:
        start = max(0, self.column - 60)
        shown = self.text[start : self.column + 20]
        shown = "".join(char if char.isprintable() else " " for char in shown)
        caret = " " * (self.column - 1 - start) + "^"
        return (
            f"cannot read the cadence at column {self.column}: {self.problem}\n"
            f"  {shown}\n  {caret}\nExamples: {_EXAMPLES}"
        )


def every(text: str | Cadence) -> Cadence:
    """Parse a cadence; the grammar heads this module.

    Args:
        text: Such as ``"10 steps or 30 s"``; a `Cadence` is returned as it is.

    Raises:
        CadenceError: The text is no cadence; it names the column and what was expected there.
        TypeError: ``text`` is neither a string nor a `Cadence`.
    """
    if isinstance(text, Cadence):
        return text
    if not isinstance(text, str):
        raise TypeError(f"cadence must be a Cadence or a text such as {_EXAMPLES}, not {text!r}")
    return _parse(text)


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Cadence:
    if len(text) > _LONGEST_TEXT:
        raise CadenceError(text, _LONGEST_TEXT + 1, f"expected at most {_LONGEST_TEXT} characters")
    return _Parser(text).cadence()


class _Parser:
    """One pass over the text: ``kind``, ``value`` and ``column`` are the token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._advance()

    def cadence(self) -> Cadence:
        terms = []
        while True:
            if self._word == "every":
                self._advance()
            terms.append(self._term())
            if self._kind == "end":
                return Cadence(tuple(terms))
            if self._word != "or":
                self._fail("expected 'or' or the end of the text")
            self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._end)
        if match is None or match.lastgroup is None:
            raise AssertionError("a token, junk or the end always matches")
        self._kind, self._value = match.lastgroup, match[match.lastgroup]
        self._word = self._value.lower() if self._kind == "word" else ""
        self._column = match.start(match.lastgroup) + 1
        self._adjoins = self._column == self._end + 1 > 1
        self._end = match.end()

    def _fail(self, problem: str, column: int | None = None) -> NoReturn:
        raise CadenceError(self._text, column or self._column, problem)

    def _term(self) -> Term:
        column = self._column
        if self._kind == "number":
            return self._counted(self._number(), column)
        if self._value == "-" or self._word in _NOT_FINITE:
            self._fail("expected a finite number greater than 0")
        if self._word in ("update", "updates"):
            self._advance()
            return UpdateTerm()
        if power := _POWER.fullmatch(self._word):
            return self._powers(int(power[1]))
        if self._word in AXIS_OF or self._word in UNIT_OF:
            return self._counted(Fraction(1), column)
        if self._word and self._word not in RESERVED:
            self._fail(f"expected a number before {self._value!r}")
        self._fail("expected a number and a unit, 'update', or powers such as 'pow2 steps'")

    def _number(self) -> Fraction:
        column = self._column
        exponent = _EXPONENT.search(self._value)
        if exponent and abs(int(exponent[1])) > _LARGEST_EXPONENT:
            self._fail(f"expected an exponent from -{_LARGEST_EXPONENT} to {_LARGEST_EXPONENT}")
        over, _, under = self._value.partition("/")
        if under and int(under) == 0:
            self._fail("expected a fraction with a denominator greater than 0")
        number = Fraction(over) / int(under or 1)
        if number == 0:
            self._fail("expected a finite number greater than 0", column)
        self._advance()
        return number

    def _counted(self, number: Fraction, column: int) -> Term:
        if self._value == ",":
            self._fail("expected a unit; group digits with an underscore, as in 1_000")
        if not self._word or self._word in ("or", "every"):
            self._fail(_EXPECTED_UNIT)
        if self._word in RESERVED:
            self._fail("expected a unit; updates are not counted, write 'every update'")
        if DURATION.fullmatch(self._value):
            return self._duration(number, column)
        if self._adjoins and _CUT_DURATION.fullmatch(self._value):
            self._fail("expected a unit: ms, s, min, h or d", self._column + len(self._value))
        axis = AXIS_OF.get(self._word, self._value)
        if axis in ("step", "batch") and number.denominator != 1:
            self._fail(f"expected a whole number of {AXES[axis]}", column)
        self._advance()
        return AxisTerm(axis, number)

    def _duration(self, number: Fraction, column: int) -> TimeTerm:
        total, smallest = Fraction(0), LONGEST_NS
        while True:
            for part in _DURATION_PART.finditer(self._value):
                unit = UNIT_OF[part[2].lower()]
                if unit >= smallest:
                    self._fail(
                        "expected a unit smaller than the one before", self._column + part.start(2)
                    )
                smallest = unit
                total += unit * (Fraction(part[1]) if part[1] else number)
            self._advance()
            if self._kind != "number":
                break
            start, number = self._column, self._number()
            if self._kind == "word" and not DURATION.fullmatch(self._value):
                self._fail("expected 'or' before another term", start)
            if self._kind != "word":
                self._fail(_EXPECTED_UNIT)
        ns = round(total)
        if not 0 < ns <= LONGEST_NS:
            self._fail("expected a duration from 1 ns to 292 years", column)
        return TimeTerm(ns)

    def _powers(self, base: int) -> PowTerm:
        if base < 2:
            self._fail("expected powers of 2 or more, such as 'pow2 steps' or 'pow10 tokens'")
        self._advance()
        if not self._word or self._word in RESERVED or DURATION.fullmatch(self._value):
            self._fail("expected step, batch, epoch or the name of a counter")
        axis = AXIS_OF.get(self._word, self._value)
        self._advance()
        return PowTerm(axis, base)
