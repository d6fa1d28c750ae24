"""What each kind of thing becomes in MLflow: a metric, a param, a tag or an artifact."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    HistogramEvent,
    ModelUpdateEvent,
    TableEvent,
)
from eventlog.sinks.plain import flatten, json_text, short_text
from eventlog.sinks.tracker import At, TrackerSink
from eventlog_mlflow import media
from eventlog_mlflow.bulk import Point
from eventlog_mlflow.naming import Tables, clean_file
from eventlog_mlflow.outbox import File, Outbox

__all__ = ["Shows", "plain_text"]

_STEPS = 2**63
_LISTED = "mlflow.loggedArtifacts"
_REWINDS = "eventlog.rewinds"


def plain_text(value: Any) -> str:
    """Return a hyperparameter as MLflow would, but lists and mappings as JSON."""
    if not isinstance(value, str):
        value = json_text(value) if isinstance(value, list | tuple | Mapping) else str(value)
    return str(value).encode("utf-8", "replace").decode().replace("\0", "\ufffd")


class Shows(TrackerSink):
    """The part of `MlflowSink` that takes events; the other part sends what they became."""

    call_options: ClassVar[frozenset[str]] = frozenset(
        {"artifact_path", "dataset_digest", "dataset_name", "model_id"}
    )

    _out: Outbox
    _tables: Tables
    _exact_infinity: bool
    _longest_param: int
    _longest_tag: int

    def __init__(self) -> None:
        super().__init__()
        self._unstepped = 0
        self._words: dict[str, list[dict[str, Any]]] = {}
        self._words_from: dict[str, str] = {}
        self._totals: dict[str, float] = {}
        self._listed: list[dict[str, str]] = []
        self._rewinds = ""
        self._changed: set[str] = set()

    def go_on_with(self, tags: Mapping[str, str]) -> None:
        """Take over what the run's tags say already."""
        self._rewinds = tags.get(_REWINDS, "")
        self._changed = {name for name in tags if name.startswith("config/")}
        try:
            self._listed = list(json.loads(tags.get(_LISTED, "[]")))
        except ValueError:  # cut, or somebody else's
            self._listed = []

    def gather(self, now: int) -> None:
        """Make what is kept by name into points and files; `now` is in milliseconds."""
        points = self._out.points
        points += [Point(name, value, now, 0) for name, value in self._totals.items()]
        for name, lines in self._words.items():
            text = "".join(f"{json_text(line)}\n" for line in lines)
            source = text.encode("utf-8", "replace")
            path = f"{name}/{self._words_from[name]}.jsonl"
            self._out.files.append(File(path, source))
        self.ungather()

    def ungather(self) -> None:
        """Forget what is kept by name."""
        self._totals = {}
        self._words = {}
        self._words_from = {}

    def can(self, capability: str) -> bool:
        """Whether this sink has its own way with such things: a histogram becomes a file."""
        return capability == "histogram" or super().can(capability)

    # -- places and values --------------------------------------------------------------------

    def _step(self, event: Event, axis: str, at: At) -> tuple[str, int]:
        """Return the axis and the whole number that something is shown at."""
        if isinstance(at, float) and math.isfinite(at):
            if at.is_integer():
                at = int(at)
            elif event.step is not None:
                self.count("fractional epoch shown at its step")
                axis, at = event.axis, event.step
            else:
                self.count("fractional epoch rounded down")
                at = math.floor(at)
        if isinstance(at, int):
            if -_STEPS <= at < _STEPS:
                return axis, at
            self.count("step beyond 64 bits: counted up instead")
        else:
            self.count("event without a step: counted up")
        self._unstepped += 1
        return "unstepped", self._unstepped - 1

    def _number(self, value: int | float | bool) -> float:
        """Return a number as 64 bits hold it."""
        if type(value) is not float:
            try:
                number = float(value)
            except OverflowError:
                self.count("integer beyond 64 bits: shown as infinity")
                number = math.inf if value > 0 else -math.inf
            else:
                if number != value:
                    self.count("integer rounded to 53 bits")
        else:
            number = value
        if number in (math.inf, -math.inf) and not self._exact_infinity:
            self.count("infinity shown as 1.797e308")
        return number

    def _extra(self, event: Event) -> tuple[tuple[str, str], ...]:
        """Return what a log call says of the points, as MLflow's `Metric` has it."""
        given = self.options(event)
        found = {name: str(given[name]) for name in given if name != "artifact_path"}
        if ("dataset_name" in found) != ("dataset_digest" in found):
            self.count("option dataset_name or dataset_digest without the other")
            found.pop("dataset_name", found.pop("dataset_digest", None))
        return tuple(found.items())

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        if type(at) is not int or not -_STEPS <= at < _STEPS:
            axis, at = self._step(event, axis, at)
        extra = self._extra(event) if event.options else ()
        when = max(0, event.wall // 1_000_000)
        names, points = self.names, self._out.points
        for key, value in values.items():
            points.append(Point(names(key, axis), self._number(value), when, at, extra))

    def strings(self, event: Event, axis: str, at: At, values: Mapping[str, str]) -> None:
        where, step = self._step(event, axis, at)
        for key, text in values.items():
            name = self._tables.files(f"strings/{key}", where, "string")
            self._words_from.setdefault(name, f"{event.attempt}-{event.seq}")
            line = {"axis": where, "at": step, "time": event.wall_time, "text": text}
            self._words.setdefault(name, []).append(line)
            self._tag(self._tables.tags(key, where, "string"), text)

    def _tag(self, name: str, text: str) -> None:
        text = plain_text(text)
        if len(text) > self._longest_tag:
            self.count(f"tag cut to {self._longest_tag} characters")
        self._out.tags[name] = short_text(text, self._longest_tag)

    # -- the run ------------------------------------------------------------------------------

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        for key, value in flatten(changed).items():
            name, text = self._tables.params(key, kind="config"), plain_text(value)
            if len(text) > self._longest_param:
                self.count(f"config value cut to {self._longest_param} characters")
                text = short_text(text, self._longest_param)
            before = self._out.param(name)
            if before is None:
                self._out.params[name] = text
                continue
            tag = self._tables.tags(f"config/{key}", kind="config")
            if before != text or tag in self._changed:
                # MLflow never changes a param
                self.count("config value that changed: the new one is a tag")
                self._changed.add(tag)
                self._tag(tag, text)

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        for key, value in flatten(changed).items():
            if isinstance(value, int | float):
                name = self._tables.metrics(f"summary/{key}", kind="summary")
                self._totals[name] = self._number(value)
            else:
                self._tag(self._tables.tags(f"summary/{key}", kind="summary"), plain_text(value))

    def rewound(self, event: Event, to_step: int) -> None:
        """Say it in a tag: MLflow forgets no point."""
        said = f"attempt {event.attempt} from step {to_step}"
        if said not in self._rewinds:
            self._rewinds = f"{self._rewinds}; {said}" if self._rewinds else said
        self._tag(_REWINDS, self._rewinds)

    # -- files --------------------------------------------------------------------------------

    def _file(
        self, event: Event, axis: str, at: At, folder: str, tag: str, end: str, source: bytes | Path
    ) -> str:
        """Take a file of its own for an event; return its path in the run."""
        where, step = self._step(event, axis, at)
        root = str(self.options(event).get("artifact_path") or folder)
        name = self._tables.files(f"{root}/{tag or '(no name)'}", where, folder)
        path = f"{name}/{media.stem(where, step, event)}{end}"
        self._out.files.append(File(path, source))
        return path

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        self._file(event, axis, at, "texts", tag, ".md", text.encode("utf-8", "replace"))

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        where, step = self._step(event, axis, at)
        for number, (path, _) in enumerate(images):
            # MLflow's pages show one image of a name at a step
            key = self._tables.files(f"{tag}-{number}" if number else tag, where, "image")
            files = media.image_files(self.run, event, number, key, step, path)
            self._out.files.extend(files)
        self._out.tags["mlflow.loggedImages"] = "True"
        if caption is not None:
            self.text(event, axis, at, f"{tag}/caption", caption)

    def figure(self, event: Event, axis: str, at: At, tag: str, path: Path, blob: BlobRef) -> None:
        self._file(event, axis, at, "figures", tag, ".png", path)

    def histogram(self, event: HistogramEvent, axis: str, at: At) -> None:
        self.count("histogram kept as a JSON file")
        self._file(event, axis, at, "histograms", event.tag, ".json", media.histogram_json(event))

    def table(self, event: TableEvent, axis: str, at: At) -> None:
        contents = media.table_json(event.columns, event.rows)
        path = self._file(event, axis, at, "tables", event.tag, ".json", contents)
        one = {"path": path, "type": "table"}
        listed = self._listed if one in self._listed else [*self._listed, one]
        if len(json.dumps(listed)) > self._longest_tag:
            self.count("table that is only among the artifacts: the list of tables is full")
            return
        self._listed = listed
        self._out.tags[_LISTED] = json.dumps(listed)

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        # the same name again is another version, which keeps its own place
        version = f"{event.attempt}-{event.seq}"
        root = str(self.options(event).get("artifact_path") or "artifacts")
        place = self._tables.files(f"{root}/{event.name or '(no name)'}", version, "artifact")
        if path is not None and path.is_dir():
            self._out.files.extend(media.folder_files(path, place, self.count))
        elif path is not None:
            own = clean_file(Path(event.path).name or event.name).replace("/", "_")
            self._out.files.append(File(f"{place}/{own}", path))
        facts = {
            "name": event.name,
            "kind": event.kind,
            "path": event.path,
            "size": event.size,
            "metadata": event.metadata,
        }
        self._out.files.append(File(f"artifact_facts/{place}.json", media.json_bytes(facts)))

    def model_update(self, event: ModelUpdateEvent, axis: str, at: At) -> None:
        facts = {"kind": event.kind, "summary": event.summary, "values": event.values}
        source = media.json_bytes(facts)
        self._file(event, axis, at, "model_updates", event.kind, ".json", source)
        found = flatten(event.summary)
        numbers = {f"model/{k}": v for k, v in found.items() if isinstance(v, int | float)}
        if numbers:
            self.numbers(event, axis, at, numbers)

    def custom(self, event: Event, axis: str, at: At, fields: Mapping[str, Any]) -> None:
        tag = str(event.__struct_config__.tag)
        source = media.json_bytes({"type": tag, "fields": fields, "values": event.values})
        self._file(event, axis, at, "events", tag, ".json", source)
