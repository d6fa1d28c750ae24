"""Texts, images, histograms, tables and files, read back from the archive."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
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
from eventlog_comet import CometSink

# what the files hold is not looked at: they are not decoded
PNG, JPEG = b"\x89PNG\r\n\x1a\n" + bytes(50), b"\xff\xd8\xff" + bytes(40)


class Checkpointed(Event, tag="comet_media_checkpointed", frozen=True, kw_only=True):
    """A user's own type."""

    path: str = ""


def blob(folder: Path, data: bytes, mime: str) -> BlobRef:
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "blobs" / digest).write_bytes(data)
    return BlobRef(digest, len(data), mime)


def uploads(folder: Path, events: list[Event]) -> tuple[dict[str, list[Any]], CometSink]:
    """Return (step, contents, metadata, payload) of all uploads, by type and name."""
    sink = CometSink()
    sink.open(RunInfo(run_id="r1", run_dir=folder, directory=folder / "comet"))
    sink.write(events)
    sink.flush()
    sink.close("finished")
    assert sink.url is not None
    found: dict[str, list[Any]] = {}
    with zipfile.ZipFile(sink.url) as file:
        for line in file.read("messages.json").decode().splitlines():
            message = json.loads(line)
            if message["type"] != "file_upload":
                continue
            payload = message["payload"]
            about = payload["additional_params"]
            name = f"{payload['upload_type']}:{about.get('figName') or about['fileName']}"
            data = file.read(payload["file_path"])
            found.setdefault(name, []).append((about["step"], data, payload["metadata"], about))
        # nothing is in the archive twice
        assert len(file.namelist()) == 2 + sum(map(len, found.values()))
    return found, sink


def test_texts_keep_their_tag_and_step(tmp_path: Path) -> None:
    """Texts, strings, model updates and users' events are text samples with their tag."""
    found, sink = uploads(
        tmp_path,
        [
            TextEvent(tag="note", text="a\n**b**", step=3, epoch=1, seq=0),
            TextEvent(tag="note", text="", step=4, seq=1),
            TextEvent(tag="\udc80", text="\udc80", seq=2),
            StepEvent(step=5, values={"phase": "warmup"}, seq=3),
            ModelUpdateEvent(kind="pruned", summary={"kept": 0.5}, step=6, seq=4),
            Checkpointed(path="/x", step=7, seq=5),
        ],
    )
    (samples,) = found.values()
    assert [(step, data, meta["tag"]) for step, data, meta, _ in samples[:4]] == [
        (3, b"a\n**b**", "note"),
        (4, b"", "note"),
        (None, b"?", "?"),
        (5, b"warmup", "phase"),
    ]
    assert [about["epoch"] for _, _, _, about in samples[:2]] == [1, None]
    (_, update, meta, _), (step, own, tag, _) = samples[4:]
    assert meta == {"tag": "model_update"}
    assert b"**pruned**" in update
    assert b'"kept": 0.5' in update
    assert (step, tag) == (7, {"tag": "comet_media_checkpointed"})
    assert b'"path": "/x"' in own
    assert sink.unshown == {}


def test_images_and_figures_are_kept_byte_for_byte(tmp_path: Path) -> None:
    """Image files go into the Graphics tab as they are, each with its step and caption."""
    png, jpeg = blob(tmp_path, PNG, "image/png"), blob(tmp_path, JPEG, "image/jpeg")
    gone = BlobRef("0" * 64, 1, "image/png")
    found, sink = uploads(
        tmp_path,
        [
            ImageEvent(tag="val/x", blobs=[png], caption="c", step=1, seq=0),
            ImageEvent(tag="val/x", blobs=[png], step=2, seq=1),
            ImageEvent(tag="two", blobs=[png, jpeg], epoch=1.5, seq=2),
            FigureEvent(tag="../fig.png", blob=png, step=3, seq=3),
            ImageEvent(tag="gone", blobs=[gone], step=4, seq=4),
        ],
    )
    short = {
        name: [(step, data, meta) for step, data, meta, _ in all_] for name, all_ in found.items()
    }
    assert short == {
        "visualization:val/x.png": [
            (1, PNG, {"tag": "val/x", "caption": "c"}),
            (2, PNG, {"tag": "val/x"}),
        ],
        "visualization:two/0.png": [(1, PNG, {"tag": "two"})],
        "visualization:two/1.jpg": [(1, JPEG, {"tag": "two"})],
        "visualization:_/fig.png": [(3, PNG, {"tag": "../fig.png"})],
    }
    assert {about["extension"] for all_ in found.values() for *_, about in all_} == {"png", "jpg"}
    assert sink.unshown == {
        "file that is missing or damaged": 1,
        "fractional step: rounded down": 1,
    }


