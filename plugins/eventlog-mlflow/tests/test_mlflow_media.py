"""What becomes an artifact: texts, pictures, tables, files and the like."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
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
from eventlog_mlflow import MlflowSink

WALL = 1_700_000_000_123_456_789
PNG = b"\x89PNG\r\n\x1a\n not really"

Opener = Callable[..., MlflowSink]


class Pruned(Event, tag="mlflow_pruned", frozen=True, kw_only=True):
    """A user's own type."""

    layer: str = ""
    kept: float = 0.0


@pytest.fixture
def run(tmp_path: Path) -> RunInfo:
    folder = tmp_path / "run"
    (folder / "blobs").mkdir(parents=True)
    return RunInfo(run_id="media", project="p", run_dir=folder, directory=folder / "sinks")


def blob(run: RunInfo, contents: bytes = PNG) -> BlobRef:
    digest = hashlib.sha256(contents).hexdigest()
    assert run.run_dir is not None
    (run.run_dir / "blobs" / digest).write_bytes(contents)
    return BlobRef(digest, len(contents), "image/png")


def files(sink: MlflowSink, folder: str | None = None) -> Iterator[str]:
    for info in sink.tracker.list_artifacts(sink.run_id, folder):
        if info.is_dir:
            yield from files(sink, info.path)
        elif not info.path.startswith("eventlog/"):
            yield info.path


def read(sink: MlflowSink, path: str) -> bytes:
    return Path(sink.tracker.download_artifacts(sink.run_id, path)).read_bytes()


def at(seq: int, **more: Any) -> dict[str, Any]:
    return {"step": 7, "wall": WALL, "seq": seq} | more


def test_texts_and_figures_are_files_at_their_step(opened: Opener, run: RunInfo) -> None:
    """A text or a figure is a file of its own, whose path has the tag and the step."""
    sink = opened(run)
    sink.write(
        [
            TextEvent(**at(0), tag="sample/one", text="# hé\udc80"),
            TextEvent(**at(1), tag="sample/one", text="again"),
            FigureEvent(**at(2, step=None, epoch=3), tag="../roc", blob=blob(run)),
            TextEvent(**at(3, options={"mlflow": {"artifact_path": "my/../x"}}), tag="t", text="o"),
        ]
    )
    assert {path: read(sink, path) for path in files(sink)} == {
        "texts/sample/one/step_00000007_1-0.md": b"# h\xc3\xa9?",
        "texts/sample/one/step_00000007_1-1.md": b"again",
        "figures/__/roc/epoch_00000003_1-2.png": PNG,
        "my/__/x/t/step_00000007_1-3.md": b"o",
    }
    assert sink.unshown == {}


