"""``eventlog replay --pending``: to a run's own sinks, what they still lack."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import typer

from eventlog import _platform
from eventlog.cli.outcome import note, one_line
from eventlog.cli.places import is_held, places_of
from eventlog.cli.runs import find_runs
from eventlog.exceptions import EventlogError
from eventlog.log.archive import Log, open_log
from eventlog.log.files import last_valid_seq

if TYPE_CHECKING:
    from eventlog.sidecar import SinkReport

__all__ = ["deliver_pending"]

_TICK = 0.1
_SLOWEST_RETRY = 15.0
_NEVER = 1e8


def deliver_pending(path: Path, rank: int | None, aliases: Sequence[str], patience: float) -> bool:
    """Deliver to the sinks of a run, or of all runs in a directory, what they lack.

    Args:
        path: A run's directory, or one that holds runs.
        rank: Which rank's log; the lowest by default.
        aliases: Which sinks; all when empty.
        patience: Seconds after which a sink is given up that cannot be reached.

    Returns:
        Whether every sink has everything now, but for those that others deliver to.

    Raises:
        NotALogError: There is no log.
    """
    runs = (find_runs(path) if path.is_dir() else []) or [path]
    whole, delivered = True, False
    for run in runs:
        try:
            log = open_log(run, rank)
            pending = _pending(log, aliases, alone=len(runs) == 1)
        except (EventlogError, OSError) as error:
            if len(runs) == 1:
                raise
            note(f"{run}: {one_line(error)}")
            whole = False
            continue
        if pending:
            delivered = True
            whole &= _deliver(log, pending, patience)
    if not delivered and whole:
        typer.echo(f"{path}: nothing to deliver")
    return whole


def _pending(log: Log, aliases: Sequence[str], *, alone: bool) -> list[str]:
    """Return the sinks that lack something and can be delivered to from here; name the others."""
    if _platform.lock_is_held(log.directory / "lock"):
        note(f"{log.run_dir} is still going on, and left alone")
        return []
    places = places_of(log)
    unknown = [alias for alias in aliases if alias not in {place.alias for place in places}]
    if unknown and alone:
        have = ", ".join(dict.fromkeys(place.alias for place in places)) or "none"
        raise ValueError(f"--sink {unknown[0]!r} is no sink of {log.run_dir}; it has: {have}")
    # the position counts that got furthest: a target that was left behind is not delivered to
    furthest = {place.alias: place for place in sorted(places, key=lambda p: (p.whole, p.position))}
    pending = []
    for alias in dict.fromkeys(place.alias for place in places):
        place = furthest[alias]
        if place.whole or (aliases and alias not in aliases):
            continue
        if is_held(log, alias):
            note(f"{log.run_dir}: another process delivers to {alias} just now")
        elif not place.kept:
            note(
                f"{log.run_dir}: {alias} lacks {place.lag:,} events and cannot be made again here: "
                "it was given as an object, or is none of the run's sinks any more"
            )
        else:
            pending.append(alias)
    return pending


def _deliver(log: Log, aliases: list[str], patience: float) -> bool:
    reports = anyio.run(partial(_until_stuck, log, aliases, patience))
    whole = [_say(log, alias, reports.get(alias)) for alias in aliases]
    return all(whole)


async def _until_stuck(
    log: Log, aliases: Collection[str], patience: float
) -> dict[str, SinkReport]:
    """Deliver, until the sinks have everything or nothing went on for a while."""
    from eventlog.delivery import Retry
    from eventlog.sidecar import deliver_plan

    reports: dict[str, SinkReport] = {}
    async with anyio.create_task_group() as group:
        group.start_soon(_give_up, reports, patience, group.cancel_scope)
        await deliver_plan(
            log,
            aliases,
            follow=False,
            linger=_NEVER,
            retry=Retry(most=min(_SLOWEST_RETRY, max(_TICK, patience / 4))),
            report=reports.update,
        )
        group.cancel_scope.cancel()
    return reports


async def _give_up(
    reports: dict[str, SinkReport], patience: float, scope: anyio.CancelScope
) -> None:
    """End it once all sinks that are not finished wait, and have got no further for a while."""
    before: object = None
    since = anyio.current_time()
    while True:
        left = {a: r for a, r in reports.items() if r.state not in ("closed", "failed")}
        # other states end by themselves: each call has a deadline
        waiting = all(r.state in ("retrying", "waiting") for r in left.values())
        now = {alias: (r.statistics.get("read"), r.flushed_to) for alias, r in left.items()}
        if not waiting or now != before:
            before, since = now, anyio.current_time()
        elif left and anyio.current_time() - since >= patience:
            scope.cancel()
        await anyio.sleep(_TICK)


def _say(log: Log, alias: str, report: SinkReport | None) -> bool:
    """Say what became of a sink; returns whether it has everything."""
    counts = {} if report is None else report.statistics
    dead, lost = counts.get("dead", 0), counts.get("lost", 0)
    whole = report is not None and report.state == "closed" and not dead
    left = last_valid_seq(log.directory) - counts.get("position", 0)
    typer.echo(
        f"{log.run_dir}: {alias}: {'complete' if whole else 'incomplete'}, "
        f"{counts.get('delivered', 0):,} events"
        + (f", {counts['filtered']:,} left out by the cadence or a filter"
           if counts.get("filtered") else "")
        + (f", {dead:,} refused" if dead else "")
        + (f", {lost:,} lost" if lost else "")
        + ("" if report is None or report.url is None else f" -> {report.url}")
    )  # fmt: skip
    if report is not None and report.state != "closed":
        error = " ".join((report.error or report.state).split())
        note(f"{log.run_dir}: {alias} still lacks {left:,} events: {error}")
    return whole
