"""What lies beside the metrics: hyperparameters, media, artifacts, and the run's page."""

from __future__ import annotations

import enum
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from dvclive import serialize, utils
from dvclive.live import Live

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    ConfigUpdated,
    Event,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    RunFinished,
    TableEvent,
    TextEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog_dvclive import DvcliveSink

WALL = 1_700_000_000_000_000_000
PNG = b"\x89PNG\r\n\x1a\n and so on"
YAML: Any = serialize
SDK: Any = utils


class Colour(enum.Enum):
    RED = 1


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVCLive looks for repositories where the process is."""
    monkeypatch.chdir(tmp_path)


def opened(folder: Path, /, **run: Any) -> DvcliveSink:
    sink = DvcliveSink(dir=folder / "out")
    sink.open(RunInfo(**(dict[str, Any](run_id="r1", run_dir=folder) | run)))
    return sink


def blob(folder: Path, data: bytes, mime: str = "image/png") -> BlobRef:
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "blobs" / digest).write_bytes(data)
    return BlobRef(digest, len(data), mime)


def files(folder: Path) -> dict[str, bytes]:
    own = {"run.json", "names.json", "media.json", "metrics.json", "params.yaml"}
    found = [p for p in (folder / "out").rglob("*") if p.is_file() and p.name not in own]
    return {path.relative_to(folder / "out").as_posix(): path.read_bytes() for path in found}


def page(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "eventlog" / "run.json").read_text())
    return found


def test_images_and_figures_lie_where_the_slider_looks(tmp_path: Path) -> None:
    """<tag>/<step>.png, unchanged; several of one event have a number; none is there twice."""
    one, two = blob(tmp_path, PNG), blob(tmp_path, PNG + b"2", "image/jpeg")
    odd = blob(tmp_path, b"what", "image/webp")
    sink = opened(tmp_path)
    events: list[Event] = [
        ImageEvent(tag="one", blobs=[one], step=5, caption="a *cat*", seq=0),
        ImageEvent(tag="one", blobs=[one], step=5, seq=1),
        ImageEvent(tag="both", blobs=[one, two, odd], epoch=1, seq=2),
        ImageEvent(tag="one/0", blobs=[two], step=5, seq=3),
        FigureEvent(tag="plot", blob=one, seq=4),
        FigureEvent(tag="plot", blob=one, seq=5),
        ImageEvent(tag="../../x", blobs=[BlobRef("0" * 64, 1, "image/png")], step=1, seq=6),
    ]
    sink.write(events)
    assert files(tmp_path) == {
        "plots/images/one/5.png": PNG,
        "eventlog/text/one/caption/5.md": b"a *cat*",
        "plots/images/both/0/1.png": PNG,
        "plots/images/both/1/1.jpg": PNG + b"2",
        "plots/images/one_2/0/5.jpg": PNG + b"2",
        "plots/images/plot/0.png": PNG,
        "plots/images/plot/1.png": PNG,
    }
    assert sink.unshown == {
        "image of a type that DVC does not show": 1,
        "no axis: steps counted up": 2,
        "file that is missing or damaged": 1,
    }


def test_histograms_are_plots_of_dvclive(tmp_path: Path) -> None:
    """Bins are rows, in the bytes of log_plot; what does not fit together is counted."""
    sink = opened(tmp_path)
    edges, counts = [0.0, 0.5, 1.0], [3, 4]
    sink.write(
        [
            HistogramEvent(tag="w/x", edges=edges, counts=counts, nonfinite=2, step=3, seq=0),
            HistogramEvent(tag="w/x", edges=edges, counts=[1], step=4, seq=1),
        ]
    )
    rows = [{"from": 0.0, "to": 0.5, "count": 3}, {"from": 0.5, "to": 1.0, "count": 4}]
    live: Any = Live(dir=str(tmp_path / "sdk"), save_dvc_exp=False, dvcyaml=None)
    live.log_plot("w/x/3", rows, x="count", y="from")
    expected = (tmp_path / "sdk/plots/custom/w/x/3.json").read_bytes()
    assert files(tmp_path) == {"plots/custom/w/x/3.json": expected}
    assert sink.unshown == {
        "histogram's NaN and infinities": 1,
        "histogram whose edges and counts do not match": 1,
    }


def test_texts_and_tables(tmp_path: Path) -> None:
    """A text is a Markdown file, a table one that DVC's own reader takes, whatever the cells."""
    sink = opened(tmp_path)
    rows: list[list[Any]] = [["a\tb\nc", None], ["\udc80", 1e300]]
    sink.write(
        [
            TextEvent(tag="note", text="# Hello", step=1, seq=0),
            TableEvent(tag="t", columns=["x", "y"], rows=rows, step=2, seq=1),
        ]
    )
    sink.close("finished")
    assert files(tmp_path)["eventlog/text/note/1.md"] == b"# Hello"
    assert SDK.parse_tsv(tmp_path / "out/eventlog/tables/t/2.tsv") == [
        {"x": "a\tb\nc", "y": ""},
        {"x": "?", "y": "1e+300"},
    ]


