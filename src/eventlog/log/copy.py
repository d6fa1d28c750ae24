"""Writing events that have their place already: into another log, under the same identity."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from eventlog._platform import FileLock
from eventlog.clock import SYSTEM_CLOCK
from eventlog.codec import encode_foreign
from eventlog.events import Event, ModelUpdateEvent, RunStarted
from eventlog.exceptions import LogError
from eventlog.log.disk import OS_FILES, Files
from eventlog.log.files import last_valid_seq
from eventlog.log.segment_reader import Segment, list_segments
from eventlog.log.source import Block, describe
from eventlog.log.writer import Encoded, LogWriter

__all__ = ["LogCopy"]

_BLOCK = 512


class LogCopy:
    """A log whose events keep their seq, attempt and times: part of another log, or all of it.

    What is in it already is not written again, so that a batch may be given again that was
    written in part.

    Args:
        directory: Of the rank's log; made if need be.
        run_id, project, rank: Of the run that the events belong to.
        files: The system calls.

    Attributes:
        end: The seq after the last event that is in it.
        attempt: The newest one that it has events of, from 0.

    Raises:
        LogError: Another process writes there, or it cannot be made.
    """

    def __init__(
        self,
        directory: Path,
        *,
        run_id: str,
        project: str = "",
        rank: int = 0,
        files: Files = OS_FILES,
    ) -> None:
        self._directory = directory
        self._lock = FileLock(directory / "lock")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not self._lock.acquire():
                raise LogError(f"{directory} is being written by somebody else")
            _sync_newest(directory, files)
            self.end = last_valid_seq(directory)
            self.attempt = _newest_attempt(directory)
        except OSError as error:
            self._lock.release()
            raise LogError(f"cannot open a log in {directory}: {error}") from error
        self._log = LogWriter(
            directory, run_id=run_id, project=project, rank=rank, files=files, sparse=True
        )

    def write(self, events: Sequence[Event]) -> None:
        """Append events; their seq must ascend. Those before `end` are passed over.

        Raises:
            OSError: They cannot be written; those before `end` have been.
        """
        encoded = []
        for part in _blocks([event for event in events if event.seq >= self.end]):
            payload = encode_foreign(part)
            flags, steps = describe(part)
            for event in part:
                if isinstance(event, RunStarted | ModelUpdateEvent):
                    self.latch(event)
            block = Block(
                part[0].seq,
                len(part),
                flags,
                steps,
                attempt=part[0].attempt,
                first_time=part[0].wall,
                size=len(payload),
                events=part,
            )
            encoded.append(Encoded(block, payload, max(e.wall for e in part)))
        try:
            self._log.write_now(encoded, SYSTEM_CLOCK)
        finally:
            for block, _, _ in encoded:
                if block.end <= self._log.written_end:
                    self.end, self.attempt = block.end, block.attempt

    def latch(self, event: RunStarted | ModelUpdateEvent) -> None:
        """Have the segments that follow say that the run stands so, without the event in them."""
        kept = [e for e in self._log.latched if type(e) is not type(event)]
        self._log.latched = [*kept, event]

    def sync(self) -> None:
        """Bring what was written to the disk.

        Raises:
            OSError: It may not be there. What follows goes into a new segment.
        """
        self._log.write_now((), SYSTEM_CLOCK)  # again, what a sync before could not bring there
        self._log.sync()
        self._check_synced()

    def close(self) -> None:
        """End the segment and let go of the log.

        Raises:
            OSError: What was written last may not be on the disk.
        """
        self._log.leave_segment(seal=True)
        self._lock.release()
        self._check_synced()

    def _check_synced(self) -> None:
        if self._log.synced_end < self._log.written_end:
            problem = "what was written may not be on the disk"
            raise OSError(errno.EIO, problem, str(self._directory))


def _sync_newest(directory: Path, files: Files) -> None:
    """Sync what a process wrote that was killed: it is not written again, and will be relied on."""
    for _, path in list_segments(directory)[-1:]:
        files.sync_file(path)
        files.sync_directory(directory)


def _newest_attempt(directory: Path) -> int:
    for _, path in reversed(list_segments(directory)):
        segment = Segment(path)
        header = segment.header
        segment.close()
        if header is not None:
            return header.attempt
    return 0


def _blocks(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Cut into runs of what a block can hold: one attempt, seqs without gaps, one clock offset."""
    part: list[Event] = []
    for event in events:
        if part and (
            len(part) >= _BLOCK
            or event.seq != part[-1].seq + 1
            or event.attempt != part[-1].attempt
            or event.wall - event.mono != part[-1].wall - part[-1].mono
        ):
            yield part
            part = []
        part.append(event)
    if part:
        yield part
