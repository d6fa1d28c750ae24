"""Replay: a log into sinks, by the same subscriptions and the same delivery as a live run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

import anyio
import anyio.from_thread
import msgspec

from eventlog._loop import in_loop
from eventlog._names import safe_name
from eventlog._pace import PacedSource
from eventlog.bus import EventStream
from eventlog.cadence.window import Reduce
from eventlog.delivery import DEADLINES, RETRY, Deadlines, Delivery, Port, Retry, SinkStatistics
from eventlog.events import Event, Status
from eventlog.exceptions import EventlogError
from eventlog.keeping import Keeper
from eventlog.log.archive import Log, open_log
from eventlog.log.attempts import Attempts
from eventlog.log.follow import FollowSource
from eventlog.log.segment_reader import Damage
from eventlog.log.source import Source
from eventlog.selection import Instant, Selection
from eventlog.sinks.base import RunInfo, Sink
from eventlog.sinks.select import Sinks, select_sinks
from eventlog.subscription import Every, Subscription

__all__ = ["Progress", "ReplayOptions", "ReplayReport", "areplay", "replay", "stream"]

T = TypeVar("T")


class Progress(NamedTuple):
    """How far a replay is.

    Attributes:
        read: Events that the slowest sink is past.
        total: Events that the log holds.
        delivered: Events delivered so far, by sink.
    """

    read: int
    total: int
    delivered: dict[str, int]


class ReplayReport(NamedTuple):
    """What a replay did.

    Attributes:
        complete: Whether every sink took everything.
        sinks: By alias.
        urls: Where each sink's copy can be looked at.
        directory: Where the sinks put their files and their positions are kept: given as `dir`,
            it lets an interrupted replay go on.
        damage: What of the log could not be read.
    """

    complete: bool
    sinks: dict[str, SinkStatistics]
    urls: dict[str, str | None]
    directory: Path
    damage: list[Damage]


class Part(TypedDict, total=False):
    """What of a log to take.

    Attributes:
        types: Event types or their tags; all by default.
        keys: Glob patterns of value names.
        start: The first seq.
        steps, epochs: (first, stop) on these axes; the stop is left out, None is open.
        time: (from, to): datetimes, ISO 8601 texts or seconds since 1970.
        rank: Which rank's log; the lowest by default.
        latest: What the latest attempt says of each step, once (the default), or all attempts.
        follow: Go on with a log that is still written, until its run ends or dies.
        speed: 1.0 for the pace at which it was logged, 10.0 for ten times as fast; as fast as it
            is taken by default.
        every, reduce: Applied anew, whatever the run's own sinks had.
    """

    types: Collection[type[Event] | str] | None
    keys: Collection[str] | None
    start: int
    steps: tuple[int | None, int | None] | None
    epochs: tuple[float | None, float | None] | None
    time: tuple[Instant | None, Instant | None] | None
    rank: int | None
    latest: bool
    follow: bool
    speed: float | None
    every: Every
    reduce: Reduce


class ReplayOptions(Part, total=False):
    """How to replay; beside what to take (see `Part`).

    Attributes:
        dir: Where sinks put their files, ``<dir>/<alias>``, and where their positions are kept.
            By default a new directory below the run's, so that a replay never writes into what a
            live sink wrote. A directory of an earlier replay is gone on with.
        resume: False starts at the beginning also in such a directory.
        deadlines, retry: For the sinks.
        progress: Told about ten times a second.
    """

    dir: str | os.PathLike[str] | None
    resume: bool
    deadlines: Deadlines
    retry: Retry
    progress: Callable[[Progress], None] | None


class _Reading:
    """A log that is about to be read as `Part` says: the source, and what makes it go."""

    def __init__(self, path: str | os.PathLike[str] | Log, part: Part) -> None:
        rank = part.get("rank")
        self.log = path if isinstance(path, Log) else open_log(path, rank)
        directory = self.log.directory
        self.follower: FollowSource | None = None
        self.pace: PacedSource | None = None
        self.stored = self.log.source()
        self.source: Source = self.stored
        if part.get("follow"):
            self.follower = FollowSource(directory)
            self.follower.look()
            self.source = self.follower
        speed = part.get("speed")
        if speed is not None:
            self.source = self.pace = PacedSource(self.source, speed)
        latest = part.get("latest", True) and not part.get("follow")
        self._attempts = Attempts.scan(directory) if latest else None
        where = Selection(part.get("steps"), part.get("epochs"), part.get("time"))
        self._where = None if where.everything else where
        self.start = part.get("start", 0)

    def subscribe(self, part: Part) -> Subscription:
        return Subscription(
            self.source,
            types=part.get("types"),
            every=part.get("every"),
            reduce=part.get("reduce"),
            keys=part.get("keys"),
            start=self.start,
            attempts=self._attempts,
            where=self._where,
        )

    def start_in(self, group: anyio.abc.TaskGroup) -> None:
        if self.follower is not None:
            group.start_soon(self.follower.watch)
        if self.pace is not None:
            group.start_soon(self.pace.run)


async def areplay(
    path: str | os.PathLike[str] | Log, sinks: Sinks, **options: Unpack[ReplayOptions]
) -> ReplayReport:
    """Replay a log into sinks, each as fast as it takes it, on the running loop.

    Args:
        path: A run's directory, or a log that is open.
        sinks: As for `eventlog.Run`.
        options: See `ReplayOptions` and `Part`.

    Returns:
        What each sink took. A sink's failure is in there; it is not raised.

    Raises:
        NotALogError: There is no log at `path`.
        SinkNotFoundError, SinkLoadError: As it says.
        ValueError: No sinks were given, or an option is none that is accepted.
    """
    specs = select_sinks(sinks, options.get("every"), options.get("reduce"))
    if not specs:
        raise ValueError("sinks must name at least one sink to replay into")
    reading = _Reading(path, options)
    log = reading.log
    given = options.get("dir")
    base = _replay_directory(log) if given is None else Path(given)
    info = log.run_info()
    delivery = Delivery(reading.source)
    for spec in specs:
        own = {name: value for name in ("types", "keys") if (value := getattr(spec, name))}
        part: Any = {**options, **own, "every": spec.every, "reduce": spec.reduce}
        sink = spec.make()
        delivery.add(
            Port(
                spec.alias,
                sink,
                reading.subscribe(part),
                partial(
                    _told,
                    msgspec.structs.replace(
                        info, alias=spec.alias, directory=base / safe_name(spec.alias)
                    ),
                ),
                deadlines=options.get("deadlines", DEADLINES),
                retry=options.get("retry", RETRY),
                keeper=partial(_keeper, base, spec.alias, sink, info, options.get("resume", True)),
                rate=spec.rate,
                patient=False,
                status=partial(_status_of, log),
            )
        )
    async with anyio.create_task_group() as group:
        reading.start_in(group)
        progress = options.get("progress")
        if progress is not None:
            group.start_soon(_report, delivery, reading, progress)
        await delivery.run()
        group.cancel_scope.cancel()
    if progress is not None:
        progress(_progress(delivery, reading))
    statistics = {alias: port.statistics() for alias, port in delivery.ports.items()}
    return ReplayReport(
        all(s.state == "closed" and not s.dead for s in statistics.values()),
        statistics,
        {alias: port.sink.url for alias, port in delivery.ports.items()},
        base,
        reading.stored.damage,
    )


def replay(
    path: str | os.PathLike[str] | Log, sinks: Sinks, **options: Unpack[ReplayOptions]
) -> ReplayReport:
    """Replay a log into sinks and wait for it; see `areplay`.

    Works inside a running loop as well (a notebook's): it then runs on a thread of its own.
    """

    async def main() -> ReplayReport:
        return await areplay(path, sinks, **options)

    return run_loop(main)


async def stream(path: str | os.PathLike[str] | Log, **part: Unpack[Part]) -> AsyncIterator[Event]:
    """Yield a log's events on the running loop: at any pace, and while it is still written.

    Args:
        path: A run's directory, or a log that is open.
        part: See `Part`.

    Raises:
        NotALogError: There is no log at `path`.
        ValueError: An option is none that is accepted.
    """
    reading = _Reading(path, part)
    events = EventStream(reading.source, reading.subscribe(part))
    group = anyio.create_task_group()
    async with group:
        reading.start_in(group)
        try:
            async for event in events:
                yield event
        finally:
            events.close()
            group.cancel_scope.cancel()


def run_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function to its end, also where this thread already runs a loop."""
    if not in_loop():
        return anyio.run(main)
    with anyio.from_thread.start_blocking_portal() as portal:
        return portal.call(main)


def _told(info: RunInfo, state: dict[str, Any]) -> RunInfo:
    return msgspec.structs.replace(info, state=state)


def _status_of(log: Log) -> Status:
    """Return how the run ended; one that still goes on leaves its replay like one that died."""
    status = log.status()
    ended: tuple[Status, ...] = ("finished", "failed", "interrupted")
    return next((s for s in ended if s == status), "killed")


def _keeper(base: Path, alias: str, sink: Sink, info: RunInfo, resume: bool) -> Keeper:
    keeper = Keeper(base, alias, sink, scope=f"replay of {info.run_id}, rank {info.rank}")
    if not resume:
        keeper.forget()
    return keeper


def _replay_directory(log: Log) -> Path:
    for number in range(1, 100_000):
        directory = log.run_dir / "replays" / str(number)
        if not directory.exists():
            return directory
    raise EventlogError(f"{log.run_dir / 'replays'} is full; remove some, or give dir=")


def _progress(delivery: Delivery, reading: _Reading) -> Progress:
    ports = delivery.ports.values()
    at = min((port.subscription.cursor for port in ports), default=reading.start)
    return Progress(
        at - reading.start,
        reading.source.end - reading.start,
        {port.alias: port.statistics().delivered for port in ports},
    )


async def _report(
    delivery: Delivery, reading: _Reading, progress: Callable[[Progress], None]
) -> None:
    while True:
        progress(_progress(delivery, reading))
        await anyio.sleep(0.1)
