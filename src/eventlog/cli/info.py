"""``eventlog info``: what a run's log is about and what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from eventlog._visible import visible
from eventlog.cli.arguments import JsonOption, RankOption, RunArgument
from eventlog.cli.outcome import FOUND_WRONG, note, one_line, reported
from eventlog.cli.output import (
    Terminal,
    duration,
    iso_time,
    local_time,
    quantity,
    write_json,
    write_table,
)
from eventlog.cli.places import Place, places_of
from eventlog.cli.runs import open_run
from eventlog.events import UnknownEvent, event_tag
from eventlog.exceptions import LogError
from eventlog.log.archive import Log, LogSummary
from eventlog.ranks import REDUCED
from eventlog.sinks.base import RunInfo
from eventlog.sinks.console import format_value
from eventlog.sinks.plan import PLAN

__all__ = ["info"]


@reported
def info(
    run: RunArgument,
    metrics: Annotated[
        bool, typer.Option("--metrics/--no-metrics", help="Read the events for their metrics.")
    ] = True,
    rank: RankOption = None,
    json: JsonOption = False,
) -> None:
    """Say what a log is about and what it holds."""
    log = open_run(run, rank)
    about = log.run_info()
    summary = log.summary()
    unreadable: list[LogError] = []
    places = places_of(log, unreadable.append)
    types, found = _read(log) if metrics else (None, None)
    if json:
        write_json(_document(log, about, summary, types, found) | {"sinks": _listed(places)})
    else:
        _show(log, about, summary, types, found, places)
    for error in unreadable:
        note(one_line(error))
        raise typer.Exit(FOUND_WRONG)


def _show(
    log: Log,
    about: RunInfo,
    summary: LogSummary,
    types: dict[str, int] | None,
    found: list[dict[str, Any]] | None,
    places: list[Place],
) -> None:
    console = Terminal()
    table = Table.grid(padding=(0, 2))
    for name, text in _lines(log, about, summary, types):
        table.add_row(Text(visible(name), style="bold"), Text(visible(text), overflow="fold"))
    console.print(table)
    if places:
        console.print()
        write_table(
            ["sink", "position", "lag", "refused", "state"],
            [
                (_name(p, places), f"{p.position:,}", f"{p.lag:,}", f"{p.dead:,}", _state(p))
                for p in places
            ],
            right=["position", "lag", "refused"],
        )
    if found:
        console.print()
        write_table(
            ["metric", "axis", "count", "last", "at"],
            [
                (m["key"], m["axis"], f"{m['count']:,}", format_value(m["last"]), _at(m))
                for m in found
            ],
            right=["count", "last", "at"],
        )


def _name(place: Place, places: list[Place]) -> str:
    """Return the alias, with the target where there are several of it."""
    alone = sum(p.alias == place.alias for p in places) == 1
    return place.alias if alone or not place.target else f"{place.alias} ({place.target})"


def _state(place: Place) -> str:
    if place.whole:
        state = "complete"
    elif place.state in (None, "closed"):
        state = "behind" if place.lag else "has everything, not closed"
    else:
        state = str(place.state)
    error = "" if place.whole or place.error is None else f": {' '.join(place.error.split())}"
    object_ = "" if place.kept or place.whole else f" (not in {PLAN})"
    return f"{state}{error}{object_}" + (f" -> {place.url}" if place.url else "")


def _listed(places: list[Place]) -> list[dict[str, Any]]:
    return [place._asdict() | {"complete": place.whole} for place in places]


def _read(log: Log) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return how many events there are of each type, and the metrics among their values."""
    types: Counter[str] = Counter()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for event in log.events(latest=True):
        tag = event.type_name if isinstance(event, UnknownEvent) else event_tag(type(event))
        types[tag] += 1
        for key, value in event.values.items():
            metric = found.get((key, event.axis))
            if metric is None:
                metric = found[key, event.axis] = {"key": key, "axis": event.axis, "count": 0}
            metric["count"] += 1
            metric["last"] = value
            metric["at"] = event.step
    return dict(types), [found[place] for place in sorted(found)]


def _at(metric: dict[str, Any]) -> str:
    return "-" if metric["at"] is None else str(metric["at"])


def _lines(
    log: Log, about: RunInfo, summary: LogSummary, types: dict[str, int] | None
) -> Iterator[tuple[str, str]]:
    yield "run", about.run_id
    yield "project", about.project
    yield "name", about.name
    yield "path", str(log.run_dir)
    ranks = f" (of {', '.join(map(str, log.ranks))})" if len(log.ranks) > 1 else ""
    world = f"; the run has {about.world_size}" if about.world_size > 1 else ""
    yield "rank", f"{log.rank}{ranks}{world}"
    if (log.run_dir / REDUCED).is_dir():
        yield "reduced over ranks", str(log.run_dir / REDUCED)
    yield "status", summary.status
    span = ""
    if summary.first_time is not None and summary.last_time is not None:
        span = f" .. {local_time(summary.last_time)}"
        span += f" ({duration((summary.last_time - summary.first_time) / 1e9)})"
    yield "time", local_time(summary.first_time) + span
    kinds = "" if not types else f" ({', '.join(f'{k} {n:,}' for k, n in types.items())})"
    yield "events", f"{summary.events:,}{kinds}"
    yield "steps", "-" if summary.steps is None else f"{summary.steps[0]}..{summary.steps[1]}"
    yield "attempts", str(summary.attempts)
    yield "size", f"{quantity(summary.bytes)} in {summary.segments} segment(s)"
    if summary.dropped:
        yield "dropped", ", ".join(f"{reason} {n:,}" for reason, n in summary.dropped.items())
    for damage in summary.damage:
        yield (
            "damage",
            f"{damage.length:,} bytes at {damage.offset:,} of {damage.path.name}: {damage.reason}",
        )
    for name, value in (
        ("tags", ", ".join(about.tags)),
        ("group", about.group),
        ("notes", about.notes),
    ):
        if value:
            yield name, value
    for title, mapping in (("config", about.config), ("provenance", about.provenance)):
        for i, (key, value) in enumerate(_flat(mapping)):
            yield ("" if i else title), f"{key} = {format_value(value)}"


def _flat(mapping: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _document(
    log: Log,
    about: RunInfo,
    summary: LogSummary,
    types: dict[str, int] | None,
    found: list[dict[str, Any]] | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "run_id": about.run_id,
        "project": about.project,
        "name": about.name,
        "path": str(log.run_dir),
        "rank": log.rank,
        "ranks": log.ranks,
        "world_size": about.world_size,
        "status": summary.status,
        "started": iso_time(summary.first_time),
        "last": iso_time(summary.last_time),
        "events": summary.events,
        "steps": summary.steps,
        "attempts": summary.attempts,
        "bytes": summary.bytes,
        "segments": summary.segments,
        "dropped": summary.dropped,
        "damage": [d._asdict() | {"path": str(d.path)} for d in summary.damage],
        "tags": about.tags,
        "group": about.group,
        "notes": about.notes,
        "config": about.config,
        "provenance": about.provenance,
    }
    if types is not None:
        document |= {"types": types, "metrics": found}
    return document
