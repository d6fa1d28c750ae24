"""Values as Aim stores them: parameters, numbers, bins, images, and names of files."""

from __future__ import annotations

import importlib
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "MOST_BINS",
    "clean_text",
    "even_bins",
    "file_name",
    "image_object",
    "number",
    "plain",
    "whole",
]

MOST_BINS = 512
"""The most bins that Aim shows of a distribution."""

_DEEPEST = 100
_SAME = 1e-6


def clean_text(text: str) -> str:
    """Return a text that has bytes: half of a surrogate pair has none, and Aim refuses it."""
    return text.encode("utf-8", "replace").decode()


def number(value: int | float | bool, count: Callable[[str], None]) -> float:
    """Return a number as all points of a curve are kept, a float; what that loses is counted.

    Aim keeps one type for a curve, and changes it with a warning where integers and floats mix.
    """
    if isinstance(value, float):
        return float(value)  # also NumPy's own, which is a float to Python
    try:
        found = float(value)
    except OverflowError:
        count("integer beyond the range of floats: shown as infinite")
        return math.inf if value > 0 else -math.inf
    if found != value:
        count("integer beyond 2**53: the nearest float is shown")
    return found


def whole(at: int | float | None) -> int | float | None:
    """Return a place as an integer if it is one: Aim tells 3.0 from 3."""
    if isinstance(at, float) and at.is_integer():
        return int(at)
    return at


def plain(value: Any, count: Callable[[str], None], depth: int = 0) -> Any:
    """Return a value of which Aim can make parameters, nested as it is."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return value
        count("integer beyond 64 bits in config or summary: shown as text")
        return str(value)
    if depth >= _DEEPEST:
        count("config or summary nested too deeply: shown as text")
        return clean_text(str(value)[:1000])
    if isinstance(value, Mapping):
        return _mapping(value, count, depth)
    if isinstance(value, list | tuple):
        return [plain(item, count, depth + 1) for item in value]
    count("object in config or summary: shown as text")
    return clean_text(str(value))


def _mapping(values: Mapping[Any, Any], count: Callable[[str], None], depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        # an empty key is no key to Aim
        name = clean = clean_text(str(key)) or "(no name)"
        suffix = 2
        while name in found:
            name, suffix = f"{clean}~{suffix}", suffix + 1
        found[name] = plain(value, count, depth + 1)
    return found


def even_bins(
    edges: Sequence[float], counts: Sequence[float]
) -> tuple[list[float], tuple[float, float], bool]:
    """Return counts of bins of equal width, their range, and whether nothing had to be moved.

    Aim's distributions have bins of one width, at most 512. Bins of other widths are cut at the
    new edges, each count in proportion to the widths of its pieces.
    """
    low, high = edges[0], edges[-1]
    if not high > low:
        # a single value: Aim's chart needs a width
        pad = abs(low) * 1e-3 or 0.5
        return [float(sum(counts))], (low - pad, high + pad), len(counts) == 1
    width = (high - low) / len(counts)
    even = all(
        abs(edge - (low + i * width)) <= _SAME * (high - low) for i, edge in enumerate(edges)
    )
    if even and len(counts) <= MOST_BINS:
        return list(counts), (low, high), True
    bins = min(MOST_BINS, max(64, len(counts)))
    return _spread(edges, counts, bins), (low, high), False


def _spread(edges: Sequence[float], counts: Sequence[float], bins: int) -> list[float]:
    low, high = edges[0], edges[-1]
    new = [low + (high - low) * i / bins for i in range(bins + 1)]
    new[-1] = high
    found = [0.0] * bins
    for count, left, right in zip(counts, edges, edges[1:], strict=False):
        first = min(bins - 1, max(0, bisect_right(new, left) - 1))
        if not right > left:
            found[first] += count
            continue
        at = first
        while at < bins and new[at] < right:
            share = min(right, new[at + 1]) - max(left, new[at])
            found[at] += count * max(0.0, share) / (right - left)
            at += 1
    return found


def image_object(path: Path, caption: str | None) -> Any:
    """Return an `aim.Image` of the file's own bytes; Aim's constructor would encode them anew.

    Raises:
        ValueError: Pillow does not know the file's format.
    """
    aim = importlib.import_module("aim")
    blob = importlib.import_module("aim.storage.types").BLOB
    pillow = importlib.import_module("PIL.Image")
    try:
        with pillow.open(path) as opened:
            size, mode, kind = opened.size, opened.mode, opened.format
    except (OSError, ValueError, SyntaxError, Warning) as error:
        raise ValueError(f"{path} must be an image that Pillow knows") from error
    image = aim.Image.__new__(aim.Image)
    image.storage["data"] = blob(data=path.read_bytes())
    image.storage["source"] = "PIL.Image"
    image.storage["mode"] = mode
    image.storage["format"] = kind
    image.storage["width"], image.storage["height"] = size
    image.caption = clean_text(caption or "")
    return image


def file_name(name: str) -> str:
    """Return a path for an artifact that stays below its folder."""
    parts = [re.sub(r"[\x00-\x1f]", "_", part) for part in re.split(r"[\\/]+", name)]
    kept = [part[:200] for part in parts if part not in ("", ".", "..")]
    return "/".join(kept) or "_"
