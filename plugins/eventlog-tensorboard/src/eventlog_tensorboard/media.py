"""How each event that is more than scalars is shown."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    TableEvent,
    TextEvent,
    UnknownEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog.sinks.plain import as_json, markdown_table
from eventlog_tensorboard.summaries import histogram_value, image_value, text_value

__all__ = ["Shown", "shown"]

Shown: TypeAlias = tuple[str, str, Callable[[str], Any]]
"""Kind, key, and what makes the summary from its tag."""

IMAGE_LIMIT = 64 << 20
"""Bytes of one image that are read into memory."""

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/bmp"})
_PNG = b"\x89PNG\r\n\x1a\n"
_COMMON = frozenset(Event.__struct_fields__)


def shown(event: Event, run: RunInfo, count: Callable[[str], None]) -> Iterator[Shown]:
    """Yield what an event brings beside its `values`; count what cannot be shown.

    Args:
        event: Any but those that are about the run.
        run: Knows where the blobs are.
        count: Called with the reason.
    """
    match event:
        case ImageEvent():
            yield from _images(event.tag, event.blobs, event.width, event.height, run, count)
            if event.caption:
                yield "caption", f"{event.tag}/caption", partial(text_value, text=event.caption)
        case FigureEvent():
            yield from _images(event.tag, [event.blob], event.width, event.height, run, count)
        case HistogramEvent():
            yield from _histogram(event, count)
        case TextEvent():
            yield "text", event.tag, partial(text_value, text=event.text)
        case TableEvent():
            yield (
                "table",
                event.tag,
                partial(text_value, text=markdown_table(event.columns, event.rows)),
            )
        case ArtifactEvent():
            yield "artifact", f"artifact/{event.name}", partial(text_value, text=_artifact(event))
        case ModelUpdateEvent():
            text = f"**{event.kind}**\n\n{as_json(event.summary)}"
            yield "model_update", "model_update", partial(text_value, text=text)
        case UnknownEvent():
            count("event of an unknown type: only its values")
        case _ if _is_users(type(event)):
            count("event of a user's type: only its values")


def _is_users(kind: type[Event]) -> bool:
    """Whether a type of event is not ours and has fields of its own."""
    return kind.__module__ != Event.__module__ and not _COMMON.issuperset(kind.__struct_fields__)


def _images(
    tag: str,
    blobs: Sequence[BlobRef],
    width: int,
    height: int,
    run: RunInfo,
    count: Callable[[str], None],
) -> Iterator[Shown]:
    images: list[bytes] = []
    for blob in blobs:
        try:
            if blob.mime not in _IMAGE_TYPES:
                raise ValueError(f"images of type {blob.mime} are not shown")
            if blob.size > IMAGE_LIMIT:
                raise ValueError(f"{blob.size} bytes are more than {IMAGE_LIMIT}")
            with run.blob_path(blob.sha256).open("rb") as file:
                data = file.read(IMAGE_LIMIT + 1)
            if len(data) != blob.size:
                raise ValueError(f"it has {len(data)} bytes, not {blob.size}")
        except (OSError, ValueError) as error:
            count("image not shown")
            note = f"Image {blob.sha256[:16]} is not shown: {error}"
            yield "missing", f"{tag}/missing", partial(text_value, text=note)
        else:
            images.append(data)
    if images:
        if not width and images[0].startswith(_PNG) and len(images[0]) >= 24:
            width, height = struct.unpack(">II", images[0][16:24])
        yield "image", tag, partial(image_value, width=width, height=height, images=images)


def _histogram(event: HistogramEvent, count: Callable[[str], None]) -> Iterator[Shown]:
    if len(event.edges) != len(event.counts) + 1:
        count("histogram whose edges and counts do not match")
        return
    if event.nonfinite:
        count("histogram's NaN and infinities")
    build = partial(histogram_value, edges=event.edges, counts=event.counts)
    yield "histogram", event.tag, build


def _artifact(event: ArtifactEvent) -> str:
    facts: list[tuple[str, object]] = [
        ("name", event.name),
        ("kind", event.kind),
        ("path", event.path),
        ("size", event.size),
    ]
    if event.blob is not None:
        facts.append(("sha256", event.blob.sha256))
    text = markdown_table(["artifact", ""], facts)
    return f"{text}\n\n{as_json(event.metadata)}" if event.metadata else text
