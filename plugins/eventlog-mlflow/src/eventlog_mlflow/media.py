"""What MLflow keeps as artifacts: under which path, and with which contents."""

from __future__ import annotations

import io
import json
import math
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from eventlog.events import Event, HistogramEvent
from eventlog.sinks.base import RunInfo
from eventlog_mlflow.naming import clean_file
from eventlog_mlflow.outbox import File

__all__ = [
    "folder_files",
    "histogram_json",
    "image_files",
    "json_bytes",
    "small_picture",
    "stem",
    "table_json",
]

_PREVIEW = 256


def stem(axis: str, step: int, event: Event) -> str:
    """Return a file's name that says where it belongs, and that no other event has."""
    return f"{clean_file(axis).replace('/', '_')[:40]}_{step:08d}_{event.attempt}-{event.seq}"


def json_bytes(value: Any) -> bytes:
    """Return plain values as JSON that browsers read: these know no NaN, and no infinity."""
    text = json.dumps(_readable(value), indent=1, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace")


def _readable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value


def table_json(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Return a table as `MlflowClient.log_table` writes it."""
    return json_bytes({"columns": list(columns), "data": [list(row) for row in rows]})


def histogram_json(event: HistogramEvent) -> bytes:
    """Return all that is known of a distribution."""
    names = ("edges", "counts", "n", "min", "max", "sum", "sum_squares", "nonfinite")
    return json_bytes({name: getattr(event, name) for name in names})


def image_files(
    run: RunInfo, event: Event, number: int, key: str, step: int, path: Path
) -> list[File]:
    """Return an image and its preview under the names by which MLflow's pages find them.

    The pages take no other endings; a browser looks at the contents of a file.
    """
    moment = f"{run.run_id}/{run.rank}/{event.attempt}/{event.seq}/{number}"
    unique = uuid.uuid5(uuid.NAMESPACE_OID, moment)
    flat = key.replace("/", "~")
    when = max(0, event.wall // 1_000_000)
    name = f"images/{flat}+step+{step}+timestamp+{when}+{unique}"
    return [
        File(f"{name}.png", path),
        File(f"{name}+compressed.webp", small_picture(path)),
    ]


def small_picture(path: Path) -> bytes | Path:
    """Return a preview of an image where Pillow is there to make it, or else the image."""
    if find_spec("PIL") is None:
        return path
    from PIL import Image

    try:
        with Image.open(path) as image:
            if max(image.size) <= _PREVIEW:
                return path
            image.thumbnail((_PREVIEW, _PREVIEW))
            file = io.BytesIO()
            image.save(file, "WEBP")
            return file.getvalue()
    except Exception:  # whatever a picture does to Pillow, the picture itself is there
        return path


def folder_files(folder: Path, path: str, count: Callable[[str], None]) -> Iterator[File]:
    """Yield the files of a folder, in order, with their paths below `path`."""
    taken: set[str] = set()
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            source = Path(root, name)
            own = source.relative_to(folder).as_posix()
            cleaned = wanted = clean_file(own)
            number = 1
            while wanted.casefold() in taken:
                base, dot, end = cleaned.rpartition(".")
                wanted = f"{base}_{number}{dot}{end}" if base else f"{cleaned}_{number}"
                number += 1
            taken.add(wanted.casefold())
            if wanted != own:
                count("file of a folder: shown under another name")
            yield File(f"{path}/{wanted}", source)
