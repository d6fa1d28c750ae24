"""`DvcliveSink`: from events to the files of DVCLive."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Event, Status
from eventlog.sinks.base import Confirms, Isolation, Rewind, RunInfo
from eventlog.sinks.names import Names
from eventlog.sinks.plain import flatten
from eventlog.sinks.tracker import At
from eventlog_dvclive.artifacts import Artifacts
from eventlog_dvclive.curves import Curve, Curves
from eventlog_dvclive.layout import clean, run_folder
from eventlog_dvclive.live import LiveFiles, mend_files, start_live, untouched
from eventlog_dvclive.media import Media
from eventlog_dvclive.page import OWN, RunPage
from eventlog_dvclive.places import Places
from eventlog_dvclive.showing import MediaSink
from eventlog_dvclive.values import as_param, as_summary, is_metric

__all__ = ["DvcliveSink"]

_SUMMARY_SECONDS = 1.0
"""So old metrics.json may get while points come."""

_SYNC_SECONDS = 10.0
"""So old dvc.yaml and a report may get; DVCLive reads all files for these."""

_STRING_LENGTH = 1000
_OWN_OPTIONS = ("dir", "resume", "save_dvc_exp")


class DvcliveSink(MediaSink):
    """Shows a run as the files of DVCLive: metrics, parameters, plots, images.

    Rows are with the operating system when `write` returns, so a killed process loses none of
    them. Git and DVC repositories are left alone, and nothing is posted, unless asked.

    Args:
        dir: The run's folder, where ``{project}``, ``{name}`` and ``{run_id}`` are replaced. By
            default the place that eventlog offers, in the run's directory, or
            ``dvclive/<project>/<run_id>`` for a run without one. What another run of DVCLive left
            there is removed, as DVCLive does.
        resume: Whether to go on with what another run left in the folder. A run's own files are
            gone on with in any case.
        save_dvc_exp: Whether to save a DVC experiment at the end, and write ``dvc.yaml``.
        studio: Whether to post to DVC Studio, with the token from DVC's own configuration.
        sdk_options: More arguments of `dvclive.Live`: ``dvcyaml``, ``report``, ``cache_images``,
            ``monitor_system``, ``exp_name``, ``exp_message``. All are off by default.

    Raises:
        TypeError: An option is of the wrong type.
        ValueError: `sdk_options` has what is an option of its own.
    """

    name: ClassVar[str] = "dvclive"
    capabilities: ClassVar[frozenset[str]] = frozenset(
        {
            "scalars",
            "strings",
            "config",
            "summary",
            "text",
            "image",
            "histogram",
            "table",
            "figure",
            "artifact",
            "status",
        }
    )
    confirms: ClassVar[Confirms] = "write"
    rewind: ClassVar[Rewind] = "purge"
    isolation: ClassVar[Isolation] = "sidecar"
    requires: ClassVar[tuple[str, ...]] = ("dvclive",)
    buffered: ClassVar[bool] = True
    call_options: ClassVar[frozenset[str]] = frozenset(
        {"plot", "timestamp", "desc", "labels", "copy", "cache"}
    )

    def __init__(
        self,
        *,
        dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        save_dvc_exp: bool = False,
        studio: bool = False,
        sdk_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        for name, flag in (("resume", resume), ("save_dvc_exp", save_dvc_exp), ("studio", studio)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, not {flag!r}")
        if dir is not None and not isinstance(dir, str | os.PathLike):
            raise TypeError(f"dir must be a path, not {dir!r}")
        if sdk_options is not None and not isinstance(sdk_options, Mapping):
            raise TypeError(f"sdk_options must be a mapping, not {sdk_options!r}")
        self._sdk = dict(sdk_options or {})
        if own := [name for name in _OWN_OPTIONS if name in self._sdk]:
            raise ValueError(f"sdk_options must not have {own[0]!r}: it is an option by itself")
        self._dir = None if dir is None else os.fspath(dir)
        self._resume, self._save, self._studio = resume, save_dvc_exp, studio

    def target(self) -> str:
        """Return the folder that was asked for."""
        return "" if self._dir is None else os.path.abspath(self._dir)

    def start(self, run: RunInfo) -> None:
        """Make DVCLive's object, and see what is in the folder already."""
        folder = run_folder(run, self._dir)
        page = RunPage.read(folder / OWN)
        known = bool(run.state) and page.run_id == run.run_id
        if run.state and not known:
            self.count("run's folder that is not there any more")
        keep = known or self._resume
        if not keep:
            page = page.clear()
        page.describe(run)
        folder.mkdir(parents=True, exist_ok=True)
        with untouched():
            if keep:
                for name in mend_files(folder):
                    self.count(f"{name} that was damaged")
            live = self._live(folder, run, keep)
        self._page, self.tracker, self._files = page, live, LiveFiles(live)
        self._files.list_present()
        self._curves = Curves(self._files.plots_dir / "metrics")
        self._curves.load(page.axes)
        self._by_key: dict[tuple[str, str], dict[str, Curve]] = {}
        self._media = Media(self._files.plots_dir, page)
        self._artifacts = Artifacts(page, self._media, live if self._repository else None)
        found = live.summary.get("step")
        self._places = Places(page, self._void, self.count, run.state.get("floors", {}), found)
        self.names = Names(clean, page.folder / "names.json", nested=True, fold_case=True)
        self._dirty = bool(self._curves.latest)
        self._written, self._synced = -math.inf, time.monotonic()
        self.url, self.run_id = str(folder), run.run_id
        page.write()

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        """Add a row to the file of each value."""
        self._add(event, axis, at, values, "scalar")

    def strings(self, event: Event, axis: str, at: At, values: Mapping[str, str]) -> None:
        """Add a row to the file of each string; what is no word or sentence is a text."""
        words: dict[str, str] = {}
        for key, value in values.items():
            if len(value) > _STRING_LENGTH or "\n" in value or "\r" in value:
                self.count("string of several lines shown as a text")
                self.text(event, axis, at, key, value)
            else:
                words[key] = value
        if words:
            self._add(event, axis, at, words, "string")

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Put hyperparameters into params.yaml, nested as they are."""
        self._files.add_params(as_param(changed))

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Put values of the whole run into metrics.json, beside the last value of each metric."""
        for key, value in flatten(changed).items():
            self._curves.latest[self.names(key, "step", "summary")] = value
        self._dirty = True

    def rewound(self, event: Event, to_step: int) -> None:
        """Take away the rows and files that are void."""
        self._places.rewind(event, to_step)

    def commit(self) -> None:
        """Write the rows of the batch, and now and then what is made from them."""
        self._page.write()
        self._curves.commit()
        self._files.write_params()
        self._media.save()
        self._places.commit()
        if self._dirty and time.monotonic() - self._written >= _SUMMARY_SECONDS:
            self._write_summary()

    def discard(self) -> None:
        """Forget the rows of a batch that failed."""
        self._curves.discard()
        self._places.discard()

    def flush(self) -> None:
        """Bring metrics.json up to date; rows are written already."""
        self._check_started()
        self._page.write()
        if self._dirty:
            self._write_summary()
        asked = self.tracker._dvcyaml or self.tracker._report_mode or self._studio
        if asked and time.monotonic() - self._synced >= _SYNC_SECONDS:
            self._files.sync()
            self._synced = time.monotonic()

    def finish(self, status: Status, error: str | None) -> None:
        """Keep how the run ended, and end DVCLive's."""
        try:
            self._page.end(status, error)
            self._page.write()
        finally:
            self._files.end()

    def memory(self) -> dict[str, Any]:
        """Return what a rewind still has to take away."""
        return {"floors": self._places.kept} if self._places.kept else {}

    @property
    def _repository(self) -> bool:
        return self._save or self._studio or bool(self._sdk.get("cache_images"))

    def _live(self, folder: Path, run: RunInfo, keep: bool) -> Any:
        options: dict[str, Any] = {"save_dvc_exp": self._save, "dvcyaml": None}
        if self._save:
            options |= {"dvcyaml": "dvc.yaml", "exp_name": run.name, "exp_message": run.notes}
        options |= self._sdk
        return start_live(
            folder, options, resume=keep, repository=self._repository, studio=self._studio
        )

    def _add(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | str], kind: str
    ) -> None:
        axis, step = self.place(event, axis, at)
        self._dirty = True
        if event.options and self.options(event).get("plot") is False:
            latest = {self.names(key, axis, kind): value for key, value in values.items()}
            self._curves.latest |= latest
            return
        curves = self._by_key.get((axis, kind))
        if curves is None:
            curves = self._by_key[axis, kind] = {}
        milliseconds = event.wall // 1_000_000
        for key, value in values.items():
            if type(value) is not float and not is_metric(value):
                self.count("value that cannot be written as a number or a string")
                continue
            curve = curves.get(key)
            if curve is None:
                curve = curves[key] = self._curve(key, axis, kind)
            if step is not None:
                if curve.added is not None and step < curve.added:
                    self._places.back(axis, event)
                curve.added = step
            if not curve.rows:
                self._curves.touch(curve)
            curve.rows.append((milliseconds, step, value))

    def _curve(self, key: str, axis: str, kind: str) -> Curve:
        name = self.names(key, axis, kind)
        if axis != "step" and self._page.axes.get(name) != axis:
            self._page.axes[name] = axis
            self._page.stale = True
        return self._curves.curve(name, axis)

    def _void(self, axis: str, floor: int) -> None:
        self._curves.cut(axis, floor)
        self._media.cut(axis, floor)

    def _write_summary(self) -> None:
        latest = {name: as_summary(value) for name, value in self._curves.latest.items()}
        self._files.write_summary(latest, self._curves.gone, self._places.step)
        self._dirty, self._written = False, time.monotonic()
