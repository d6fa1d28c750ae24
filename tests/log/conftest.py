"""Logs whose clock, writer and disk the tests have in their hands: no thread is started."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import Event, StepEvent
from eventlog.log import open_log
from eventlog.log.disk import OsFiles
from eventlog.log.files import FileReader
from eventlog.log.segment_reader import Damage, list_segments
from eventlog.log.stored import StoredSource
from eventlog.log.writer import WriterStatistics
from eventlog.recorder import Recorder
from eventlog.testing import FakeClock


class FailingFiles(OsFiles):
    """A disk that fails when it is told to.

    Attributes:
        room: Bytes that can still be written; None for as many as you like.
        write_error, sync_error, create_error: The errno of what fails; 0 for nothing.
        most: The most bytes that one write takes; None for all.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.write_error = self.sync_error = self.create_error = 0
        self.most: int | None = None
        self.created = self.syncs = 0

    def create(self, path: Path) -> int:
        if self.create_error:
            raise OSError(self.create_error, os.strerror(self.create_error))
        self.created += 1
        return super().create(path)

    def writev(self, fd: int, buffers: Sequence[bytes]) -> int:
        if self.write_error:
            raise OSError(self.write_error, os.strerror(self.write_error))
        data = b"".join(buffers)
        if self.most is not None:
            data = data[: self.most]
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        return os.write(fd, data)

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))


class Book:
    """A run's directory, and who writes in it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.directory = run_dir / "rank-0"
        self.clock = FakeClock()
        self.files = FailingFiles()
        self.recorder: Recorder | None = None
        self.offered = 0
        self._made: list[Recorder] = []

    def open(self, **more: Any) -> Recorder:
        """Open the log for writing, with no thread."""
        self.recorder = Recorder(
            self.run_dir, run_id="test", clock=self.clock, files=self.files, **more
        )
        self._made.append(self.recorder)
        return self.recorder

    def crash(self) -> None:
        """Let the writer die: nothing is written any more, and its lock is gone."""
        assert self.recorder is not None
        assert self.recorder._held is not None
        self.recorder._held.release()
        self.recorder = None

    def emit(self, n: int = 1, **more: Any) -> None:
        """Offer n steps, a millisecond apart."""
        assert self.recorder is not None
        for _ in range(n):
            self.clock.advance(0.001)
            event = StepEvent(
                mono=self.clock.monotonic_ns(),
                step=self.offered,
                attempt=self.recorder.attempt,
                **more,
            )
            self.recorder.offer(event, {"n": self.offered, "x": self.offered / 3})
            self.offered += 1

    def turn(self) -> None:
        """Let the writer write."""
        assert self.recorder is not None
        self.recorder.writer.turn()

    def blocks(self, blocks: int, events: int) -> None:
        """Write blocks of so many events."""
        for _ in range(blocks):
            self.emit(events)
            self.turn()

    def statistics(self) -> WriterStatistics:
        """Return the writer's account, checked against what was offered."""
        assert self.recorder is not None
        found = self.recorder.writer.statistics()
        assert found.emitted == self.offered
        assert found.emitted == found.written + sum(found.dropped.values()) + found.queued
        return found

    def events(self) -> list[Event]:
        """Read the log."""
        return list(open_log(self.run_dir).events())

    def numbers(self) -> list[Any]:
        """Read the log: the steps' numbers."""
        return [e.values["n"] for e in self.events() if "n" in e.values]

    def segments(self) -> list[Path]:
        """Return the segments, in order."""
        return [path for _, path in list_segments(self.directory)]

    def close(self) -> None:
        """End the writers that are left."""
        for recorder in self._made:
            if recorder is self.recorder:
                recorder.stop(10)
            elif recorder.writer._log is not None:
                recorder.writer._log.leave_segment(sync=False)


def read_with_damage(directory: Path) -> tuple[list[Event], list[Damage]]:
    """Read the blocks of a log, whatever is missing between them, and what is damaged."""
    source = StoredSource(directory)
    reader = source.open_reader()
    events: list[Event] = []
    seq = 0
    while (block := reader.read(seq)) is not None:
        events += [e for e in block.events() if e.seq >= seq]
        seq = block.end
    assert isinstance(reader, FileReader)
    return events, source.damage


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    """A log that is not open yet."""
    made = Book(tmp_path / "run")
    yield made
    made.close()


@pytest.fixture
def read_all() -> Callable[[Path], tuple[list[Event], list[Damage]]]:
    """Return a function that reads a directory's events and damage."""
    return read_with_damage
