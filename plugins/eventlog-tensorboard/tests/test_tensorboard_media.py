"""Images, histograms, texts and tables, read back with TensorBoard's own readers."""

from __future__ import annotations

import hashlib
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    StepEvent,
    TableEvent,
    TextEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog_tensorboard import TensorBoardSink, media

with warnings.catch_warnings():  # of a copy of bleach in TensorBoard
    warnings.simplefilter("ignore")
    from tensorboard.plugins.text.text_plugin import text_array_to_html

WALL = 1_700_000_000_000_000_000


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def stored(run_dir: Path, data: bytes, mime: str = "image/png") -> BlobRef:
    digest = hashlib.sha256(data).hexdigest()
    (run_dir / "blobs").mkdir(parents=True, exist_ok=True)
    (run_dir / "blobs" / digest).write_bytes(data)
    return BlobRef(digest, len(data), mime)


def shown(tmp_path: Path, *events: Event, **run: Any) -> tuple[EventAccumulator, TensorBoardSink]:
    sink = TensorBoardSink(dir=tmp_path / "tb")
    sink.open(RunInfo(run_id="r", run_dir=tmp_path, **run))
    sink.write(events)
    sink.close("finished")
    return EventAccumulator(str(tmp_path / "tb"), size_guidance={"tensors": 0}).Reload(), sink


def array(reader: EventAccumulator, tag: str) -> Any:
    (point,) = reader.Tensors(tag)
    return tensor_util.make_ndarray(point.tensor_proto)


def plugin(reader: EventAccumulator, tag: str) -> str:
    name: str = reader.SummaryMetadata(tag).plugin_data.plugin_name
    return name


def test_images_pass_through(tmp_path: Path) -> None:
    """Encoded images arrive byte for byte with their size, several of them under one tag."""
    one, two = png(3, 2), png(4, 5)
    jpeg = b"\xff\xd8\xff\xe0 not looked into"
    reader, sink = shown(
        tmp_path,
        ImageEvent(
            tag="samples",
            blobs=[stored(tmp_path, one), stored(tmp_path, two)],
            caption="two",
            step=4,
            wall=WALL,
            seq=0,
        ),
        ImageEvent(
            tag="photo",
            blobs=[stored(tmp_path, jpeg, "image/jpeg")],
            width=7,
            height=8,
            step=4,
            wall=WALL,
            seq=1,
        ),
    )
    assert array(reader, "samples").tolist() == [b"3", b"2", one, two]
    assert array(reader, "photo").tolist() == [b"7", b"8", jpeg]
    assert array(reader, "samples/caption").item() == b"two"
    assert plugin(reader, "samples") == "images"
    assert reader.Tensors("samples")[0].step == 4
    assert sink.unshown == {}


def test_figures_are_images(tmp_path: Path) -> None:
    """A figure is in the IMAGES tab."""
    data = png(3, 2)
    event = FigureEvent(tag="roc", blob=stored(tmp_path, data), step=1, wall=WALL, seq=0)
    reader, _ = shown(tmp_path, event)
    assert array(reader, "roc").tolist() == [b"3", b"2", data]


