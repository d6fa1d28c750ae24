"""Lines on a terminal or in a file: what a person watches while a model trains."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import IO, Any

from eventlog._visible import visible
from eventlog.events import (
    ArtifactEvent,
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    FigureEvent,
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
from eventlog.sinks.base import CAPABILITIES, RunInfo, Sink

__all__ = ["ConsoleSink", "format_event"]

_BOLD, _GREEN, _YELLOW, _MAGENTA, _RED = "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[35m", "\x1b[31m"
_RESET = "\x1b[0m"
_STYLES: dict[type[Event], str] = {
    EpochEvent: _BOLD,
    ModelUpdateEvent: _MAGENTA,
    RunStarted: _GREEN,
    RunFinished: _GREEN,
    Rewound: _YELLOW,
}

_MENTIONED: dict[str, tuple[type[Event], ...]] = {
    "config": (RunStarted,),
    "image": (ImageEvent,),
    "figure": (FigureEvent,),
    "histogram": (HistogramEvent,),
    "table": (TableEvent,),
    "artifact": (ArtifactEvent,),
    "custom": (UnknownEvent,),
}
"""What a line can only say that it was there."""


class ConsoleSink(Sink):
    """Prints a line for each event that passes.

    Args:
        file: Where to; standard error as it is when the run starts by default, so that a
            program's output stays its own.
        color: Whether to use colours; by default when `file` is a terminal and the environment
            has no ``NO_COLOR``.
    """

    name = "console"
    capabilities = CAPABILITIES - _MENTIONED.keys()

    def __init__(self, file: IO[str] | None = None, color: bool | None = None) -> None:
        self.unshown: dict[str, int] = {}
        self._file = file
        self._color = color

    def open(self, run: RunInfo) -> None:
        """Find out where to print."""
        if self._file is None:
            self._file = sys.stderr
        if self._color is None:
            self._color = self._file.isatty() and not os.environ.get("NO_COLOR")
        if not run.replayed and run.run_dir is not None:
            self.url = str(run.run_dir)

    def write(self, batch: Sequence[Event]) -> None:
        """Print the batch's lines with one write."""
        assert self._file is not None  # noqa: S101 - open() has set it
        for event in batch:
            self._count(event)
        text = "".join(f"{self._line(event)}\n" for event in batch)
        try:
            self._file.write(text)
        except UnicodeEncodeError as error:
            # an ASCII terminal, or half a surrogate pair: shown escaped rather than not at all
            encoded = text.encode(error.encoding, "backslashreplace")
            self._file.write(encoded.decode(error.encoding))

    def _count(self, event: Event) -> None:
        """Count what a line can only mention."""
        if isinstance(event, StepEvent | BatchEvent | EpochEvent):
            return
        for what, kinds in _MENTIONED.items():
            known = isinstance(event, kinds)
            if known if what != "custom" else known or type(event).__module__ != Event.__module__:
                if what == "config" and not getattr(event, "config", None):
                    continue
                reason = f"{what}: only mentioned"
                self.unshown[reason] = self.unshown.get(reason, 0) + 1

    def _line(self, event: Event) -> str:
        line = visible(format_event(event))
        style = _style(event) if self._color else ""
        return f"{style}{line}{_RESET}" if style else line

    def flush(self) -> None:
        """Flush the file."""
        if self._file is not None:
            self._file.flush()

    def close(self, status: Status) -> None:
        """Leave the file open: it was not opened here."""


def _style(event: Event) -> str:
    if isinstance(event, RunFinished) and event.status != "finished":
        return _RED
    return _STYLES.get(type(event), "")


def format_event(event: Event) -> str:
    """Return an event as a line of text."""
    return f"{_position(event)}  {_content(event)}".rstrip()


def _position(event: Event) -> str:
    if isinstance(event, RunStarted | RunFinished):
        return "run"
    if isinstance(event, EpochEvent) and event.epoch is not None:
        return f"epoch {format_value(event.epoch)}"
    if isinstance(event, BatchEvent) and event.batch is not None:
        return f"batch {event.batch}"
    if event.step is not None:
        return f"{event.axis} {event.step}"
    return "-"


def _content(event: Event) -> str:
    parts = [f"{key}={format_value(value)}" for key, value in event.values.items()]
    if event.window is not None:
        parts.append(f"({event.window.n} reduced)")
    extra = _extra(event)
    return "  ".join([*parts, extra] if extra else parts)


def _extra(event: Event) -> str:
    match event:
        case StepEvent() | BatchEvent() | EpochEvent():
            return ""
        case RunStarted():
            return f"{event.project}/{event.name or event.run_id} started, attempt {event.attempt}"
        case RunFinished():
            return event.status + (f": {event.error}" if event.error else "")
        case ConfigUpdated():
            return f"config {_mapping(event.config)}"
        case SummaryUpdated():
            return f"summary {_mapping(event.summary)}"
        case ModelUpdateEvent():
            return f"model {event.kind}: {_mapping(event.summary)}"
        case Rewound():
            return f"rewound to step {event.to_step}, attempt {event.attempt}"
        case TextEvent():
            return f"{event.tag}: {event.text}"
        case TableEvent():
            return f"{event.tag}: a table of {len(event.rows)} rows x {len(event.columns)} columns"
        case ImageEvent():
            return f"{event.tag}: {len(event.blobs)} image(s), {event.width} x {event.height}"
        case FigureEvent():
            return f"{event.tag}: a figure, {event.width} x {event.height}"
        case HistogramEvent():
            low, high = format_value(event.min), format_value(event.max)
            return f"{event.tag}: {event.n} values from {low} to {high}"
        case ArtifactEvent():
            return f"artifact {event.name}: {event.path}"
        case UnknownEvent():
            return f"{event.type_name} (of a type that is not known here)"
        case _:
            return type(event).__name__


def _mapping(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={format_value(value)}" for key, value in values.items())


def format_value(value: Any) -> str:
    """Return a value in at most a dozen characters where it is a number."""
    if isinstance(value, float):
        if value and math.isfinite(value) and not 1e-4 <= abs(value) < 1e7:
            return f"{value:.4e}"
        return f"{value:.6g}"
    return str(value)
