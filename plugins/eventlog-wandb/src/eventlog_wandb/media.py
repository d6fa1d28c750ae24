"""Media as objects of the SDK: text, images, histograms, tables and artifacts."""

from __future__ import annotations

import html
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eventlog.events import ArtifactEvent, BlobRef, HistogramEvent, TableEvent
from eventlog.sinks.plain import short_text
from eventlog_wandb.naming import artifact_name, artifact_type, plain, whole

__all__ = ["IMAGES_AT_ONCE", "artifact", "histogram", "image", "page", "panels", "table", "text_of"]

LONGEST_PAGE = 1_000_000
MOST_BINS = 512
MOST_ROWS = 200_000
IMAGES_AT_ONCE = 100

_SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/bmp": ".bmp",
    "image/webp": ".webp",
}
_BEFORE = '<pre style="white-space: pre-wrap; overflow-wrap: anywhere">'
_AFTER = "</pre>"

# Pillow loads its formats at first use, and has none of them for another thread meanwhile
_reading = threading.Lock()

Count = Callable[..., None]


def page(text: str, count: Count) -> Any:
    """Return a text as a page that shows it as it is."""
    import wandb

    text = whole(text)
    if len(text) > LONGEST_PAGE:
        count(f"text cut to {LONGEST_PAGE} characters")
        text = short_text(text, LONGEST_PAGE)
    return wandb.Html(_BEFORE + html.escape(text) + _AFTER, inject=False, data_is_not_path=True)


def text_of(page: str) -> str:
    """Return the text that a page shows."""
    return html.unescape(page.removeprefix(_BEFORE).removesuffix(_AFTER))


def image(path: Path, blob: BlobRef, caption: str | None, scratch: Path, count: Count) -> Any:
    """Return an image, or None for one that the SDK cannot read.

    Args:
        path: The file; the SDK copies it.
        blob: Says of what kind it is: the SDK tells it by the end of the name.
        caption: Below the image.
        scratch: A folder for a link of such a name.
        count: Counts what is not shown.
    """
    import wandb

    suffix = _SUFFIXES.get(blob.mime)
    if suffix is None:
        count(f"image of type {blob.mime}")
        return None
    link = scratch / f"{blob.sha256}{suffix}"
    scratch.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        os.symlink(path.absolute(), link)
    try:
        with _reading:
            return wandb.Image(str(link), caption=None if caption is None else whole(caption))
    except (MemoryError, PermissionError):
        raise
    except Exception:  # whatever Pillow says of a file that it cannot read, OSError among it
        count("image that Pillow cannot read")
        return None


def panels(tag: str, images: Sequence[Any], count: Count) -> dict[str, Any]:
    """Return images by the name that they are shown under.

    Several of one size and format are one panel. Others would make the SDK warn by the root
    logger, and the page show them wrongly: each is a panel of its own.
    """
    if len(images) > IMAGES_AT_ONCE:
        count(f"image beyond {IMAGES_AT_ONCE} in a panel", len(images) - IMAGES_AT_ONCE)
        images = images[:IMAGES_AT_ONCE]
    if len(images) == 1:
        return {tag: images[0]}
    if len({(each.image.size, each.format) for each in images}) <= 1:
        return {tag: list(images)} if images else {}
    count("images of different sizes or formats: a panel for each", len(images))
    return {f"{tag}/{number}": each for number, each in enumerate(images)}


def histogram(event: HistogramEvent, count: Count) -> Any:
    """Return a histogram, of at most as many bins as W&B takes; None for one without bins."""
    import wandb

    edges, counts = list(event.edges), list(event.counts)
    if event.nonfinite:
        count("NaN or infinity beside a histogram", event.nonfinite)
    if not counts or len(edges) != len(counts) + 1:
        count("histogram without bins")
        return None
    if len(counts) > MOST_BINS:
        count(f"histogram of more than {MOST_BINS} bins: neighbours were merged")
        width = -(-len(counts) // MOST_BINS)
        edges = [*edges[:-1:width], edges[-1]]
        counts = [sum(counts[at : at + width]) for at in range(0, len(counts), width)]
    return wandb.Histogram(np_histogram=(counts, edges))  # type: ignore[arg-type]


def table(event: TableEvent, count: Count) -> Any:
    """Return a table; equal names of columns get a number."""
    import wandb

    columns: list[str] = []
    for name in map(whole, event.columns):
        unique, number = name, 2
        while unique in columns:
            unique, number = f"{name}_{number}", number + 1
        columns.append(unique)
    rows = event.rows
    if len(rows) > MOST_ROWS:
        count(f"row of a table beyond {MOST_ROWS}", len(rows) - MOST_ROWS)
        rows = rows[:MOST_ROWS]
    cells = [[plain(cell, count) for cell in row] for row in rows]
    return wandb.Table(columns=list(columns), data=cells, allow_mixed_types=True)


def artifact(event: ArtifactEvent, path: Path | None, limit: int, count: Count) -> Any:
    """Return an artifact with the file or the files of a folder, or only facts about them.

    Args:
        event: Its name, kind and metadata.
        path: Where it is; None where it is gone.
        limit: Most bytes to send; what is larger is named by its path.
        count: Counts what is not sent.
    """
    import wandb

    facts = {"path": event.path, "size": event.size} | event.metadata
    metadata = plain(facts, count)
    if path is None:
        metadata["missing"] = True
    made = wandb.Artifact(artifact_name(event.name), artifact_type(event.kind), metadata=metadata)
    if path is None:
        return made
    files = _files(path, Path(event.path or event.name).name)
    if sum(file.stat().st_size for file, _ in files) > limit:
        count("artifact too large to send: only its path")
        made.add_reference(path.absolute().as_uri(), checksum=False)
        return made
    for file, name in files:
        made.add_file(str(file), name, policy="immutable", skip_cache=True)
    return made


def _files(path: Path, name: str) -> Sequence[tuple[Path, str]]:
    """Return the files to send and their names; links to folders are not followed."""
    if not path.is_dir():
        return [(path, whole(name) or "file")]
    found: list[tuple[Path, str]] = []
    for folder, _, names in os.walk(path):
        for each in sorted(names):
            file = Path(folder) / each
            if file.is_file():
                found.append((file, whole(file.relative_to(path).as_posix())))
    return found
