"""Keeping a sink's position over crashes and restarts, and what it refused for good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eventlog._names import safe_name
from eventlog.events import Event
from eventlog.exceptions import LogError
from eventlog.log.checkpoint import Checkpoint, CheckpointFile, checkpoint_path
from eventlog.log.copy import LogCopy
from eventlog.log.files import FileReader
from eventlog.recorder import rank_directory
from eventlog.sinks.base import Sink
from eventlog.subscription import Mark

__all__ = ["DeadLetters", "Keeper"]

logger = logging.getLogger("eventlog")


class Keeper:
    """The checkpoint of one sink.

    It is written each time the sink has confirmed, so that a process that dies repeats at most
    what was not confirmed; it is synced when the sink is closed. A loss of power may leave it
    behind the sink (events come again) or ahead of the log (which then goes on after it).

    Args:
        directory: The directory of the rank's log.
        alias: Of the sink.
        sink: Says what it writes to.
        scope: What the sink is fed with there, if not with the run as it goes on.

    Raises:
        BlockingIOError: Another process delivers to this sink.
        OSError: The checkpoint cannot be read.
    """

    def __init__(self, directory: Path, alias: str, sink: Sink, scope: str = "") -> None:
        self._alias = alias
        self._target = f"{scope} {sink.target()}".strip()
        self._file = CheckpointFile(checkpoint_path(directory, alias, self._target))
        self._failed = False
        self._forgotten = False

    def load(self) -> Checkpoint | None:
        """Return where the sink is; None when nothing was confirmed so far."""
        return None if self._forgotten else self._file.load()

    def forget(self) -> None:
        """Start at the beginning, whatever was kept."""
        self._forgotten = True

    def save(self, mark: Mark, state: dict[str, Any], *, done: bool = False) -> None:
        """Keep a position; a disk that does not take it is said once, and delivery goes on."""
        checkpoint = Checkpoint(
            alias=self._alias,
            fingerprint=self._target,
            seq=mark.seq,
            passed=mark.state.get("passed", mark.seq),
            state=mark.state,
            sink=state,
            done=done,
        )
        try:
            self._file.save(checkpoint, sync=done)
        except (OSError, ValueError) as error:
            if not self._failed:
                logger.warning(
                    "eventlog: the position of sink %r cannot be kept (%s); after a crash it "
                    "repeats what came since",
                    self._alias,
                    error,
                )
            self._failed = True

    def close(self) -> None:
        """Let another process have the checkpoint."""
        self._file.close()


class DeadLetters:
    """A log of the events that one sink refused for good; `replay` reads it like any other.

    Args:
        run_dir: The run's directory; the log lies in ``dead/<alias>`` below it.
        alias: Of the sink.
        run_id, project, rank: Of the run.
    """

    def __init__(
        self, run_dir: Path, alias: str, *, run_id: str, project: str = "", rank: int = 0
    ) -> None:
        self.directory = run_dir / "dead" / safe_name(alias)
        self._identity = {"run_id": run_id, "project": project}
        self._rank = rank
        self._copy: LogCopy | None = None

    def add(self, events: Sequence[Event]) -> None:
        """Keep events; made when the first one comes. One that is kept already is kept once.

        Raises:
            LogError, OSError: They cannot be kept.
        """
        directory = rank_directory(self.directory, self._rank)
        if self._copy is None:
            self._copy = LogCopy(directory, rank=self._rank, **self._identity)
        # after a crash a batch comes again, of which some were set aside
        for event in events:
            if event.seq < self._copy.end and not _is_there(directory, event):
                raise LogError(
                    f"event {event.seq} is refused after later ones: {directory} cannot hold it"
                )
        self._copy.write(events)

    def sync(self) -> None:
        """Bring what was kept to the disk.

        Raises:
            OSError: It may not be there.
        """
        if self._copy is not None:
            self._copy.sync()

    def close(self) -> None:
        """End the log.

        Raises:
            OSError: What was kept last may not be on the disk.
        """
        if self._copy is not None:
            copy, self._copy = self._copy, None
            copy.close()


def _is_there(directory: Path, event: Event) -> bool:
    block = FileReader(directory).read(event.seq)
    return block is not None and any(
        kept.seq == event.seq and kept.attempt == event.attempt for kept in block.events()
    )
