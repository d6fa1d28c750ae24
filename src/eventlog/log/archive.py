"""Opening a log: its events in order, what it is about, and what is damaged in it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec

from eventlog import _platform
from eventlog._export import long_frame, read, wide_frame
from eventlog.cadence.window import Reduce
from eventlog.events import (
    ConfigUpdated,
    Event,
    ModelUpdateEvent,
    RunFinished,
    RunStarted,
    Status,
)
from eventlog.exceptions import CodecError, NotALogError
from eventlog.log.attempts import Attempts
from eventlog.log.files import FileReader
from eventlog.log.layout import BlockKind, Content
from eventlog.log.records import Gap, SegmentHeader, decode_record
from eventlog.log.seek import Seeker
from eventlog.log.segment_reader import (
    Damage,
    Scanned,
    Segment,
    block_fault,
    latched_events,
    list_segments,
)
from eventlog.log.stored import StoredSource
from eventlog.selection import Instant, instant
from eventlog.sinks.base import RunInfo
from eventlog.subscription import Every, Subscription

__all__ = ["Log", "LogSummary", "open_log"]

_RANK = re.compile(r"rank-(0|[1-9][0-9]{0,9})")


class LogSummary(NamedTuple):
    """What a log holds, from its block headers.

    Attributes:
        events: How many can be read.
        blocks, segments, bytes: How they are stored.
        first_time, last_time: Wall time, ns; None for an empty log.
        steps: The smallest and the largest step; None when there is none.
        attempts: How many.
        dropped: Events that were emitted and never written, by reason.
        damage: What could not be read.
        status: How the run ended; "running" while its writer lives, "killed" when it died.
    """

    events: int
    blocks: int
    segments: int
    bytes: int
    first_time: int | None
    last_time: int | None
    steps: tuple[int, int] | None
    attempts: int
    dropped: dict[str, int]
    damage: list[Damage]
    status: Status | str


class Log:
    """The log of one rank of a run.

    Attributes:
        directory: Where its segments lie.
        run_dir: The run's directory.
        rank: The rank.
        ranks: All ranks of which the run has a log.
    """

    def __init__(self, directory: Path, run_dir: Path, rank: int, ranks: list[int]) -> None:
        self.directory = directory
        self.run_dir = run_dir
        self.rank = rank
        self.ranks = ranks
        self._seeker: Seeker | None = None

    def source(self) -> StoredSource:
        """Return what a `Subscription` reads from: the events that the log holds now."""
        return StoredSource(self.directory)

    def events(
        self,
        *,
        types: Collection[type[Event] | str] | None = None,
        every: Every = None,
        reduce: Reduce = None,
        keys: Collection[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        latest: bool = False,
    ) -> Iterator[Event]:
        """Yield the events in the order of the log.

        Args:
            types: Event types (or tags) to yield; all when None.
            every: When step and batch events pass; see `eventlog.every`.
            reduce: What becomes of the values between two ticks.
            keys: Glob patterns of value names to keep.
            start, stop: The first seq, and the one to stop before.
            latest: Leave out what a later attempt logged again, step by step.
        """
        subscription = self._subscription(types, every, reduce, keys, start, latest)
        while (ready := subscription.pull()) is not None:
            for event in ready.events:
                if stop is not None and event.seq >= stop:
                    return
                yield event

    async def aevents(
        self,
        *,
        types: Collection[type[Event] | str] | None = None,
        every: Every = None,
        reduce: Reduce = None,
        keys: Collection[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        latest: bool = False,
    ) -> AsyncIterator[Event]:
        """Yield the events, letting other tasks run in between; see `events`."""
        subscription = self._subscription(types, every, reduce, keys, start, latest)
        while (ready := subscription.pull()) is not None:
            for event in ready.events:
                if stop is not None and event.seq >= stop:
                    return
                yield event
            await anyio.lowlevel.checkpoint()

    def _subscription(
        self,
        types: Collection[type[Event] | str] | None,
        every: Every,
        reduce: Reduce,
        keys: Collection[str] | None,
        start: int,
        latest: bool,
    ) -> Subscription:
        return Subscription(
            self.source(),
            types=types,
            every=every,
            reduce=reduce,
            keys=keys,
            start=start,
            attempts=Attempts.scan(self.directory) if latest else None,
        )

    def frame(
        self,
        *,
        types: Collection[type[Event] | str] | None = None,
        keys: Collection[str] | None = None,
        latest: bool = True,
        wide: bool = False,
    ) -> dict[str, list[Any]]:
        """Return the values as columns, for ``pandas.DataFrame`` and its like.

        `polars.DataFrame` and `pyarrow.table` take them as they are, too. Numbers are floats, NaN
        and infinities among them; what is not there is None. All of it is in memory: for a large
        log, ``eventlog export`` writes a file.

        Args:
            types: Event types (or tags) to take; all when None.
            keys: Glob patterns of value names to keep.
            latest: What the latest attempt says of each step, or all attempts.
            wide: A row a step and a column a key, in the order of the steps; of several values for
                one key at one step, the last one. As it is, a row a value: ``key``, and ``value``
                or, for texts, ``text``.

        Example::

            import pandas
            frame = pandas.DataFrame(open_log("runs/digits").frame(keys=["loss"], wide=True))
            frame.plot(x="step", y="loss")
        """
        attempts = Attempts.scan(self.directory) if latest else None
        events = read(self.source(), types=types, keys=keys, attempts=attempts)
        return wide_frame(events, keys) if wide else long_frame(events, keys)

    def seek(
        self, *, step: int | None = None, epoch: float | None = None, time: Instant | None = None
    ) -> int:
        """Return the seq of the first event at or after a step, an epoch or a time.

        ``log.events(start=log.seek(step=1000))`` goes on from there. Steps are those of the axis
        "step". After rewinds and resumes several attempts have covered a step or an epoch: the
        latest one is meant, and its first such event in the order of the log; a rewind covers all
        from there on. What is said about the run itself is at no step and no epoch. Epochs are
        expected to ascend in an attempt.

        Args:
            step: As in `Event.step`; of the next step that there is, where nothing covers it.
            epoch: Whole or fractional; likewise.
            time: A datetime, an ISO 8601 text or seconds since 1970; in the order of the log.

        Returns:
            The seq; the one after the last event where nothing comes any more.

        Raises:
            ValueError: Not one of the three was given, or `time` is no time.
            TypeError: One is of no such type.
        """
        given = {"step": step, "epoch": epoch, "time": time}
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            raise ValueError(f"seek takes one of step, epoch and time, not {len(names)} of them")
        seeker = self._seeker = self._seeker or Seeker(self.directory)
        if time is not None:
            return seeker.time(instant(time))
        (name,) = names
        value: Any = given[name]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, not {value!r}")
        return seeker.step(value) if name == "step" else seeker.epoch(value)

    def header(self) -> SegmentHeader | None:
        """Return the newest segment's header that can be read."""
        for _, path in reversed(list_segments(self.directory)):
            segment = Segment(path)
            header = segment.header
            segment.close()
            if header is not None:
                return header
        return None

    def run_info(self, at: int | None = None) -> RunInfo:
        """Return what the log knows of its run, as a sink would be told that is about to open.

        The config holds everything that became known by the end.

        Args:
            at: The seq of the first event that the sink will be given; the log's first when None.
        """
        started = self._started()
        header = self.header()
        attempt, model_update = self.standing(0 if at is None else at)
        if started is None:
            return RunInfo(
                run_id=header.run_id if header else self.run_dir.name,
                project=header.project if header else "",
                name=self.run_dir.name,
                run_dir=self.run_dir,
                directory=self.run_dir,
                rank=self.rank,
                attempt=attempt,
                started=self._began(),
                model_update=model_update,
                replayed=True,
                outside_files=False,
            )
        return RunInfo(
            run_id=started.run_id,
            project=started.project,
            name=started.name or started.run_id,
            config=started.config,
            tags=tuple(started.tags),
            group=started.group,
            notes=started.notes,
            provenance=started.provenance,
            rank=self.rank,
            world_size=started.world_size,
            attempt=attempt,
            started=self._began(),
            model_update=model_update,
            run_dir=self.run_dir,
            directory=self.run_dir,
            replayed=True,
            outside_files=False,
        )

    def _began(self) -> int:
        """Return when the log begins: wall-clock nanoseconds, 0 where that cannot be read."""
        for _, path in list_segments(self.directory):
            try:
                segment = Segment(path)
            except FileNotFoundError:  # retired between the listing and now
                continue
            header = segment.header
            segment.close()
            if header is not None:
                return header.wall
        return 0

    def standing(self, seq: int) -> tuple[int, ModelUpdateEvent | None]:
        """Return the attempt that an event belongs to, and the last model update before it.

        An event that is not there yet is taken for one of the newest attempt.
        """
        paths = list_segments(self.directory)
        attempt: int | None = None
        # one whose header is damaged says nothing; what lies before the first one is gone
        for base, path in [p for p in reversed(paths) if p[0] <= seq] or paths[:1]:
            try:
                segment = Segment(path)
            except FileNotFoundError:  # retired between the listing and now
                continue
            header, latched = segment.header, latched_events(segment)
            segment.close()
            if header is None:
                continue
            attempt = header.attempt if attempt is None else attempt
            before = list(self._updates(base, seq))
            if before:
                return attempt, before[-1]
            update = next((e for e in latched if isinstance(e, ModelUpdateEvent)), None)
            if update is None:
                return attempt, None
            # what came in the moment in which the segment was begun is latched already
            end = next((other for other, _ in paths if other > base), None)
            if not any(_is_same(update, event) for event in self._updates(base, end)):
                return attempt, update
            seq = base
        return attempt or 1, None

    def _updates(self, start: int, stop: int | None) -> Iterator[ModelUpdateEvent]:
        reader = FileReader(self.directory)
        while (stop is None or start < stop) and (block := reader.read(start)) is not None:
            start = block.end
            if block.flags & Content.MODEL:
                # a block that cannot be read is said by whoever delivers it
                with contextlib.suppress(CodecError):
                    for event in block.events():
                        if isinstance(event, ModelUpdateEvent) and (
                            stop is None or event.seq < stop
                        ):
                            yield event

    def _started(self) -> RunStarted | None:
        """Return the last `RunStarted`, with all that became known of the config."""
        started: RunStarted | None = None
        config: dict[str, Any] = {}
        for _, path in list_segments(self.directory):
            segment = Segment(path)
            for latched in latched_events(segment):
                if isinstance(latched, RunStarted):
                    started = latched
                    config |= latched.config
            segment.close()
        # run events are few, and blocks without any are passed by unread
        for event in self.events(types=[RunStarted, ConfigUpdated]):
            if isinstance(event, RunStarted):
                started = event
            if isinstance(event, RunStarted | ConfigUpdated):
                config |= event.config
        return None if started is None else msgspec.structs.replace(started, config=config)

    def summary(self) -> LogSummary:
        """Return what the log holds, without decoding its events."""
        events = blocks = size = 0
        first: int | None = None
        last: int | None = None
        low, high = 2**63 - 1, -1
        attempts = 0
        dropped: dict[str, int] = {}
        damage: list[Damage] = []
        paths = list_segments(self.directory)
        next_seq = 0
        for _, path in paths:
            segment = Segment(path)
            size += segment.size
            if segment.header is not None:
                attempts = max(attempts, segment.header.attempt)
            at = segment.start
            for block in segment.scan(damaged=damage.append):
                at = block.end
                header = block.header
                if header.kind == BlockKind.EVENTS:
                    fault = None if segment.stored_payload(block) else "damaged payload"
                else:
                    fault = block_fault(segment, block)
                if fault is not None:
                    length = block.end - block.offset
                    damage.append(Damage(path, block.offset, length, fault))
                    continue
                if header.kind == BlockKind.GAP:
                    for reason, n in _dropped(segment, block).items():
                        dropped[reason] = dropped.get(reason, 0) + n
                if header.kind != BlockKind.EVENTS:
                    continue
                blocks += 1
                if header.first_seq >= next_seq:
                    events += header.events
                next_seq = max(next_seq, header.first_seq + header.events)
                first = header.first_time if first is None else min(first, header.first_time)
                last = header.last_time if last is None else max(last, header.last_time)
                low, high = min(low, header.min_step), max(high, header.max_step)
            if segment.size > at:
                left = segment.size - at
                damage.append(Damage(path, at, left, "a tail that is no block"))
            segment.close()
        return LogSummary(
            events,
            blocks,
            len(paths),
            size,
            first,
            last,
            (low, high) if high >= 0 else None,
            attempts,
            dropped,
            damage,
            self.status(),
        )

    def status(self) -> Status | str:
        """Return finished, failed, interrupted, running, or killed when it ended without a word."""
        end: RunFinished | None = None
        for event in self.events(types=[RunStarted, RunFinished]):
            end = event if isinstance(event, RunFinished) else None
        if end is not None:
            return end.status
        return "running" if _platform.lock_is_held(self.directory / "lock") else "killed"

    def __repr__(self) -> str:
        return f"<Log {str(self.run_dir)!r}, rank {self.rank}>"


