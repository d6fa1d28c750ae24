"""Cadence texts: what they are parsed to, what is said of wrong ones, and their grids."""

import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.cadence import (
    AxisTerm,
    Cadence,
    CadenceError,
    PowTerm,
    Term,
    TimeTerm,
    UpdateTerm,
    every,
)

SECOND = 10**9


def is_axis(name: str) -> bool:
    try:
        AxisTerm(name, Fraction(1))
    except ValueError:
        return False
    return True


counters = st.one_of(
    st.sampled_from(["tokens", "val/step", "pow2", "e3", "s3", "M_1.x-y", "nan"]),
    st.from_regex(r"[A-Za-z_][\w./-]{0,8}", fullmatch=True).filter(is_axis),
)
amounts = st.fractions(min_value=Fraction(1, 10**6), max_value=10**12, max_denominator=10**6)
terms: st.SearchStrategy[Term] = st.one_of(
    st.builds(AxisTerm, st.sampled_from(["step", "batch"]), st.integers(1, 10**30).map(Fraction)),
    st.builds(AxisTerm, st.one_of(st.just("epoch"), counters), amounts),
    st.builds(
        PowTerm,
        st.one_of(st.sampled_from(["step", "batch", "epoch"]), counters),
        st.integers(2, 99),
    ),
    st.builds(
        TimeTerm,
        st.one_of(st.integers(1, 2**63 - 1), st.integers(1, 10**6).map(lambda s: s * SECOND)),
    ),
    st.just(UpdateTerm()),
)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("10 steps", AxisTerm("step", Fraction(10))),
        ("10steps", AxisTerm("step", Fraction(10))),
        ("every step", AxisTerm("step", Fraction(1))),
        ("Every 1 Step", AxisTerm("step", Fraction(1))),
        ("100 batches", AxisTerm("batch", Fraction(100))),
        ("2.0 batch", AxisTerm("batch", Fraction(2))),
        ("epoch", AxisTerm("epoch", Fraction(1))),
        ("0.1 epochs", AxisTerm("epoch", Fraction(1, 10))),
        (".5 epoch", AxisTerm("epoch", Fraction(1, 2))),
        ("1/3 epochs", AxisTerm("epoch", Fraction(1, 3))),
        ("1_000 tokens", AxisTerm("tokens", Fraction(1000))),
        ("1e3 tokens", AxisTerm("tokens", Fraction(1000))),
        ("2.5e-1 epochs", AxisTerm("epoch", Fraction(1, 4))),
        ("5 val/step", AxisTerm("val/step", Fraction(5))),
        ("7 s3", AxisTerm("s3", Fraction(7))),
        ("30 s", TimeTerm(30 * SECOND)),
        ("30S", TimeTerm(30 * SECOND)),
        ("1e3s", TimeTerm(1000 * SECOND)),
        ("250 ms", TimeTerm(SECOND // 4)),
        ("0.1 sec", TimeTerm(SECOND // 10)),
        ("1/3 second", TimeTerm(333_333_333)),
        ("every minute", TimeTerm(60 * SECOND)),
        ("5 min", TimeTerm(300 * SECOND)),
        ("5m", TimeTerm(300 * SECOND)),
        ("2 hours", TimeTerm(7200 * SECOND)),
        ("1 day", TimeTerm(86400 * SECOND)),
        ("1h30m", TimeTerm(5400 * SECOND)),
        ("2m 30s", TimeTerm(150 * SECOND)),
        ("1 day 2h 0.5s", TimeTerm((93600 * SECOND) + SECOND // 2)),
        ("every update", UpdateTerm()),
        ("update", UpdateTerm()),
        ("pow2 steps", PowTerm("step", 2)),
        ("every POW10 tokens", PowTerm("tokens", 10)),
    ],
)
def test_a_term_is_read_with_its_exact_amount(text: str, term: Term) -> None:
    """Numbers, units and their spellings become one frozen term."""
    assert every(text).terms == (term,)


def test_terms_are_joined_with_or() -> None:
    """Whichever comes first: terms keep their order, and or is read in any case."""
    cadence = every("every 10 steps OR 1h or every update\n")
    assert cadence.terms == (
        AxisTerm("step", Fraction(10)),
        TimeTerm(3600 * SECOND),
        UpdateTerm(),
    )
    assert every("10 steps") | every("1h") | every("update") == cadence


def test_only_cadences_are_joined() -> None:
    """A text is parsed before it is joined."""
    with pytest.raises(TypeError, match="unsupported operand"):
        every("1 h") | "10 steps"  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1 STEP", "1 step"),
        ("2 batch", "2 batches"),
        ("0.10 epoch", "0.1 epochs"),
        ("2/6 epochs", "1/3 epochs"),
        ("1e3 tokens", "1000 tokens"),
        ("90 min", "1h30m"),
        ("7200 s", "2 h"),
        ("86401.5s", "1d1.5s"),
        ("1500 ms", "1.5 s"),
        ("0.25 s", "250 ms"),
        ("update or pow2 step", "every update or pow2 steps"),
    ],
)
def test_equal_cadences_have_one_text(text: str, canonical: str) -> None:
    """Str gives the canonical spelling."""
    assert str(every(text)) == canonical


@given(cadence=st.builds(Cadence, st.lists(terms, min_size=1, max_size=4).map(tuple)))
def test_the_text_of_a_cadence_parses_to_an_equal_one(cadence: Cadence) -> None:
    """A cadence survives being written and read, and hashes like its twin."""
    again = every(str(cadence))
    assert again == cadence
    assert hash(again) == hash(cadence)
    assert str(again) == str(cadence)


def test_a_cadence_is_returned_as_it_is_and_can_be_pickled() -> None:
    """What is parsed already passes through, and travels to another process."""
    cadence = every("0.1 epochs or 30 s or pow2 steps or every update")
    assert every(cadence) is cadence
    assert every("0.1 epochs or 30 s or pow2 steps or every update") is cadence
    assert pickle.loads(pickle.dumps(cadence)) == cadence  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "expected a number and a unit"),
        ("  \t", 4, "expected a number and a unit"),
        ("every", 6, "expected a number and a unit"),
        ("or 10 steps", 1, "expected a number and a unit"),
        ("10 steps or", 12, "expected a number and a unit"),
        ("10", 3, "expected a unit: steps, batches, epochs"),
        ("10 or 5 s", 4, "expected a unit: steps, batches, epochs"),
        ("1h30", 5, "expected a unit: ms, s, min, h or d"),
        ("1h 30", 6, "expected a unit: steps"),
        ("10 steps, 30 s", 9, "expected 'or' or the end"),
        ("10 steps 5", 10, "expected 'or' or the end"),
        ("10 tokens junk", 11, "expected 'or' or the end"),
        ("2m 30 tokens", 4, "expected 'or' before another term"),
        ("1h2h", 4, "expected a unit smaller than the one before"),
        ("1m 2h", 5, "expected a unit smaller than the one before"),
        ("0 steps", 1, "expected a finite number greater than 0"),
        ("1 h or 0.0 epochs", 8, "expected a finite number greater than 0"),
        ("-5 steps", 1, "expected a finite number greater than 0"),
        ("nan steps", 1, "expected a finite number greater than 0"),
        ("Infinity s", 1, "expected a finite number greater than 0"),
        ("5/0 epochs", 1, "expected a fraction with a denominator greater than 0"),
        ("1,000 steps", 2, "group digits with an underscore, as in 1_000"),
        ("1.5 steps", 1, "expected a whole number of steps"),
        ("1 s or 1/2 batches", 8, "expected a whole number of batches"),
        ("tokens", 1, "expected a number before 'tokens'"),
        ("3 updates", 3, "updates are not counted, write 'every update'"),
        ("pow2", 5, "expected step, batch, epoch or the name of a counter"),
        ("pow2 s", 6, "expected step, batch, epoch or the name of a counter"),
        ("pow1 steps", 1, "expected powers of 2 or more"),
        ("1e999999999 s", 1, "expected an exponent from -300 to 300"),
        ("1e-12 s", 1, "expected a duration from 1 ns to 292 years"),
        ("1e12 days", 1, "expected a duration from 1 ns to 292 years"),
        ("10 §", 4, "expected a unit"),
        ("1 s or " * 200, 1001, "expected at most 1000 characters"),
    ],
)
def test_a_wrong_text_is_refused_at_its_column(text: str, column: int, problem: str) -> None:
    """The error carries the text and the column, and says what was expected there."""
    with pytest.raises(CadenceError) as caught:
        every(text)
    assert (caught.value.text, caught.value.column) == (text, column)
    assert problem in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).column == column  # noqa: S301 - our own bytes


