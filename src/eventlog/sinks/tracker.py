"""`TrackerSink`: the base of sinks for experiment trackers.

It takes events apart and calls one small method for each kind of thing; a subclass writes those
that its tracker can show, and declares them as `capabilities`. What the tracker cannot show is
shown as something that it can (a table as Markdown text, a figure as an image), and counted, or
only counted, in `unshown`: nothing goes by in silence.

::

    class FileSink(TrackerSink):
        name = "file"
        capabilities = frozenset({"scalars", "text"})

        def start(self, run):
            self.file = (run.directory / "points.txt").open("a")
            self.url = self.file.name

        def numbers(self, event, axis, at, values):
            print(axis, at, values, file=self.file)

        def text(self, event, axis, at, tag, text):
            print(axis, at, tag, text, file=self.file)

        def finish(self, status, error):
            self.file.close()

A batch that comes again, after an outage or in another process, is recognised by the position that
`state` keeps, and what was taken of it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from eventlog._paths import lies_below
from eventlog.events import (
    ArtifactEvent,
    BatchEvent,
    BlobRef,
    ConfigUpdated,
    EpochEvent,
    Event,
    FigureEvent,
    Flushed,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    Status,
    StepEvent,
    SummaryUpdated,
    TableEvent,
    TextEvent,
    UnknownEvent,
)
from eventlog.sinks.base import RunInfo, Sink
from eventlog.sinks.names import Names
from eventlog.sinks.plain import (
    as_json,
    describe_histogram,
    markdown_table,
    own_options,
    place,
)

__all__ = ["At", "TrackerSink"]

At = int | float | None

_SCALARS = (StepEvent, BatchEvent, EpochEvent)
_COMMON = frozenset(Event.__struct_fields__)


class TrackerSink(Sink):
    """A sink that is written as one method for each kind of thing; see the module.

    Each method that shows something is told where: `axis` is ``step``, ``batch``, ``epoch`` or the
    name of an axis of the user's, and `at` the place on it, None for an event that has none. The
    event has the other axes, too, and `wall_time`.

    Class attributes that a subclass declares, beside those of `Sink`:
        buffered: Whether points are kept until `commit`, which sends those of a batch at once. A
            batch then counts as taken when `commit` returns, and otherwise event by event.
        call_options: Which options of a log call the sink knows: ``run.log(..., options={"wandb":
            {"commit": False}})``; see `options`. Others are counted.

    Attributes:
        run: What `open` was told.
        names: Makes names that the tracker takes; replace it in `start` for other rules.
        unshown: How much could not be shown, or not as it is, by reason.
    """

    buffered: ClassVar[bool] = False
    call_options: ClassVar[frozenset[str]] = frozenset()

    run: RunInfo
    names: Names

    def __init__(self) -> None:
        self.unshown: dict[str, int] = {}
        self._started = False
        self._done: tuple[int, int] = (0, -1)

    # -- what a subclass writes ---------------------------------------------------------------

    def start(self, run: RunInfo) -> None:
        """Start the tracker's run, or go on with the one that `run.state` names.

        Sets `tracker`, `run_id`, and `url`. Raises `UnavailableError` or `OSError` for an outage.
        It is called again, on the same object, when it or what `open` does after it failed: what
        it had begun then is to be gone on with, or let go of.
        """

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        """Add a point to the curve of each value."""
        self.count("number", len(values))

    def strings(self, event: Event, axis: str, at: At, values: Mapping[str, str]) -> None:
        """Show strings that were logged beside numbers; as texts by default."""
        for tag, text in values.items():
            self._show_text(event, axis, at, tag, text, "string")

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        """Show a text, as Markdown where the tracker can."""

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        """Show images, which lie in files: do not move or change these."""

    def figure(self, event: Event, axis: str, at: At, tag: str, path: Path, blob: BlobRef) -> None:
        """Show a plot, which was rendered to a PNG file; as an image by default."""
        self.image(event, axis, at, tag, [(path, blob)], None)

    def histogram(self, event: HistogramEvent, axis: str, at: At) -> None:
        """Show a distribution."""

    def table(self, event: TableEvent, axis: str, at: At) -> None:
        """Show a table."""

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        """Take a file or a folder; `path` is None where it is not there any more."""

    def model_update(self, event: ModelUpdateEvent, axis: str, at: At) -> None:
        """Show that the model changed; its numbers came by `numbers` already."""

    def custom(self, event: Event, axis: str, at: At, fields: Mapping[str, Any]) -> None:
        """Show an event of a user's own type, of which `fields` are those that it adds."""

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Show hyperparameters: all that are known by now, nested, and those that are new."""

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Show values of the whole run: all by now, nested, and those that are new."""

    def rewound(self, event: Event, to_step: int) -> None:
        """Forget the points from a step on; trackers that cannot keep both attempts."""

    def commit(self) -> None:
        """Send what was gathered of this batch, whole, or raise."""

    def discard(self) -> None:
        """Forget what was gathered of a batch that failed: it comes again."""

    def finish(self, status: Status, error: str | None) -> None:
        """End the tracker's run with its status and let go of everything."""

    def memory(self) -> dict[str, Any]:
        """Return plain values for `run.state` of a later `start`, beside `run_id`; few bytes."""
        return {}

    # -- what a subclass uses -----------------------------------------------------------------

    def count(self, reason: str, n: int = 1) -> None:
        """Count what could not be shown, or not as it is, under its reason."""
        if n:
            self.unshown[reason] = self.unshown.get(reason, 0) + n

    def options(self, event: Event) -> dict[str, Any]:
        """Return what a log call said for this sink alone, by its alias or else its name."""
        mine = own_options(event, self.run.alias, self.name)
        return {name: value for name, value in mine.items() if name in self.call_options}

    def taken_to(self, event: Event) -> None:
        """Say that this much was taken, whatever `write` raises: it does not come again then.

        For SDKs that keep what they could not send, and send it later by themselves.
        """
        self._done = max(self._done, (event.attempt, event.seq))

    def can(self, capability: str) -> bool:
        """Whether this sink shows such things as they are."""
        return capability in self.capabilities

    # -- the sink -----------------------------------------------------------------------------

    def open(self, run: RunInfo) -> None:
        """Start the tracker's run, and tell it what is known by now."""
        self.run = run
        self.names = Names()
        saved = run.state
        self._done = (saved.get("attempt", 0), saved.get("seq", -1))
        self._attempt: int = saved.get("attempt", run.attempt)
        self._config: dict[str, Any] = dict(run.config)
        self._summary: dict[str, Any] = {}
        self._error: str | None = None
        self.start(run)
        self._started = True
        if self._config and self.can("config"):
            self.config(self._config, self._config)
        if run.model_update is not None and not saved:
            self._take(run.model_update)
        if self.buffered:
            self.commit()

    def write(self, batch: Sequence[Event]) -> None:
        """Take a batch; what was taken before is left out."""
        self._check_started()
        seen = self._done
        before = self._config, self._summary, dict(self.unshown)
        try:
            for event in batch:
                here = (event.attempt, event.seq)
                if event.seq >= 0 and here <= seen:
                    continue
                self._take(event)
                if event.seq >= 0:
                    seen = here
                    if not self.buffered:
                        self._done = here
            self.commit()
        except BaseException:
            if self.buffered:  # all of it comes again
                self._config, self._summary, self.unshown = before
            self.discard()
            raise
        self._done = seen
        self.names.save()

    def flush(self) -> None:
        """Bring what was written to where it is safe."""

    def close(self, status: Status) -> None:
        """End the tracker's run."""
        if not self._started:
            return
        try:
            self.flush()
        finally:
            self._started = False
            self.finish(status, self._error)

    def state(self) -> dict[str, Any]:
        """Return the run's id in the tracker, and how far it has come."""
        if self.run_id is None:
            return {}
        attempt, seq = self._done
        return {"run_id": self.run_id, "attempt": attempt, "seq": seq} | self.memory()

    def _check_started(self) -> None:
        if not self._started:
            raise RuntimeError("the sink must be open: call open(run) first")

    def _take(self, event: Event) -> None:
        axis, at = place(event)
        if event.options:
            for name in own_options(event, self.run.alias, self.name).keys() - self.call_options:
                self.count(f"option {name!r} of a log call")
        if event.values:
            self._show_values(event, axis, at)
        if type(event) in _SCALARS:
            return
        match event:
            case RunStarted():
                self._begin(event)
            case Rewound():
                self.rewound(event, event.to_step)
            case ConfigUpdated():
                self._merge_config(event.config)
            case SummaryUpdated():
                self._merge_summary(event.summary)
            case RunFinished():
                self._error = event.error
                self._merge_summary(event.summary)
            case Flushed():
                pass
            case _:
                self._show(event, axis, at)
        self._attempt = max(self._attempt, event.attempt)

    def _show_values(self, event: Event, axis: str, at: At) -> None:
        values = event.values
        for value in values.values():
            if type(value) is str:
                break
        else:
            self.numbers(event, axis, at, values)  # type: ignore[arg-type]
            return
        strings = {key: value for key, value in values.items() if isinstance(value, str)}
        numbers = {key: value for key, value in values.items() if not isinstance(value, str)}
        if numbers:
            self.numbers(event, axis, at, numbers)
        self.strings(event, axis, at, strings)

    def _begin(self, event: RunStarted) -> None:
        if event.attempt > self._attempt and event.step:
            self.rewound(event, event.step)
        config = event.config
        if self.run.replayed:  # `open` was told how it ended; what it was before is no news
            config = {key: value for key, value in config.items() if key not in self._config}
        self._merge_config(config)

    def _merge_config(self, config: Mapping[str, Any]) -> None:
        changed = {
            key: value
            for key, value in config.items()
            if key not in self._config or self._config[key] != value
        }
        if not changed:
            return
        merged = self._config | changed
        if self.can("config"):
            self.config(merged, changed)
        else:
            self.count("config", len(changed))
        self._config = merged

    def _merge_summary(self, summary: Mapping[str, Any]) -> None:
        changed = {
            key: value
            for key, value in summary.items()
            if key not in self._summary or self._summary[key] != value
        }
        if not changed:
            return
        merged = self._summary | changed
        if self.can("summary"):
            self.summary(merged, changed)
        else:
            self.count("summary", len(changed))
        self._summary = merged

    def _show(self, event: Event, axis: str, at: At) -> None:
        match event:
            case TextEvent():
                self._show_text(event, axis, at, event.tag, event.text, "text")
            case ImageEvent():
                self._show_images(event, axis, at)
            case FigureEvent():
                self._show_figure(event, axis, at)
            case HistogramEvent() if self.can("histogram"):
                self.histogram(event, axis, at)
            case HistogramEvent():
                text = describe_histogram(event)
                self._show_text(event, axis, at, event.tag, text, "histogram")
            case TableEvent() if self.can("table"):
                self.table(event, axis, at)
            case TableEvent():
                text = markdown_table(event.columns, event.rows)
                self._show_text(event, axis, at, event.tag, text, "table")
            case ArtifactEvent():
                self._show_artifact(event, axis, at)
            case ModelUpdateEvent() if self.can("model_update"):
                self.model_update(event, axis, at)
            case ModelUpdateEvent():
                text = f"**{event.kind}**\n\n{as_json(event.summary)}"
                self._show_text(event, axis, at, "model_update", text, "model_update")
            case UnknownEvent():
                self.count("event of an unknown type: only its values")
            case _:
                self._show_custom(event, axis, at)

    def _show_text(self, event: Event, axis: str, at: At, tag: str, text: str, what: str) -> None:
        if not self.can("text"):
            self.count(what)
            return
        if what not in ("text", "string"):
            self.count(f"{what} shown as text")
        self.text(event, axis, at, tag, text)

    def _show_images(self, event: ImageEvent, axis: str, at: At) -> None:
        if not self.can("image"):
            self.count("image", len(event.blobs))
            return
        images = [(path, blob) for blob in event.blobs if (path := self._file_of(blob))]
        if images:
            self.image(event, axis, at, event.tag, images, event.caption)

    def _show_figure(self, event: FigureEvent, axis: str, at: At) -> None:
        if not (self.can("figure") or self.can("image")):
            self.count("figure")
            return
        path = self._file_of(event.blob)
        if path is None:
            return
        if self.can("figure"):
            self.figure(event, axis, at, event.tag, path, event.blob)
        else:
            self.count("figure shown as an image")
            self.image(event, axis, at, event.tag, [(path, event.blob)], None)

    def _file_of(self, blob: BlobRef) -> Path | None:
        """Return where a blob lies, or None where it is gone, which is counted."""
        try:
            path = self.run.blob_path(blob.sha256)
            if path.stat().st_size == blob.size:
                return path
        except (OSError, ValueError):
            pass
        self.count("file that is missing or damaged")
        return None

    def _show_artifact(self, event: ArtifactEvent, axis: str, at: At) -> None:
        path = self._file_at(event.path) if event.blob is None else self._file_of(event.blob)
        if self.can("artifact"):
            self.artifact(event, path)
            return
        facts = {"kind": event.kind, "path": event.path, "size": event.size} | event.metadata
        text = as_json(facts)
        self._show_text(event, axis, at, f"artifact/{event.name}", text, "artifact")

    def _file_at(self, name: str) -> Path | None:
        """Return the file or folder that an event names; None where it may not be read."""
        path = Path(name)
        try:
            there = path.is_file() or path.is_dir()
        except (OSError, ValueError):  # no path, or one that may not be looked at
            there = False
        if not there:
            self.count("artifact that is not there any more")
            return None
        run_dir = self.run.run_dir
        if self.run.outside_files or (run_dir is not None and lies_below(run_dir, path)):
            return path
        self.count("artifact outside of the run's directory: only its path")
        return None

    def _show_custom(self, event: Event, axis: str, at: At) -> None:
        fields = {
            name: getattr(event, name) for name in event.__struct_fields__ if name not in _COMMON
        }
        if not fields:
            return
        if self.can("custom"):
            self.custom(event, axis, at, fields)
        else:
            tag = str(event.__struct_config__.tag)
            self._show_text(event, axis, at, tag, as_json(fields), "event of a user's type")
