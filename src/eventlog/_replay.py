"""Replay: a log into sinks, by the same subscriptions and the same delivery as a live run."""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

import anyio
import anyio.from_thread
import msgspec

from eventlog._loop import in_loop
from eventlog._names import safe_name
from eventlog._pace import PacedSource
from eventlog._paths import own_directory
from eventlog.bus import EventStream
from eventlog.cadence.frequency import FrequencyManager
from eventlog.cadence.text import every as cadence
from eventlog.cadence.window import Reduce
from eventlog.delivery import DEADLINES, RETRY, Deadlines, Delivery, Port, Retry, SinkStatistics
from eventlog.events import Event, Status, event_tag
from eventlog.exceptions import EventlogError
from eventlog.keeping import Keeper
from eventlog.log.archive import Log, open_log
from eventlog.log.attempts import Attempts
from eventlog.log.files import FileReader
from eventlog.log.follow import FollowSource
from eventlog.log.segment_reader import Damage
from eventlog.log.source import Source
from eventlog.selection import Instant, Selection, instant
from eventlog.sinks._thread import acall_apart
from eventlog.sinks._told import told_text
from eventlog.sinks.base import RunInfo, Sink
from eventlog.sinks.select import Sinks, select_sinks
from eventlog.subscription import Every, Subscription

__all__ = ["Progress", "ReplayOptions", "ReplayReport", "areplay", "replay", "stream"]

T = TypeVar("T")


class Progress(NamedTuple):
    """How far a replay is.

    Attributes:
        read: Events that the slowest sink is past: taken, or left out for it.
        total: Events that the log holds.
        delivered: Events delivered so far, by sink.
    """

    read: int
    total: int
    delivered: dict[str, int]


