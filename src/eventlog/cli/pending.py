"""``eventlog replay --pending``: to a run's own sinks, what they still lack."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from eventlog import _platform
from eventlog.cli.outcome import note, one_line, say
from eventlog.cli.places import Place, is_held, places_of
from eventlog.cli.runs import find_runs, ranks_of
from eventlog.exceptions import EventlogError
from eventlog.log.archive import Log, open_log
from eventlog.log.files import last_valid_seq
from eventlog.log.segment_reader import list_segments
from eventlog.ranks import REDUCED
from eventlog.recorder import rank_directory
from eventlog.sinks.plan import PLAN

if TYPE_CHECKING:
    from eventlog.sidecar import SinkReport

__all__ = ["deliver_pending"]

_TICK = 0.1
_SLOWEST_RETRY = 15.0
_NEVER = 1e8


def deliver_pending(
    path: Path,
    rank: int | None,
    aliases: Sequence[str],
    patience: float,
    allowed: Sequence[str] = (),
) -> bool:
    """Deliver to the sinks of a run, or of all runs in a directory, what they lack.

    Args:
        path: A run's directory, or one that holds runs.
        rank: Which rank's log; by default each, and what was reduced over ranks.
        aliases: Which sinks; all when empty.
        patience: Seconds after which a sink is given up that cannot be reached.
        allowed: Classes of sinks, as ``module:Class``, that may be imported.

    Returns:
        Whether every sink has everything now, but for those that others deliver to.

    Raises:
        NotALogError: There is no log.
        ValueError: No run has a sink of such an alias.
    """
    runs = (find_runs(path) if path.is_dir() else []) or [path]
    found: list[tuple[Log, list[Place]]] = []
    whole, delivered = True, False
    for run in runs:
        try:
            found += [(log, places_of(log)) for log in _logs_of(run, rank)]
        except (EventlogError, OSError) as error:
            if len(runs) == 1:
                raise
            note(f"{run}: {one_line(error)}")
            whole = False
    _check_aliases(path, aliases, [place for _, places in found for place in places])
    for log, places in found:
        try:
            pending, possible = _pending(log, places, aliases)
            whole &= possible
            if pending:
                delivered = True
                whole &= _deliver(log, pending, patience, allowed)
        except Exception as error:  # whatever it is, the other runs come next
            if len(runs) == 1 and isinstance(error, EventlogError | OSError):
                raise
            note(f"{log.run_dir}: {type(error).__name__}: {one_line(error)}")
            whole = False
    if not delivered and whole:
        say(f"{path}: nothing to deliver")
    return whole


def _logs_of(run: Path, rank: int | None) -> list[Log]:
    """Return the logs of a run that sinks may follow."""
    logs = ranks_of(run, rank)
    if rank is None and list_segments(rank_directory(run / REDUCED, 0)):
        logs.append(open_log(run / REDUCED))
    return logs


def _check_aliases(path: Path, aliases: Sequence[str], places: list[Place]) -> None:
    known = dict.fromkeys(place.alias for place in places)
    for alias in aliases:
        if alias not in known:
            have = ", ".join(known) or "none"
            raise ValueError(f"--sink {alias!r} is no sink of {path}; it has: {have}")


def _pending(log: Log, places: list[Place], aliases: Sequence[str]) -> tuple[list[str], bool]:
    """Return the sinks that lack something and can be delivered to from here; name the others.

    Returns:
        These sinks, and whether there are no others that nobody delivers to.
    """
    if _platform.lock_is_held(log.directory / "lock"):
        note(f"{log.run_dir} is still going on, and left alone")
        return [], True
    # the position counts that got furthest: a target that was left behind is not delivered to
    furthest = {place.alias: place for place in sorted(places, key=lambda p: (p.whole, p.position))}
    first = log.source().first
    pending, possible = [], True
    for alias in dict.fromkeys(place.alias for place in places):
        place = furthest[alias]
        if place.whole or (aliases and alias not in aliases):
            continue
        if is_held(log, alias):
            note(f"{log.run_dir}: another process delivers to {alias} just now")
        elif not place.kept:
            possible = False
            note(
                f"{log.run_dir}: {alias} lacks {place.lag:,} events and cannot be made again here: "
                f"{PLAN} does not have it; a sink that was given as an object is not kept there"
            )
        else:
            if place.position < first:
                note(
                    f"{log.run_dir}: the events before {first} were removed from the log (retain=)"
                )
            pending.append(alias)
    return pending, possible


def _deliver(log: Log, aliases: list[str], patience: float, allowed: Sequence[str]) -> bool:
    reports = anyio.run(partial(_until_stuck, log, aliases, patience, allowed))
    whole = [_say(log, alias, reports.get(alias)) for alias in aliases]
    return all(whole)


async def _until_stuck(
    log: Log, aliases: Collection[str], patience: float, allowed: Sequence[str]
) -> dict[str, SinkReport]:
    """Deliver, until the sinks have everything or nothing went on for a while."""
    from eventlog._terms import kept_terms
    from eventlog.sidecar import Orders, deliver_plan

    deadlines, retry = kept_terms(log.run_dir)
    most = min(retry.most, _SLOWEST_RETRY, max(_TICK, patience / 4))
    reports: dict[str, SinkReport] = {}
    async with anyio.create_task_group() as group:
        group.start_soon(_give_up, reports, patience, group.cancel_scope)
        await deliver_plan(
            log,
            aliases,
            follow=False,
            linger=_NEVER,
            orders=Orders(deadlines=deadlines, retry=replace(retry, most=most), allowed=[*allowed]),
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
    whole = report is not None and report.state == "closed" and not dead and not lost
    left = last_valid_seq(log.directory) - counts.get("position", 0)
    say(
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
