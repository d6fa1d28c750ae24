"""What `CometSink` shows of events, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    HistogramEvent,
    ModelUpdateEvent,
    TableEvent,
)
from eventlog.sinks.names import Names
from eventlog.sinks.plain import as_json, flatten, json_text
from eventlog.sinks.tracker import At, TrackerSink
from eventlog_comet.media import SUFFIXES, Media
from eventlog_comet.values import (
    LONGEST_NAME,
    clean_name,
    csv_text,
    file_name,
    metric,
    scalar,
    whole,
    whole_text,
)

__all__ = ["CometPages"]

_RESERVED = ("Name", "run/", "summary/")


class CometPages(TrackerSink):
    """The methods of a sink that show things in an experiment that runs: `tracker`."""

    def set_up(self, experiment: Any, put: Callable[[Any], None], directory: Path | None) -> None:
        """Take an experiment that was started.

        Args:
            experiment: The SDK's.
            put: Takes points, as the SDK's messages.
            directory: Where tables of names are kept, if anywhere.
        """
        self.tracker = experiment
        self._put = put
        kept = directory
        self.names = Names(clean_name, kept and kept / "names.json", longest=LONGEST_NAME)
        fields = kept and kept / "parameters.json"
        self._parameters = Names(clean_name, fields, longest=LONGEST_NAME)
        self._others = Names(clean_name, longest=LONGEST_NAME)
        self._message = import_module("comet_ml.messages").MetricMessage
        self._media = Media(import_module("comet_ml"), experiment, self.count)
        config = import_module("comet_ml.config").get_config()
        self._sampled: int = config["comet.offline_sampling_size"]
        self._points: dict[str, int] = {}
        self._place(None, None)

    # -- curves and facts ---------------------------------------------------------------------

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        """Add points, which keep the wall time of their event."""
        options = self.options(event)
        step, epoch = (event.step, at) if axis == "epoch" else (at, event.epoch)
        step = whole(options.get("step", step), self.count)
        epoch = options.get("epoch", epoch)
        context = self.tracker.context if options.get("include_context", True) else None
        wall = event.wall // 1_000_000 or None
        for key, value in values.items():
            name = self.names(key, axis)
            message = self._message(context=context, timestamp=wall)
            message.set_metric(name, metric(value, self.count), step=step, epoch=epoch)
            self._put(message)
            points = self._points[name] = self._points.get(name, 0) + 1
            if points > self._sampled:
                self.count(f"point beyond {self._sampled} of its metric: Comet keeps a sample")

    def strings(self, event: Event, axis: str, at: At, values: Mapping[str, str]) -> None:
        """Show strings as texts, and the latest of each name among the other values."""
        for tag, text in values.items():
            self.text(event, axis, at, tag, text)
            if not tag.startswith(_RESERVED):
                self._other(tag, text)

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Log hyperparameters, of which Comet shows the latest value."""
        self._place(None, None)
        for key, value in flatten(changed).items():
            name = self._parameters(key, kind="parameter")
            self.tracker.log_parameter(name, scalar(value, self.count, "hyperparameter"))

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Show values of the whole run among the other values."""
        for key, value in flatten(changed).items():
            self._other(f"summary/{key}", value, "summary value")

    # -- media --------------------------------------------------------------------------------

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        """Show a text; its tag is in its metadata."""
        self._place(at, event.epoch)
        self._media.text(tag, text)

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        """Show image files as they are."""
        self._place(at, event.epoch)
        for number, (path, blob) in enumerate(images):
            suffix = SUFFIXES.get(blob.mime, "")
            name = file_name(tag if len(images) == 1 else f"{tag}/{number}", suffix)
            facts = {"tag": whole_text(tag)}
            if caption is not None:
                facts["caption"] = whole_text(caption)
            self._media.image(name, path, facts)

    def histogram(self, event: HistogramEvent, axis: str, at: At) -> None:
        """Show a distribution in Comet's bins."""
        if at is None:
            self.count("histogram without a step: shown at step 0")
        self._place(at or 0, event.epoch)
        self._media.histogram(event)

    def table(self, event: TableEvent, axis: str, at: At) -> None:
        """Keep a table as a CSV file, which Comet shows as one."""
        self._place(at, event.epoch)
        data = csv_text(event.columns, event.rows)
        self._media.data(file_name(event.tag, ".csv"), data, {"tag": whole_text(event.tag)})

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        """Keep the files; what is not there any more is told among the other values."""
        facts = {"kind": event.kind, "path": event.path, "size": event.size} | event.metadata
        self._place(event.step, event.epoch)
        if path is None:
            self._other(f"run/artifact/{event.name}", json_text(facts))
            return
        self._media.artifact(event, path, facts)

    def model_update(self, event: ModelUpdateEvent, axis: str, at: At) -> None:
        """Show what happened to the model as a text."""
        text = f"**{event.kind}**\n\n{as_json(event.summary)}"
        self.text(event, axis, at, "model_update", text)

    def custom(self, event: Event, axis: str, at: At, fields: Mapping[str, Any]) -> None:
        """Show the fields of an event of a user's type as a text."""
        self.text(event, axis, at, str(event.__struct_config__.tag), as_json(fields))

    def _other(self, key: str, value: Any, what: str = "other value") -> None:
        self.tracker.log_other(self._others(key, kind="other"), scalar(value, self.count, what))

    def _place(self, step: At, epoch: At) -> None:
        """Set the step of what follows, without the hyperparameters that the SDK makes of it."""
        whole_step = whole(step, self.count)
        self.tracker.curr_step = whole_step
        self.tracker.curr_epoch = epoch
        # known values are not logged again
        self.tracker.params |= {"curr_step": whole_step, "curr_epoch": epoch}
