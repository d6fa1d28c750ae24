"""The recorder: inbox, writer, cache and files of one rank's log, put together.

`EventBus` and `Run` each have one; it knows nothing of either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from eventlog._media import PendingValues, Sized
from eventlog._platform import FileLock
from eventlog._rejections import Rejections
from eventlog._values import snapshot
from eventlog._version import __version__
from eventlog.clock import SYSTEM_CLOCK, Clock
from eventlog.events import Event
from eventlog.exceptions import LogError
from eventlog.log.blobs import BlobStore
from eventlog.log.checkpoint import highest_seq
from eventlog.log.files import Segment, last_valid_seq, list_segments
from eventlog.log.inbox import Inbox
from eventlog.log.live import LiveSource
from eventlog.log.segments import OS_FILES, Files
from eventlog.log.source import TailCache
from eventlog.log.writer import LogWriter, Writer

__all__ = ["Recorder", "rank_directory"]


def rank_directory(run_dir: Path, rank: int) -> Path:
    """Return where the log of a rank lies."""
    return run_dir / f"rank-{rank}"


class Recorder:
    """One log, open for writing; at most one process may have it open.

    Args:
        run_dir: The run's directory; None keeps everything in memory.
        run_id, project, rank: What the log says of itself.
        attempt: Of the first events; None for one more than the log has had.
        inbox, cache: With other bounds than usual.
        strict: Raise for values that cannot be recorded.
        clock, files: For tests.

    Attributes:
        attempt: The attempt that begins with this recorder.

    Raises:
        LogError: Another process has the log open, or it cannot be made.
    """

    def __init__(
        self,
        run_dir: Path | None,
        *,
        run_id: str,
        project: str = "",
        rank: int = 0,
        attempt: int | None = None,
        inbox: Inbox | None = None,
        cache: TailCache | None = None,
        strict: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        files: Files = OS_FILES,
    ) -> None:
        self.run_dir = run_dir
        self.inbox = inbox or Inbox()
        self.cache = cache or TailCache()
        self.clock = clock
        self.blobs: BlobStore | None = None
        self.rejections = Rejections(strict)
        self.pid = os.getpid()
        self._held: FileLock | None = None
        first_seq, last_attempt = 0, 0
        log: LogWriter | None = None
        if run_dir is not None:
            directory = rank_directory(run_dir, rank)
            try:
                directory.mkdir(parents=True, exist_ok=True)
                self._lock(directory)
                first_seq, last_attempt = _where_it_ended(directory)
            except OSError as error:
                raise LogError(f"cannot open a log in {directory}: {error}") from error
            self.blobs = BlobStore(run_dir)
        self.attempt = last_attempt + 1 if attempt is None else attempt
        if run_dir is not None:
            log = LogWriter(
                rank_directory(run_dir, rank),
                run_id=run_id,
                project=project,
                rank=rank,
                attempt=self.attempt,
                files=files,
                writer=f"eventlog {__version__}",
            )
        self.writer = Writer(
            self.inbox, self.cache, log, clock=clock, first_seq=first_seq, attempt=self.attempt
        )
        self.source = LiveSource(self.cache, log)

    def _lock(self, directory: Path) -> None:
        self._held = FileLock(directory / "lock")
        if not self._held.acquire():
            raise LogError(
                f"{directory} is being written by another process; end it first, or choose "
                "another run"
            )

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that opened the log."""
        return os.getpid() != self.pid

    def offer(
        self, event: Event, values: Mapping[Any, Any] | None = None, *, reserved: bool = False
    ) -> bool:
        """Put an event in the inbox, with values of any kind made plain.

        Args:
            event: Without a place in the log.
            values: Its values as the user gave them; None when it has them already.
            reserved: See `Inbox.put`.

        Returns:
            False when it was dropped; that is counted.

        Raises:
            ValueRejectedError: In strict mode.
        """
        if values is None:
            return self.inbox.put(event, reserved=reserved)
        made = snapshot(values)
        if made.rejected:
            self.rejections.add(made.rejected)
            if not made.values and not made.pending and values:
                self.inbox.drop("no_value")
                return False
        event = msgspec.structs.replace(event, values=made.values)
        size = sum(len(v) for v in made.values.values() if type(v) is str) + 60 * max(
            0, len(made.values) - 6
        )
        if made.pending:
            pending = PendingValues(event, made.pending)
            return self.inbox.put(pending, size=pending.size + size, reserved=reserved)
        if size > 4096:
            return self.inbox.put(Sized(event, size), size=size, reserved=reserved)
        return self.inbox.put(event, reserved=reserved)

    def start(self) -> None:
        """Start the writer's threads."""
        self.writer.start()

    def stop(self, timeout: float | None) -> bool:
        """Take nothing more, write what is left; False when that takes longer than `timeout`."""
        self.inbox.refuse("closed")
        done = self.writer.stop(timeout)
        if done and self._held is not None:
            self._held.release()
        return done


def _where_it_ended(directory: Path) -> tuple[int, int]:
    """Return the seq after the last event of a log, and its last attempt; (0, 0) for a new one."""
    attempt = 0
    for _, path in list_segments(directory):
        segment = Segment(path)
        if segment.header is not None:
            attempt = max(attempt, segment.header.attempt)
        segment.close()
    # events that a sink was given, but that a loss of power took from the log, keep their seq
    return max(last_valid_seq(directory), highest_seq(directory)), attempt