def test_histograms_have_all_their_counts(tmp_path: Path) -> None:
    """A distribution is in Comet's own bins, near where it was, and no count is lost."""
    from comet_ml.data_structure import Histogram

    found, sink = uploads(
        tmp_path,
        [
            HistogramEvent(
                tag="w",
                edges=[-2.0, -1.0, 1.0, 3.0, 1e30],
                counts=[3, 4, 5, 1],
                n=13,
                step=7,
                seq=0,
            ),
            HistogramEvent(tag="none", edges=[0.0, 1.0], counts=[0], step=7, seq=1),
            HistogramEvent(tag="free", edges=[0.0, 1.0], counts=[2], n=2, seq=2),
        ],
    )
    ((step, data, meta, about),) = found["histogram3d:w"]
    assert (step, about["type"], meta["n"]) == (7, "histogram3d", 13)
    shown = json.loads(data)
    bins = Histogram().values  # type: ignore[no-untyped-call]
    counts = {bins[index]: count for index, count in shown["index_values"]}
    assert [counts[value] for value in sorted(counts)] == [3, 4, 5, 1]
    low, zero, two, top = sorted(counts)
    assert low == pytest.approx(-1.5, rel=0.11)
    assert zero == pytest.approx(0.0, abs=1e-9)
    assert two == pytest.approx(2.0, rel=0.11)
    assert top == pytest.approx(1e20, rel=0.2)
    assert found["histogram3d:free"][0][0] == 0
    assert sink.unshown == {
        "empty histogram": 1,
        "histogram without a step: shown at step 0": 1,
    }


def test_tables_are_csv_files(tmp_path: Path) -> None:
    """A table is a CSV file of its tag; a file of that name in the working directory is not it."""
    (tmp_path / "t.csv").write_text("not this one")
    rows: list[list[Any]] = [[1, "a,b"], [None, 'say "x"\n']]
    found, _ = uploads(
        tmp_path, [TableEvent(tag="val/t", columns=["n", "s"], rows=rows, step=2, seq=0)]
    )
    ((step, data, meta, about),) = found["asset:val/t.csv"]
    assert (step, meta, about["extension"]) == (2, {"tag": "val/t"}, "csv")
    assert list(csv.reader(io.StringIO(data.decode(), newline=""))) == [
        ["n", "s"],
        ["1", "a,b"],
        ["", 'say "x"\n'],
    ]


def test_artifacts_are_files_models_folders_or_a_note(tmp_path: Path) -> None:
    """Files and folders are kept, a model as one; what is gone leaves a note."""
    (tmp_path / "w.pt").write_bytes(b"weights")
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "data" / "in" / "a.txt").write_bytes(b"a")
    (tmp_path / "data" / "b").write_bytes(b"b")
    copied = blob(tmp_path, b"copy", "text/plain")
    found, sink = uploads(
        tmp_path,
        [
            ArtifactEvent(
                name="net/best", kind="model", path=str(tmp_path / "w.pt"), step=9, seq=0
            ),
            ArtifactEvent(name="set", kind="dataset", path=str(tmp_path / "data"), seq=1),
            ArtifactEvent(name="c", path="/was/here.txt", blob=copied, metadata={"k": 1}, seq=2),
            ArtifactEvent(name="gone", path="/not/there", size=3, seq=3),
        ],
    )
    ((step, data, _, about),) = found["model-element:net/best.pt"]
    assert (step, data, about["groupingName"]) == (9, b"weights", "net_best")
    assert found["asset:set/in/a.txt"][0][1] == b"a"
    assert found["asset:set/b"][0][1] == b"b"
    ((_, data, meta, _),) = found["asset:c.txt"]
    assert (data, meta["k"], meta["path"]) == (b"copy", 1, "/was/here.txt")
    assert sink.unshown == {"artifact that is not there any more": 1}
    assert sink.tracker.others["run/artifact/gone"].startswith('{"kind": "file", "path": "/not/')
