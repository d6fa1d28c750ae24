"""Where things lie: names that are safe as paths, and the run's folder."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from pathlib import Path

from eventlog.sinks.base import RunInfo

__all__ = ["clean", "clean_part", "run_folder", "utf8"]

_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\/]')
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")
_DATA_SUFFIX = re.compile(r"(?i)\.(tsv|csv|dvc|ya?ml|png|jpe?g|gif)$")
_PLACEHOLDER = re.compile(r"\{(project|name|run_id)\}")
_COLUMNS = frozenset({"step", "timestamp"})
_PART_BYTES, _NAME_LENGTH = 120, 200


def utf8(text: str) -> str:
    """Return a text that has bytes: half of a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _digest(text: str) -> str:
    return "~" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def clean_part(part: str) -> str:
    """Return a name as a file's or a folder's, on every system, and never a hidden one."""
    name = _FORBIDDEN.sub("_", utf8(part)).strip(" ").rstrip(". ")
    # readers and DVCLive itself find files by these ends
    name = re.sub(r"(?i)\.json", "_json", name)
    if name.startswith("."):
        name = "_" + name[1:]
    if _DEVICE.match(name):
        name = "_" + name
    if len(name.encode()) > _PART_BYTES:
        name = name.encode()[: _PART_BYTES - 9].decode("utf-8", "ignore") + _digest(part)
    return name or "_"


def clean(key: str) -> str:
    """Return a key as a path of several parts, which leads nowhere but down."""
    parts = [clean_part(part) for part in unicodedata.normalize("NFC", key).split("/")]
    # a folder that is called like a data file is taken for one by whoever looks for these
    parts[:-1] = [f"{part}_" if _DATA_SUFFIX.search(part) else part for part in parts[:-1]]
    if parts[-1] in _COLUMNS:  # the first columns of each file have these names
        parts[-1] += "_"
    name = "/".join(parts)
    if len(name) > _NAME_LENGTH:
        name = name[: _NAME_LENGTH - 9].rstrip("/. ") + _digest(key)
    return name


def run_folder(run: RunInfo, dir: str | None) -> Path:
    """Return the run's own folder, absolute.

    Args:
        run: Whose.
        dir: As the user gave it, with placeholders; None takes the one that eventlog offers.
    """
    names = {"project": run.project, "name": run.name, "run_id": run.run_id}
    if dir is not None:
        path = Path(_PLACEHOLDER.sub(lambda m: clean_part(names[m[1]]), dir))
    elif run.directory is not None:
        path = run.directory
    else:
        path = Path("dvclive", *(clean_part(n) for n in (run.project, run.run_id) if n))
    return path.absolute() / f"rank{run.rank}" if run.rank else path.absolute()
