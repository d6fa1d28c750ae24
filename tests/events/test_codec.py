"""Events to bytes and back: exact, forgiving towards other versions, and never surprised."""

import gc
import math
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog import codec
from eventlog.codec import (
    decode_events,
    encode_events,
    encode_foreign,
    event_types,
    json_schema,
    restamp,
    stamp,
)
from eventlog.events import (
    ArtifactEvent,
    BatchEvent,
    BlobRef,
    ConfigUpdated,
    EpochEvent,
    Event,
    FigureEvent,
    Flushed,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    SummaryUpdated,
    TableEvent,
    TextEvent,
    UnknownEvent,
    Window,
)
from eventlog.exceptions import CodecError, EventTypeError

texts = st.one_of(st.text(max_size=20), st.sampled_from(["", "😀🏳️‍🌈", "a/b", "\x00", "ELB1"]))
integers = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.sampled_from([0, -1, 2**53 + 1, 2**63, 2**64 - 1])
)
# every pattern of bits: NaNs with a payload, infinities, denormals, negative zero
floats = st.integers(0, 2**64 - 1).map(lambda n: struct.unpack("<d", struct.pack("<Q", n))[0])
scalars = st.one_of(floats, integers, st.booleans(), texts, st.sampled_from([math.nan, -math.inf]))
counts = st.one_of(st.none(), st.integers(0, 2**63 - 1))
plain = st.recursive(
    st.one_of(st.none(), scalars),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
configs = st.dictionaries(texts, plain, max_size=4)
blobs = st.builds(BlobRef, sha256=texts, size=st.integers(0, 2**40), mime=texts)
windows = st.builds(
    Window, first=counts, last=counts, n=st.integers(1, 10**9), nans=st.integers(0, 10**9)
)
axes = {
    "mono": st.integers(0, 2**62),
    "step": counts,
    "batch": counts,
    "epoch": st.one_of(counts, st.floats(0, 1e6)),
    "values": st.dictionaries(texts, scalars, max_size=4),
    "axis": texts,
    "rank": st.integers(0, 10_000),
    "attempt": st.integers(1, 10_000),
    "window": st.one_of(st.none(), windows),
}
tags = {"tag": texts}
fields: dict[type[Event], dict[str, Any]] = {
    StepEvent: {},
    BatchEvent: {},
    EpochEvent: {},
    Flushed: {},
    ModelUpdateEvent: {"kind": texts, "summary": configs},
    RunStarted: {
        "run_id": texts,
        "project": texts,
        "name": texts,
        "config": configs,
        "tags": st.lists(texts, max_size=3),
        "group": st.one_of(st.none(), texts),
        "notes": st.one_of(st.none(), texts),
        "provenance": configs,
        "world_size": st.integers(1, 10_000),
    },
    ConfigUpdated: {"config": configs},
    SummaryUpdated: {"summary": configs},
    Rewound: {"to_step": st.integers(0, 2**63 - 1)},
    RunFinished: {
        "status": st.sampled_from(["finished", "failed", "interrupted", "killed"]),
        "error": st.one_of(st.none(), texts),
        "summary": configs,
    },
    ImageEvent: {
        **tags,
        "blobs": st.lists(blobs, max_size=3),
        "width": st.integers(0, 9999),
        "height": st.integers(0, 9999),
        "caption": st.one_of(st.none(), texts),
    },
    FigureEvent: {**tags, "blob": blobs},
    HistogramEvent: {
        **tags,
        "edges": st.lists(floats, max_size=5),
        "counts": st.lists(st.integers(0, 2**63 - 1), max_size=4),
        "min": floats,
        "sum_squares": floats,
    },
    TextEvent: {**tags, "text": texts},
    TableEvent: {
        **tags,
        "columns": st.lists(texts, max_size=3),
        "rows": st.lists(st.lists(st.one_of(st.none(), scalars), max_size=3), max_size=3),
    },
    ArtifactEvent: {
        "name": texts,
        "kind": texts,
        "path": texts,
        "blob": st.one_of(st.none(), blobs),
        "size": st.integers(0, 2**60),
        "metadata": configs,
    },
}
events = st.one_of([st.builds(kind, **axes, **extra) for kind, extra in fields.items()])


def bits(value: Any) -> Any:
    """Make what has NaNs comparable, bit by bit and type by type."""
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return (type(value), {name: bits(getattr(value, name)) for name in names})
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, list):
        return [bits(item) for item in value]
    return (type(value), struct.pack("<d", value) if type(value) is float else value)


@pytest.fixture
def forget_types() -> Iterator[None]:
    """Let event types that a test defines go with it."""
    yield
    codec._registry = codec._Registry()
    gc.collect()


def test_the_strategies_cover_every_type_of_the_package() -> None:
    """A type that is added to eventlog.events without a round trip here is noticed."""
    own = {kind for kind in event_types().values() if kind.__module__ == "eventlog.events"}
    assert own == set(fields)


