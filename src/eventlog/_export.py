"""A log as a table: a row a value (long form), or a row a step and a column a key (wide form)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from eventlog.cadence.window import Reduce
from eventlog.events import Event, Scalar, TextEvent, UnknownEvent, event_tag
from eventlog.log.attempts import Attempts
from eventlog.log.source import Source
from eventlog.subscription import Every, Subscription

__all__ = ["LONG", "PLACE", "Columns", "Key", "Keys", "long_chunks", "long_frame", "read",
           "wide_chunks", "wide_frame", "wide_keys"]  # fmt: skip

Columns: TypeAlias = "dict[str, list[Any]]"

LONG = ("seq", "wall", "step", "axis", "batch", "epoch", "rank", "attempt", "type", "key", "value",
        "text")  # fmt: skip
PLACE = ("step", "axis", "batch", "epoch", "wall", "rank", "attempt")
"""The columns of the wide form that are no key."""

CHUNK = 65_536
CELLS = 2_000_000
LATE = 4_096
"""How many rows of the wide form wait for values that come late."""


class Key(NamedTuple):
    """A column of the wide form.

    Attributes:
        column: Its name: the key's, unless a column that is no key has that one.
        is_text: Whether any of its values is a text; all are written as texts then.
    """

    column: str
    is_text: bool


Keys: TypeAlias = dict[str, Key]


def read(
    source: Source,
    *,
    types: Collection[type[Event] | str] | None = None,
    every: Every = None,
    reduce: Reduce = None,
    keys: Collection[str] | None = None,
    attempts: Attempts | None = None,
) -> Iterator[Event]:
    """Yield the events of a source that has ended; see `Subscription`."""
    subscription = Subscription(
        source, types=types, every=every, reduce=reduce, keys=keys, attempts=attempts
    )
    while (ready := subscription.pull()) is not None:
        yield from ready.events


def _values(event: Event, keys: Collection[str] | None) -> Iterable[tuple[str, Scalar]]:
    """Return an event's values; a `TextEvent` has its text, under its tag."""
    if type(event) is TextEvent and not event.values:
        if keys is None or any(fnmatchcase(event.tag, pattern) for pattern in keys):
            return ((event.tag, event.text),)
        return ()
    return event.values.items()


def _type(event: Event) -> str:
    return event.type_name if isinstance(event, UnknownEvent) else event_tag(type(event))


def _long_rows(events: Iterable[Event], keys: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
    tags: dict[type[Event], str] = {}
    for e in events:
        kind = type(e)
        tag = tags.get(kind)
        if tag is None:
            tag = _type(e)
            if kind is not UnknownEvent:
                tags[kind] = tag
        epoch = None if e.epoch is None else float(e.epoch)
        place = (e.seq, e.wall, e.step, e.axis, e.batch, epoch, e.rank, e.attempt, tag)
        for key, value in _values(e, keys):
            if isinstance(value, str):
                yield (*place, key, None, value)
            else:
                yield (*place, key, float(value), None)


def long_chunks(events: Iterable[Event], keys: Collection[str] | None = None) -> Iterator[Columns]:
    """Yield the long form, some 65,536 rows at a time.

    Args:
        events: In the order of the log, cut to the keys that are wanted.
        keys: Glob patterns of these keys, which the tags of texts are compared with as well.
    """
    rows: list[tuple[Any, ...]] = []
    for row in _long_rows(events, keys):
        rows.append(row)
        if len(rows) >= CHUNK:
            yield _turned(rows)
            rows = []
    if rows:
        yield _turned(rows)


def _turned(rows: list[tuple[Any, ...]]) -> Columns:
    return dict(zip(LONG, map(list, zip(*rows, strict=True)), strict=True))


def long_frame(events: Iterable[Event], keys: Collection[str] | None = None) -> Columns:
    """Return the long form, whole."""
    frame: Columns = {name: [] for name in LONG}
    for chunk in long_chunks(events, keys):
        for name, column in chunk.items():
            frame[name] += column
    return frame


def wide_keys(events: Iterable[Event], keys: Collection[str] | None = None) -> Keys:
    """Return the columns of the wide form, by name; reads all events."""
    found: dict[str, bool] = {}
    for event in events:
        if event.step is not None:
            for key, value in _values(event, keys):
                if not found.get(key):
                    found[key] = isinstance(value, str)
    taken = {*PLACE, *found}
    columns: Keys = {}
    for key in sorted(found):
        column = key
        if key in PLACE:
            column = f"values/{key}"
            while column in taken:
                column = f"values/{column}"
            taken.add(column)
        columns[key] = Key(column, found[key])
    return columns


class _Row:
    """What there is of one step."""

    __slots__ = ("event", "values")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.values: dict[str, Scalar] = {}

    def place(self) -> tuple[Any, ...]:
        e = self.event
        epoch = None if e.epoch is None else float(e.epoch)
        return e.step, e.axis, e.batch, epoch, e.wall, e.rank, e.attempt


def _wide_rows(
    events: Iterable[Event], keys: Collection[str] | None, late: int | None
) -> Iterator[_Row]:
    """Yield rows in the order in which their steps began, once `late` others have begun since."""
    rows: OrderedDict[tuple[int, str, int], _Row] = OrderedDict()
    for event in events:
        if event.step is None:
            continue
        found = _values(event, keys)
        if not found:
            continue
        place = (event.attempt, event.axis, event.step)
        row = rows.get(place)
        if row is None:
            row = rows[place] = _Row(event)
        row.values.update(found)
        if late is not None and len(rows) > late:
            yield rows.popitem(last=False)[1]
    yield from rows.values()


def wide_chunks(
    events: Iterable[Event], columns: Keys, keys: Collection[str] | None = None
) -> Iterator[Columns]:
    """Yield the wide form, some rows at a time; the more columns, the fewer.

    Rows come in the order in which their steps began in the log. A value that is logged more than
    4,096 steps late has a row of its own.

    Args:
        events: As for `long_chunks`.
        columns: What `wide_keys` returned for the same events.
        keys: As for `long_chunks`.
    """
    size = max(LATE, min(CHUNK, CELLS // (len(PLACE) + len(columns))))
    rows: list[_Row] = []
    for row in _wide_rows(events, keys, LATE):
        rows.append(row)
        if len(rows) >= size:
            yield _spread(rows, columns)
            rows = []
    if rows:
        yield _spread(rows, columns)


def _spread(rows: list[_Row], columns: Keys) -> Columns:
    spread: Columns = {name: [] for name in PLACE}
    if rows:
        places = zip(*(row.place() for row in rows), strict=True)
        spread = dict(zip(PLACE, map(list, places), strict=True))
    for key, (column, is_text) in columns.items():
        cast = str if is_text else float
        found = (row.values.get(key) for row in rows)
        spread[column] = [None if value is None else cast(value) for value in found]
    return spread


def wide_frame(events: Iterable[Event], keys: Collection[str] | None = None) -> Columns:
    """Return the wide form, whole and in the order of the steps, axis by axis."""
    kept = [event for event in events if event.step is not None and _values(event, keys)]
    rows = list(_wide_rows(kept, keys, None))
    rows.sort(key=lambda row: (row.event.axis, row.event.step, row.event.attempt))
    return _spread(rows, wide_keys(kept, keys))