class ReplayReport(NamedTuple):
    """What a replay did.

    Attributes:
        complete: Whether every sink took everything that the log has or should have.
        sinks: By alias.
        urls: Where each sink's copy can be looked at.
        directory: Where the sinks put their files and their positions are kept: given as `dir`,
            it lets an interrupted replay go on.
        damage: What of the log could not be read.
        trimmed: How many events before the first one the log does not keep any more: see
            `Run(retain=)`.
    """

    complete: bool
    sinks: dict[str, SinkStatistics]
    urls: dict[str, str | None]
    directory: Path
    damage: list[Damage]
    trimmed: int = 0


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
            With `follow`, the latest of those that are there when it begins: what a later one
            logs again comes again.
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
        outside_files: Whether sinks may read files outside of the run's directory that events
            name (artifacts without a copy), to bring them to a tracker. Say so for logs of your
            own: somebody else's may name any file of yours.
        deadlines, retry: For the sinks.
        progress: Told about ten times a second.
    """

    dir: str | os.PathLike[str] | None
    resume: bool
    outside_files: bool
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
        self._attempts = Attempts.scan(directory) if part.get("latest", True) else None
        where = Selection(part.get("steps"), part.get("epochs"), part.get("time"))
        self._where = None if where.everything else where
        start = part.get("start", 0)
        self.start = max(start, self.source.first)
        self.trimmed = 0 if self.stored.sparse else self.start - start
        self._index = _Index(directory) if self.stored.sparse and not self.follower else None

    def passed(self, seq: int) -> int:
        """Return how many events there are from the start to a seq."""
        if self._index is not None:
            return self._index.before(seq) - self._index.before(self.start)
        return max(0, seq - self.start)

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


class _Index:
    """Where the events of a log are that leaves seqs out on purpose."""

    def __init__(self, directory: Path) -> None:
        self._firsts: list[int] = []
        self._counts: list[tuple[int, int]] = []
        reader, seq, count = FileReader(directory), 0, 0
        while (block := reader.read(seq)) is not None:
            self._firsts.append(block.first)
            self._counts.append((count, block.end - block.first))
            count += block.end - block.first
            seq = block.end

    def before(self, seq: int) -> int:
        """Return how many there are before a seq."""
        i = bisect_right(self._firsts, seq) - 1
        if i < 0:
            return 0
        before, size = self._counts[i]
        return before + min(size, seq - self._firsts[i])


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
        SinkTimeoutError: A sink could not be imported and made within the deadline for opening.
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
    deadlines = options.get("deadlines", DEADLINES)
    for spec in specs:
        own = {name: value for name in ("types", "keys") if (value := getattr(spec, name))}
        part: Any = {**options, **own, "every": spec.every, "reduce": spec.reduce}
        # not on the loop: some SDKs take seconds to import, and one may hang
        sink = await acall_apart(spec.make, spec.making, deadlines.open)
        subscription = reading.subscribe(part)
        told = msgspec.structs.replace(
            info,
            alias=spec.alias,
            directory=base / safe_name(spec.alias),
            outside_files=options.get("outside_files", False),
        )
        delivery.add(
            Port(
                spec.alias,
                sink,
                subscription,
                partial(_told, log, subscription, told),
                deadlines=deadlines,
                retry=options.get("retry", RETRY),
                keeper=partial(
                    _keeper, base, sink, told, _digest(part), options.get("resume", True)
                ),
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
        all(s.state == "closed" and not s.dead and not s.lost for s in statistics.values()),
        statistics,
        {alias: told_text(port.sink, "url") for alias, port in delivery.ports.items()},
        base,
        reading.stored.damage,
        reading.trimmed,
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


def _told(log: Log, subscription: Subscription, info: RunInfo, state: dict[str, Any]) -> RunInfo:
    attempt, update = log.standing(subscription.cursor)
    return msgspec.structs.replace(info, state=state, attempt=attempt, model_update=update)


def _status_of(log: Log) -> Status:
    """Return how the run ended; one that still goes on leaves its replay like one that died."""
    status = log.status()
    ended: tuple[Status, ...] = ("finished", "failed", "interrupted")
    return next((s for s in ended if s == status), "killed")


def _keeper(base: Path, sink: Sink, info: RunInfo, digest: str, resume: bool) -> Keeper:
    scope = f"replay of {info.run_id}, rank {info.rank}, part {digest}"
    keeper = Keeper(base, info.alias, sink, scope=scope)
    if not resume:
        keeper.forget()
    return keeper


def _digest(part: Part) -> str:
    """Return what tells one part of a log from another: each has a position of its own."""
    types, keys, time = part.get("types"), part.get("keys"), part.get("time")
    what = {
        "types": types and sorted({kind if isinstance(kind, str) else event_tag(kind)
                                   for kind in types}),
        "keys": keys and sorted({*keys}),
        "start": part.get("start", 0),
        "steps": part.get("steps"),
        "epochs": part.get("epochs"),
        "time": time and [end if end is None else instant(end) for end in time],
        "latest": part.get("latest", True),
        "every": _rule(part.get("every")),
        "reduce": part.get("reduce"),
    }  # fmt: skip
    text = json.dumps(what, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _rule(every: Any) -> Any:
    if isinstance(every, Mapping):
        return {
            kind if isinstance(kind, str) else event_tag(kind): _rule(rule)
            for kind, rule in every.items()
        }
    if isinstance(every, FrequencyManager):
        return [every.log_frequency, every.mode, every.frequency_type, every.anchor]
    return None if every is None else str(cadence(every))


def _replay_directory(log: Log) -> Path:
    replays = own_directory(log.run_dir, "replays")
    for number in range(1, 100_000):
        directory = replays / str(number)
        if not os.path.lexists(directory):
            return directory
    raise EventlogError(f"{replays} is full; remove some, or give dir=")


def _progress(delivery: Delivery, reading: _Reading) -> Progress:
    end = reading.source.end
    ports = delivery.ports.values()
    at = min((end if p.state == "closed" else p.written_to for p in ports), default=reading.start)
    return Progress(
        reading.passed(at),
        reading.passed(end),
        {port.alias: port.statistics().delivered for port in ports},
    )


async def _report(
    delivery: Delivery, reading: _Reading, progress: Callable[[Progress], None]
) -> None:
    while True:
        progress(_progress(delivery, reading))
        await anyio.sleep(0.1)