@settings(max_examples=300, deadline=None)
@given(st.lists(events, max_size=6))
def test_what_is_decoded_is_what_was_encoded(several: list[Event]) -> None:
    """Events of every type survive with types, NaN bits and field order."""
    assert bits(decode_events(encode_events(several))) == bits(several)


@settings(max_examples=100, deadline=None)
@given(events, st.integers(0, 2**40), st.integers(-(2**60), 2**60))
def test_a_place_in_a_log_is_not_encoded(event: Event, seq: int, offset: int) -> None:
    """Stamping gives seq and wall time, and an event that is written again loses both."""
    before = encode_events([event])
    assert stamp([event], seq, offset) == [event.mono + offset]
    assert (event.seq, event.wall) == (seq, event.mono + offset)
    assert event.wall_time == event.wall / 1e9
    assert encode_foreign([event]) == before
    assert bits(restamp(event)) == bits(decode_events(before)[0])


def packed(**content: Any) -> bytes:
    return msgspec.msgpack.encode(content)


def in_list(*raws: bytes) -> bytes:
    return msgspec.msgpack.encode([msgspec.Raw(raw) for raw in raws])


def test_an_unknown_type_survives_byte_for_byte() -> None:
    """Events of another version come back as UnknownEvent, with their axes, and go out as is."""
    raw = packed(
        type="from_the_future", mono=7, step=3, epoch=0.5, values={"loss": math.nan},
        axis="val", rank=2, attempt=4, extra={"deep": [1, None, b"\xff"]},
    )  # fmt: skip
    known = packed(type="step", mono=8, step=4)
    payload = in_list(raw, known, raw)
    first, second, third = decode_events(payload)
    assert isinstance(first, UnknownEvent)
    assert (first.type_name, first.raw) == ("from_the_future", raw)
    assert (first.mono, first.step, first.batch, first.epoch) == (7, 3, None, 0.5)
    assert (first.axis, first.rank, first.attempt) == ("val", 2, 4)
    assert math.isnan(first.values["loss"])  # type: ignore[arg-type]
    assert second == StepEvent(mono=8, step=4)
    assert bits(third) == bits(first)
    stamp([first, second, third], 10, 10**18)
    assert encode_foreign([first, second, third]) == payload


def test_axes_of_an_unknown_type_are_read_one_by_one() -> None:
    """One axis that has become something else costs neither the time nor the others."""
    raw = packed(type="newer", mono=12, step="three", batch=5, values=[1, 2])
    (event,) = decode_events(in_list(raw))
    assert isinstance(event, UnknownEvent)
    assert (event.mono, event.step, event.batch, event.values) == (12, None, 5, {})


def test_a_known_type_with_a_wrong_field_is_kept_as_unknown() -> None:
    """An event that does not fit its type costs only its type, not its block."""
    wrong = packed(type="step", mono=1, step="none of them")
    events = decode_events(in_list(packed(type="step", mono=0), wrong))
    assert [type(e) for e in events] == [StepEvent, UnknownEvent]
    assert encode_foreign(events)[-len(wrong) :] == wrong


def test_fields_of_a_newer_writer_are_skipped() -> None:
    """A known type reads as itself although its map has keys that this version lacks."""
    raw = packed(type="text", mono=5, tag="t", text="hello", language="en", spans=[[0, 5]])
    assert decode_events(in_list(raw)) == [TextEvent(mono=5, tag="t", text="hello")]


def test_an_unknown_event_that_is_no_encoding_is_refused() -> None:
    """Raw bytes that somebody made up cannot spoil a block."""
    for raw in (b"", b"\xc1", b"\x01", packed(type=5), b"\x81\xa4type"):
        with pytest.raises(msgspec.MsgspecError):
            encode_foreign([UnknownEvent(type_name="x", raw=raw)])


@pytest.mark.usefixtures("forget_types")
def test_a_type_of_the_user_s_own_is_decoded_as_itself() -> None:
    """A subclass is known from the moment it is defined, whatever was decoded before."""
    payload = in_list(packed(type="test_checkpointed", mono=3, path="/a"))
    assert type(decode_events(payload)[0]) is UnknownEvent

    class Checkpointed(Event, tag="test_checkpointed", frozen=True, kw_only=True):
        path: str

    assert decode_events(payload) == [Checkpointed(mono=3, path="/a")]
    assert decode_events(encode_events([Checkpointed(step=2, path="b")]))[0].step == 2


@pytest.mark.usefixtures("forget_types")
def test_a_type_that_is_defined_again_replaces_its_former_self() -> None:
    """Running a notebook's cell twice is no clash of tags."""

    def define() -> type[Event]:
        class Cell(Event, tag="test_cell", frozen=True):
            pass

        return Cell

    first, second = define(), define()
    assert first is not second
    assert event_types()["test_cell"] is second


