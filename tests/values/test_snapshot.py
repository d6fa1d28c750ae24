"""What users log becomes plain, at once, or is named; and nothing raises."""

import collections
import datetime
import decimal
import enum
import fractions
import math
import pathlib
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from eventlog._values import clean_event, is_step, plain_in_place, snapshot
from eventlog.events import RunStarted, StepEvent


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Mode(str, enum.Enum):  # noqa: UP042 - as people wrote them before StrEnum
    TRAIN = "train"


class Evil:
    """Raises wherever it is touched."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"do not touch {name}")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Broken(Mapping[str, float]):
    """A mapping whose items cannot be had."""

    def __getitem__(self, key: str) -> float:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("dictionary changed size during iteration")

    def __len__(self) -> int:
        return 1


def one(value: Any) -> Any:
    """Return what becomes of a single value, which must be recorded."""
    made = snapshot({"v": value})
    assert not made.rejected
    assert not made.pending
    return made.values["v"]


def reason(value: Any) -> str:
    """Return why a single value is rejected, which it must be."""
    made = snapshot({"v": value})
    assert made.values == {}
    ((key, why, advice),) = made.rejected
    assert key == "v"
    assert advice
    return why


FLOATS = [np.float16, np.float32, np.float64, np.longdouble]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("kind", FLOATS)
def test_numpy_floats_are_floats(kind: Any) -> None:
    """Scalars, 0-d arrays and arrays of one element; NaN and infinities as well."""
    for value in (1.5, math.inf, -math.inf):
        for made in (kind(value), np.array(value, kind), np.array([value], kind)):
            assert one(made) == value
            assert type(one(made)) is float
    assert math.isnan(one(kind("nan")))


@pytest.mark.parametrize("kind", INTEGERS)
def test_numpy_integers_are_integers(kind: Any) -> None:
    """They stay exact up to their largest value."""
    largest = int(np.iinfo(kind).max)
    for made in (kind(largest), np.array(largest, kind), np.array([[largest]], kind)):
        assert one(made) == largest
        assert type(one(made)) is int


def test_other_numpy_scalars() -> None:
    """Booleans and texts are taken; what is no number is named."""
    assert one(np.bool_(True)) is True
    assert one(np.str_("x")) == "x"
    assert type(one(np.str_("x"))) is str
    assert reason(np.complex64(1j)) == "complex"
    assert reason(np.datetime64("2024-01-01")) == "type"
    assert reason(np.bytes_(b"x")) == "bytes"
    assert reason(np.array({"a": 1}, dtype=object)) == "type"
    assert one(np.array(3, dtype=object)) == 3
    assert reason(np.zeros((2, 2))) == "shape"
    assert reason(np.zeros(0)) == "shape"


def test_masked_numbers_are_none() -> None:
    """What lies below the mask is no value."""
    assert reason(np.ma.masked) == "none"
    assert reason(np.ma.array([1.0], mask=[True])) == "none"
    assert one(np.ma.array([1.0], mask=[False])) == 1.0
    assert one(np.ma.array([1.0])) == 1.0
    assert not plain_in_place({"x": np.ma.masked})


TORCH = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("kind", TORCH, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_torch_floats_of_any_width(kind: Any, shape: tuple[int, ...]) -> None:
    """bf16 and fp8 are widened; one element is one value in whatever shape."""
    assert one(torch.full(shape, 1.5).to(kind)) == 1.5


def test_other_torch_tensors() -> None:
    """Grad is let go of, integers stay integers; empty, meta and large ones are named."""
    grad = torch.tensor(2.0, requires_grad=True)
    assert one(grad * 2) == 4.0
    assert one(torch.tensor(2**62)) == 2**62
    assert one(torch.tensor(True)) is True
    assert one(torch.nn.Parameter(torch.ones(1))) == 1.0
    assert reason(torch.empty(0)) == "shape"
    assert reason(torch.empty(3)) == "shape"
    assert reason(torch.empty((), device="meta")) == "meta"
    assert reason(torch.tensor(1j)) == "complex"
    assert math.isnan(one(torch.tensor(float("nan"), dtype=torch.bfloat16)))


class OnDevice:
    """Looks like a tensor on an accelerator."""

    dtype = "float32"
    shape = ()
    device = types.SimpleNamespace(type="cuda")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def detach(self) -> "OnDevice":
        self.calls.append("detach")
        return self

    def reshape(self, shape: tuple[int, ...]) -> "OnDevice":
        self.calls.append("reshape")
        return self

    def item(self) -> float:
        raise AssertionError("a value on a device was waited for")


def test_device_values_are_copied_and_not_waited_for() -> None:
    """What lies on a device is set aside, without a graph, to be copied with the rest."""
    value = OnDevice()
    made = snapshot({"loss": value, "n": 1})
    assert made.values == {"n": 1}
    assert made.pending == {"loss": value}
    assert value.calls == ["detach", "reshape"]


def test_plain_values_are_taken_as_they_are() -> None:
    """Floats, integers, booleans and texts, NaN and infinity among them."""
    values = {"a": 1.5, "b": 2**70, "c": False, "d": "text", "e": math.inf, "": 0}
    assert snapshot(values).values == values
    assert math.isnan(one(math.nan))


def test_numbers_of_other_types() -> None:
    """Every plausible scalar is accepted."""
    assert one(decimal.Decimal("0.5")) == 0.5
    assert one(fractions.Fraction(1, 4)) == 0.25
    assert one(Level.HIGH) == 3
    assert type(one(Level.HIGH)) is int
    assert one(Mode.TRAIN) == "train"
    assert type(one(Mode.TRAIN)) is str
    assert one(lambda: 2.5) == 2.5
    assert one(lambda: torch.tensor(3)) == 3


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "none"),
        (1j, "complex"),
        (b"x", "bytes"),
        (bytearray(b"x"), "bytes"),
        ([1], "sequence"),
        ((1, 2), "sequence"),
        ({1}, "sequence"),
        (range(3), "sequence"),
        (Colour.RED, "type"),
        (pathlib.Path("x"), "type"),
        (datetime.datetime(2024, 1, 1), "type"),
        (object(), "type"),
        (Broken(), "mapping"),
        (lambda: 1 / 0, "callable"),
        (lambda: lambda: 1, "callable"),
        (torch.nn.Linear(1, 1), "callable"),
        (decimal.Decimal("sNaN"), "unreadable"),
    ],
)
def test_what_is_no_scalar_is_named(value: Any, why: str) -> None:
    """Each kind of thing has its reason and its advice."""
    assert reason(value) == why


def test_an_object_that_raises_wherever_it_is_touched() -> None:
    """Even looking at the class of a value may raise."""
    assert reason(Evil()) == "unreadable"
    assert is_step(Evil()) is None
    assert snapshot({"a": {"b": Evil()}, "c": 1}).values == {"c": 1}


def test_nested_names_are_joined() -> None:
    """Mappings are flattened; any key has a name."""
    given = {
        "fit": {"loss": 1, "acc": {"top1": 2}},
        ("a", 1): 3,
        None: 4,
        5: 5,
        Evil(): 6,
        Mode.TRAIN: 7,
    }
    assert snapshot(given).values == {
        "fit/loss": 1,
        "fit/acc/top1": 2,
        "('a', 1)": 3,
        "None": 4,
        "5": 5,
        "Evil": 6,
        "train": 7,
    }


def test_a_mapping_that_holds_itself_ends() -> None:
    """A cycle is named, what is beside it is recorded."""
    given: dict[str, Any] = {"a": 1}
    given["self"] = given
    given["b"] = {"c": 2, "up": given}
    made = snapshot(given)
    assert made.values == {"a": 1, "b/c": 2}
    assert [(key, why) for key, why, _ in made.rejected] == [("self", "cycle"), ("b/up", "cycle")]


def test_a_mapping_in_two_places_is_no_cycle() -> None:
    """Only a mapping inside itself is left out."""
    shared = {"x": 1}
    assert snapshot({"a": shared, "b": shared}).values == {"a/x": 1, "b/x": 1}


def test_two_thousand_levels_end() -> None:
    """Depth is bounded without a RecursionError."""
    given: dict[str, Any] = {"leaf": 1}
    for _ in range(2_000):
        given = {"k": given}
    made = snapshot({"a": 1, "deep": given})
    assert made.values == {"a": 1}
    assert [why for _, why, _ in made.rejected] == ["depth"]


def test_later_changes_do_not_reach_what_was_emitted() -> None:
    """A snapshot shares nothing with what was passed."""
    array = np.zeros(1)
    given = {"a": 1, "nested": {"b": array}}
    made = snapshot(given)
    given["a"] = 2
    array[0] = 5
    assert made.values == {"a": 1, "nested/b": 0.0}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_a_mapping_that_another_thread_changes(kind: Any) -> None:
    """A change in the middle may cost the mapping, never an exception."""
    given = kind()
    stop = threading.Event()

    def change() -> None:
        n = 0
        while not stop.is_set():
            given[f"k{n % 100}"] = n
            given.pop(f"k{(n * 7) % 100}", None)
            n += 1

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(300):
        made = snapshot(given)
        assert all(type(v) is int for v in made.values.values())
        assert {why for _, why, _ in made.rejected} <= {"mapping"}
    stop.set()
    thread.join()


@pytest.mark.parametrize(
    ("given", "step"),
    [
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (3.0, 3),
        (np.int64(4), 4),
        (np.uint8(5), 5),
        (np.float32(6), 6),
        (np.array(7), 7),
        (torch.tensor(8), 8),
        (torch.tensor([9.0]), 9),
        (Level.HIGH, 3),
        (2**63, None),
        (2**64, None),
        (-1, None),
        (1.5, None),
        (1e300, None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
        (None, None),
        ("3", None),
        (np.bool_(True), None),
        (np.float64(1.5), None),
        (np.zeros(2), None),
        (torch.empty((), device="meta"), None),
        (OnDevice(), None),
        ({}, None),
    ],
)
def test_steps(given: Any, step: int | None) -> None:
    """Integers of any library and integral floats are steps; nothing else is, and none waits."""
    found = is_step(given)
    assert found == step
    assert found is None or type(found) is int


def test_cleaning_changes_as_little_as_may_be() -> None:
    """What msgpack holds stays as it is, also within containers."""
    event = RunStarted(run_id="r", config={"a": [1, {"b": 2**64}], "c": "\ud800", "d": (1,)})
    cleaned = clean_event(event)
    assert isinstance(cleaned, RunStarted)
    assert cleaned.config == {"a": [1, {"b": 2.0**64}], "c": "?", "d": [1]}
    deep: Any = []
    for _ in range(2_000):
        deep = [deep]
    assert clean_event(RunStarted(run_id="r", config={"deep": deep})) is not None
    assert clean_event(StepEvent(step=2**70, epoch=0.5)) == StepEvent(epoch=0.5)


@pytest.mark.parametrize(
    "value",
    [1, 1.5, True, "x", np.float32(0.5), np.array([2]), torch.tensor(3), torch.ones(1).bfloat16()],
)
def test_the_short_way_finds_what_the_long_one_does(value: Any) -> None:
    """Common scalars are made plain in place, exactly as a snapshot would."""
    scalars = {"v": value}
    assert plain_in_place(scalars)
    found, expected = scalars["v"], snapshot({"v": value}).values["v"]
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    "value",
    [None, [1], {"a": 1}, np.zeros(2), np.longdouble(1), np.complex64(1), torch.zeros(2), 1j,
     torch.empty((), device="meta"), torch.tensor(1j), lambda: 1, "x" * 10_000],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_the_short_way_leaves_the_rest_to_the_long_one(value: Any) -> None:
    """What is not common is looked at by the snapshot, and nothing raises."""
    assert not plain_in_place({"a": 1, "v": value})


def test_a_tensor_that_cannot_be_read_does_not_raise() -> None:
    """Inside torch.vmap a tensor has no value: the snapshot names it."""
    found: list[Any] = []

    def function(x: Any) -> Any:
        found.append(plain_in_place({"v": x}))
        found.extend(why for _, why, _ in snapshot({"v": x}).rejected)
        return x

    torch.vmap(function)(torch.zeros(2))
    assert found == [False, "unreadable"]
