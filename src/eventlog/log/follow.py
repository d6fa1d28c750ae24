"""The source of a log that another process writes: followed without a lock and without its help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio

from eventlog import _platform
from eventlog.events import RunFinished, RunStarted
from eventlog.log.files import FileReader, list_segments
from eventlog.log.layout import Content
from eventlog.log.source import Block, Reader

__all__ = ["FollowSource"]

FASTEST = 0.01
SLOWEST = 0.1


class FollowSource:
    """A log as it grows: ends when its writer has said so, or has died.

    `watch` must run in the loop of whoever reads: it looks for new blocks, more seldom while
    nothing comes, and wakes the listeners.

    Attributes:
        finished: Whether the run's end is in the log.
        killed: Whether the writer died without a word.
    """

    def __init__(self, directory: Path, *, writer_lives: Callable[[], bool] | None = None) -> None:
        self.directory = directory
        self.finished = False
        self.killed = False
        self._closed = False
        self._end = 0
        self._wakes: list[Callable[[], None]] = []
        self._scout = FileReader(directory)
        self._writer_lives = writer_lives or self._lock_is_held

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
        return FileReader(self.directory)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes = [*self._wakes, wake]

        def unlisten() -> None:
            self._wakes = [w for w in self._wakes if w is not wake]

        return unlisten

    def _lock_is_held(self) -> bool:
        return _platform.lock_is_held(self.directory / "lock")

    def look(self) -> bool:
        """Look for new blocks; returns whether there were any."""
        found = False
        while (block := self._scout.read(self._end)) is not None:
            self._note_end(block)
            self._end = block.end
            found = True
        return found

    def _note_end(self, block: Block) -> None:
        if not block.flags & Content.RUN:
            return
        for event in block.events():
            if isinstance(event, RunFinished):
                self.finished = True
            elif isinstance(event, RunStarted):
                self.finished = False

    def close(self) -> None:
        """End the source where it is."""
        self._closed = True
        for wake in tuple(self._wakes):
            wake()

    async def watch(self) -> None:
        """Follow the log until its end."""
        pause = FASTEST
        while not self._closed:
            # asked before looking: what was written before a death is seen after it
            lives = self._writer_lives()
            if self.look():
                pause = FASTEST
                for wake in tuple(self._wakes):
                    wake()
            elif not lives:
                self.killed = not self.finished
                self.close()
            else:
                pause = min(SLOWEST, pause * 1.5)
            if not self._closed:
                await anyio.sleep(pause)
