"""Values as trackers take them: flat hyperparameters, Markdown, and where an event is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eventlog.events import BatchEvent, EpochEvent, Event, HistogramEvent

__all__ = [
    "as_json",
    "describe_histogram",
    "flatten",
    "json_text",
    "markdown_table",
    "own_options",
    "place",
    "short_text",
    "whole_text",
]


def place(event: Event) -> tuple[str, int | float | None]:
    """Return the axis that an event is shown on, and where: ("step", 12), ("epoch", 0.5).

    A batch event is at its batch and an epoch event at its epoch; everything else is at its step,
    on the axis that it names. What has no place on its own axis takes the first other one that it
    has; ("step", None) is an event without any.
    """
    axes = [(event.axis, event.step), ("batch", event.batch), ("epoch", event.epoch)]
    if isinstance(event, BatchEvent):
        axes.insert(0, axes.pop(1))
    elif isinstance(event, EpochEvent):
        axes.insert(0, axes.pop(2))
    for axis, at in axes:
        if at is not None:
            return axis, at
    return "step", None


def own_options(event: Event, alias: str, name: str) -> dict[str, Any]:
    """Return what a log call said for one sink: by its alias, or else by its name."""
    given = event.options or {}
    return given.get(alias) or given.get(name) or {}


def whole_text(text: str) -> str:
    """Return a text without halves of surrogate pairs, which have no bytes."""
    return text.encode("utf-8", "replace").decode()


def flatten(values: Mapping[str, Any], separator: str = "/") -> dict[str, Any]:
    """Return nested mappings by their joined names; lists stay, equal names get a number.

    An empty mapping stays, as the value of its name.
    """
    flat: dict[str, Any] = {}

    def walk(prefix: str, nested: Mapping[str, Any]) -> None:
        for key, value in nested.items():
            if isinstance(value, Mapping) and value:
                walk(f"{prefix}{key}{separator}", value)
                continue
            name, number = f"{prefix}{key}", 2
            while name in flat:
                name, number = f"{prefix}{key}~{number}", number + 1
            flat[name] = value

    walk("", values)
    return flat


def json_text(value: Any) -> str:
    """Return plain values as JSON in one line; what JSON does not know becomes its text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def as_json(value: Any) -> str:
    """Return plain values as Markdown that shows them as indented JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return f"```json\n{text}\n```"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", "<br>")


def describe_histogram(event: HistogramEvent) -> str:
    """Return a histogram as a Markdown table of its figures."""
    mean = event.sum / event.n if event.n else float("nan")
    columns = ["n", "min", "mean", "max", "not finite"]
    return markdown_table(columns, [[event.n, event.min, mean, event.max, event.nonfinite]])


def short_text(text: str, longest: int) -> str:
    """Return a text of at most `longest` characters, which says so where it was cut."""
    if len(text) <= longest:
        return text
    mark = f"... ({len(text)} characters)"
    return text[: max(0, longest - len(mark))] + mark[:longest]
