"""Names, ids and plain values that W&B takes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from eventlog.sinks.plain import short_text

__all__ = [
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "artifact_name",
    "artifact_type",
    "clean_name",
    "config_name",
    "media_key",
    "plain",
    "project_name",
    "run_id_of",
    "tags_of",
    "whole",
]

LONGEST_NAME = 250
LONGEST_TEXT = 100_000

# `*` is a pattern in define_metric(); control characters break tables and files
_BAD = re.compile(r"[\x00-\x1f\x7f*`]")
_NOT_IN_ARTIFACTS = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IN_PROJECTS = re.compile(r"[/\\#?%:]+")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
_MEDIA_BYTES = 90
_DOTS = {".": "-", "..": "--"}


def whole(text: str) -> str:
    """Return a text without halves of surrogate pairs, which have no bytes."""
    return text.encode("utf-8", "replace").decode()


def clean_name(key: str) -> str:
    """Return a name that W&B shows: no pattern, no control character, not one of its own.

    Names that start with an underscore are W&B's, and are hidden; and names become paths of files,
    from which nothing may lead out.
    """
    text = "/".join(_DOTS.get(part, part) for part in _BAD.sub("_", key).split("/"))
    named = text.lstrip("_/")
    hidden = text[: len(text) - len(named)].replace("_", "-").replace("/", "")
    return _cut((hidden + named).strip() or "-", LONGEST_NAME)


def config_name(key: str) -> str:
    """Return a name for a hyperparameter; the SDK itself takes dashes from both ends."""
    return clean_name(key).strip("-") or "(no name)"


def media_key(key: str) -> str:
    """Return a key short enough for the name of a file; a digest tells long ones apart."""
    data = key.encode("utf-8", "replace")
    if len(data) <= _MEDIA_BYTES:
        return key
    digest = hashlib.sha256(data).hexdigest()[:8]
    return f"{_cut(data.decode(), _MEDIA_BYTES)}-{digest}"


def artifact_name(name: str) -> str:
    """Return a name for an artifact: letters, digits, and ``. _ -``."""
    return _NOT_IN_ARTIFACTS.sub("-", whole(name)).strip("-")[:128] or "artifact"


def artifact_type(kind: str) -> str:
    """Return a type for an artifact that is not one of W&B's own."""
    text = artifact_name(kind)
    return f"user-{text}"[:128] if text == "job" or text.startswith("wandb-") else text


def project_name(project: str) -> str:
    """Return a project's name; W&B's own word where there is none."""
    return _NOT_IN_PROJECTS.sub("-", whole(project))[:128].strip() or "uncategorized"


def run_id_of(run_id: str, rank: int, alias: str = "") -> str:
    """Return the tracker's id for a run: the same one in each attempt.

    Args:
        run_id: The run's.
        rank: The process's.
        alias: What the sink is called, where that is not its own name: a run may have several.
    """
    text = _id_part(run_id, 64)
    if alias:
        text = f"{text}-{_id_part(alias, 32)}"
    return f"{text}-rank{rank}" if rank else text


def _id_part(given: str, longest: int) -> str:
    """Return a text as a part of an id; a digest tells those apart that do not fit."""
    text = _NOT_IN_IDS.sub("-", given).strip("-.") or "run"
    if len(text) > longest or text != given:
        digest = hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()[:8]
        text = f"{text[: longest - 9]}-{digest}"
    return text


def tags_of(tags: tuple[str, ...], rank: int, count: Callable[[str], None]) -> tuple[str, ...]:
    """Return tags of 1 to 64 characters, each once; the rank is one where it is not 0."""
    found: dict[str, None] = {}
    for tag in (*tags, *([f"rank{rank}"] if rank else [])):
        text = whole(tag).strip()
        if len(text) > 64:
            count("tag cut to 64 characters")
            text = text[:64]
        if text:
            found[text] = None
        else:
            count("empty tag")
    return tuple(found)


def plain(value: Any, count: Callable[[str], None]) -> Any:
    """Return a value as JSON knows it, with texts and integers that fit."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        count("NaN or infinity in config, a summary or metadata: shown as text")
        return _NOT_FINITE.get(value, "NaN")
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return value
        count("integer beyond 64 bits in config or summary: shown as text")
        return str(value) if value.bit_length() < 10_000 else hex(value)[:100]
    if isinstance(value, Mapping):
        return _plain_mapping(value, count)
    if isinstance(value, list | tuple):
        return [plain(item, count) for item in value]
    text = whole(value if isinstance(value, str) else str(value))
    if len(text) > LONGEST_TEXT:
        count(f"text cut to {LONGEST_TEXT} characters")
        text = short_text(text, LONGEST_TEXT)
    return text


def _plain_mapping(values: Mapping[Any, Any], count: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        text = _cut(whole(str(key)), LONGEST_NAME) or "(no name)"
        name, number = text, 2
        while name in found:
            name, number = f"{text}_{number}", number + 1
        found[name] = plain(value, count)
    return found


def _cut(text: str, longest: int) -> str:
    return text.encode("utf-8", "replace")[:longest].decode("utf-8", "ignore")
