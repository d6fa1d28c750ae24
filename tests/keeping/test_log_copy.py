"""A copy of a log: each event once, whatever fails in between, and nothing said that is not so."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog.events import Event, StepEvent
from eventlog.exceptions import LogError, RefusedError
from eventlog.log.copy import LogCopy
from eventlog.log.disk import OsFiles
from eventlog.sinks.base import RunInfo
from eventlog.sinks.log import LogSink


class Disk(OsFiles):
    """A disk with room for so many bytes, or that does not sync."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.broken = False

    def writev(self, fd: int, buffers: Sequence[bytes]) -> int:
        data = b"".join(buffers)
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        return os.write(fd, data)

    def fdatasync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def events(first: int, end: int, attempt: int = 1) -> list[Event]:
    return [
        StepEvent(step=i, mono=i + 1, wall=i + 1, seq=i, attempt=attempt, values={"n": i})
        for i in range(first, end)
    ]


def copy_on(directory: Path, disk: Disk) -> LogCopy:
    copy = LogCopy(directory / "rank-0", run_id="r")
    copy._log._files = disk
    return copy


def read(directory: Path) -> list[Event]:
    return list(eventlog.open_log(directory).events())


def sink_in(directory: Path) -> LogSink:
    sink = LogSink(directory)
    sink.open(RunInfo(run_id="r"))
    return sink


@pytest.mark.parametrize("room", range(0, 60_000, 2_371))
def test_a_batch_that_was_written_in_part_is_gone_on_with(tmp_path: Path, room: int) -> None:
    """Given again, it is completed: no event is missing, none is stored twice."""
    disk = Disk()
    copy = copy_on(tmp_path, disk)
    copy.write(events(0, 100))
    disk.room = room
    batch = events(100, 2_000)
    with pytest.raises(OSError, match="No space"):
        copy.write(batch)
    assert copy.end == len(read(tmp_path))
    disk.room = None
    copy.write(batch)
    copy.close()
    assert read(tmp_path) == events(0, 2_000)
    assert eventlog.open_log(tmp_path).summary().events == 2_000


def test_a_failed_sync_is_no_confirmation(tmp_path: Path) -> None:
    """Who asks for a flush is told; afterwards the copy goes on in a new segment."""
    disk = Disk()
    copy = copy_on(tmp_path, disk)
    copy.write(events(0, 10))
    disk.broken = True
    with pytest.raises(OSError, match="may not be on the disk"):
        copy.sync()
    disk.broken = False
    copy.write(events(10, 20))
    copy.sync()
    copy.close()
    assert read(tmp_path) == events(0, 20)


def test_a_copy_that_is_removed_says_so_and_goes_on(tmp_path: Path) -> None:
    """What was in it is gone: that is no confirmation, and what follows is in a new one."""
    sink = sink_in(tmp_path / "copy")
    sink.write(events(0, 10))
    sink.flush()
    sink.write(events(10, 20))
    shutil.rmtree(tmp_path / "copy")
    with pytest.raises(OSError, match="may not be on the disk"):
        sink.flush()
    sink.write(events(20, 30))
    sink.flush()
    sink.close("finished")
    assert read(tmp_path / "copy") == events(20, 30)


def test_what_is_there_is_recognised_by_the_next_one(tmp_path: Path) -> None:
    """After a crash a batch may come again from any place: what is there is not written again."""
    sink = sink_in(tmp_path)
    sink.write(events(0, 50))
    sink.close("killed")
    sink = sink_in(tmp_path)
    sink.write(events(20, 80))
    sink.close("finished")
    assert read(tmp_path) == events(0, 80)


def test_seqs_that_the_log_gave_twice_are_refused(tmp_path: Path) -> None:
    """Where a log lost events that its copy has, what took their seqs is not dropped in silence."""
    sink = sink_in(tmp_path)
    sink.write(events(0, 50))
    with pytest.raises(RefusedError, match="event 40 of attempt 1, which the log lost"):
        sink.write(events(40, 50, attempt=2))
    sink.write(events(50, 60, attempt=2))
    sink.close("finished")
    assert read(tmp_path) == events(0, 50) + events(50, 60, attempt=2)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second one is refused, and takes nothing from the first."""
    copy = LogCopy(tmp_path, run_id="r")
    with pytest.raises(LogError, match="being written by somebody else"):
        LogCopy(tmp_path, run_id="r")
    copy.close()
    LogCopy(tmp_path, run_id="r").close()


def test_a_place_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """The error names the directory."""
    (tmp_path / "file").write_text("")
    given: Any = tmp_path / "file" / "rank-0"
    with pytest.raises(LogError, match="cannot open a log in"):
        LogCopy(given, run_id="r")
