"""`TensorBoardSink`: from events to folders of event files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from eventlog.clock import wall_ns
from eventlog.events import (
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    Rewound,
    RunFinished,
    RunStarted,
    Status,
    StepEvent,
    SummaryUpdated,
)
from eventlog.sinks.base import CAPABILITIES, Confirms, Isolation, Rewind, RunInfo, Sink
from eventlog.sinks.plain import as_json, own_options
from eventlog.sinks.plain import flatten as leaves
from eventlog_tensorboard.folders import folder_name
from eventlog_tensorboard.info import RunPage
from eventlog_tensorboard.layout import SUMMARY, Layout
from eventlog_tensorboard.media import shown
from eventlog_tensorboard.summaries import load_protos, text_value

__all__ = ["TensorBoardSink"]

_PLAIN = frozenset({StepEvent, BatchEvent, EpochEvent})
_PLACEHOLDER = re.compile(r"\{(project|name|run_id)\}")


class TensorBoardSink(Sink):
    """Shows a run in TensorBoard, by writing its event files directly.

    Everything is with the operating system when `write` returns, so a killed process loses none
    of it. Each axis has a folder of its own: optimizer steps the run's folder itself, batches
    ``batch``, epochs ``epoch``, and a named axis a folder of its name.

    Args:
        dir: The run's folder, where ``{project}``, ``{name}`` and ``{run_id}`` are replaced.
            By default the place that eventlog offers, in the run's directory, or
            ``tensorboard/<project>/<run_id>`` for a run without one.
        hparams: Whether the run gets a row in the HPARAMS tab.
        filename_suffix: What the names of event files end with.

    Attributes:
        unshown: How much could not be shown, or not as it is, by reason.

    Raises:
        ValueError: `filename_suffix` makes no name that TensorBoard reads.
    """

    name: ClassVar[str] = "tensorboard"
    capabilities: ClassVar[frozenset[str]] = CAPABILITIES - {"custom"}
    confirms: ClassVar[Confirms] = "write"
    rewind: ClassVar[Rewind] = "purge"
    isolation: ClassVar[Isolation] = "process"
    requires: ClassVar[tuple[str, ...]] = ("google_crc32c", "tensorboard")

    def __init__(
        self,
        *,
        dir: str | os.PathLike[str] | None = None,
        hparams: bool = True,
        filename_suffix: str = "",
    ) -> None:
        if "/" in filename_suffix or filename_suffix.endswith(".profile-empty"):
            raise ValueError(
                "filename_suffix must be the end of a file's name, and not .profile-empty, "
                f"which TensorBoard skips; not {filename_suffix!r}"
            )
        self._dir = None if dir is None else os.fspath(dir)
        self._hparams = hparams
        self._suffix = filename_suffix
        self._open = False
        self.unshown: dict[str, int] = {}

    def open(self, run: RunInfo) -> None:
        """Make the run's folder and its page; points open their files when they come."""
        load_protos()
        root = self._root(run)
        saved = run.state if root.is_dir() else {}
        self._run = run
        self._layout = Layout(root, self._suffix, self._count, saved)
        self._attempt: int = saved.get("attempt", run.attempt)
        self._done: tuple[int, int] = (saved.get("attempt", 0), saved.get("seq", -1))
        self._seen = self._done
        self._wall = 0.0
        self._summary: dict[str, Any] = {}
        self._page = RunPage.in_folder(root, run, self._hparams, saved.get("started", _now()))
        self._page.write()
        self.url, self.run_id, self._open = str(root), run.run_id, True
        if run.model_update is not None and not saved:
            self._show(run.model_update)
            self._commit()

    def write(self, batch: Sequence[Event]) -> None:
        """Append the batch to the files of its axes, whole; what came before is skipped."""
        self._check_open()
        self._seen = self._done
        try:
            for event in batch:
                here = (event.attempt, event.seq)
                if event.seq >= 0 and here <= self._seen:
                    continue
                self._wall = event.wall_time
                if type(event) not in _PLAIN:
                    self._hear(event)
                self._show(event)
                if event.seq >= 0:
                    self._seen = here
            self._commit()
        finally:
            self._layout.drop()

    def flush(self) -> None:
        """Bring hyperparameters up to date; points are written already."""
        self._check_open()
        self._page.write()

    def close(self, status: Status) -> None:
        """Write the run's status and close the files."""
        if not self._open:
            return
        ended = self._wall or _now()
        try:
            self._layout.settle_purges(ended)
            self._page.end(status, ended)
            self.flush()
            self._open = False
        finally:
            self._layout.close()

    def state(self) -> dict[str, Any]:
        """Return how far the files go, and what a rewind still has to purge."""
        if self.run_id is None:
            return {}
        attempt, seq = self._done
        own = {"run_id": self.run_id, "attempt": attempt, "seq": seq}
        return own | {"started": self._page.started} | self._layout.state()

    def target(self) -> str:
        """Return the folder that was asked for."""
        return "" if self._dir is None else os.path.abspath(self._dir)

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("the sink must be open: call open(run) first")

    def _root(self, run: RunInfo) -> Path:
        names = {"project": run.project, "name": run.name, "run_id": run.run_id}
        if self._dir is not None:
            path = Path(_PLACEHOLDER.sub(lambda m: folder_name(names[m[1]]), self._dir))
        elif run.directory is not None:
            path = run.directory
        else:
            path = Path("tensorboard", *(folder_name(n) for n in (run.project, run.run_id) if n))
        return path.absolute() / f"rank{run.rank}" if run.rank else path.absolute()

    def _count(self, reason: str) -> None:
        self.unshown[reason] = self.unshown.get(reason, 0) + 1

    def _commit(self) -> None:
        self._layout.commit()
        self._done = self._seen

    def _show(self, event: Event) -> None:
        if event.options:  # TensorBoard has none for a single call
            for option in own_options(event, self._run.alias, self.name):
                self._count(f"option {option!r} of a log call")
        rest = () if type(event) in _PLAIN else list(shown(event, self._run, self._count))
        if not event.values and not rest:
            return
        folder, step = self._layout.place(event)
        folder.scalars(event.wall_time, step, event.values)
        for kind, key, build in rest:
            folder.add(event.wall_time, step, kind, key, build)

    def _hear(self, event: Event) -> None:
        """Take in what an event says about the run."""
        match event:
            case RunStarted():
                if event.attempt > self._attempt and event.step:
                    self._go_back(event, event.step)
                elif event.attempt == 1 and event.wall:
                    self._page.start(event.wall_time)
                self._page.update(event.config)
            case Rewound():
                self._go_back(event, event.to_step)
            case ConfigUpdated():
                self._page.update(event.config)
            case SummaryUpdated():
                self._sum_up(event, event.summary)
            case RunFinished():
                self._page.error = event.error
                self._sum_up(event, event.summary)
        self._attempt = max(self._attempt, event.attempt)

    def _go_back(self, event: Event, to_step: int) -> None:
        self._commit()  # to the files that the purge is about
        self._layout.go_back(to_step, event.batch, event.epoch)

    def _sum_up(self, event: Event, summary: dict[str, Any]) -> None:
        before = leaves(self._summary)
        self._summary |= summary
        now = leaves(self._summary)
        changed = {
            key: value
            for key, value in now.items()
            if isinstance(value, int | float) and (key not in before or before[key] != value)
        }
        if now == before:
            return
        folder = self._layout.folder(SUMMARY)
        if changed:
            folder.scalars(event.wall_time, event.step, changed)
        text = partial(text_value, text=as_json(self._summary))
        folder.add(event.wall_time, event.step, "text", "summary", text)


def _now() -> float:
    return wall_ns() / 1e9
