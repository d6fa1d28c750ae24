"""Another log as a sink: a copy of a run, whole or thinned, under the same identity."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from eventlog.events import ArtifactEvent, BlobRef, Event, FigureEvent, ImageEvent, Status
from eventlog.exceptions import RefusedError, SinkError
from eventlog.log.blobs import BlobStore, copy_blob
from eventlog.log.copy import LogCopy
from eventlog.sinks.base import CAPABILITIES, RunInfo, Sink

__all__ = ["LogSink"]

_NO_BLOB = "file that is no blob of the run"


class LogSink(Sink):
    """Writes what it is given into a log of its own; blobs are copied.

    Events keep their seq, attempt and times, so that what was written before is recognised, and
    what a rewind superseded still is.

    Args:
        dir: The directory of the copy, as a run's directory; by default where sinks put their
            files.
    """

    name = "log"
    capabilities = CAPABILITIES
    confirms = "flush"
    rewind = "overwrite"

    def __init__(self, dir: str | os.PathLike[str] | None = None) -> None:
        self._dir = None if dir is None else Path(dir).absolute()
        self._copy: LogCopy | None = None
        self._blobs: tuple[Path, BlobStore] | None = None

    def target(self) -> str:
        """Return the directory."""
        return "" if self._dir is None else str(self._dir)

    def open(self, run: RunInfo) -> None:
        """Make the log, or go on with it."""
        base = self._dir or run.directory
        if base is None:
            raise SinkError("a run without a directory has no place for a log; give dir=")
        if run.run_dir is not None:
            self._blobs = (run.run_dir, BlobStore(base))
        self._copy = LogCopy(
            base / f"rank-{run.rank}", run_id=run.run_id, project=run.project, rank=run.rank
        )
        self.url = str(base)

    def write(self, batch: Sequence[Event]) -> None:
        """Append what is not there yet.

        Raises:
            RefusedError: The log lost what the copy has, and counted on from before it.
        """
        assert self._copy is not None  # noqa: S101 - opened
        for event in batch:
            if event.seq < self._copy.end and event.attempt > self._copy.attempt:
                raise RefusedError(
                    f"{self.url} has an event {event.seq} of attempt {self._copy.attempt}, which "
                    f"the log lost; that of attempt {event.attempt} has no place there"
                )
            if event.seq >= self._copy.end:
                for blob in _blobs_of(event):
                    self._copy_blob(blob)
        self._copy.write(batch)

    def _copy_blob(self, blob: BlobRef) -> None:
        if self._blobs is None:
            return
        run_dir, store = self._blobs
        try:
            copy_blob(run_dir, blob, store)
        except ValueError:  # the event is what it is; its file is no blob of this run
            self.unshown = {**self.unshown, _NO_BLOB: self.unshown.get(_NO_BLOB, 0) + 1}

    def flush(self) -> None:
        """Bring it to the disk."""
        self._sync_blobs()
        if self._copy is not None:
            self._copy.sync()

    def close(self, status: Status) -> None:
        """Let go of it."""
        try:
            self._sync_blobs()
        finally:
            if self._copy is not None:
                self._copy.close()

    def _sync_blobs(self) -> None:
        if self._blobs is not None:
            self._blobs[1].sync()


def _blobs_of(event: Event) -> list[BlobRef]:
    if isinstance(event, ImageEvent):
        return event.blobs
    if isinstance(event, FigureEvent):
        return [event.blob]
    if isinstance(event, ArtifactEvent) and event.blob is not None:
        return [event.blob]
    return []