def test_an_error_points_at_the_place_and_gives_examples() -> None:
    """The message shows the text on one line, a caret under the column, and cadences that work."""
    with pytest.raises(ValueError, match="cannot read the cadence at column 10") as caught:
        every("10 steps\n, 30 s")
    assert str(caught.value).splitlines()[1:] == [
        "  10 steps , 30 s",
        "           ^",
        "Examples: '10 steps', '0.1 epochs', '1h30m or 1_000 tokens', 'every update', 'pow2 steps'",
    ]


@given(text=st.text(max_size=30))
@example("1 \u017f")
@example("1\u0661 steps")
@example("2m\u017f")
def test_any_text_is_either_read_or_refused(text: str) -> None:
    """Whatever the text, there is a cadence or a CadenceError within it, and no other outcome."""
    try:
        cadence = every(text)
    except CadenceError as caught:
        error = caught
    else:
        assert every(str(cadence)) == cadence
        return
    assert 1 <= error.column <= len(text) + 1
    assert "expected" in str(error)


@pytest.mark.parametrize("given_", [None, 10, b"10 steps", ["10 steps"]])
def test_what_is_no_text_is_a_type_error(given_: Any) -> None:
    """A number or None is told what is accepted."""
    with pytest.raises(TypeError, match="cadence must be a Cadence or a text such as '10 steps'"):
        every(given_)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: AxisTerm("step", Fraction(0)), ValueError, "n must be greater than 0, not 0"),
        (lambda: AxisTerm("step", Fraction(1, 2)), ValueError, "n must be a whole number of steps"),
        (lambda: AxisTerm("steps", Fraction(1)), ValueError, "axis must be 'step', not 'steps'"),
        (lambda: AxisTerm("or", Fraction(1)), ValueError, "axis must be step, batch, epoch or"),
        (lambda: AxisTerm("h30m", Fraction(1)), ValueError, "axis must be step, batch, epoch or"),
        (lambda: AxisTerm("a b", Fraction(1)), ValueError, "axis must be step, batch, epoch or"),
        (lambda: PowTerm(3), TypeError, "axis must be a string, not 3"),  # type: ignore[arg-type]
        (lambda: PowTerm("step", 1), ValueError, "base must be an integer from 2"),
        (lambda: TimeTerm(0), ValueError, "ns must be an integer from 1"),
        (lambda: Cadence(()), ValueError, "terms must hold one term or more"),
    ],
)
def test_a_term_that_no_text_can_say_is_refused(
    build: Any, error: type[Exception], message: str
) -> None:
    """Terms built by hand keep to what the grammar can express."""
    with pytest.raises(error, match=message):
        build()