@pytest.mark.usefixtures("forget_types")
def test_two_types_with_one_tag_are_named() -> None:
    """A clash of tags is an error that names both classes; it costs their events, not the log."""

    class Mine(Event, tag="test_clash", frozen=True):
        pass

    class Yours(Event, tag="test_clash", frozen=True):
        pass

    with pytest.raises(EventTypeError, match=r"(?s)Mine.*Yours.*'test_clash'"):
        event_types()
    payload = in_list(packed(type="test_clash", step=1), packed(type="step", step=2))
    assert [type(e) for e in decode_events(payload)] == [UnknownEvent, StepEvent]


@pytest.mark.usefixtures("forget_types")
def test_a_type_that_cannot_be_decoded_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """A field that msgspec cannot read makes its events unknown, and nobody else's."""

    class Odd(Event, tag="test_odd", frozen=True, kw_only=True):
        field: int | complex = 0

    payload = in_list(packed(type="test_odd", step=1), packed(type="step", step=2))
    assert [type(e) for e in decode_events(payload)] == [UnknownEvent, StepEvent]
    assert "Odd" in caplog.text
    msgspec.json.encode(json_schema())
    del Odd


@pytest.mark.usefixtures("forget_types")
def test_a_type_that_raises_when_it_is_made_costs_only_itself() -> None:
    """An exception of a user's __post_init__ never leaves the codec."""

    class Picky(Event, tag="test_picky", frozen=True):
        def __post_init__(self) -> None:
            if self.step == 13:
                raise RuntimeError("not today")

    payload = in_list(packed(type="test_picky", step=13), packed(type="test_picky", step=14))
    assert [type(e) for e in decode_events(payload)] == [UnknownEvent, Picky]


_SUMMARY = b"\x91\x82\xa4type\xacmodel_update\xa7summary"
_UNKNOWN = b"\x91\x82\xa4type\xa3zzz\xa1a"
BOMBS = {
    "empty": b"",
    "not a list": b"\x05",
    "a map": b"\x80",
    "two documents": b"\x90\x90",
    "an array longer than memory": b"\xdd\xff\xff\xff\xff",
    "a map longer than memory": b"\x91\xdf\xff\xff\xff\xff",
    "a text longer than the payload": b"\x91\x82\xa4type\xa4step\xa4axis\xdb\xff\xff\xff\xff",
    "bytes longer than the payload": _UNKNOWN + b"\xc6\xff\xff\xff\xff",
    "nested without an end": b"\x91" * 100_000,
    "nested maps": _SUMMARY + b"\x81\xa1a" * 99_999 + b"\x01",
    "an unknown type with nested fields": _UNKNOWN + b"\x91" * 9_999,
    "numbers as events": b"\x92\x01\x02",
    "a type that is a number": b"\x91\x81\xa4type\x05",
    "keys that are numbers": b"\x91\x81\x01\x02",
    "text that is no UTF-8": b"\x91\x82\xa4type\xa4step\xa4axis\xa2\xff\xfe",
    "a type that is no UTF-8": b"\x91\x81\xa4type\xa2\xff\xfe",
    "the byte that is never used": b"\x91\xc1",
    "a timestamp out of range": _SUMMARY + b"\x81\xa1a\xc7\x0c\xff" + b"\xff" * 12,
    "a key that cannot be hashed": _SUMMARY + b"\x81\xa1a\x81\x81\x01\x01\x01",
}


@pytest.mark.parametrize("payload", BOMBS.values(), ids=BOMBS.keys())
def test_a_bad_payload_ends_in_a_codec_error_or_in_unknown_events(payload: bytes) -> None:
    """Whatever the bytes, decoding returns events or raises CodecError."""
    try:
        events = decode_events(payload)
    except CodecError:
        return
    assert all(type(e) is UnknownEvent for e in events)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=64), st.data())
def test_random_bytes_never_raise_anything_else(noise: bytes, data: st.DataObject) -> None:
    """Noise, alone or in the middle of a good payload, is refused in one way."""
    good = encode_events([StepEvent(mono=1, step=2, values={"a": 1.5, "b": "c"})] * 3)
    at = data.draw(st.integers(0, len(good)))
    for payload in (noise, good[:at] + noise + good[at + len(noise) :], good[:at]):
        try:
            decode_events(payload)
        except CodecError:
            continue


def test_the_json_schema_describes_every_type() -> None:
    """The schema of a log names each tag as a constant, and is plain JSON."""
    schema = json_schema()
    definitions = schema["$defs"]
    names = [ref["$ref"].rpartition("/")[2] for ref in schema["anyOf"]]
    found = {
        value for name in names for value in definitions[name]["properties"]["type"].get("enum", [])
    }
    assert {"step", "batch", "epoch", "run_started", "image"} <= found
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema
