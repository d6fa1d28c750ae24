"""Texts, images, distributions and artifacts, and the sink's options."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    HistogramEvent,
    ImageEvent,
    TableEvent,
    TextEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog.testing.shown import Shown
from eventlog_aim import AimSink
from eventlog_aim.values import even_bins, file_name, plain

Read = Callable[[Any, "str | None"], Shown]
WALL = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository that the tests share."""
    return tmp_path_factory.mktemp("repo")


@pytest.fixture
def sink(repo: Path, tmp_path: Path) -> AimSink:
    """Return an open sink, of a run that has a directory."""
    found = AimSink(repo=repo)
    found.open(RunInfo(run_id="r1", run_dir=tmp_path, directory=tmp_path / "aim"))
    return found


def blob(folder: Path, data: bytes, mime: str = "image/png") -> BlobRef:
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "blobs" / digest).write_bytes(data)
    return BlobRef(digest, len(data), mime)


def picture(folder: Path, kind: str, shade: int) -> bytes:
    path = folder / f"picture.{kind}"
    Image.new("RGB", (31, 17), (shade, 80, 90)).save(path)
    return path.read_bytes()


def shown_of(sink: AimSink, read_back: Read) -> Shown:
    sink.close("finished")
    return read_back(sink.url, sink.run_id)


def test_images_keep_their_bytes(sink: AimSink, tmp_path: Path, read_back: Read) -> None:
    """PNG, JPEG and GIF go in as they are, with their caption and size."""
    data = [picture(tmp_path, kind, 10 * i) for i, kind in enumerate(("png", "jpeg", "gif"))]
    blobs = [blob(tmp_path, one) for one in data]
    event = ImageEvent(tag="p", blobs=blobs, caption="what \ud800", step=4, seq=0, wall=WALL)
    broken = ImageEvent(tag="p", blobs=[blob(tmp_path, b"no image")], step=5, seq=1)
    sink.write([event, broken])
    run_hash = sink.run_id
    shown = shown_of(sink, read_back)
    assert shown.images == {"p": [(4, one) for one in data]}
    assert sink.unshown == {"image that Pillow cannot read": 1}
    aim = importlib.import_module("aim")
    run = aim.Run(run_hash, repo=str(sink.url), read_only=True)
    images = run.get_image_sequence("p", aim.storage.context.Context({})).values[4]
    assert [(i.caption, i.size, i.format) for i in images] == [
        ("what ?", (31, 17), kind) for kind in ("PNG", "JPEG", "GIF")
    ]
    assert images[1].to_pil_image().getpixel((3, 3)) is not None


def test_several_texts_at_a_place(sink: AimSink, read_back: Read) -> None:
    """All of them are shown, in a batch or in several; also beside a curve of that name."""
    sink.write(
        [
            TextEvent(tag="t", text="one", step=3, seq=0, values={"t": 1.0}),
            TextEvent(tag="t", text="two \ud800", step=3, seq=1),
        ]
    )
    sink.write([TextEvent(tag="t", text="three", step=3, seq=2)])
    sink.write([TextEvent(tag="t", text="four", step=4, seq=3)])
    sink.write([TextEvent(tag="t", text="nowhere", seq=4), TextEvent(tag="t", text="too", seq=5)])
    sink.write([TextEvent(tag="t", text="later", step=3, attempt=2, seq=6)])
    shown = shown_of(sink, read_back)
    assert shown.texts == {
        "t_text": [(3, "later"), (4, "four"), (5, "nowhere"), (6, "too")],
    }
    assert shown.scalars == {"t": [(3, 1.0)]}
    assert sink.unshown == {"text without a step: Aim counts": 2}


def test_texts_at_a_place_are_gathered(sink: AimSink, read_back: Read) -> None:
    """What comes to the same place in a later batch is added to what is there."""
    for seq, text in enumerate(("one", "two", "three")):
        sink.write([TextEvent(tag="t", text=text, step=3, seq=seq)])
    assert shown_of(sink, read_back).texts == {"t": [(3, "one"), (3, "two"), (3, "three")]}


