"""Keeping a sink's position over crashes and restarts, and what it refused for good."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from eventlog._config import error_text, plain_config
from eventlog._names import safe_name
from eventlog._paths import own_directory
from eventlog.events import Event, RunStarted
from eventlog.exceptions import LogError
from eventlog.log.checkpoint import Checkpoint, CheckpointFile, checkpoint_path
from eventlog.log.copy import LogCopy
from eventlog.log.disk import OS_FILES, Files
from eventlog.log.files import FileReader
from eventlog.recorder import rank_directory
from eventlog.sinks._thread import call_own
from eventlog.sinks.base import RunInfo, Sink
from eventlog.subscription import Mark

__all__ = ["DeadLetters", "Keeper"]

logger = logging.getLogger("eventlog")

_STATE_BYTES = 16 * 1024
"""What a sink's state may take: more than it is told, and what leaves room for the position."""


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
        files: The system calls.

    Attributes:
        failures: How often something could not be kept.

    Raises:
        BlockingIOError: Another process delivers to this sink.
        OSError: The checkpoint cannot be read.
    """

    def __init__(
        self,
        directory: Path,
        alias: str,
        sink: Sink,
        scope: str = "",
        *,
        files: Files = OS_FILES,
    ) -> None:
        self._alias = alias
        self._target = f"{scope} {call_own(sink.target)}".strip()
        self._file = CheckpointFile(checkpoint_path(directory, alias, self._target), files)
        self._forgotten = False
        kept = self._file.load()
        self._state: dict[str, Any] = {} if kept is None else kept.sink
        self._said: set[str] = set()
        self.failures = 0

    def load(self) -> Checkpoint | None:
        """Return where the sink is; None when nothing was confirmed so far."""
        return None if self._forgotten else self._file.load()

    def forget(self) -> None:
        """Start at the beginning, whatever was kept."""
        self._forgotten = True
        self._state = {}

    def save(self, mark: Mark, state: Callable[[], Any], *, done: bool = False) -> None:
        """Keep a position, and what the sink needs to go on there; delivery goes on in any case.

        Args:
            mark: The position.
            state: The sink's `state`. Where it raises, or returns what cannot be kept, the one
                that was kept before stays: a position without it would begin another tracker run.
            done: Whether the sink was closed after everything was delivered.
        """
        try:
            self._state = _plain(call_own(state))
        except Exception as error:
            self._fail("state", error, "another process may not find its way back to it")
        try:
            checkpoint = Checkpoint(
                alias=self._alias,
                fingerprint=self._target,
                seq=mark.seq,
                passed=mark.state.get("passed", mark.seq),
                state=mark.state,
                sink=self._state,
                done=done,
            )
            self._file.save(checkpoint, sync=done)
        except Exception as error:
            self._fail("position", error, "after a crash it repeats what came since")

    def _fail(self, what: str, error: Exception, so: str) -> None:
        """Count it, and say it once."""
        self.failures += 1
        if what not in self._said:
            logger.warning(
                "eventlog: the %s of sink %r cannot be kept (%s); %s",
                what,
                self._alias,
                error_text(error),
                so,
            )
        self._said.add(what)

    def close(self) -> None:
        """Let another process have the checkpoint."""
        self._file.close()


def _plain(state: Any) -> dict[str, Any]:
    """Return a sink's state as it will be read again.

    Raises:
        TypeError, ValueError: It is no mapping of names to plain values, or too large.
    """
    data = msgspec.msgpack.encode(state)
    if len(data) > _STATE_BYTES:
        raise ValueError(f"state() must return at most {_STATE_BYTES} bytes, not {len(data)}")
    try:
        return msgspec.msgpack.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise TypeError(
            f"state() must return a mapping of names to plain values: {error}"
        ) from None


class DeadLetters:
    """A log of the events that one sink refused for good; `replay` reads it like any other.

    Args:
        run_dir: The run's directory; the log lies in ``dead/<alias>`` below it.
        alias: Of the sink.
        run_id, project, rank: Of the run.
        files: The system calls.

    Attributes:
        run: What the sink was told of its run: who replays the log is told so as well.
    """

    def __init__(
        self,
        run_dir: Path,
        alias: str,
        *,
        run_id: str,
        project: str = "",
        rank: int = 0,
        files: Files = OS_FILES,
    ) -> None:
        self._run_dir = run_dir
        self.directory = run_dir / "dead" / safe_name(alias)
        self._identity = {"run_id": run_id, "project": project}
        self._rank = rank
        self._files = files
        self._copy: LogCopy | None = None
        self.run: RunInfo | None = None

    def add(self, events: Sequence[Event]) -> None:
        """Keep events; made when the first one comes. One that is kept already is kept once.

        Raises:
            LogError, OSError: They cannot be kept.
        """
        directory = rank_directory(self.directory, self._rank)
        if self._copy is None:
            own_directory(self._run_dir, "dead", self.directory.name, directory.name)
            self._copy = LogCopy(directory, rank=self._rank, files=self._files, **self._identity)
            if self.run is not None:
                self._copy.latch(_started(self.run))
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


def _started(run: RunInfo) -> RunStarted:
    return RunStarted(
        run_id=run.run_id,
        project=run.project,
        name=run.name,
        # as a sink is told it they may be of types that only this process knows
        config=plain_config(run.config),
        tags=list(run.tags),
        group=run.group,
        notes=run.notes,
        provenance=plain_config(run.provenance),
        world_size=run.world_size,
        rank=run.rank,
        attempt=run.attempt,
    )


def _is_there(directory: Path, event: Event) -> bool:
    block = FileReader(directory).read(event.seq)
    return block is not None and any(
        kept.seq == event.seq and kept.attempt == event.attempt for kept in block.events()
    )
