"""The source of a log that another process writes: followed without a lock and without its help."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from eventlog import _platform
from eventlog.events import RunFinished, RunStarted, Status
from eventlog.exceptions import CodecError
from eventlog.log.files import FileReader, last_valid_seq
from eventlog.log.layout import Content
from eventlog.log.segment_reader import is_sparse, list_segments
from eventlog.log.source import Block, Reader

__all__ = ["FollowSource"]

logger = logging.getLogger("eventlog")

FASTEST = 0.01
SLOWEST = 0.1
GRACE = 10.0
"""Seconds that a log is waited for whose directory was removed: its writer makes it again."""


class FollowSource:
    """A log as it grows: ends when its writer has said so, or has died.

    `watch` must run in the loop of whoever reads: it looks for new blocks, more seldom while
    nothing comes, and wakes the listeners.

    Args:
        directory: Of the rank's log.
        writer_lives: Says so, instead of the log's lock.
        parent: The process that writes it, where this one is its child: it is followed no longer
            than that lives.
        attempt: With which that process began: what another one goes on with, as a later attempt,
            is not followed.
        start: The first seq to look at.

    Attributes:
        sparse: Whether seqs are left out of it on purpose.
        finished: Whether the run's end is in the log.
        killed: Whether the writer died without a word.
        status: How the run ended, as far as the log says by now; "killed" where it does not.
        writer_lives: Says whether the writer may write more; to be asked before looking, so that
            what it wrote before its death is seen after it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        writer_lives: Callable[[], bool] | None = None,
        parent: int | None = None,
        attempt: int | None = None,
        start: int = 0,
    ) -> None:
        self.directory = directory
        self.sparse = is_sparse(directory)
        self.finished = False
        self.killed = False
        self.status: Status = "killed"
        # an interpreter that starts another one is in between: then its id says nothing
        self._parent = parent if parent == os.getppid() else None
        self._attempt = attempt
        self._superseded = False
        self._missing_since: float | None = None
        self._closed = False
        self._end = start
        self._wakes: list[Callable[[], None]] = []
        self._scout = FileReader(directory)
        self.writer_lives = writer_lives or self._writer_is_there

    @property
    def first(self) -> int:
        segments = list_segments(self.directory)
        return segments[0][0] if segments else 0

    @property
    def end(self) -> int:
        return self._end

    @property
    def synced(self) -> int:
        return self._end

    @property
    def closed(self) -> bool:
        return self._closed

    def open_reader(self) -> Reader:
        return _FollowReader(self)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes = [*self._wakes, wake]

        def unlisten() -> None:
            self._wakes = [w for w in self._wakes if w is not wake]

        return unlisten

    def _writer_is_there(self) -> bool:
        if self._superseded:
            return False
        lock = self.directory / "lock"
        if self._parent is not None and os.getppid() != self._parent:
            return False
        if lock.exists():
            self._missing_since = None
            return _platform.lock_is_held(lock)
        # removed with its directory; a writer that has more to write makes both again
        if self.finished or not self._end:
            return False
        if self._missing_since is None:
            self._missing_since = time.monotonic()
        return self._parent is not None or time.monotonic() - self._missing_since < GRACE

    def look(self) -> bool:
        """Look for new blocks; returns whether there were any."""
        found = False
        while not self._superseded and (block := self._scout.read(self._end)) is not None:
            self._note_end(block)
            if self._superseded:
                break
            self._end = block.end
            found = True
        return found

    def _note_end(self, block: Block) -> None:
        if not block.flags & Content.RUN:
            return
        try:
            events = block.events()
        except CodecError as error:
            # whoever delivers it counts what is lost; how the run ended is not known by it
            logger.warning("eventlog: %s: %s", self.directory, error)
            return
        for event in events:
            if isinstance(event, RunFinished):
                self.finished = True
                self.status = event.status
            elif isinstance(event, RunStarted):
                if self._attempt is not None and event.attempt > self._attempt:
                    self._superseded = True
                    return
                self.finished = False
                self.status = "killed"

    def close(self) -> None:
        """End the source where it is."""
        self._closed = True
        for wake in tuple(self._wakes):
            wake()

    def look_safely(self) -> bool:
        """Look for new blocks; a disk that cannot be read has none."""
        try:
            return self.look()
        except OSError as error:
            logger.warning("eventlog: %s cannot be read: %s", self.directory, error)
            return False

    def _count_to_the_end(self) -> None:
        """Have events at the end that cannot be read be missed, not taken for none."""
        if not self._superseded:
            with contextlib.suppress(OSError):
                self._end = max(self._end, last_valid_seq(self.directory))

    async def watch(self) -> None:
        """Follow the log until its end."""
        pause = FASTEST
        while not self._closed:
            # asked before looking: what was written before a death is seen after it
            lives = self.writer_lives()
            if self.look_safely():
                pause = FASTEST
                for wake in tuple(self._wakes):
                    wake()
            elif not lives:
                self.killed = not self.finished
                self._count_to_the_end()
                self.close()
            else:
                pause = min(SLOWEST, pause * 1.5)
            if not self._closed:
                await anyio.sleep(pause)


class _FollowReader:
    """A place in the log, no further than the source has looked: its end is the same for all."""

    def __init__(self, source: FollowSource) -> None:
        self._source = source
        self._files = FileReader(source.directory)
        self._ahead: tuple[int, Block] | None = None

    def read(self, seq: int) -> Block | None:
        if self._ahead is not None and self._ahead[0] == seq:
            block: Block | None = self._ahead[1]
        else:
            block = self._files.read(seq)
        if block is not None and block.first >= self._source.end:
            self._ahead = (seq, block)
            return None
        self._ahead = None
        return block