def test_tables_are_shown_as_text(sink: AimSink, read_back: Read) -> None:
    """A table becomes Markdown, and is counted."""
    sink.write([TableEvent(tag="t", columns=["a"], rows=[["x|y"]], step=1, seq=0)])
    [(at, text)] = shown_of(sink, read_back).texts["t"]
    assert (at, "x\\|y" in text) == (1, True)
    assert sink.unshown == {"table shown as text": 1}


def test_histograms(sink: AimSink, read_back: Read) -> None:
    """Even bins are exact; uneven ones are spread, and counted; NaN is counted."""
    even = HistogramEvent(tag="even", edges=[0, 1, 2, 3], counts=[5, 0, 2], n=7, step=1, seq=0)
    odd = HistogramEvent(
        tag="odd", edges=[0.0, 1.0, 4.0], counts=[4, 12], n=16, step=1, seq=1, nonfinite=3
    )
    none = HistogramEvent(tag="none", edges=[], counts=[], step=1, seq=2)
    endless = HistogramEvent(tag="none", edges=[0.0, math.inf], counts=[1], step=1, seq=4)
    twice = HistogramEvent(tag="even", edges=[0, 1], counts=[1], n=1, step=1, seq=3)
    sink.write([even, odd, none])
    sink.write([twice, endless])
    shown = shown_of(sink, read_back)
    [(at, (weights, edges))] = shown.histograms["even"]
    assert (at, weights, edges) == (1, [1.0], [0.0, 1.0])
    [(_, (weights, edges))] = shown.histograms["odd"]
    assert (len(weights), sum(weights), edges[0], edges[-1]) == (64, 16.0, 0.0, 4.0)
    assert sink.unshown == {
        "histogram with uneven bins: shown in even ones": 1,
        "histogram's values that are not finite": 3,
        "histogram without finite bins": 2,
        "histogram at a place that has one: the later one is shown": 1,
    }


@pytest.mark.parametrize(
    ("edges", "counts"),
    [
        ([0.0, 1.0, 2.0, 3.0], [5, 0, 2]),
        ([0.0, 0.001, 10.0], [1000, 3]),
        ([-1.0, -1.0, 2.0], [7, 1]),
        ([-1.0, 2.0, 2.0], [1, 7]),
        ([4.0, 4.0], [9]),
        ([0.0] * 4, [1, 2, 3]),
        ([i**1.5 for i in range(701)], list(range(700))),
        ([float(i) for i in range(1001)], [1] * 1000),
        ([1e300 * i for i in range(-3, 4)], [1, 2, 3, 3, 2, 1]),
    ],
)
def test_even_bins_keep_the_sum(edges: list[float], counts: list[int]) -> None:
    """Whatever the edges are, no count is lost, and there are at most 512 bins."""
    found, (low, high), exact = even_bins(edges, counts)
    assert math.isclose(sum(found), sum(counts))
    assert len(found) <= 512
    assert low < high
    assert low <= edges[0] <= edges[-1] <= high
    assert not exact or list(found) == counts


def test_artifacts(sink: AimSink, tmp_path: Path, read_back: Read) -> None:
    """A copy that eventlog has is copied once more; of other files the place is shown."""
    copy = blob(tmp_path, b"weights", "application/octet-stream")
    letter = tmp_path / "letter"
    letter.write_bytes(b"dear")
    sink.write(
        [
            ArtifactEvent(name="../../model", blob=copy, path="/x/model", size=7, seq=0),
            ArtifactEvent(name="letter", path=str(letter), size=4, metadata={"n": 1}, seq=1),
            ArtifactEvent(name="gone", path=str(tmp_path / "gone"), seq=2),
        ]
    )
    facts = sink.tracker["artifacts"]
    assert facts["letter"] == {
        "kind": "file", "path": str(letter), "size": 4, "metadata": {"n": 1}
    }  # fmt: skip
    assert facts["model"]["sha256"] == copy.sha256
    shown = shown_of(sink, read_back)
    assert shown.artifacts == {"model": b"weights", "letter": None, "gone": None}
    assert sink.unshown == {"artifact that is not there any more": 1}


