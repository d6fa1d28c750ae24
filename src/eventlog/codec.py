"""Events to bytes and back: one msgpack array of tagged maps for each block.

`seq` and `wall` are not in the bytes: a block's header has the first of each, and a reader fills
them in. Whatever a reader does not know comes back as `UnknownEvent` and is written again as it
was.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Union, cast

import msgspec

from eventlog._weight import check_weight
from eventlog.events import Event, UnknownEvent, event_tag
from eventlog.exceptions import CodecError, EventTypeError

__all__ = [
    "decode_events",
    "encode_events",
    "encode_foreign",
    "event_types",
    "json_schema",
    "restamp",
    "set_rank",
    "stamp",
]

logger = logging.getLogger("eventlog")

_encoder = msgspec.msgpack.Encoder()
_raw_list_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_set = msgspec.structs.force_setattr


class _Peek(msgspec.Struct):
    type: str = ""


class _Axes(msgspec.Struct):
    mono: int = 0
    step: int | None = None
    batch: int | None = None
    epoch: int | float | None = None
    values: dict[str, float | int | bool | str] = {}
    axis: str = "step"
    rank: int = 0
    attempt: int = 1


_peek_decoder = msgspec.msgpack.Decoder(_Peek)
_axes_decoder = msgspec.msgpack.Decoder(_Axes)
_fields_decoder = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_axis_decoders = {f.name: msgspec.msgpack.Decoder(f.type) for f in msgspec.structs.fields(_Axes)}


def _subclasses(kind: type[Event]) -> Iterable[type[Event]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


def event_types() -> dict[str, type[Event]]:
    """Return all event types that are defined by now, by tag.

    A class that is defined again (a notebook's cell run twice) replaces its former self.

    Raises:
        EventTypeError: Two different types claim one tag.
    """
    types, clashes = _claims()
    for tag, (one, other) in clashes.items():
        raise EventTypeError(_clash(tag, one, other))
    return types


def _claims() -> tuple[dict[str, type[Event]], dict[str, tuple[type[Event], type[Event]]]]:
    """Return the types by tag, and the tags that two types claim with both of them."""
    types: dict[str, type[Event]] = {}
    clashes: dict[str, tuple[type[Event], type[Event]]] = {}
    for kind in _subclasses(Event):
        if kind is UnknownEvent:
            continue
        tag = event_tag(kind)
        other = types.get(tag)
        if other is not None and (other.__module__, other.__qualname__) != (
            kind.__module__,
            kind.__qualname__,
        ):
            clashes[tag] = (other, kind)
            continue
        types[tag] = kind
    return types, clashes


def _clash(tag: str, one: type[Event], other: type[Event]) -> str:
    return (
        f"event types {one.__module__}.{one.__qualname__} and "
        f"{other.__module__}.{other.__qualname__} both have the tag {tag!r}; "
        "give one of them another tag"
    )


def _readable_types() -> dict[str, type[Event]]:
    """Return the types that events are read as: a clash costs its two types, not the log."""
    types, clashes = _claims()
    for tag, (one, other) in clashes.items():
        ours = one.__module__ == Event.__module__
        text = _clash(tag, one, other)
        logger.warning("eventlog: %s; %s", text, "the other is not read" if ours else "until then"
                       " their events are read as UnknownEvent")  # fmt: skip
        if not ours:
            del types[tag]
    return types


class _Registry:
    """The decoder for all event types; rebuilt when a type has been added."""

    def __init__(self) -> None:
        self._kinds: list[type[Event]] = []
        self.types: dict[str, type[Event]] = {}
        self.many: msgspec.msgpack.Decoder[list[Event]]
        self.one: msgspec.msgpack.Decoder[Event]

    def current(self) -> _Registry:
        # types that are known here never vanish, so their number tells of new ones
        known: tuple[type[Event], ...] = (Event, *self._kinds)
        if sum([len(kind.__subclasses__()) for kind in known]) == len(self._kinds) > 0:
            return self
        kinds = list(_subclasses(Event))
        if kinds != self._kinds:
            self.types = _readable_types()
            usable = tuple(kind for kind in self.types.values() if _decodable(kind))
            union: Any = Union[usable]  # noqa: UP007 - built at run time
            self.many = msgspec.msgpack.Decoder(list[union])
            self.one = msgspec.msgpack.Decoder(union)
            self._kinds = kinds
        return self


def _decodable(kind: type[Event]) -> bool:
    try:
        msgspec.msgpack.Decoder(kind)
    except Exception as error:  # a field of a type that msgspec cannot decode
        logger.warning(
            "eventlog: events of type %s can be read as UnknownEvent only: %s",
            kind.__qualname__,
            error,
        )
        return False
    return True


_registry = _Registry()


def encode_events(events: Sequence[Event]) -> bytes:
    """Encode events, without their seq and wall time where these are not set yet.

    Raises:
        Exception: What msgspec raises for a value that msgpack cannot hold.
    """
    return _encoder.encode(events)


def encode_foreign(events: Sequence[Event]) -> bytes:
    """Encode events that may come from another log: unknown ones go out as they came in.

    Raises:
        Exception: What msgspec raises for a value that msgpack cannot hold, and for an unknown
            event that is no encoding of one.
    """
    return _encoder.encode([_raw(e) if type(e) is UnknownEvent else restamp(e) for e in events])


def _raw(event: UnknownEvent) -> msgspec.Raw:
    _peek_decoder.decode(event.raw)
    return msgspec.Raw(event.raw)


def restamp(event: Event) -> Event:
    """Return the event as it was before it was written: without a place in a log."""
    if event.seq == -1 and event.wall == 0:
        return event
    return msgspec.structs.replace(event, seq=-1, wall=0)


def stamp(events: Sequence[Event], first_seq: int, offset: int) -> list[int]:
    """Give events their place in the log: seq from `first_seq`, wall time = mono + `offset`.

    Returns:
        Their wall times.
    """
    walls = [e.mono + offset for e in events]
    # maps that run in C: a Python loop would cost three times as much
    deque(map(_set, events, repeat("seq"), range(first_seq, first_seq + len(events))), maxlen=0)
    deque(map(_set, events, repeat("wall"), walls), maxlen=0)
    return walls


def set_rank(events: Sequence[Event], rank: int) -> None:
    """Say of events whose they are."""
    deque(map(_set, events, repeat("rank"), repeat(rank)), maxlen=0)


def decode_events(payload: bytes | memoryview) -> list[Event]:
    """Decode what `encode_events` made, by this or another version of eventlog.

    Raises:
        CodecError: The payload is no array of maps with a type, or would take more memory than
            a block may.
    """
    check_weight(payload)
    registry = _registry.current()
    # any exception: a type of the user's own may raise what it likes where it is made
    try:
        return registry.many.decode(payload)
    except Exception:
        return _decode_singly(registry, payload)


def _decode_singly(registry: _Registry, payload: bytes | memoryview) -> list[Event]:
    try:
        raws = _raw_list_decoder.decode(payload)
        return [_decode_one(registry, bytes(raw)) for raw in raws]
    except Exception as error:
        raise CodecError(f"not a list of events: {error}") from None


def _decode_one(registry: _Registry, raw: bytes) -> Event:
    with contextlib.suppress(Exception):
        return registry.one.decode(raw)
    # a type of another version or another package: its axes still serve cadence and order
    tag = _peek_decoder.decode(raw).type
    axes = _read_axes(raw)
    return UnknownEvent(
        axes.mono,
        axes.step,
        axes.batch,
        axes.epoch,
        cast(Any, axes.values),
        axes.attempt,
        axes.axis,
        axes.rank,
        type_name=tag,
        raw=raw,
    )


def _read_axes(raw: bytes) -> _Axes:
    """Read what can be read of an unknown event's axes, each by itself where need be."""
    try:
        return _axes_decoder.decode(raw)
    except Exception:
        fields = _fields_decoder.decode(raw)
    axes: dict[str, Any] = {}
    for name, decoder in _axis_decoders.items():
        with contextlib.suppress(Exception):
            axes[name] = decoder.decode(fields[name])
    return _Axes(**axes)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of all event types: what a log's SCHEMA block holds.

    Types with fields that JSON Schema cannot describe are described by what all events have.
    """
    types = tuple(kind if _describable(kind) else Event for kind in _readable_types().values())
    schemas, components = msgspec.json.schema_components(
        tuple(dict.fromkeys(types)), ref_template="#/$defs/{name}"
    )
    return {"anyOf": list(schemas), "$defs": components}


def _describable(kind: type[Event]) -> bool:
    try:
        msgspec.json.schema(kind)
    except Exception:
        return False
    return True