@given(
    n=amounts,
    x=st.one_of(st.integers(-(10**6), 10**400), st.fractions(min_value=0, max_value=10**9)),
)
def test_the_index_of_an_exact_number_is_the_floor_of_its_quotient(n: Fraction, x: Any) -> None:
    """Integers and fractions are counted as Fraction arithmetic counts them."""
    term = AxisTerm("epoch", n)
    assert term.index(x) == math.floor(Fraction(x) / n)
    following = term.next_after(x)
    assert following > x
    assert following - n <= x
    assert following % n == 0
    assert type(following) in (int, Fraction)


@given(
    n=st.integers(1, 10_000),
    epoch=st.integers(0, 100),
    data=st.data(),
)
def test_the_index_of_a_float_epoch_is_exact(n: int, epoch: int, data: st.DataObject) -> None:
    """At 1/n, the float e + k/n is multiple e * n + k, however it was computed."""
    k = data.draw(st.integers(0, n - 1))
    term = AxisTerm("epoch", Fraction(1, n))
    multiple = epoch * n + k
    for x in (epoch + k / n, multiple / n, multiple * (1 / n)):
        assert term.index(x) == multiple
        assert term.next_after(x) == Fraction(multiple + 1, n)
    assert AxisTerm("epoch", Fraction(1)).index(epoch + k / n) == epoch


def test_the_index_follows_a_sum_of_a_million_steps() -> None:
    """The drift of adding 1/10,000 for 100 epochs loses no multiple and gains none."""
    tenth, whole, x = AxisTerm("epoch", Fraction(1, 1000)), AxisTerm("epoch", Fraction(1)), 0.0
    for step in range(1_000_000):
        if step % 10 in (0, 9):
            assert tenth.index(x) == step // 10
            assert whole.index(x) == step // 10_000
        x += 1 / 10_000


@given(x=st.floats(0, 1e300), n=st.integers(1, 10**6))
def test_a_float_is_never_off_by_more_than_the_error_granted(x: float, n: int) -> None:
    """A float counts as the multiple below it, or as the one that it all but reaches."""
    index = AxisTerm("tokens", Fraction(n)).index(x)
    assert index * n <= Fraction(x) + Fraction(max(1e-6, x * 1e-9))
    assert (index + 1) * n > Fraction(x)


def test_a_float_beyond_every_fraction_is_counted_exactly() -> None:
    """Where a float cannot hold the quotient, the index is still the floor of it."""
    for x, n in ((1e300, Fraction(1, 10**300)), (1e20, Fraction(1, 3)), (1e308, Fraction(1, 7))):
        assert AxisTerm("epoch", n).index(x) == Fraction(x) // n


@given(base=st.integers(2, 1000), x=st.integers(-5, 10**400))
def test_powers_are_counted_exactly(base: int, x: int) -> None:
    """The index is the number of powers at or below an integer, and next_after is the next one."""
    term = PowTerm("step", base)
    index = term.index(x)
    assert term.next_after(x) == base**index > x
    if index:
        assert base ** (index - 1) <= x


def test_powers_of_two_are_due_at_1_2_4_8() -> None:
    """Where the index rises, a power was reached; a float counts as its whole part."""
    term: Any = PowTerm("step")
    assert [x for x in range(1, 20) if term.index(x) > term.index(x - 1)] == [1, 2, 4, 8, 16]
    assert [term.index(x) for x in (0.5, 1.0, 3.99, 4.0, np.float32(4.5))] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("term", [AxisTerm("epoch", Fraction(1, 10)), PowTerm("step", 3)])
@pytest.mark.parametrize("count", ["index", "next_after"])
@pytest.mark.parametrize("x", [math.nan, math.inf, np.float64("nan")])
def test_a_place_that_is_not_finite_is_on_no_grid(term: Any, count: str, x: Any) -> None:
    """NaN and infinity are refused, not counted."""
    with pytest.raises(ValueError, match="x must be finite"):
        getattr(term, count)(x)


@pytest.mark.parametrize("x", ["3", None])
def test_a_place_that_is_no_number_is_on_no_grid(x: Any) -> None:
    """Only numbers have an index."""
    with pytest.raises(TypeError, match="x must be a number"):
        every("3 steps").terms[0].index(x)  # type: ignore[union-attr]


@pytest.mark.parametrize("x", [np.int64(30), np.float32(30), np.float64(30.0)])
def test_scalars_of_numpy_have_an_index(x: Any) -> None:
    """A scalar of numpy counts as the number that it holds, and the index is a plain int."""
    index = AxisTerm("step", Fraction(10)).index(x)
    assert (index, type(index)) == (3, int)
