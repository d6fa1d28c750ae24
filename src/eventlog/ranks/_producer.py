"""Following the logs of all ranks of a run, and writing the reduced one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from eventlog._paths import own_directory, read_json
from eventlog._platform import lock_is_held
from eventlog.cadence.window import Reduction
from eventlog.clock import SYSTEM_CLOCK
from eventlog.events import Event, RunFinished, RunStarted, TextEvent, UnknownEvent
from eventlog.exceptions import CodecError, LogError
from eventlog.log.copy import LogCopy
from eventlog.log.files import FileReader
from eventlog.ranks import REDUCED, read_order
from eventlog.ranks._align import Aligner, place_of
from eventlog.recorder import rank_directory

__all__ = ["NOTE", "PATIENCE", "Totals", "reduce_run"]

logger = logging.getLogger("eventlog")

PATIENCE = 30.0
"""Seconds that the values of one place wait for a rank."""

NOTE = "ranks"
"""The tag of the texts that say which ranks are missing."""

FASTEST = 0.02
SLOWEST = 0.25
AT_ONCE = 4096
"""Events of a rank that are read before it is the others' turn."""

SYNC = 1.0


class Totals(NamedTuple):
    """What was done.

    Attributes:
        events: That the reduced log has now.
        late: Events by rank that came after the others had gone out.
    """

    events: int
    late: dict[int, int]


