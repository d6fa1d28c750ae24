"""Names and values as Comet takes them."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from eventlog.sinks.plain import json_text, short_text

__all__ = [
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "clean_name",
    "csv_text",
    "file_name",
    "metric",
    "scalar",
    "whole",
    "whole_text",
]

LONGEST_NAME = 100
LONGEST_TEXT = 1000

_INT64 = 1 << 63
# a line break in one name makes `comet upload` drop all metrics from there on
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

Count = Callable[[str], None]


def clean_name(name: str) -> str:
    """Return a name without what breaks a line."""
    return _CONTROL.sub("_", name)


def whole_text(text: str) -> str:
    """Return a text without halves of surrogate pairs, which have no bytes."""
    return text.encode("utf-8", "replace").decode()


def file_name(tag: str, suffix: str = "") -> str:
    """Return a tag as the name of an asset: a relative path that stays where it is put."""
    text = clean_name(whole_text(tag)).replace("\\", "/")
    parts = [part if part.strip(".") else "_" for part in text.split("/") if part] or ["_"]
    name = short_text("/".join(parts), 250 - len(suffix))
    if suffix and PurePosixPath(name).suffix.lower() != suffix:
        name += suffix
    return name


def metric(value: int | float | bool, count: Count) -> int | float | str:
    """Return a number as a metric has it: what JSON does not know as the SDK spells it."""
    if isinstance(value, int):
        value = int(value)
        if -_INT64 <= value < _INT64:
            return value
        count("integer beyond 64 bits: rounded")
        try:
            value = float(value)
        except OverflowError:
            return "Infinity" if value > 0 else "-Infinity"
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def whole(step: int | float | None, count: Count) -> int | None:
    """Return a step that Comet can store."""
    if step is None:
        return None
    if isinstance(step, float):
        if not math.isfinite(step):
            count("step that is not finite: left out")
            return None
        if not step.is_integer():
            count("fractional step: rounded down")
        step = math.floor(step)
    if -_INT64 <= step < _INT64:
        return step
    count("step beyond 64 bits: left out")
    return None


def scalar(value: Any, count: Count, what: str) -> bool | int | float | str | None:
    """Return a hyperparameter, or a fact of the run, as Comet shows it; the rest as text.

    Args:
        value: Plain.
        count: Told when the text is cut.
        what: The thing is called so then.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value if isinstance(value, str) else json_text(value)
    text = whole_text(text)
    if len(text) > LONGEST_TEXT:
        count(f"{what} longer than {LONGEST_TEXT} characters: cut")
    return short_text(text, LONGEST_TEXT)


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return a table as CSV."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue().encode("utf-8", "replace")
