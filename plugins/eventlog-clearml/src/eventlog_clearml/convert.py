"""What the sink tells ClearML, as its events and as names that it takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from eventlog.events import HistogramEvent
from eventlog.sinks.plain import json_text, short_text

__all__ = [
    "as_float",
    "as_parameters",
    "clean_name",
    "console_line",
    "file_name",
    "histogram_plot",
    "image_plot",
    "plain_text",
    "split_name",
    "table_plot",
]

LONGEST_NAME = 240
LONGEST_PARAMETER = 16_384
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def plain_text(text: object) -> str:
    """Return a text that has bytes: halves of surrogate pairs become question marks."""
    return str(text).encode("utf-8", "replace").decode()


def clean_name(key: str) -> str:
    """Return a key as series and title, or as one word where these would be equal."""
    text = _CONTROL.sub("_", key)
    if "/" not in text:
        return _part(text)
    series, _, title = text.partition("/")
    series, title = _part(series), _part(title)
    return series if series == title else f"{series}/{title}"


def _part(text: str) -> str:
    text = text.strip()
    return "_" if not text.strip("./") else text


def split_name(name: str) -> tuple[str, str]:
    """Return title and series: ``train/loss`` is the series *train* in the graph *loss*."""
    series, _, title = name.partition("/")
    return title or series, series


def file_name(text: str) -> str:
    """Return a text as part of a file's name."""
    return _UNSAFE.sub("_", text).lstrip(".")[:100] or "_"


def console_line(tag: str, axis: str, at: float | None, text: str) -> str:
    """Return a text with its name and place, for ClearML's console has neither."""
    place = "" if at is None else f" [{axis} {at}]"
    text = plain_text(text)
    return f"{plain_text(tag)}{place}:{chr(10) if chr(10) in text else ' '}{text}"


def as_float(value: float) -> float:
    """Return a number in 64 bits, infinity where it does not fit."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_parameters(flat: Mapping[str, Any], section: str) -> tuple[dict[str, Any], set[str]]:
    """Return hyperparameters as ClearML takes them, and which were cut.

    Numbers, bools and texts keep their type; lists become JSON, and what is None says so.
    """
    parameters: dict[str, Any] = {}
    cut: set[str] = set()
    for key, value in flat.items():
        if not isinstance(value, str | int | float | bool):
            value = "None" if value is None else json_text(value)
        if isinstance(value, str):
            text = plain_text(value)
            value = short_text(text, LONGEST_PARAMETER)
            if value != text:
                cut.add(key)
        name = short_text(_CONTROL.sub("_", plain_text(key)) or "_", LONGEST_NAME)
        parameters[f"{section}/{name}"] = value
    return parameters, cut


def histogram_plot(event: HistogramEvent, title: str) -> dict[str, Any]:
    """Return bars that are as wide as the bins, for Plotly."""
    edges, counts = event.edges, event.counts
    centers = [(low + high) / 2 for low, high in pairwise(edges)]
    widths = [high - low for low, high in pairwise(edges)]
    bars = {"type": "bar", "x": centers, "y": counts, "width": widths}
    return {
        "data": [bars],
        "layout": {
            "title": title,
            "bargap": 0,
            "xaxis": {"title": f"n = {event.n}, not finite: {event.nonfinite}"},
            "yaxis": {"title": "count"},
        },
    }


def table_plot(
    columns: Sequence[str], rows: Sequence[Sequence[object]], title: str
) -> dict[str, Any]:
    """Return a table for Plotly, which has it by columns."""
    cells = [[_cell(row[i]) for row in rows] for i in range(len(columns))]
    table = {
        "type": "table",
        "header": {"values": [plain_text(column) for column in columns]},
        "cells": {"values": cells},
    }
    return {"data": [table], "layout": {"title": title}}


def _cell(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    # JSON has no NaN and no infinity
    return value if isinstance(value, float) and abs(value) < float("inf") else plain_text(value)


def image_plot(url: str, title: str, width: int, height: int) -> dict[str, Any]:
    """Return a plot that is a picture in a file, laid out like the SDK's own."""
    width, height = width or 640, height or 480
    picture = {"source": url, "xref": "x", "yref": "y", "x": 0, "y": height, "opacity": 1.0}
    picture |= {"sizex": width, "sizey": height, "sizing": "contain", "layer": "below"}
    return {
        "data": [],
        "layout": {
            "title": title,
            "showlegend": False,
            "margin": {"l": 0, "r": 0, "t": 64, "b": 0},
            "images": [picture],
            "xaxis": {"visible": False, "range": [0, width]},
            "yaxis": {"visible": False, "range": [0, height], "scaleanchor": "x"},
        },
    }
