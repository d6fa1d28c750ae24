"""``eventlog cat``: the events of a run as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from eventlog.cli.arguments import (
    EveryOption,
    KeysOption,
    RankOption,
    ReduceOption,
    RunArgument,
    StartOption,
    TypeOption,
    parse_reduce,
)
from eventlog.cli.event_json import json_line
from eventlog.cli.outcome import reported
from eventlog.cli.output import is_unicode
from eventlog.cli.runs import open_run
from eventlog.codec import event_types
from eventlog.events import Event, UnknownEvent

__all__ = ["cat"]


@reported
def cat(
    run: RunArgument,
    types: TypeOption = None,
    every: EveryOption = None,
    reduce: ReduceOption = None,
    keys: KeysOption = None,
    start: StartOption = 0,
    stop: Annotated[
        int | None, typer.Option("--stop", metavar="SEQ", min=0, help="The seq to stop before.")
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="Leave out what a later attempt logged again.")
    ] = False,
    rank: RankOption = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help='Write NaN and infinities as texts: "NaN", "-Infinity".'),
    ] = False,
) -> None:
    """Write events as JSON lines."""
    log = open_run(run, rank)
    wanted, foreign = _split_types(types)
    events = log.events(
        types=wanted,
        every=every,
        reduce=parse_reduce(reduce),
        keys=keys or None,
        start=start,
        stop=stop,
        latest=latest,
    )
    seen: set[str] = set()
    out = sys.stdout
    ascii_only = not is_unicode(out)
    for event in _only(events, foreign, seen):
        out.write(json_line(event, strict=strict, ascii_only=ascii_only) + "\n")
    if absent := sorted(foreign - seen):
        raise ValueError(
            f"--type must name event types that are known or in the log, not "
            f"{', '.join(absent)}; known: {', '.join(event_types())}"
        )


def _split_types(given: list[str] | None) -> tuple[list[type[Event]] | None, set[str]]:
    """Return the types to read, and the tags of those that only whoever wrote the log knows."""
    if not given:
        return None, set()
    known = event_types()
    foreign = {tag for tag in given if tag not in known}
    wanted = [known[tag] for tag in given if tag in known]
    return [*wanted, UnknownEvent] if foreign else wanted, foreign


def _only(events: Iterator[Event], foreign: set[str], seen: set[str]) -> Iterator[Event]:
    for event in events:
        if foreign and isinstance(event, UnknownEvent):
            if event.type_name not in foreign:
                continue
            seen.add(event.type_name)
        yield event
