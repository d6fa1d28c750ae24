"""`WandbSink`: a run of Weights & Biases from its start to its end."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Event, Status
from eventlog.exceptions import SinkError, UnavailableError
from eventlog.sinks.base import CAPABILITIES, Confirms, Isolation, Rewind, RunInfo
from eventlog_wandb.naming import run_id_of
from eventlog_wandb.opening import (
    DeletedError,
    arguments,
    earlier_mark,
    mark_of,
    start_session,
)
from eventlog_wandb.options import checked
from eventlog_wandb.session import Session, load_sdk
from eventlog_wandb.settings import mode_of, server_of, why_unready
from eventlog_wandb.showing import RowSink
from eventlog_wandb.wandb_file import MARK, Mark, summary_has

__all__ = ["WandbSink"]

_EXIT_CODES: Mapping[Status, int] = {
    "finished": 0,
    "failed": 1,
    "interrupted": 255,
    "killed": 137,
}
_FLUSH_PATIENCE = 20.0
_END_PATIENCE = 10.0


class WandbSink(RowSink):
    """Shows a run in Weights & Biases, online or in files that `wandb sync` takes later.

    Each event is a row of the run's history, with its step, batch and epoch in columns of their
    own, which are the x axes; W&B's own step only counts the rows. So a step that is lower than
    the last one is shown like any other.

    What is confirmed depends on the mode: offline, what `flush` has seen in the run's file;
    online, what was sent when the run ended. What comes again is recognised by a mark in each row.

    Args:
        mode: ``online``, ``offline`` or ``disabled``; by default what WANDB_MODE or the SDK's
            settings files say, and else online.
        project: Instead of the run's.
        entity: The user or team that the run belongs to.
        server: The address of a server of one's own.
        dir: Where the SDK's files lie, in a folder ``wandb``; by default where eventlog says, and
            the current folder for a run without a directory.
        run_id: The W&B run to go on with; by default one that is named like eventlog's.
        artifact_limit: Most bytes of an artifact that is sent; larger ones are named by path.
        init: More arguments of `wandb.init` by its own names; those in ``settings`` switch the
            SDK's extras on.

    Raises:
        TypeError, ValueError: An option is not what it must be.
    """

    name: ClassVar[str] = "wandb"
    capabilities: ClassVar[frozenset[str]] = CAPABILITIES
    confirms: ClassVar[Confirms] = "flush"
    rewind: ClassVar[Rewind] = "append"
    isolation: ClassVar[Isolation] = "sidecar"
    requires: ClassVar[tuple[str, ...]] = ("wandb",)

    def __init__(
        self,
        *,
        mode: str | None = None,
        project: str | None = None,
        entity: str | None = None,
        server: str | None = None,
        dir: str | os.PathLike[str] | None = None,
        run_id: str | None = None,
        artifact_limit: int = 2**32,
        init: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._options = checked(
            mode=mode,
            project=project,
            entity=entity,
            server=server,
            dir=dir,
            run_id=run_id,
            artifact_limit=artifact_limit,
            init=init,
        )
        self._artifact_limit = artifact_limit
        self._flushes = 0

    @classmethod
    def unready(cls, options: Mapping[str, Any]) -> str | None:
        """Return why a run could not start without asking for a key; None offline."""
        return why_unready(options)

    def target(self) -> str:
        """Return the server, entity and project, or the folder of an offline run."""
        mode, project = mode_of(self._options["mode"]), self._options["project"] or ""
        if mode != "online":
            folder = self._options["dir"]
            return f"{mode}:{'' if folder is None else os.path.abspath(folder)}:{project}"
        entity = self._options["entity"] or os.environ.get("WANDB_ENTITY", "")
        return f"{server_of(self._options['server'])}/{entity}/{project}"

    def start(self, run: RunInfo) -> None:
        why = why_unready(self._options)
        if why is not None:
            raise SinkError(why)
        load_sdk()
        if self._session is not None:  # opened, but something went wrong after that
            self.finish("failed", None)
        self._mode = mode_of(self._options["mode"])
        self._rows = run.state.get("rows", 0)
        self._sent = self._done
        folder = self._folder(run)
        # looked up first: the new run's own file is empty
        given = self._options["run_id"] or run.state.get("run_id")
        alias = "" if run.alias == self.name else run.alias
        run_id = str(given or run_id_of(run.run_id, run.rank, alias))
        earlier = earlier_mark(folder, run_id) if self._mode == "offline" else None
        self._session = self._started_session(run, folder, run_id)
        self.tracker, self.run_id = self._session.run, self._session.run.id
        if self._mode == "online":
            self.url = self.tracker.url
            if self.tracker.resumed:
                self._arrived = mark_of(self.tracker.summary.get(MARK), self.tracker.starting_step)
        elif self._mode == "offline":
            self.url = self.tracker.settings.sync_dir
        known = run.state or run.attempt > 1 or earlier or self._arrived
        self._goes_on = bool(known or (self._mode == "online" and self.tracker.resumed))
        self._go_on_after(earlier)
        self._first_row = self._rows if self._mode == "offline" else 0
        if self._mode != "offline" or self._interval() <= 0:
            # only the end of a run tells that all has arrived
            vars(self)["confirms"] = "close"
        self.prepare()

    def memory(self) -> dict[str, Any]:
        return {"rows": self._rows}

    def write(self, batch: Sequence[Event]) -> None:
        if self._started and self._mode == "disabled":
            self.count("event while W&B is disabled", len(batch))
            return
        super().write(batch)

    def flush(self) -> None:
        """Wait until all that was logged is in the file of an offline run."""
        if self._session is None or self.confirms == "close" or not self._dirty:
            return
        self._flushes += 1
        attempt, seq = self._sent
        mark = f"{attempt}:{max(seq, 0)}:{self._flushes}"
        file = Path(self.tracker.settings.sync_file)
        with self.outages():
            self.tracker.summary.update({MARK: mark})
            ends = time.monotonic() + _FLUSH_PATIENCE + 2 * self._interval()
            while not summary_has(file, mark):
                self.check_alive()
                if time.monotonic() > ends:
                    raise UnavailableError(f"wandb-core does not write {file}")
                time.sleep(0.02)
        self._dirty = False

    def finish(self, status: Status, error: str | None) -> None:
        session = self._session
        if session is None:
            return
        # again, since rows that came later have overwritten what has the name of a column
        final = self._summary | {"eventlog/status": status}
        try:
            self.summary(final, final | ({"eventlog/error": error} if error else {}))
            if self._goes_on and not error and self._mode != "disabled":
                with self.outages():
                    # the former attempt's
                    del self.tracker.summary["eventlog/error"]
        finally:
            try:
                self._end(session, _EXIT_CODES[status])
            finally:
                self._session = None

    def _folder(self, run: RunInfo) -> Path:
        given = self._options["dir"]
        folder = Path(given) if given is not None else run.directory or Path()
        if self._mode != "disabled":
            folder.mkdir(parents=True, exist_ok=True)
        return folder.absolute()

    def _started_session(self, run: RunInfo, folder: Path, run_id: str) -> Session:
        told = arguments(run, self._options, self._mode, run_id, self.count)
        told["dir"] = None if self._mode == "disabled" else str(folder)
        try:
            return start_session(told)
        except DeletedError:
            self.count("run that was deleted in W&B: a new one was started")
            return start_session(told | {"id": f"{run_id}-{secrets.token_hex(3)}"})

    def _go_on_after(self, mark: Mark | None) -> None:
        """Leave out what an earlier process has brought there."""
        if mark is None:
            return
        self._rows = max(self._rows, mark.row + 1)
        self._done = self._sent = max(self._done, (mark.attempt, mark.seq))

    def _interval(self) -> float:
        """Return how many seconds pass until what was logged is in the run's file."""
        return float(self.tracker.settings.x_transaction_log_flush_interval)

    def _end(self, session: Session, exit_code: int) -> None:
        settings = self.tracker.settings
        patience = (settings.finish_timeout or 40.0) + _END_PATIENCE
        try:
            with self.outages():
                session.end(exit_code, patience)
        except TimeoutError as error:
            raise UnavailableError(
                f"not all was sent to W&B in time; `wandb sync {settings.sync_dir}` sends it"
            ) from error
        finally:
            if self._mode != "disabled":
                shutil.rmtree(self._scratch(), ignore_errors=True)