class _RankLog:
    """The log of one rank, as it grows.

    Attributes:
        lives: Whether somebody writes it.
        there: Whether there is one.
        ended: Whether its end was said in it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lives = self.there = self.ended = False
        self._reader = FileReader(directory)
        self._cursor = 0

    def read(self) -> Iterator[Event]:
        """Yield what has come, `AT_ONCE` events or a few more at most."""
        # asked before looking: what was written before a death is seen after it
        self.lives = lock_is_held(self.directory / "lock")
        n = 0
        while n < AT_ONCE:
            try:
                block = self._reader.read(self._cursor)
            except OSError as error:
                logger.warning("eventlog: %s cannot be read: %s", self.directory, error)
                return
            if block is None:
                return
            self.there = self.lives = True  # there may be more
            first, self._cursor = self._cursor, block.end
            try:
                events = block.events()
            except CodecError as error:
                logger.warning("eventlog: %s: %s", self.directory, error)
                continue
            for event in events[max(0, first - block.first) :]:
                n += 1
                if isinstance(event, RunStarted | RunFinished):
                    self.ended = isinstance(event, RunFinished)
                yield event


class _Producer:
    def __init__(self, run_dir: Path, log: LogCopy, patience: float) -> None:
        order = read_order(run_dir)
        self._log = log
        self._patience = patience
        self._logs = {r: _RankLog(rank_directory(run_dir, r)) for r in range(order.world_size)}
        self._aligner = Aligner(Reduction(order.reduce), self._logs, patience)
        self._begun = time.monotonic()
        self._missing: set[int] = set()
        self._said_behind: set[int] = set()
        self._step: int | None = None
        self._finished: RunFinished | None = None
        self._unwritten: list[Event] = []
        self._synced_at = self._begun
        # what rank 0 says beside values is copied; so many of these were, the last time
        self._copied = 0
        written = [e for e in _events_in(rank_directory(run_dir / REDUCED, 0)) if not _is_note(e)]
        self._copied = sum(place_of(event) is None for event in written)
        self._aligner.resume(written)

    def turn(self) -> bool:
        """Take and write what has come; returns whether there was anything."""
        found = False
        now = time.monotonic()
        for rank, log in self._logs.items():
            for event in log.read():
                found = True
                self._take(rank, event, now)
        for rank in self._logs:
            self._look_after(rank, now)
        self._write(self._aligner.ready(now))
        self._say_behind()
        return found

    def _take(self, rank: int, event: Event, now: float) -> None:
        if place_of(event) is None:
            if rank:
                return
            if self._copied:
                self._copied -= 1
                return
            if self._finished is not None:
                # the run was resumed after it had ended
                self._aligner.take(rank, self._finished, now)
            self._finished = event if isinstance(event, RunFinished) else None
            if self._finished is not None:
                return
        self._aligner.take(rank, event, now)

    def _look_after(self, rank: int, now: float) -> None:
        """Wait for those ranks that can still come, and say when that changes."""
        log, aligner = self._logs[rank], self._aligner
        if log.lives:
            if rank in self._missing:
                self._missing.discard(rank)
                self._note(f"rank {rank} is here")
            aligner.awaited.add(rank)
        elif log.there or now - self._begun >= self._patience:
            if rank in aligner.awaited and not log.ended:
                self._missing.add(rank)
                what = "died" if log.there else "has not come"
                n = len(self._logs) - len(self._missing)
                self._note(f"rank {rank} {what}; values go on with {n} of {len(self._logs)} ranks")
            aligner.awaited.discard(rank)

    def _say_behind(self) -> None:
        for rank in sorted(self._aligner.behind - self._said_behind):
            self._said_behind.add(rank)
            self._note(f"rank {rank} is more than {self._patience:g} s behind; not waited for")
        self._aligner.behind.clear()

    def _note(self, text: str) -> None:
        logger.warning("eventlog: %s", text)
        wall = SYSTEM_CLOCK.wall_ns()
        self._aligner.say(TextEvent(tag=NOTE, text=text, step=self._step, wall=wall))

    @property
    def over(self) -> bool:
        """Whether no rank writes any more, and none can be expected."""
        return not any(log.lives for log in self._logs.values()) and not self._aligner.awaited

    def finish(self) -> Totals:
        """Write what is left, and the end."""
        late = dict(self._aligner.late)
        for rank, n in sorted(late.items()):
            self._note(f"{n} events of rank {rank} came too late to be reduced")
        self._write(self._aligner.finish())
        if self._finished is not None and not self._copied:
            self._aligner.say(self._finished)
            self._write(self._aligner.ready(0.0))
        self._log.close()
        return Totals(self._log.end, late)

    def _write(self, events: list[Event]) -> None:
        for event in events:
            seq = self._log.end + len(self._unwritten)
            if event.step is not None and event.axis == "step":
                self._step = event.step
            # a rank's monotonic clock says nothing on another host
            mono = event.mono if isinstance(event, UnknownEvent) else event.wall
            placed = msgspec.structs.replace(event, seq=seq, mono=mono, rank=0)
            self._unwritten.append(placed)
        now = time.monotonic()
        try:
            if self._unwritten:
                self._log.write(self._unwritten)
                self._unwritten = []
            if now - self._synced_at >= SYNC:
                self._synced_at = now
                self._log.sync()
        except OSError as error:
            self._unwritten = [e for e in self._unwritten if e.seq >= self._log.end]
            logger.warning("eventlog: %s; tried again", error)


def _is_note(event: Event) -> bool:
    return isinstance(event, TextEvent) and event.tag == NOTE


def _events_in(directory: Path) -> Iterator[Event]:
    reader, cursor = FileReader(directory), 0
    while (block := reader.read(cursor)) is not None:
        cursor = block.end
        yield from block.events()


def reduce_run(
    run_dir: Path, *, patience: float = PATIENCE, stop: Callable[[], bool] = lambda: False
) -> Totals:
    """Reduce the logs of a run's ranks, from where the reduced log ends, until all have ended.

    Args:
        run_dir: The run's directory.
        patience: Seconds that the values of one place wait for a rank, and the run for a rank
            that has not come yet.
        stop: Asked now and then whether to stop before that.

    Returns:
        What was done. Where another process reduces this run to its end, nothing.

    Raises:
        EventlogError: The run has nothing that says how to reduce it.
        OSError: The reduced log cannot be written at the end.
    """
    read_order(run_dir)
    log = _open(run_dir, stop)
    if log is None:
        return Totals(0, {})
    producer = _Producer(run_dir, log, patience)
    pause = FASTEST
    while not stop():
        if producer.turn():
            pause = FASTEST
            continue
        if producer.over:
            break
        time.sleep(pause)
        pause = min(SLOWEST, pause * 1.5)
    return producer.finish()


def _open(run_dir: Path, stop: Callable[[], bool]) -> LogCopy | None:
    """Open the reduced log; None where another process has it for as long as the ranks live."""
    directory = rank_directory(own_directory(run_dir, REDUCED), 0)
    try:
        about = read_json(run_dir / REDUCED / "manifest.json")
    except (OSError, ValueError):
        about = {}
    about = about if isinstance(about, dict) else {}
    run_id, project = str(about.get("run_id", run_dir.name)), str(about.get("project", ""))
    while not stop():
        try:
            return LogCopy(directory, run_id=run_id, project=project)
        except LogError as error:
            if not lock_is_held(directory / "lock"):
                raise
            if not any(lock_is_held(path / "lock") for path in run_dir.glob("rank-*")):
                logger.warning("eventlog: %s", error)
                return None
        time.sleep(SLOWEST)
    return None
