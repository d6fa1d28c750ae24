"""Values as YAML and JSON files take them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from eventlog_dvclive.layout import utf8

__all__ = ["as_param", "as_summary", "is_metric"]

_BITS = 14_000
"""Python writes no more than 4,300 decimal digits."""


def is_metric(value: object) -> bool:
    """Whether a value can be a metric's: a string, or a number that can be written down."""
    if isinstance(value, int):
        return value.bit_length() < _BITS
    return isinstance(value, float | str)


def as_param(value: Any) -> Any:
    """Return a hyperparameter as YAML takes it: nested as it is, odd objects as their text."""
    if isinstance(value, str):
        return utf8(str(value))
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _BITS else hex(value)
    if isinstance(value, Mapping):
        nested: dict[str, Any] = {}
        for key, inner in value.items():
            name = plain = utf8(str(key))
            number = 2
            while name in nested:
                name, number = f"{plain}~{number}", number + 1
            nested[name] = as_param(inner)
        return nested
    if isinstance(value, list | tuple):
        return [as_param(inner) for inner in value]
    return utf8(str(value))


def as_summary(value: Any) -> Any:
    """Return a value as metrics.json takes it; like DVCLive, NaN and infinities as words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [as_summary(inner) for inner in value]
    return as_param(value)