def test_artifacts_are_kept_or_referred_to(tmp_path: Path) -> None:
    """A copy of eventlog's is copied, a folder when asked; the rest is known by its path."""
    data = blob(tmp_path, b"weights", "application/octet-stream")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("x")
    sink = opened(tmp_path, alias="dvc")
    sink.write(
        [
            ArtifactEvent(name="model", kind="model", path="/gone/m.pt", blob=data, step=1, seq=0),
            ArtifactEvent(
                name="../data",
                path=str(tmp_path / "folder"),
                metadata={"rows": 3},
                options={"dvc": {"copy": True, "desc": "all of it", "labels": ["a"]}},
                seq=1,
            ),
            ArtifactEvent(name="far", path=str(tmp_path / "nowhere"), size=9, seq=2),
            ArtifactEvent(name="near", path=str(tmp_path / "folder"), seq=3),
        ]
    )
    sink.close("finished")
    assert files(tmp_path) == {
        "eventlog/artifacts/model": b"weights",
        "eventlog/artifacts/_/data/x": b"x",
    }
    found = page(tmp_path)["artifacts"]
    assert found["model"]["copy"] == "artifacts/model"
    assert found["model"]["sha256"] == data.sha256
    assert found["../data"]["meta"] == {"rows": 3}
    assert (found["../data"]["desc"], found["../data"]["labels"]) == ("all of it", ["a"])
    assert found["far"] == {
        "type": "file",
        "path": str(tmp_path / "nowhere"),
        "size": 9,
    }
    assert "copy" not in found["near"]
    assert sink.unshown == {"artifact that is not there any more": 1}


def test_hyperparameters_of_any_shape(tmp_path: Path) -> None:
    """params.yaml keeps nesting and lists, takes odd objects as text, and grows and changes."""
    config: dict[str, Any] = {
        "lr": 0.1,
        "layers": [1, (2, 3)],
        "none": None,
        "nan": float("inf"),
        "path": Path("/x"),
        "colour": Colour.RED,
        "call": len,
        "deep": {"a": {"\udc80": "\udc80"}, 1: 2},
        "endless": 10**5000,
        "text": "z" * 7000,
        "no": "no",
        **{f"p{i}": i for i in range(300)},
    }
    sink = opened(tmp_path, config=config)
    sink.write([ConfigUpdated(config={"lr": 0.2, "late": "x"}, seq=0)])
    sink.close("interrupted")
    found = YAML.load_yaml(tmp_path / "out" / "params.yaml")
    assert found.pop("endless").startswith("0x")
    assert found == {
        "lr": 0.2,
        "late": "x",
        "layers": [1, [2, 3]],
        "none": None,
        "nan": float("inf"),
        "path": "/x",
        "colour": "Colour.RED",
        "call": str(len),
        "deep": {"a": {"?": "?"}, "1": 2},
        "text": "z" * 7000,
        "no": "no",
        **{f"p{i}": i for i in range(300)},
    }


def test_the_page_of_the_run(tmp_path: Path) -> None:
    """run.json has the labels, and how the run ended, with the error."""
    sink = opened(tmp_path, project="p", name="n", tags=("a",), group="g", notes="h", rank=0)
    assert page(tmp_path)["status"] == "running"
    sink.write([RunFinished(status="failed", error="ValueError: no", seq=0)])
    sink.close("failed")
    found = page(tmp_path)
    assert {k: found[k] for k in ("run_id", "project", "name", "tags", "group", "notes")} == {
        "run_id": "r1",
        "project": "p",
        "name": "n",
        "tags": ["a"],
        "group": "g",
        "notes": "h",
    }
    assert (found["status"], found["error"]) == ("failed", "ValueError: no")


def test_a_new_run_removes_ours_and_nobody_elses(tmp_path: Path) -> None:
    """What another run left is removed as DVCLive does; a stranger's folder of our name is not."""
    sink = opened(tmp_path)
    sink.write([TextEvent(tag="note", text="old", step=1, seq=0)])
    sink.close("finished")
    opened(tmp_path, run_id="r2").close("finished")
    assert files(tmp_path) == {}
    other = tmp_path / "other"
    (other / "out" / "eventlog").mkdir(parents=True)
    (other / "out" / "eventlog" / "theirs.py").write_text("x")
    opened(other).close("finished")
    assert "eventlog/theirs.py" in files(other)


def test_where_the_folder_is(tmp_path: Path) -> None:
    """The folder is the one that was asked for, eventlog's, or one below the current folder."""
    run = RunInfo(run_id="r/1", project="p", name="n", directory=tmp_path / "sinks" / "dvclive")
    cases = [
        (DvcliveSink(dir="{project}-{run_id}"), run, tmp_path / "p-r_1"),
        (DvcliveSink(), run, tmp_path / "sinks" / "dvclive"),
        (DvcliveSink(), RunInfo(run_id="r", project="p"), tmp_path / "dvclive/p/r"),
        (DvcliveSink(), RunInfo(run_id="r", rank=3), tmp_path / "dvclive/r/rank3"),
    ]
    for sink, info, folder in cases:
        sink.open(info)
        sink.close("finished")
        assert (sink.url, sink.run_id) == (str(folder), info.run_id)
        assert (folder / "metrics.json").is_file()
    assert DvcliveSink(dir="x").target() == str(tmp_path / "x")
    assert DvcliveSink().target() == ""