def test_images_that_cannot_be_shown_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob that is missing, cut short, too large or of a foreign type is a note, and counted."""
    monkeypatch.setattr(media, "IMAGE_LIMIT", 1000)
    good = stored(tmp_path, png(1, 1))
    cut = stored(tmp_path, png(2, 2))
    bad = [
        BlobRef("0" * 64, 5, "image/png"),
        BlobRef("no digest", 5, "image/png"),
        BlobRef(cut.sha256, cut.size + 1, "image/png"),
        BlobRef(good.sha256, 2000, "image/png"),
        BlobRef(good.sha256, good.size, "image/tiff"),
    ]
    event = ImageEvent(tag="x", blobs=[*bad, good], step=0, wall=WALL, seq=0)
    reader, sink = shown(tmp_path, event)
    assert sink.unshown == {"image not shown": 5}
    assert len(reader.Tensors("x/missing")) == 5
    assert array(reader, "x").tolist()[:2] == [b"1", b"1"]


def test_images_of_a_run_without_a_directory(tmp_path: Path) -> None:
    """A run that keeps no blobs shows a note instead."""
    sink = TensorBoardSink(dir=tmp_path)
    sink.open(RunInfo(run_id="r"))
    blob = BlobRef("0" * 64, 5, "image/png")
    sink.write([FigureEvent(tag="f", blob=blob, step=0, wall=WALL, seq=0)])
    sink.close("finished")
    assert sink.unshown == {"image not shown": 1}


def test_histograms_have_their_bins(tmp_path: Path) -> None:
    """A histogram is a row of left edge, right edge and count for each bin, in 64 bits."""
    rng = np.random.default_rng(0)
    counts, edges = np.histogram(rng.normal(size=1000), bins=30)
    event = HistogramEvent(
        tag="w", edges=edges.tolist(), counts=counts.tolist(), step=2, wall=WALL, seq=0
    )
    reader, sink = shown(tmp_path, event)
    np.testing.assert_array_equal(
        array(reader, "w"), np.stack([edges[:-1], edges[1:], counts], axis=1)
    )
    assert plugin(reader, "w") == "histograms"
    assert sink.unshown == {}


def test_odd_histograms(tmp_path: Path) -> None:
    """One without bins is shown; one that contradicts itself, and what was left out, is counted."""
    reader, sink = shown(
        tmp_path,
        HistogramEvent(tag="none", edges=[0.0], counts=[], step=0, wall=WALL, seq=0),
        HistogramEvent(tag="bad", edges=[0.0], counts=[1], step=0, wall=WALL, seq=1),
        HistogramEvent(
            tag="nan", edges=[0.0, 1.0], counts=[2], nonfinite=3, step=0, wall=WALL, seq=2
        ),
    )
    assert array(reader, "none").shape == (0, 3)
    assert array(reader, "nan").tolist() == [[0.0, 1.0, 2.0]]
    assert "bad" not in reader.Tags()["tensors"]
    assert len(sink.unshown) == 2


def test_texts_and_tables(tmp_path: Path) -> None:
    """Texts are Markdown, and a table keeps its cells whatever they hold."""
    reader, _ = shown(
        tmp_path,
        TextEvent(tag="note", text="*hello* \udc80", step=1, wall=WALL, seq=0),
        TableEvent(
            tag="errors",
            columns=["name", "n"],
            rows=[["a|b", 1], ["two\nlines", None], [True, float("nan")]],
            step=1,
            wall=WALL,
            seq=1,
        ),
    )
    assert array(reader, "note").item() == b"*hello* ?"
    assert plugin(reader, "note") == plugin(reader, "errors") == "text"
    html = text_array_to_html(array(reader, "errors"), enable_markdown=True)
    assert html.count("<tr>") == 4
    assert "<td>a|b</td>" in html
    assert "<td>nan</td>" in html


def test_artifacts_and_model_updates(tmp_path: Path) -> None:
    """Both are texts that say what there is to know; a model update's numbers are scalars."""
    reader, _ = shown(
        tmp_path,
        ArtifactEvent(
            name="best",
            kind="checkpoint",
            path="/x/best.pt",
            size=12,
            metadata={"epoch": 3},
            blob=BlobRef("a" * 64, 12, "application/octet-stream"),
            step=1,
            wall=WALL,
            seq=0,
        ),
        ModelUpdateEvent(
            kind="pruned",
            summary={"layers": ["a"]},
            values={"sparsity": 0.5},
            step=2,
            wall=WALL,
            seq=1,
        ),
    )
    text = array(reader, "artifact/best").item().decode()
    assert all(part in text for part in ("checkpoint", "/x/best.pt", "12", '"epoch": 3', "aaaa"))
    assert array(reader, "model_update").item().startswith(b"**pruned**")
    assert array(reader, "sparsity").item() == 0.5


def test_the_model_update_before_a_late_start(tmp_path: Path) -> None:
    """A sink that starts in the middle of a run shows the last model update."""
    update = ModelUpdateEvent(kind="pruned", step=2, wall=WALL, seq=7)
    event = StepEvent(step=3, values={"v": 1.0}, wall=WALL, seq=8)
    reader, _ = shown(tmp_path, event, model_update=update)
    (point,) = reader.Tensors("model_update")
    assert point.step == 2
