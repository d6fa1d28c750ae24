"""Texts, images, histograms, tables and artifacts of an offline run, read back."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

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
from eventlog_wandb import WandbSink
from eventlog_wandb.media import text_of
from eventlog_wandb.reading import OfflineArtifact, OfflineRun, read_offline


def png(width: int, height: int, shade: int = 0) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    rows = b"".join(b"\0" + bytes([shade]) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    )


class Gallery:
    """A run with media; events are given one by one and read back when it has ended."""

    def __init__(self, where: Path) -> None:
        self.where = where
        (where / "blobs").mkdir()
        self.events: list[Event] = []

    def blob(self, data: bytes, mime: str = "image/png") -> BlobRef:
        digest = hashlib.sha256(data).hexdigest()
        (self.where / "blobs" / digest).write_bytes(data)
        return BlobRef(digest, len(data), mime)

    def add(self, kind: type[Event], /, **fields: Any) -> None:
        seq = len(self.events)
        self.events.append(kind(seq=seq, step=seq, wall=10**18, **fields))

    def write(self) -> None:
        sink = WandbSink(mode="offline", dir=self.where, artifact_limit=1000)
        sink.open(RunInfo(run_id="m", run_dir=self.where))
        sink.write(self.events)
        sink.flush()
        sink.close("finished")
        self.unshown = sink.unshown
        self.run: OfflineRun = read_offline(self.where, "m")

    def of(self, column: str) -> tuple[int, Any]:
        return next((row["step"], row[column]) for row in self.run.rows if column in row)

    def named(self, name: str) -> OfflineArtifact:
        return next(each for each in self.run.artifacts if each.name == name)


RED, BLUE, WIDE, PLOT = png(2, 2, 1), png(2, 2, 2), png(3, 2), png(5, 5)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """One run with all media."""
    made = Gallery(tmp_path_factory.mktemp("media"))
    (made.where / "model.bin").write_bytes(b"weights")
    (made.where / "large.bin").write_bytes(bytes(2000))
    (made.where / "folder" / "deep").mkdir(parents=True)
    (made.where / "folder" / "deep" / "a.txt").write_text("a")
    (made.where / "folder" / "loop").symlink_to(made.where / "folder")
    add, blob = made.add, made.blob
    add(TextEvent, tag="note", text="# <b>\n\udc80" + "z" * 2_000_000)
    add(TextEvent, tag="../../note", text="below")
    add(ImageEvent, tag="one", blobs=[blob(RED)], caption="a cap\udc80tion")
    add(ImageEvent, tag="same", blobs=[blob(RED), blob(BLUE)])
    add(ImageEvent, tag="mixed", blobs=[blob(RED), blob(WIDE)])
    add(ImageEvent, tag="broken", blobs=[blob(b"no image"), BlobRef("0" * 64, 3, "image/png")])
    add(ImageEvent, tag="svg", blobs=[blob(b"<svg/>", "image/svg+xml")])
    add(ImageEvent, tag="i" * 10_000, blobs=[blob(RED)])
    add(ImageEvent, tag="i" * 9_999, blobs=[blob(BLUE)])
    add(FigureEvent, tag="plot", blob=blob(PLOT))
    add(HistogramEvent, tag="h", edges=[0.0, 1.0, 3.0], counts=[4, 5], n=9, nonfinite=2)
    edges = [float(edge) for edge in range(1026)]
    add(HistogramEvent, tag="fine", edges=edges, counts=list(range(1025)))
    add(HistogramEvent, tag="none", edges=[], counts=[])
    rows = [[1, "x", None, True], [float("nan"), "y\udc80", 2**70, 1.5]]
    add(TableEvent, tag="t/../x", columns=["a", "a", "b", "c\udc80"], rows=rows)
    add(TableEvent, tag="empty", columns=["a"])
    add(
        ArtifactEvent,
        name="my model/é",
        kind="model",
        path=str(made.where / "model.bin"),
        size=7,
        metadata={"acc": 0.5, "nan": float("nan")},
        options={"wandb": {"aliases": ["best"]}},
    )
    add(ArtifactEvent, name="copy", path="/gone/c.bin", blob=blob(b"copied", "application/x"))
    add(ArtifactEvent, name="tree", kind="job", path=str(made.where / "folder"))
    add(ArtifactEvent, name="gone", path=str(made.where / "gone"))
    add(ArtifactEvent, name="large", path=str(made.where / "large.bin"))
    add(ModelUpdateEvent, kind="pruned", summary={"left": 0.5}, values={"sparsity": 0.5})
    add(StepEvent, values={"one": 1.0})
    made.write()
    return made


def test_texts_are_pages(gallery: Gallery) -> None:
    """A text is a page that shows it as it is; a very long one says that it was cut."""
    step, page = gallery.of("note")
    text = text_of(gallery.run.media(page["path"]).decode())
    assert step == 0
    assert text.startswith("# <b>\n?zzz")
    assert len(text) == 1_000_000
    assert text.endswith("... (2000007 characters)")
    _, below = gallery.of("--/--/note")
    assert text_of(gallery.run.media(below["path"]).decode()) == "below"


def test_images_keep_their_bytes(gallery: Gallery) -> None:
    """Files arrive unchanged; several of one size and kind are one panel, with their caption."""
    step, one = gallery.of("one")
    assert (step, one["caption"]) == (2, "a cap?tion")
    assert (one["width"], one["height"], one["format"]) == (2, 2, "png")
    assert gallery.run.media(one["path"]) == RED
    _, same = gallery.of("same")
    assert [gallery.run.media(path) for path in same["filenames"]] == [RED, BLUE]
    assert gallery.run.media(gallery.of("mixed/0")[1]["path"]) == RED
    assert gallery.run.media(gallery.of("mixed/1")[1]["path"]) == WIDE
    assert gallery.run.media(gallery.of("plot")[1]["path"]) == PLOT


def test_images_that_cannot_be_shown_are_counted(gallery: Gallery) -> None:
    """Broken, missing and unknown ones, and those for which a panel has no place."""
    assert gallery.unshown["image that Pillow cannot read"] == 1
    assert gallery.unshown["file that is missing or damaged"] == 1
    assert gallery.unshown["image of type image/svg+xml"] == 1
    assert gallery.unshown["images of different sizes or formats: a panel for each"] == 2
    assert not any("broken" in row or "svg" in row for row in gallery.run.rows)


def test_long_tags_of_images_stay_apart(gallery: Gallery) -> None:
    """Tags that are too long for the name of a file are told apart."""
    long = [key for row in gallery.run.rows for key in row if key.startswith("iii")]
    assert len(set(long)) == 2
    assert all(len(key) < 120 for key in long)


def test_histograms(gallery: Gallery) -> None:
    """Bins arrive as they are; where there are too many, neighbours are one, and none is lost."""
    _, shown = gallery.of("h")
    assert (shown["bins"], shown["values"]) == ([0.0, 1.0, 3.0], [4, 5])
    _, fine = gallery.of("fine")
    assert len(fine["values"]) <= 512
    assert len(fine["bins"]) == len(fine["values"]) + 1
    assert (fine["bins"][0], fine["bins"][-1]) == (0.0, 1025.0)
    assert sum(fine["values"]) == sum(range(1025))
    assert fine["values"][0] == 0 + 1 + 2
    assert gallery.unshown["NaN or infinity beside a histogram"] == 2
    assert gallery.unshown["histogram without bins"] == 1


def test_tables(gallery: Gallery) -> None:
    """Cells of any type, equal names of columns and no rows at all are taken."""
    _, shown = gallery.of("t/--/x")
    found = json.loads(gallery.run.media(shown["path"]))
    assert found["columns"] == ["a", "a_2", "b", "c?"]
    assert found["data"] == [[1, "x", None, True], ["NaN", "y?", str(2**70), 1.5]]
    assert gallery.of("empty")[1]["nrows"] == 0


def test_artifacts(gallery: Gallery) -> None:
    """Files, copies and folders are named to be sent; what is gone or large is only described."""
    model = gallery.named("my-model")
    assert (model.kind, model.metadata["acc"], model.metadata["nan"]) == ("model", 0.5, "NaN")
    assert model.files == {"model.bin": gallery.where / "model.bin"}
    copy = gallery.named("copy").files["c.bin"]
    assert copy is not None
    assert copy.read_bytes() == b"copied"
    tree = gallery.named("tree")
    assert (tree.kind, list(tree.files)) == ("user-job", ["deep/a.txt"])
    gone = gallery.named("gone")
    assert gone.metadata["missing"] is True
    assert gone.files == {}
    assert set(gallery.named("large").files.values()) == {None}
    assert gallery.unshown["artifact too large to send: only its path"] == 1


def test_nothing_waits_in_the_home_directory(gallery: Gallery) -> None:
    """What `wandb sync` is to send of a table lies with the run."""
    tables = [each for each in gallery.run.artifacts if each.kind == "run_table"]
    paths = [path for each in tables for path in each.files.values()]
    assert len(paths) == 2
    assert all(path is not None and path.is_relative_to(gallery.where) for path in paths)


def test_model_updates(gallery: Gallery) -> None:
    """What was done to the model is a text, beside its numbers."""
    step, page = gallery.of("model_update")
    text = text_of(gallery.run.media(page["path"]).decode())
    assert text.startswith("pruned")
    assert '"left": 0.5' in text
    assert gallery.of("sparsity") == (step, 0.5)


def test_a_tag_of_two_kinds_has_two_columns(gallery: Gallery) -> None:
    """A number under the name of an image does not overwrite it."""
    assert gallery.of("one_scalar") == (len(gallery.events) - 1, 1.0)
