"""Checking the sink's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["check_mapping", "check_text"]


def check_text(name: str, value: object) -> str | None:
    """Return an option that is a text or not given.

    Raises:
        ValueError: It is something else.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty, not {value!r}")
    return value


def check_mapping(name: str, value: object) -> dict[str, Any]:
    """Return an option that is a mapping of names, empty where it is not given.

    Raises:
        ValueError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name} must be a mapping of names to values, not {value!r}")
    return dict(value)
