"""The events: what training code says, once, and every sink reads.

All are frozen `msgspec.Struct` types with an explicit tag, so that a log needs no Python to be
read and a newer writer's events survive an older reader (as `UnknownEvent`).

Each event carries

=========== ======================================================================
``seq``     its place in the log of its rank, from 0; -1 until it was written
``mono``    monotonic nanoseconds when it was emitted
``wall``    wall-clock nanoseconds since 1970, derived from ``mono``
``rank``    the process that emitted it
``attempt`` from 1; one more after each resume or rewind
``step``    optimizer steps, on the axis that ``axis`` names
``batch``   batches; with gradient accumulation there are several in a step
``epoch``   epochs, whole or fractional
``values``  scalars by name; nested names are joined with ``/``
``options`` what the call said for single sinks, by alias or name; None as a rule
=========== ======================================================================

(run, rank, attempt, seq) identifies an event for ever. A ``None`` axis means that the emitter did
not say; a cadence on that axis is never due for such an event.

Your own types are subclasses; give the fields that they add defaults, or pass ``kw_only=True``
(and ``frozen=True``, for type checkers: events are frozen in any case)::

    class Checkpointed(Event, tag="checkpointed", frozen=True, kw_only=True):
        path: str

They must be importable by whoever reads them as more than `UnknownEvent`, and hold plain values
that msgpack knows; the cyclic garbage collector does not look at events.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

__all__ = [
    "ArtifactEvent",
    "BatchEvent",
    "BlobRef",
    "ConfigUpdated",
    "EpochEvent",
    "Event",
    "FigureEvent",
    "Flushed",
    "HistogramEvent",
    "ImageEvent",
    "ModelUpdateEvent",
    "Rewound",
    "RunFinished",
    "RunStarted",
    "Scalar",
    "Status",
    "StepEvent",
    "SummaryUpdated",
    "TableEvent",
    "TextEvent",
    "UnknownEvent",
    "Window",
    "event_tag",
]

Scalar: TypeAlias = float | int | bool | str
Status: TypeAlias = Literal["finished", "failed", "interrupted", "killed"]


class Window(msgspec.Struct, frozen=True, gc=False):
    """What a reduced event stands for.

    Attributes:
        first: Axis value of the first event in the window (see `Event.axis`).
        last: Axis value of the last one.
        n: How many events were reduced; of an event that was reduced over ranks, how many ranks.
        nans: How many of their values were NaN; these are part of the result.
    """

    first: int | float | None
    last: int | float | None
    n: int
    nans: int = 0


class BlobRef(msgspec.Struct, frozen=True, gc=False):
    """A file under the run's ``blobs`` directory, named by its contents.

    Attributes:
        sha256: Lower-case hexadecimal digest; also the file's name.
        size: Bytes.
        mime: Its media type, such as ``image/png``.
    """

    sha256: str
    size: int
    mime: str


def _default_tag(name: str) -> str:
    return name


class Event(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag_field="type",
    tag=_default_tag,
):
    """What all events have in common; see the module's table."""

    mono: int = 0
    step: int | None = None
    batch: int | None = None
    epoch: int | float | None = None
    values: dict[str, Scalar] = {}
    attempt: int = 1
    axis: str = "step"
    rank: int = 0
    window: Window | None = None
    wall: int = 0
    seq: int = -1
    options: dict[str, dict[str, Any]] | None = None

    @property
    def wall_time(self) -> float:
        """Wall-clock time in seconds since 1970, as most trackers want it."""
        return self.wall / 1e9


class StepEvent(Event, tag="step", frozen=True):
    """Values at an optimizer step."""


class BatchEvent(Event, tag="batch", frozen=True):
    """Values at a batch (a micro-batch, with gradient accumulation)."""


class EpochEvent(Event, tag="epoch", frozen=True):
    """Values at the end of an epoch."""


class ModelUpdateEvent(Event, tag="model_update", frozen=True, kw_only=True):
    """The model itself changed: pruned, quantised, frozen, grown.

    Attributes:
        kind: What was done, in a word.
        summary: What changed, in plain values.
    """

    kind: str = "update"
    summary: dict[str, Any] = {}