def test_artifacts_with_a_place_for_copies(repo: Path, tmp_path: Path, read_back: Read) -> None:
    """With ``artifacts_uri``, files and folders are copied there."""
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("a")
    sink = AimSink(repo=repo, artifacts_uri=f"file://{tmp_path / 'kept'}")
    sink.open(RunInfo(run_id="r1"))
    sink.write([ArtifactEvent(name="set", path=str(folder), seq=0)])
    sink.write([ArtifactEvent(name="SET/one", path=str(folder / "deep" / "a.txt"), seq=1)])
    shown = shown_of(sink, read_back)
    assert shown.artifacts["set/deep/a.txt"] == b"a"
    # a file cannot lie below another one's folder
    [other] = [name for name in shown.artifacts if name.startswith("SET")]
    assert shown.artifacts[other] == b"a"


def test_names_of_files_stay_below() -> None:
    """No name of an artifact leads out of its folder."""
    assert file_name("../../x") == "x"
    assert file_name("/etc//passwd") == "etc/passwd"
    assert file_name("a\\..\\b\x00c") == "a/b_c"
    assert file_name("..") == "_"


def test_plain_values() -> None:
    """Config that is nested without end, or holds objects, becomes text and is counted."""
    counted: list[str] = []
    deep: dict[str, Any] = {}
    deep["self"] = deep
    found = plain({"deep": deep, "path": Path("/x"), 1: 2, "1": 3, "t": (1, 2)}, counted.append)
    assert (found["path"], found["1"], found["1~2"], found["t"]) == ("/x", 2, 3, [1, 2])
    assert sorted(set(counted)) == [
        "config or summary nested too deeply: shown as text",
        "object in config or summary: shown as text",
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"repo": ""}, "repo must be"),
        ({"repo": 7}, "repo must be"),
        ({"repo": "http://x"}, "repo must be aim://host:port"),
        ({"repo": "aim://"}, "repo must be aim://host:port"),
        ({"repo": "aim://x:99999"}, "repo must be aim://host:port"),
        ({"dir": "aim://x:1"}, "dir must be aim://host:port"),
        ({"repo": "a", "dir": "b"}, "give one of them"),
        ({"experiment": ""}, "experiment must be"),
        ({"run_hash": 5}, "run_hash must be"),
        ({"artifacts_uri": "/x"}, "artifacts_uri must be"),
        ({"sdk_options": [1]}, "sdk_options must be"),
        ({"sdk_options": {"repo": "x"}}, "sdk_options must not have repo"),
    ],
)
def test_bad_options(options: dict[str, Any], error: str) -> None:
    """An option that cannot be is refused when the sink is made, and says what it must be."""
    with pytest.raises((TypeError, ValueError), match=error):
        AimSink(**options)


def test_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aim is ready where it is installed; else the reason is said, without importing it."""
    assert AimSink.unready({}) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install" in str(AimSink.unready({}))
    monkeypatch.setattr("eventlog_aim.sink.sys.version_info", _Version((3, 13)))
    assert "below 3.13" in str(AimSink.unready({}))


class _Version(tuple[int, ...]):
    major, minor = 3, 13


def test_target_and_close_without_open(tmp_path: Path) -> None:
    """Another place, or another run in it, starts anew; closing what never opened does nothing."""
    assert AimSink().target() == ""
    assert AimSink(repo=tmp_path).target() == str(tmp_path)
    assert AimSink(repo="aim://h:1", run_hash="abc").target() == "aim://h:1#abc"
    AimSink().close("finished")
    with pytest.raises(RuntimeError, match="must be open"):
        AimSink().write([TextEvent(tag="t", text="x")])
