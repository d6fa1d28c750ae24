"""Events to bytes and back: one msgpack array of tagged maps for each block.

`seq` and `wall` are not in the bytes: a block's header has the first of each, and a reader fills
them in. Whatever a reader does not know comes back as `UnknownEvent` and is written again as it
was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Union, cast

import msgspec

from eventlog.events import Event, UnknownEvent, event_tag
from eventlog.exceptions import CodecError, EventTypeError

__all__ = ["decode_events", "encode_events", "event_types", "json_schema", "restamp", "stamp"]

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
    types: dict[str, type[Event]] = {}
    for kind in _subclasses(Event):
        if kind is UnknownEvent:
            continue
        tag = event_tag(kind)
        other = types.get(tag)
        if other is not None and (other.__module__, other.__qualname__) != (
            kind.__module__,
            kind.__qualname__,
        ):
            raise EventTypeError(
                f"event types {other.__module__}.{other.__qualname__} and "
                f"{kind.__module__}.{kind.__qualname__} both have the tag {tag!r}; "
                "give one of them another tag"
            )
        types[tag] = kind
    return types


class _Registry:
    """The decoder for all event types; rebuilt when a type has been added."""

    def __init__(self) -> None:
        self._kinds: list[type[Event]] = []
        self.types: dict[str, type[Event]] = {}
        self.many: msgspec.msgpack.Decoder[list[Event]]
        self.one: msgspec.msgpack.Decoder[Event]

    def current(self) -> _Registry:
        kinds = list(_subclasses(Event))
        if kinds != self._kinds:
            self.types = event_types()
            union: Any = Union[tuple(self.types.values())]  # noqa: UP007 - built at run time
            self.many = msgspec.msgpack.Decoder(list[union])
            self.one = msgspec.msgpack.Decoder(union)
            self._kinds = kinds
        return self


_registry = _Registry()


def encode_events(events: Sequence[Event]) -> bytes:
    """Encode events, without their seq and wall time where these are not set yet.

    Raises:
        Exception: What msgspec raises for a value that msgpack cannot hold.
    """
    return _encoder.encode(events)


def encode_foreign(events: Sequence[Event]) -> bytes:
    """Encode events that may come from another log: unknown ones go out as they came in."""
    return _encoder.encode(
        [msgspec.Raw(e.raw) if type(e) is UnknownEvent else restamp(e) for e in events]
    )


def restamp(event: Event) -> Event:
    """Return the event as it was before it was written: without a place in a log."""
    if event.seq == -1 and event.wall == 0:
        return event
    return msgspec.structs.replace(event, seq=-1, wall=0)


def stamp(events: Sequence[Event], first_seq: int, offset: int) -> None:
    """Give events their place in the log: seq from `first_seq`, wall time = mono + `offset`."""
    # maps that run in C: a Python loop would cost three times as much
    deque(map(_set, events, repeat("seq"), range(first_seq, first_seq + len(events))), maxlen=0)
    walls = [e.mono + offset for e in events]
    deque(map(_set, events, repeat("wall"), walls), maxlen=0)


def decode_events(payload: bytes | memoryview) -> list[Event]:
    """Decode what `encode_events` made, by this or another version of eventlog.

    Raises:
        CodecError: The payload is no array of maps with a type.
    """
    registry = _registry.current()
    try:
        return registry.many.decode(payload)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError):
        pass
    try:
        raws = _raw_list_decoder.decode(payload)
        return [_decode_one(registry, bytes(raw)) for raw in raws]
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise CodecError(f"not a list of events: {error}") from None


def _decode_one(registry: _Registry, raw: bytes) -> Event:
    try:
        return registry.one.decode(raw)
    except msgspec.ValidationError:
        pass
    # a type of another version or another package: its axes still serve cadence and order
    tag = _peek_decoder.decode(raw).type
    try:
        axes = _axes_decoder.decode(raw)
    except msgspec.ValidationError:
        axes = _Axes()
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


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of all event types: what a log's SCHEMA block holds."""
    types = tuple(event_types().values())
    schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return {"anyOf": list(schemas), "$defs": components}
