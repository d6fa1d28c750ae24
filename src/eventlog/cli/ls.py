"""``eventlog ls``: the runs under a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eventlog.cli.arguments import JsonOption
from eventlog.cli.outcome import note, one_line, reported
from eventlog.cli.output import iso_time, local_time, quantity, write_json, write_table
from eventlog.cli.runs import find_runs, manifest, ranks_of
from eventlog.exceptions import EventlogError, NotALogError

__all__ = ["ls"]


@reported
def ls(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Runs are looked for here and below.")
    ] = Path("runs"),
    json: JsonOption = False,
) -> None:
    """List runs, newest first."""
    if not directory.is_dir():
        raise NotALogError(f"{directory} is no directory")
    rows = [_describe(run) for run in find_runs(directory)]
    rows.sort(key=lambda row: (row["first_time"] or 0, row["run_id"]), reverse=True)
    if json:
        write_json([_public(row) for row in rows])
    elif rows:
        write_table(
            ["project", "run", "name", "status", "events", "steps", "size", "started"],
            [_cells(row) for row in rows],
            right=["events", "steps", "size"],
        )
    if not rows:
        note(f"{directory} holds no runs")


def _describe(run_dir: Path) -> dict[str, Any]:
    known = manifest(run_dir)
    row: dict[str, Any] = {
        "project": known.get("project") or run_dir.parent.name,
        "run_id": known.get("run_id") or run_dir.name,
        "name": known.get("name") or run_dir.name,
        "status": "unreadable",
        "events": 0,
        "steps": None,
        "bytes": 0,
        "first_time": None,
        "damaged_bytes": 0,
        "ranks": [],
        "path": str(run_dir),
    }
    try:
        logs = ranks_of(run_dir, None)
        summaries = [log.summary() for log in logs]
    except (EventlogError, OSError) as error:
        note(f"{run_dir}: {one_line(error)}")
        return row
    first = summaries[0]
    damage = sum(d.length for s in summaries for d in s.damage if s.status != "running")
    return row | {
        "status": first.status,
        "events": sum(s.events for s in summaries),
        "steps": first.steps,
        "bytes": sum(s.bytes for s in summaries),
        "first_time": first.first_time,
        "damaged_bytes": damage,
        "ranks": logs[0].ranks,
    }


def _public(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row for machines: times as ISO 8601."""
    return {
        ("started" if key == "first_time" else key): (
            iso_time(value) if key == "first_time" else value
        )
        for key, value in row.items()
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    damaged = f", {quantity(row['damaged_bytes'])} damaged" if row["damaged_bytes"] else ""
    return (
        row["project"],
        row["run_id"],
        "" if row["name"] == row["run_id"] else row["name"],
        row["status"] + damaged,
        f"{row['events']:,}",
        "-" if row["steps"] is None else f"{row['steps'][0]}..{row['steps'][1]}",
        quantity(row["bytes"]),
        local_time(row["first_time"]),
    )
