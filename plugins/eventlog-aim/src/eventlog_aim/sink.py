"""`AimSink`: from events to runs of Aim."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import ArtifactEvent, BlobRef, Event, HistogramEvent, Status
from eventlog.exceptions import RefusedError
from eventlog.sinks.base import Confirms, Isolation, Rewind, RunInfo
from eventlog.sinks.names import Names
from eventlog.sinks.tracker import At, TrackerSink
from eventlog_aim.about import conclude, describe, place_of
from eventlog_aim.artifacts import Artifacts
from eventlog_aim.curves import Curves, Point
from eventlog_aim.media import Media
from eventlog_aim.opening import Opened, open_run, outages
from eventlog_aim.options import as_repo, checked_sdk_options, checked_uri, context_of
from eventlog_aim.values import clean_text, even_bins, image_object, number, plain, whole

__all__ = ["AimSink"]

_LONGEST_NAME = 500


class AimSink(TrackerSink):
    """Shows a run in Aim: in a repository on disk, or on an Aim server.

    Args:
        repo: The repository: a folder, or ``aim://host:port`` of an Aim server. By default the
            place that eventlog offers, in the run's directory; Aim's own default, the working
            directory, for a run without one. In a folder, ``{project}``, ``{name}`` and
            ``{run_id}`` are replaced.
        dir: The same for a folder; give only one of them.
        experiment: Aim's experiment; by default the run's project.
        run_hash: A run of the repository to go on with, instead of a new one.
        artifacts_uri: Where files are copied that are logged as artifacts: ``s3://bucket/...`` or
            ``file:///...``. By default only those that eventlog has a copy of are copied, beside
            a repository on disk; of others the path is shown.
        sdk_options: Further arguments of `aim.Run`, such as ``system_tracking_interval``,
            ``log_system_params`` and ``capture_terminal_logs``, which are off by default.

    Raises:
        ValueError: An option is not what it must be.
        TypeError: The same, of its type.
    """

    name: ClassVar[str] = "aim"
    capabilities: ClassVar[frozenset[str]] = frozenset({
        "scalars", "strings", "config", "summary", "text", "image", "histogram", "artifact",
        "status",
    })  # fmt: skip
    confirms: ClassVar[Confirms] = "write"
    rewind: ClassVar[Rewind] = "overwrite"
    isolation: ClassVar[Isolation] = "sidecar"
    requires: ClassVar[tuple[str, ...]] = ("aim",)
    buffered: ClassVar[bool] = True
    call_options: ClassVar[frozenset[str]] = frozenset({"context"})

    def __init__(
        self,
        *,
        repo: str | os.PathLike[str] | None = None,
        dir: str | os.PathLike[str] | None = None,
        experiment: str | None = None,
        run_hash: str | None = None,
        artifacts_uri: str | None = None,
        sdk_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._repo = as_repo(repo, dir)
        for option, value in (("experiment", experiment), ("run_hash", run_hash)):
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{option} must be a text that is not empty, not {value!r}")
        self._experiment = experiment
        self._run_hash = run_hash
        self._artifacts_uri = checked_uri(artifacts_uri)
        self._sdk_options = checked_sdk_options(sdk_options)
        self._opened: Opened | None = None
        self._away = False
        self._begun: str | None = None
        self._coming: Event | None = None
        self._sent: Event | None = None

    @classmethod
    def unready(cls, options: Mapping[str, Any]) -> str | None:
        """Return why Aim cannot work here: it is not installed, or cannot be."""
        if importlib.util.find_spec("aim") is not None:
            return None
        if sys.version_info >= (3, 13):
            running = f"{sys.version_info.major}.{sys.version_info.minor}"
            return f"aim needs a Python below 3.13, and this is {running}"
        return 'aim is not installed: pip install "eventlog-bus[aim]"'

    def target(self) -> str:
        """Return the repository that was asked for, and the run in it."""
        repo = self._repo or ""
        if repo and "://" not in repo:
            repo = os.path.abspath(repo)
        return f"{repo}#{self._run_hash}" if self._run_hash else repo

    # -- start and end --------------------------------------------------------------------------

    def start(self, run: RunInfo) -> None:
        """Open the run, or go on with the one that `run.state` names."""
        repo = place_of(self._repo, run)
        if repo is not None and "://" not in repo:
            Path(repo).mkdir(parents=True, exist_ok=True)
        if self._opened is not None:  # an opening that failed half-way
            self._opened.abandon()
        self._opened = opened = open_run(
            repo,
            self._run_hash,
            saved=run.state.get("run_id") or self._begun,
            experiment=clean_text(self._experiment or run.project) or None,
            options=self._sdk_options,
        )
        path = run.directory / "names.json" if run.directory else None
        self.names = Names(clean_text, path, longest=_LONGEST_NAME)
        self.tracker = opened.run
        self.run_id = self._begun = opened.run.hash
        self.url = repo if opened.link is not None else os.path.abspath(opened.run.repo.root_path)
        self._curves = Curves(opened.run, self.count)
        self._media = Media(self._curves)
        self._artifacts = Artifacts(opened.run, run.directory, self._artifacts_uri, self.count)
        self._contexts: dict[str, tuple[dict[str, Any], str]] = {}
        self._coming = self._sent = None
        describe(opened.run, run, opened.resumed, self.count)
        self._send()

    def finish(self, status: Status, error: str | None) -> None:
        """Mark how the run ended, and let go of it; also of a server that is away."""
        opened, self._opened, self._begun = self._opened, None, None
        if opened is None:
            return
        ended = False
        try:
            if not self._away:
                conclude(opened.run, status, error, reports=opened.reports)
                opened.close()
                ended = True
        finally:
            del self._curves, self._media, self._artifacts  # they have the store open
            if not ended:
                opened.abandon()

    def flush(self) -> None:
        """Send what the server did not take yet; a repository on disk has everything."""
        self._away = True
        self._send()
        self._away = False

    def write(self, batch: Sequence[Event]) -> None:
        """Take a batch: what an outage left of the last one goes first."""
        self._check_started()
        link = self._opened.link if self._opened is not None else None
        if link is not None and link.pending:
            self._send()
            # that batch comes again, and is there now
            if self._sent is not None:
                self.taken_to(self._sent)
        numbered = (event for event in batch if event.seq >= 0)
        self._coming = max(numbered, key=lambda event: (event.attempt, event.seq), default=None)
        super().write(batch)

    def commit(self) -> None:
        """Write the batch's points and media; a server has answered for all of them."""
        if self._opened is None:
            return
        with outages():
            self._curves.commit()
            self._media.commit()
        self._sent = self._coming
        self._send()

    def _send(self) -> None:
        """Send what waits for a server, if there is one."""
        if self._opened is None or self._opened.link is None:
            return
        try:
            self._opened.link.send()
        except RefusedError:
            self._sent = None  # what was refused is to be found by giving it again
            raise

    def discard(self) -> None:
        """Forget what was gathered."""
        if self._opened is not None:
            self._curves.discard()
            self._media.discard()

    # -- what is shown --------------------------------------------------------------------------

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        """Add a point to each curve; the epoch goes with it, and the time that it was logged."""
        context, key = self._context(event, axis)
        step = whole(at)
        if step is None:
            self.count("number without a step: Aim counts", len(values))
        elif isinstance(step, float):
            self.count("fractional epoch: exact by epoch, rounded down by step", len(values))
        names, add, epoch, wall = self.names, self._curves.add, event.epoch, event.wall_time
        for name, value in values.items():
            plain_value = value if type(value) is float else number(value, self.count)
            point = Point(step, plain_value, epoch, wall)
            add(names(name), context, key, point, event.attempt)

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        """Show a text."""
        aim = importlib.import_module("aim")
        self._gather(event, axis, at, tag, "text", [aim.Text(clean_text(text))])

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        """Show images, with the bytes that their files have."""
        found = []
        for path, _ in images:
            try:
                found.append(image_object(path, caption))
            except ValueError:
                self.count("image that Pillow cannot read")
        if found:
            self._gather(event, axis, at, tag, "image", found)

    def histogram(self, event: HistogramEvent, axis: str, at: At) -> None:
        """Show a distribution; Aim's have bins of one width."""
        finite = all(map(math.isfinite, event.edges))
        if not event.counts or len(event.edges) != len(event.counts) + 1 or not finite:
            self.count("histogram without finite bins")
            return
        counts, bounds, exact = even_bins(event.edges, event.counts)
        if not exact:
            self.count("histogram with uneven bins: shown in even ones")
        if event.nonfinite:
            self.count("histogram's values that are not finite", event.nonfinite)
        aim = importlib.import_module("aim")
        shown = aim.Distribution(hist=counts, bin_range=bounds)
        self._gather(event, axis, at, event.tag, "histogram", [shown])

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        """Show where a file is, and copy it where there is a place for that."""
        self._artifacts.add(event, path)

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Show hyperparameters as ``run.hparams``, nested as they are."""
        self.tracker["hparams"] = plain(config, self.count)

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Show values of the whole run as ``run.summary``."""
        self.tracker["summary"] = plain(summary, self.count)

    def _gather(
        self, event: Event, axis: str, at: At, tag: str, kind: str, shown: list[Any]
    ) -> None:
        step = whole(at)
        if isinstance(step, float):
            self.count("fractional epoch rounded down")
            step = int(step)
        if step is None:
            self.count(f"{kind} without a step: Aim counts")
        context, key = self._context(event, axis)
        point = Point(step, 0.0, event.epoch, event.wall_time)
        name = self.names(tag, kind=kind)
        if self._media.add(kind, name, context, key, point, shown, event.attempt):
            self.count(f"{kind} at a place that has one: the later one is shown")

    def _context(self, event: Event, axis: str) -> tuple[dict[str, Any], str]:
        """Return Aim's context of an event, which tells its axis and its rank, and its key."""
        own = self.options(event).get("context") if event.options else None
        if own is None:
            known = self._contexts.get(axis)
            if known is None:
                known = self._contexts[axis] = context_of(axis, self.run.rank, {}, self.count)
            return known
        return context_of(axis, self.run.rank, own, self.count)
