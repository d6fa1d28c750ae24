"""`ClearmlSink`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    HistogramEvent,
    Status,
    TableEvent,
)
from eventlog.sinks.base import CAPABILITIES, Confirms, Isolation, Rewind, RunInfo
from eventlog.sinks.names import Names
from eventlog.sinks.plain import json_text, short_text
from eventlog.sinks.tracker import At, TrackerSink
from eventlog_clearml.convert import (
    LONGEST_NAME,
    as_float,
    clean_name,
    console_line,
    file_name,
    histogram_plot,
    image_plot,
    plain_text,
    table_plot,
)
from eventlog_clearml.files import Files
from eventlog_clearml.outbox import Outbox
from eventlog_clearml.page import Page
from eventlog_clearml.places import Place, Places
from eventlog_clearml.session import calls
from eventlog_clearml.settings import Settings, why_unready
from eventlog_clearml.tasks import alone, close_task, open_task, status_task

__all__ = ["ClearmlSink"]

_SINGLE_VALUE = -(2**31)
_LONGEST_TEXT = 500_000
_LONGEST_PLOT = 8_000_000
_SHOWN_NONFINITE = 10
_STATUSES: dict[Status, str] = {
    "finished": "completed",
    "failed": "failed",
    "interrupted": "stopped",
    "killed": "failed",
}


class ClearmlSink(TrackerSink):
    """Shows a run as a ClearML task, on a server or in an offline folder.

    Args:
        project: The project's name; the run's own by default.
        offline: Whether to write a folder instead of using a server; None does what
            ``CLEARML_OFFLINE_MODE`` says.
        dir: Where offline tasks lie, in a folder ``offline``; eventlog's folder for this sink by
            default.
        task_id: An earlier task to go on with.
        task_type: ClearML's type of the task.
        adopt: Report to the process's own task (`Task.current_task`), and do not close it, if it
            has one; only where the sink is in that process.
        api_server, web_server, files_server: Addresses; ClearML's own configuration by default.
        output_uri: Where images and artifacts go: ``s3://bucket/folder``, for example; the files
            server by default.
        upload_artifacts: Whether files and folders are uploaded, or only named.
        init: Arguments of `Task.init`, which makes the task if this is given, and by which each
            of the SDK's extras can be switched on: ``{"auto_resource_monitoring": True}``.

    Raises:
        TypeError, ValueError: An option cannot be used.
    """

    name: ClassVar[str] = "clearml"
    capabilities = CAPABILITIES - {"model_update", "custom"}
    confirms: ClassVar[Confirms] = "write"
    rewind: ClassVar[Rewind] = "overwrite"
    isolation: ClassVar[Isolation] = "sidecar"
    requires: ClassVar[tuple[str, ...]] = ("clearml",)
    buffered: ClassVar[bool] = True
    call_options: ClassVar[frozenset[str]] = frozenset({"level", "extra_layout"})

    def __init__(
        self,
        *,
        project: str | None = None,
        offline: bool | None = None,
        dir: str | os.PathLike[str] | None = None,
        task_id: str | None = None,
        task_type: str = "training",
        adopt: bool = False,
        api_server: str | None = None,
        web_server: str | None = None,
        files_server: str | None = None,
        output_uri: str | None = None,
        upload_artifacts: bool = True,
        init: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._settings = Settings(
            project=project,
            offline=offline,
            dir=dir,
            task_id=task_id,
            task_type=task_type,
            adopt=adopt,
            api_server=api_server,
            web_server=web_server,
            files_server=files_server,
            output_uri=output_uri,
            upload_artifacts=upload_artifacts,
            init=init,
        )

    @classmethod
    def unready(cls, options: Mapping[str, Any]) -> str | None:
        return why_unready(options)

    def target(self) -> str:
        return self._settings.target()

    # -- the run ------------------------------------------------------------------------------

    def start(self, run: RunInfo) -> None:
        table = run.directory / "names.json" if run.directory else None
        self.names = Names(clean_name, path=table, longest=LONGEST_NAME)
        self._places = Places(self.names, self.count, run.state.get("next", 0))
        self._nonfinite: dict[str, int] = {}
        self._opened = open_task(self._settings.wanted(run, self.run_id, self.count))
        try:
            self._start(run)
        except BaseException:
            # open is called again, and goes on with this task
            close_task(self._opened)
            raise

    def _start(self, run: RunInfo) -> None:
        settings, task = self._settings, self._opened.task
        self.tracker, self.run_id = task, str(task.id)
        if settings.files_server:
            task._files_server = settings.files_server
        if settings.web_server:
            task._app_server = settings.web_server
        self._outbox = Outbox(task, self._opened.session)
        self._files = Files(task, file_name(f"{run.rank}"))
        self._page = Page(task)
        self._artifacts: list[tuple[ArtifactEvent, Path | None]] = []
        with alone(), calls(self._opened.session):
            if settings.output_uri and not task.is_offline():
                task.output_uri = settings.output_uri
            self._page.describe(run)
            self.url = str(task.get_offline_mode_folder() or task.get_output_log_web_page())

    def memory(self) -> dict[str, Any]:
        return {"next": self._places.next} if self._places.next else {}

    # -- points and texts ---------------------------------------------------------------------

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        if event.options:
            self.options(event)
        stamp = event.wall // 1_000_000
        axis, at = self._places.iteration(event, axis, at)
        for key, value in values.items():
            number = as_float(value)
            if not math.isfinite(number):
                self._show_nonfinite(event, axis, at, key, value)
                continue
            if type(value) is int and int(number) != value:
                self.count("integer beyond 2**53: not exact")
            place = self._places.find(event, axis, at, key)
            self._outbox.scalar(stamp, *place[:3], number)
            if place.counted:
                self._outbox.scalar(stamp, "Summary", place.name, _SINGLE_VALUE, number)

    def _show_nonfinite(self, event: Event, axis: str, at: At, key: str, value: float) -> None:
        self.count("number that is not finite: in the console only")
        seen = self._nonfinite[key] = self._nonfinite.get(key, 0) + 1
        if seen <= _SHOWN_NONFINITE:
            line = short_text(console_line(key, axis, at, str(value)), _LONGEST_TEXT)
            self._outbox.text(event.wall // 1_000_000, "WARNING", line)

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        level = str(self.options(event).get("level", "INFO")) if event.options else "INFO"
        line = console_line(tag, axis, at, text)
        if len(line) > _LONGEST_TEXT:
            self.count("text of over 500,000 characters: cut")
        self._outbox.text(event.wall // 1_000_000, level, short_text(line, _LONGEST_TEXT))

    def rewound(self, event: Event, to_step: int) -> None:
        line = f"attempt {event.attempt}: back to step {to_step}"
        self._outbox.text(event.wall // 1_000_000, "INFO", line)

    # -- plots, files -------------------------------------------------------------------------

    def _plot(self, event: Event, place: Place, plot: dict[str, Any]) -> None:
        layout = self.options(event).get("extra_layout") if event.options else None
        if isinstance(layout, Mapping):
            plot["layout"] |= layout
        text = json_text(plot)
        if len(text) > _LONGEST_PLOT:
            self.count("plot of over 8 MB: left out")
            return
        self._outbox.plot(event.wall // 1_000_000, *place[:3], text)

    def histogram(self, event: HistogramEvent, axis: str, at: At) -> None:
        place = self._places.find(event, axis, at, event.tag, "histogram")
        self._plot(event, place, histogram_plot(event, plain_text(event.tag)))

    def table(self, event: TableEvent, axis: str, at: At) -> None:
        place = self._places.find(event, axis, at, event.tag, "table")
        self._plot(event, place, table_plot(event.columns, event.rows, plain_text(event.tag)))

    def figure(self, event: Event, axis: str, at: At, tag: str, path: Path, blob: BlobRef) -> None:
        place = self._places.find(event, axis, at, tag, "figure")
        url, _ = self._files.add(event, place, path, blob)
        size = getattr(event, "width", 0), getattr(event, "height", 0)
        self._plot(event, place, image_plot(url, plain_text(tag), *size))

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        for number, (path, blob) in enumerate(images):
            label = tag if len(images) == 1 else f"{tag} {number}"
            place = self._places.find(event, axis, at, label, "image")
            url, key = self._files.add(event, place, path, blob)
            self._outbox.image(event.wall // 1_000_000, *place[:3], url, key)
        if caption:
            self.text(event, axis, at, f"{tag} caption", caption)

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        self._artifacts.append((event, path if self._settings.upload_artifacts else None))

    # -- what holds for the whole run ---------------------------------------------------------

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        self._page.config(config)

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        self._page.summary(changed)

    # -- sending ------------------------------------------------------------------------------

    def commit(self) -> None:
        """Send all; texts and points come last, for a second try would show the texts twice."""
        if self._page.stale or self._artifacts or self._files.pending:
            with alone(), calls(self._opened.session):
                self._page.send(self.count)
                self._files.send()
                for event, path in self._artifacts:
                    self._files.artifact(event, path)
            self._artifacts = []
        for name, value in self._page.single_values.items():
            self._outbox.scalar(0, "Summary", name, _SINGLE_VALUE, value)
        self._outbox.send(self.count)
        self._page.single_values = {}
        self._places.keep()

    def discard(self) -> None:
        """Forget the batch's events; what holds for the whole run is sent with the next one."""
        self._outbox.clear()
        self._files.clear()
        self._places.restore()
        self._artifacts = []

    def finish(self, status: Status, error: str | None) -> None:
        opened = self._opened
        if not opened.own:
            close_task(opened)
            return
        reason = short_text(plain_text(error or ""), 1000)
        word = _STATUSES[status]
        try:
            with alone(), calls(opened.session):
                self._page.properties({"status": status} | ({"error": reason} if reason else {}))
                if not reason:
                    self._page.blank("error")
                self._page.send(self.count)
            if opened.offline:
                status_task(opened, word, reason, status)
        finally:
            close_task(opened)
        if not opened.offline:
            status_task(opened, word, reason, status)
