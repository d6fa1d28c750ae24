"""Replay: a log into sinks, by the same subscriptions and the same delivery as a live run."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.from_thread
import msgspec
import sniffio

from eventlog._names import safe_name
from eventlog.cadence.window import Reduce
from eventlog.delivery import DEADLINES, RETRY, Deadlines, Delivery, Port, Retry, SinkStatistics
from eventlog.events import Event
from eventlog.exceptions import EventlogError
from eventlog.log.archive import Log, open_log
from eventlog.log.attempts import Attempts
from eventlog.log.files import Damage
from eventlog.sinks.base import RunInfo
from eventlog.sinks.select import Sinks, select_sinks
from eventlog.subscription import Every, Subscription

__all__ = ["Progress", "ReplayReport", "areplay", "replay"]

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
        damage: What of the log could not be read.
    """

    complete: bool
    sinks: dict[str, SinkStatistics]
    urls: dict[str, str | None]
    damage: list[Damage]


async def areplay(
    path: str | os.PathLike[str] | Log,
    sinks: Sinks,
    *,
    every: Every = None,
    reduce: Reduce = None,
    types: Collection[type[Event] | str] | None = None,
    keys: Collection[str] | None = None,
    start: int = 0,
    rank: int | None = None,
    dir: str | os.PathLike[str] | None = None,
    latest: bool = True,
    deadlines: Deadlines = DEADLINES,
    retry: Retry = RETRY,
    progress: Callable[[Progress], None] | None = None,
) -> ReplayReport:
    """Replay a log into sinks, each as fast as it takes it, on the running loop.

    Args:
        path: A run's directory, or a log that is open.
        sinks: As for `eventlog.Run`.
        every, reduce: Applied anew, whatever the sinks of the run had.
        types, keys: What to replay; everything by default.
        start: The first seq.
        rank: Which rank's log.
        dir: Where sinks put their files: ``<dir>/<alias>``. By default a new directory beside
            the run's own sinks, so that a replay never writes into what a live sink wrote.
        latest: Replay what the latest attempt says of each step, once.
        deadlines, retry: For the sinks.
        progress: Told about ten times a second.

    Returns:
        What each sink took. A sink's failure is in there; it is not raised.

    Raises:
        NotALogError: There is no log at `path`.
        SinkNotFoundError, SinkLoadError: As it says.
        ValueError: No sinks were given.
    """
    log = path if isinstance(path, Log) else open_log(path, rank)
    specs = select_sinks(sinks, every, reduce)
    if not specs:
        raise ValueError("sinks must name at least one sink to replay into")
    source = log.source()
    attempts = Attempts.scan(log.directory) if latest else None
    base = _replay_directory(log) if dir is None else Path(dir)
    info = log.run_info()
    delivery = Delivery(source)
    for spec in specs:
        subscription = Subscription(
            source,
            types=types if spec.types is None else spec.types,
            every=spec.every,
            reduce=spec.reduce,
            keys=keys if spec.keys is None else spec.keys,
            start=start,
            attempts=attempts,
        )
        told = msgspec.structs.replace(info, directory=base / safe_name(spec.alias))
        port = Port(
            spec.alias,
            spec.make(),
            subscription,
            _constant(told),
            deadlines=deadlines,
            retry=retry,
        )
        delivery.add(port)
    if progress is None:
        await delivery.run()
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(_report, delivery, source.end - start, start, progress)
            await delivery.run()
            group.cancel_scope.cancel()
        progress(_progress(delivery, source.end - start, start))
    statistics = {alias: port.statistics() for alias, port in delivery.ports.items()}
    return ReplayReport(
        all(s.state == "closed" and not s.dead for s in statistics.values()),
        statistics,
        {alias: port.sink.url for alias, port in delivery.ports.items()},
        source.damage,
    )


def replay(
    path: str | os.PathLike[str] | Log,
    sinks: Sinks,
    *,
    every: Every = None,
    reduce: Reduce = None,
    types: Collection[type[Event] | str] | None = None,
    keys: Collection[str] | None = None,
    start: int = 0,
    rank: int | None = None,
    dir: str | os.PathLike[str] | None = None,
    latest: bool = True,
    deadlines: Deadlines = DEADLINES,
    retry: Retry = RETRY,
    progress: Callable[[Progress], None] | None = None,
) -> ReplayReport:
    """Replay a log into sinks and wait for it; see `areplay`.

    Works inside a running loop as well (a notebook's): it then runs on a thread of its own.
    """

    async def main() -> ReplayReport:
        return await areplay(
            path,
            sinks,
            every=every,
            reduce=reduce,
            types=types,
            keys=keys,
            start=start,
            rank=rank,
            dir=dir,
            latest=latest,
            deadlines=deadlines,
            retry=retry,
            progress=progress,
        )

    return run_loop(main)


def run_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function to its end, also where this thread already runs a loop."""
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return anyio.run(main)
    with anyio.from_thread.start_blocking_portal() as portal:
        return portal.call(main)


def _constant(info: RunInfo) -> Callable[[dict[str, Any]], RunInfo]:
    return lambda state: msgspec.structs.replace(info, state=state)


def _replay_directory(log: Log) -> Path:
    for number in range(1, 100_000):
        directory = log.run_dir / "replays" / str(number)
        if not directory.exists():
            return directory
    raise EventlogError(f"{log.run_dir / 'replays'} is full; remove some, or give dir=")


def _progress(delivery: Delivery, total: int, start: int) -> Progress:
    ports = delivery.ports.values()
    at = min((port.subscription.cursor for port in ports), default=start) - start
    return Progress(
        at, total, {port.alias: port.statistics().delivered for port in delivery.ports.values()}
    )


async def _report(
    delivery: Delivery, total: int, start: int, progress: Callable[[Progress], None]
) -> None:
    while True:
        progress(_progress(delivery, total, start))
        await anyio.sleep(0.1)