class RunStarted(Event, tag="run_started", frozen=True, kw_only=True):
    """A run, or another attempt at it, began.

    Attributes:
        config: Hyperparameters, whole, plain and with secrets redacted.
        provenance: Git commit, packages, hardware: what it takes to do it again.
        world_size: How many ranks the run has.
    """

    run_id: str
    project: str = ""
    name: str = ""
    config: dict[str, Any] = {}
    tags: list[str] = []
    group: str | None = None
    notes: str | None = None
    provenance: dict[str, Any] = {}
    world_size: int = 1


class ConfigUpdated(Event, tag="config_updated", frozen=True, kw_only=True):
    """Hyperparameters that became known later; merged over those before."""

    config: dict[str, Any]


class SummaryUpdated(Event, tag="summary_updated", frozen=True, kw_only=True):
    """Values that stand for the whole run, such as its best accuracy."""

    summary: dict[str, Any]


class Rewound(Event, tag="rewound", frozen=True, kw_only=True):
    """Training went back: what follows, with a new attempt, replaces later steps.

    Attributes:
        to_step: The step from which training goes on; what was logged at it and after it is void.
            `batch` and `epoch` say where these counters are then; None where they are not used.
    """

    to_step: int


class Flushed(Event, tag="flushed", frozen=True):
    """The user asked for what is due to be delivered now; windows that are due close here."""


class RunFinished(Event, tag="run_finished", frozen=True, kw_only=True):
    """The run ended. A run without this event was killed, or still goes on.

    Attributes:
        status: finished, failed or interrupted; *killed* is inferred by readers, never written.
        error: The exception that ended it, in a line.
        summary: The run's summary values.
    """

    status: Status = "finished"
    error: str | None = None
    summary: dict[str, Any] = {}


class ImageEvent(Event, tag="image", frozen=True, kw_only=True):
    """One or more images of a tag, encoded, as blobs. `width`, `height`: the first's pixels."""

    tag: str
    blobs: list[BlobRef] = []
    width: int = 0
    height: int = 0
    caption: str | None = None


class FigureEvent(Event, tag="figure", frozen=True, kw_only=True):
    """A plot, rendered to PNG when it was emitted. `width`, `height`: pixels."""

    tag: str
    blob: BlobRef
    width: int = 0
    height: int = 0


class HistogramEvent(Event, tag="histogram", frozen=True, kw_only=True):
    """A distribution, already binned.

    Attributes:
        edges: k + 1 ascending bin edges.
        counts: k counts; bin i holds ``edges[i] <= x < edges[i + 1]``, the last one its upper edge.
        n, min, max, sum, sum_squares: of the finite values.
        nonfinite: How many NaN and infinities were left out.
    """

    tag: str
    edges: list[float]
    counts: list[int]
    n: int = 0
    min: float = 0.0
    max: float = 0.0
    sum: float = 0.0
    sum_squares: float = 0.0
    nonfinite: int = 0


class TextEvent(Event, tag="text", frozen=True, kw_only=True):
    """A text of a tag; trackers that can show Markdown do."""

    tag: str
    text: str


class TableEvent(Event, tag="table", frozen=True, kw_only=True):
    """A table of plain values: `rows` have one cell for each of `columns`."""

    tag: str
    columns: list[str]
    rows: list[list[Scalar | None]] = []


class ArtifactEvent(Event, tag="artifact", frozen=True, kw_only=True):
    """A file or a folder that belongs to the run, by reference or, when asked, as a copy.

    Attributes:
        name: What to call it.
        kind: dataset, model, checkpoint, ...
        path: Where it was; absolute.
        blob: The copy, where one was asked for.
        size: Bytes, when it was emitted.
    """

    name: str
    kind: str = "file"
    path: str = ""
    blob: BlobRef | None = None
    size: int = 0
    metadata: dict[str, Any] = {}


class UnknownEvent(Event, tag="unknown", frozen=True, kw_only=True):
    """An event of a type that this reader does not have; kept byte for byte.

    Attributes:
        type_name: Its tag.
        raw: Its msgpack encoding, as it was found. The axes above are read from it.
    """

    type_name: str = ""
    raw: bytes = b""


def event_tag(kind: type[Event]) -> str:
    """Return the tag that names an event type in a log."""
    tag = kind.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(f"{kind.__name__} must have a text as its tag, not {tag!r}")
    return tag
