"""Where a run's sinks are: what each has confirmed, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from eventlog import _platform
from eventlog._names import safe_name
from eventlog.exceptions import EventlogError, LogError
from eventlog.log.archive import Log, open_log
from eventlog.log.checkpoint import list_checkpoints
from eventlog.sinks.plan import read_plan

__all__ = ["Place", "is_held", "places_of"]

_MARK = 9  # a dash, and eight digits of the target's digest


class Place(NamedTuple):
    """Where one sink is.

    Attributes:
        alias: Of the sink.
        target: What it writes to, where it says that.
        kept: Whether it can be made again from what was kept with the run.
        position: It has confirmed everything before this seq.
        lag: How many events it lacks, those that it would not let pass included.
        done: Whether it was closed after it had taken everything that was there.
        state, url, error: As the delivering process said last; None for a sink that it had not.
        dead: Events that it refused for good.
    """

    alias: str
    target: str
    kept: bool
    position: int
    lag: int
    done: bool
    state: str | None
    url: str | None
    error: str | None
    dead: int

    @property
    def whole(self) -> bool:
        """Whether it lacks nothing."""
        return self.done and not self.lag


def places_of(log: Log, damaged: Callable[[LogError], None] | None = None) -> list[Place]:
    """Return where the sinks of a run are; one that changed its target is there for each of them.

    Args:
        log: The run's.
        damaged: Told when what was kept of the sinks cannot be read; what their positions say is
            returned then.

    Raises:
        LogError: What was kept of the sinks cannot be read, and nobody is told.
    """
    from eventlog.sidecar import read_status

    end = log.source().end
    kept: list[str] = []
    try:
        plan = read_plan(log.run_dir)
        kept = [spec.alias for spec in plan if log.rank == 0 or spec.ranks == "all"]
    except LogError as error:
        if damaged is None:
            raise
        damaged(error)
    status = read_status(log.run_dir, log.rank)
    reports = {} if status is None else status.sinks
    found = [(c.alias, c.fingerprint, c.seq, c.done) for c in list_checkpoints(log.directory)]
    known = {alias for alias, *_ in found}
    found += [(alias, "", 0, False) for alias in kept if alias not in known]
    found += [(alias, "", 0, False) for alias in _begun(log) - {*map(safe_name, known | {*kept})}]
    places = []
    for alias, target, seq, done in found:
        report = reports.get(alias)
        places.append(
            Place(
                alias,
                target,
                alias in kept,
                seq,
                max(0, end - seq),
                done,
                None if report is None else report.state,
                None if report is None else report.url,
                None if report is None else report.error,
                _dead(log, alias),
            )
        )
    order = {alias: number for number, alias in enumerate(kept)}
    return sorted(places, key=lambda p: (order.get(p.alias, len(order)), p.alias, -p.position))


def _begun(log: Log) -> set[str]:
    """Return the sinks that have a place to keep a position, by their names in file names."""
    directory = log.directory / "checkpoints"
    return {path.stem[:-_MARK] for path in directory.glob("*.ckpt") if len(path.stem) > _MARK}


def _dead(log: Log, alias: str) -> int:
    try:
        return open_log(log.run_dir / "dead" / safe_name(alias), log.rank).summary().events
    except (EventlogError, OSError):
        return 0


def is_held(log: Log, alias: str) -> bool:
    """Whether a process delivers to a sink at the moment."""
    locks = (log.directory / "checkpoints").glob("*.lock")
    return any(
        path.stem[:-_MARK] == safe_name(alias) and _platform.lock_is_held(path) for path in locks
    )
