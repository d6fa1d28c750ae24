"""Events as JSON objects, one a line, with every field."""

from __future__ import annotations

import functools
import json
import math
import operator
from typing import Any

import msgspec

from eventlog._visible import escaped_json
from eventlog.cli.output import strict_json
from eventlog.events import Event, UnknownEvent, event_tag

__all__ = ["event_record", "json_line"]

_FIRST = ("seq", "wall", "mono", "rank", "attempt", "step", "batch", "epoch", "axis", "values",
          "window")  # fmt: skip
_SIMPLE_FIELDS = len(_FIRST) + 1
_simple = msgspec.json.Encoder()
_first = operator.attrgetter(*_FIRST)


def event_record(event: Event) -> dict[str, Any]:
    """Return an event as a mapping of plain values; the event's type comes first.

    An event of a type that is not known here is shown as it was written, as far as it can be.
    """
    if type(event) is UnknownEvent:
        return _unknown(event)
    tag, own = _fields(type(event))
    record: dict[str, Any] = {"type": tag, **dict(zip(_FIRST, _first(event), strict=True))}
    if event.window is not None:
        record["window"] = msgspec.to_builtins(event.window)
    if event.options is not None:
        record["options"] = event.options
    for name in own:
        record[name] = msgspec.to_builtins(getattr(event, name), str_keys=True)
    return record


@functools.cache
def _fields(kind: type[Event]) -> tuple[str, list[str]]:
    return event_tag(kind), [f for f in kind.__struct_fields__ if f not in (*_FIRST, "options")]


def _unknown(event: UnknownEvent) -> dict[str, Any]:
    record: dict[str, Any] = {"type": event.type_name}
    record |= zip(_FIRST, _first(event), strict=True)
    try:
        written = msgspec.to_builtins(msgspec.msgpack.decode(event.raw), str_keys=True)
    except (msgspec.MsgspecError, TypeError, ValueError):
        written = {}
    if not isinstance(written, dict) or not written:
        return record | {"raw": msgspec.to_builtins(event.raw)}
    # seq and wall come from the log, whatever the event says itself
    return record | {k: v for k, v in written.items() if k not in ("type", "seq", "wall")}


def json_line(event: Event, *, strict: bool = False, ascii_only: bool = False) -> str:
    """Return an event as one line of JSON.

    Args:
        event: What to show.
        strict: NaN and infinities become texts; as it is, they are Python's literals.
        ascii_only: Escape all else.
    """
    record = event_record(event)
    if not ascii_only and _is_simple(record):
        return escaped_json(_simple.encode(record).decode())
    if strict:
        record = strict_json(record)
    return escaped_json(_encoder(strict, ascii_only).encode(record))


def _is_simple(record: dict[str, Any]) -> bool:
    """Whether msgspec, ten times as fast, writes what `json` would: it makes NaN null."""
    if len(record) > _SIMPLE_FIELDS:
        return False
    values = record["values"].values()
    return all(not isinstance(v, float) or math.isfinite(v) for v in (*values, record["epoch"]))


@functools.cache
def _encoder(strict: bool, ascii_only: bool) -> json.JSONEncoder:
    # json.dumps makes a new one for each call, which takes as long as the call
    return json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=not strict, separators=(",", ":"))
