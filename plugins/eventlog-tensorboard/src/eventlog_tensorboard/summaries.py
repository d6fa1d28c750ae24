"""What TensorBoard's records hold: events and summaries, as protobuf messages.

Scalars are most of what is written. They are put together by hand, from a prefix that is the same
for all points of a tag and four bytes of value; the tests hold them to the protobuf library's own
bytes. The protobufs are imported when they are first needed, without TensorFlow and without torch.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "event_head",
    "file_head",
    "histogram_value",
    "hparams_value",
    "image_value",
    "load_protos",
    "scalar_prefix",
    "scalars_event",
    "summary_event",
    "text_value",
    "varint",
]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_F64 = struct.Struct("<d").pack


class Protos(NamedTuple):
    """The generated modules; they have no types."""

    event: Any
    summary: Any
    tensor: Any
    tensor_shape: Any
    types: Any
    hparams: Any
    hparams_api: Any


@functools.cache
def load_protos() -> Protos:
    """Import TensorBoard's protobufs."""
    from tensorboard.compat.proto import (
        event_pb2,
        summary_pb2,
        tensor_pb2,
        tensor_shape_pb2,
        types_pb2,
    )
    from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

    return Protos(
        event_pb2,
        summary_pb2,
        tensor_pb2,
        tensor_shape_pb2,
        types_pb2,
        plugin_data_pb2,
        api_pb2,
    )


def varint(number: int) -> bytes:
    """Return an int64 as protobuf writes it."""
    number &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def scalar_prefix(tag: str) -> bytes:
    """Return a `Summary.value` up to the four bytes of its `simple_value`."""
    name = tag.encode()
    value = b"\x0a" + varint(len(name)) + name + b"\x15"
    return b"\x0a" + varint(len(value) + 4) + value


def event_head(wall_time: float, step: int) -> bytes:
    """Return an `Event` up to what it holds."""
    head = b"\x09" + _F64(wall_time)
    return head + b"\x10" + varint(step) if step else head


def scalars_event(wall_time: float, step: int, values: bytes) -> bytes:
    """Return an `Event` whose summary is made of prefixes and floats, one after the other."""
    return event_head(wall_time, step) + b"\x2a" + varint(len(values)) + values


def summary_event(wall_time: float, step: int, value: Any) -> bytes:
    """Return an `Event` that holds one `Summary.Value`."""
    protos = load_protos()
    summary = protos.summary.Summary(value=[value])
    event = protos.event.Event(wall_time=wall_time, step=step, summary=summary)
    data: bytes = event.SerializeToString()
    return data


def file_head(wall_time: float, purge: int | None) -> list[bytes]:
    """Return the events that a file begins with.

    TensorBoard's own reader takes the first START of a folder for the start of the run and purges
    at the second one only, so each file begins with one that purges nothing anywhere.

    Args:
        wall_time: Of the first event to come.
        purge: Step from which on earlier files of the folder do not count any more.
    """
    protos = load_protos()
    start = protos.event.SessionLog(status=protos.event.SessionLog.START)
    steps = [INT64_MAX] if purge is None else [INT64_MAX, purge]
    events = [protos.event.Event(wall_time=wall_time, file_version="brain.Event:2")]
    events += [
        protos.event.Event(wall_time=wall_time, step=step, session_log=start) for step in steps
    ]
    return [event.SerializeToString() for event in events]


def _value(tag: str, plugin: str, content: bytes, tensor: Any) -> Any:
    summary = load_protos().summary
    data = summary.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    metadata = summary.SummaryMetadata(plugin_data=data)
    return summary.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def _shape(*sizes: int) -> Any:
    shape = load_protos().tensor_shape.TensorShapeProto
    return shape(dim=[shape.Dim(size=size) for size in sizes])


def text_value(tag: str, text: str) -> Any:
    """Return a summary for the TEXT tab, which shows it as Markdown."""
    protos = load_protos()
    data = text.encode("utf-8", "replace")
    tensor = protos.tensor.TensorProto(
        dtype=protos.types.DT_STRING, tensor_shape=_shape(), string_val=[data]
    )
    return _value(tag, "text", b"", tensor)


def image_value(tag: str, width: int, height: int, images: Sequence[bytes]) -> Any:
    """Return a summary for the IMAGES tab, of encoded images."""
    protos = load_protos()
    data = [str(width).encode(), str(height).encode(), *images]
    tensor = protos.tensor.TensorProto(
        dtype=protos.types.DT_STRING, tensor_shape=_shape(len(data)), string_val=data
    )
    return _value(tag, "images", b"", tensor)


def histogram_value(tag: str, edges: Sequence[float], counts: Sequence[int]) -> Any:
    """Return a summary for the HISTOGRAMS and DISTRIBUTIONS tabs.

    Its tensor has the shape (bins, 3): left edge, right edge, count.
    """
    protos = load_protos()
    rows = [x for row in zip(edges, edges[1:], counts, strict=False) for x in row]
    tensor = protos.tensor.TensorProto(
        dtype=protos.types.DT_DOUBLE,
        tensor_shape=_shape(len(rows) // 3, 3),
        tensor_content=struct.pack(f"<{len(rows)}d", *rows),
    )
    return _value(tag, "histograms", b"", tensor)


def hparams_value(tag: str, **data: Any) -> Any:
    """Return a summary for the HPARAMS tab; `data` is one field of `HParamsPluginData`."""
    protos = load_protos()
    content = protos.hparams.HParamsPluginData(version=0, **data).SerializeToString()
    tensor = protos.tensor.TensorProto(dtype=protos.types.DT_FLOAT, tensor_shape=_shape(0))
    return _value(tag, "hparams", content, tensor)