def _is_same(latched: Event, event: Event) -> bool:
    return latched == msgspec.structs.replace(event, seq=latched.seq, wall=latched.wall)


def _dropped(segment: Segment, block: Scanned) -> dict[str, int]:
    try:
        return decode_record(segment.payload(block), Gap).dropped
    except CodecError:
        return {}


def open_log(path: str | os.PathLike[str], rank: int | None = None) -> Log:
    """Open the log at a path: of a run that is over, was killed, or still goes on.

    Args:
        path: A run's directory, or that of one of its ranks.
        rank: Which rank's log, for a run's directory; the lowest one by default.

    Raises:
        NotALogError: There is none; says what is there.
    """
    directory = Path(path)
    match = _RANK.fullmatch(directory.name)
    if match and list_segments(directory):
        number = int(match.group(1))
        return Log(directory, directory.parent, number, _ranks(directory.parent))
    if not directory.exists():
        raise NotALogError(f"{directory} does not exist")
    if directory.is_file():
        raise NotALogError(f"{directory} is a file; give the run's directory")
    ranks = _ranks(directory)
    if rank is None and ranks:
        rank = ranks[0]
    if rank is None or rank not in ranks:
        raise NotALogError(_nothing_there(directory, rank, ranks))
    return Log(directory / f"rank-{rank}", directory, rank, ranks)


def _ranks(run_dir: Path) -> list[int]:
    found = []
    for child in run_dir.iterdir():
        match = _RANK.fullmatch(child.name)
        if match and child.is_dir() and list_segments(child):
            found.append(int(match.group(1)))
    return sorted(found)


def _nothing_there(directory: Path, rank: int | None, ranks: list[int]) -> str:
    if ranks:
        return f"{directory} has no log of rank {rank}; it has: {', '.join(map(str, ranks))}"
    runs = sorted(p.parent.name for p in directory.glob("*/rank-*") if p.is_dir())[:5]
    if runs:
        return f"{directory} is no run; it holds runs: {', '.join(dict.fromkeys(runs))}"
    return f"{directory} holds no event log (no rank-<n>/*.elog)"