def test_images_are_where_mlflows_pages_look(opened: Opener, run: RunInfo) -> None:
    """Images have the names that log_image gives, and one that is gone is counted."""
    sink = opened(run)
    event = ImageEvent(
        **at(0),
        tag="val/im(g)",
        blobs=[blob(run), blob(run, b"two"), BlobRef("0" * 64, 1, "image/png")],
        caption="a cat",
    )
    sink.write([event])
    found = sorted(files(sink, "images"))
    names = [path.split("/")[1].split("+") for path in found]
    assert [name[:5] for name in names] == [
        [key, "step", "7", "timestamp", str(WALL // 10**6)]
        for key in ("val~im_g_", "val~im_g_", "val~im_g_-1", "val~im_g_-1")
    ]
    assert [name[-1] for name in names].count("compressed.webp") == 2
    assert sorted(read(sink, path) for path in found) == sorted([PNG, PNG, b"two", b"two"])
    assert [read(sink, path) for path in files(sink, "texts")] == [b"a cat"]
    assert sink.tracker.get_run(sink.run_id).data.tags["mlflow.loggedImages"] == "True"
    assert sink.unshown == {"file that is missing or damaged": 1}


def test_a_large_image_has_a_small_preview(opened: Opener, run: RunInfo) -> None:
    """Where Pillow is there, MLflow's pages have little to load."""
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (600, 300), "red").save(file, "PNG")
    sink = opened(run)
    sink.write([ImageEvent(**at(0), tag="big", blobs=[blob(run, file.getvalue())])])
    (preview,) = (path for path in files(sink, "images") if path.endswith("webp"))
    with Image.open(io.BytesIO(read(sink, preview))) as image:
        assert (image.format, image.size) == ("WEBP", (256, 128))


def test_tables_are_loaded_by_mlflow(
    opened: Opener, run: RunInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table is what log_table writes, so that load_table and the pages know it."""
    sink = opened(run)
    rows: list[list[Any]] = [["a", 1], ["b", float("nan")], [None, 2**60]]
    table = TableEvent(**at(0), tag="preds", columns=["name", "n"], rows=rows)
    sink.write([table])
    (path,) = files(sink)
    found = sink.tracker.get_run(sink.run_id)
    assert json.loads(found.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": path, "type": "table"}
    ]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sink.tracker.tracking_uri)
    loaded = sink.tracker.load_table(found.info.experiment_id, path, [sink.run_id])
    assert list(loaded["name"])[:2] == ["a", "b"]
    assert json.loads(read(sink, path))["data"] == [["a", 1], ["b", "nan"], [None, 2**60]]
    sink.write([TableEvent(**at(n), tag="preds" * 20, columns=["x"]) for n in range(1, 80)])
    assert len(list(files(sink))) == 80
    assert list(sink.unshown) == [
        "table that is only among the artifacts: the list of tables is full"
    ]


def test_histograms_model_updates_and_own_events_are_json(opened: Opener, run: RunInfo) -> None:
    """All that such an event says is in a file; the numbers of a model update are metrics."""
    sink = opened(run)
    histogram = HistogramEvent(**at(0), tag="w", edges=[0.0, 1.0, 2.0], counts=[3, 4], n=7)
    update = ModelUpdateEvent(
        **at(1, values={"loss": 1.5}),
        kind="prune",
        summary={"kept": 0.5, "by": {"l1": 2, "x": "y"}},
    )
    sink.write([histogram, update, Pruned(**at(2, values={"own": 2.5}), layer="conv", kept=0.5)])
    assert {path: json.loads(read(sink, path)) for path in files(sink)} == {
        "histograms/w/step_00000007_1-0.json": {
            "edges": [0.0, 1.0, 2.0],
            "counts": [3, 4],
            "n": 7,
            "min": 0.0,
            "max": 0.0,
            "sum": 0.0,
            "sum_squares": 0.0,
            "nonfinite": 0,
        },
        "model_updates/prune/step_00000007_1-1.json": {
            "kind": "prune",
            "summary": {"kept": 0.5, "by": {"l1": 2, "x": "y"}},
            "values": {"loss": 1.5},
        },
        "events/mlflow_pruned/step_00000007_1-2.json": {
            "type": "mlflow_pruned",
            "fields": {"layer": "conv", "kept": 0.5},
            "values": {"own": 2.5},
        },
    }
    assert sink.tracker.get_run(sink.run_id).data.metrics == {
        "loss": 1.5,
        "model/kept": 0.5,
        "model/by/l1": 2.0,
        "own": 2.5,
    }
    assert sink.unshown == {"histogram kept as a JSON file": 1}


def test_artifacts_are_files_folders_or_facts(opened: Opener, run: RunInfo, tmp_path: Path) -> None:
    """Files and folders are taken, versions kept apart, and of what is gone there are the facts."""
    folder = tmp_path / "ckpt"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.bin", "A.bin", "sub/b#1.txt", "secret"):
        (folder / name).write_bytes(name.encode())
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    if os.geteuid():
        (folder / "secret").chmod(0)
    else:
        (folder / "secret").unlink()
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    sink = opened(run)
    copy = blob(run, b"copied")
    sink.write(
        [
            ArtifactEvent(**at(0), name="best", kind="model", path=str(file), size=7),
            ArtifactEvent(**at(1), name="best", path=str(file), blob=copy, metadata={"n": 1}),
            ArtifactEvent(**at(2), name="all", path=str(folder)),
            ArtifactEvent(**at(3), name="gone", path="/nowhere/at/all", metadata={"k": "v"}),
        ]
    )
    found = {path: read(sink, path) for path in files(sink, "artifacts")}
    assert found == {
        "artifacts/best/model.pt": b"weights",
        "artifacts/best_1-1/model.pt": b"copied",
        "artifacts/all/A.bin": b"A.bin",
        "artifacts/all/a_1.bin": b"a.bin",
        "artifacts/all/sub/b_1.txt": b"sub/b#1.txt",
    }
    facts = json.loads(read(sink, "artifact_facts/artifacts/gone.json"))
    assert (facts["path"], facts["metadata"]) == ("/nowhere/at/all", {"k": "v"})
    assert sink.unshown["artifact that is not there any more"] == 1
    assert sink.unshown["file of a folder: shown under another name"] == 2
    assert sink.unshown["file that cannot be read"] == (2 if os.geteuid() else 1)


def test_artifacts_lie_beside_the_database(
    place: Path, opened: Opener, run: RunInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """MLflow's own choice would be the current folder, where nothing is left."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    sink = opened(RunInfo(run_id="beside", project="a/b?c", run_dir=run.run_dir))
    sink.write([TextEvent(**at(0), tag="t", text="x"), StepEvent(**at(1), values={"v": 1.0})])
    assert list((place / "artifacts" / "a" / "b_c").rglob("*.md"))
    assert list(here.iterdir()) == []
