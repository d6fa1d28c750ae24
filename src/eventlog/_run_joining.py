"""How a rank other than 0 finds the run that it records, while its training goes on already."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from eventlog._counters import Counters
from eventlog._meeting import PATIENCE, Meeting, Whereabouts
from eventlog._names import new_run_id
from eventlog._run_places import newest_attempt
from eventlog.events import Event, RunStarted
from eventlog.exceptions import EventlogError
from eventlog.log.blobs import BlobStore
from eventlog.log.inbox import Inbox
from eventlog.recorder import Recorder, rank_directory

__all__ = ["Joining"]

logger = logging.getLogger("eventlog")


class Joining:
    """The part of a run that has to wait for rank 0.

    What is emitted meanwhile waits in the inbox, in which it is counted as queued; a thread looks
    for rank 0's word, opens the log there, and lets the writer begin.
    """

    project: str
    name: str
    rank: int
    _where: Whereabouts
    _meeting: Meeting | None
    _recorder: Recorder
    _inbox: Inbox
    _counters: Counters
    _base: Path | None
    _segment_bytes: int
    _joined: threading.Event
    _hurry: threading.Event

    if TYPE_CHECKING:  # what another part of `Run` brings

        def _begin(self, recorder: Recorder, started: RunStarted) -> None:
            raise NotImplementedError

    def _join_later(self, started: RunStarted) -> None:
        """Begin to look for rank 0's word."""
        self._recorder.blobs = BlobStore(Path())
        threading.Thread(
            target=self._join, args=(started,), name="eventlog-join", daemon=True
        ).start()

    def _join(self, started: RunStarted) -> None:
        assert self._meeting is not None  # noqa: S101 - without one there is nothing to join
        record = self._meeting.wait(PATIENCE, self._hurry.is_set)
        if self._recorder.foreign:
            return
        try:
            try:
                if record is not None:
                    self._enter(record.run_id, record.attempt, started)
                    return
                logger.warning(
                    "eventlog: rank %d: rank 0 has no run that this one could join; it records one "
                    "of its own",
                    self.rank,
                )
            except (EventlogError, OSError) as error:
                logger.warning(
                    "eventlog: rank %d cannot record in the run of rank 0 (%s); it records one of "
                    "its own",
                    self.rank,
                    error,
                )
            self._enter(new_run_id(), 1, started)
        except Exception:
            # training goes on; what it emits is counted
            logger.exception("eventlog: rank %d cannot record", self.rank)
            self._inbox.refuse("no_run")
        finally:
            self._joined.set()

    def _enter(self, run_id: str, attempt: int, started: RunStarted) -> None:
        """Open the log of this rank in a run, and have all that waits written there."""
        assert self._base is not None  # noqa: S101 - as above
        run_dir = self._base / run_id
        waiting = self._recorder
        own = newest_attempt(rank_directory(run_dir, self.rank))
        recorder = Recorder(
            run_dir,
            run_id=run_id,
            project=self.project,
            rank=self.rank,
            attempt=max(attempt, own + 1),
            inbox=self._inbox,
            segment_bytes=self._segment_bytes,
        )
        recorder.rejections = waiting.rejections
        if waiting.blobs is not None:
            # what waits for the writer has this one
            waiting.blobs.directory = run_dir / "blobs"
            recorder.blobs = waiting.blobs
        self._shift_attempts(recorder.attempt - 1)
        self._recorder = recorder
        self._where.settle(run_id)
        self.name = self.name or run_id
        self._begin(
            recorder,
            msgspec.structs.replace(
                started, run_id=run_id, name=self.name, attempt=recorder.attempt
            ),
        )

    def _shift_attempts(self, by: int) -> None:
        """Have what was emitted so far belong to the attempt that rank 0 has begun, or later."""
        if not by:
            return
        items = self._inbox.items
        waiting = len(items)
        # what comes between these two is lifted by the writer, as what comes late at a rewind
        self._counters.attempt += by
        for i in range(waiting):
            item = items[i]
            if isinstance(item, Event):
                items[i] = msgspec.structs.replace(item, attempt=item.attempt + by)

    def _find_place(self, timeout: float) -> None:
        """Have the run found, or one of its own begun, by half of the time that is left."""
        if self._joined.is_set():
            return
        half = timeout / 2
        begun = time.monotonic()
        if not self._joined.wait(half):
            self._hurry.set()
            self._joined.wait(max(0.0, timeout - (time.monotonic() - begun)) / 2)
