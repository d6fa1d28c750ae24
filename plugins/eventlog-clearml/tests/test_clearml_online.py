"""The sink and a server on loopback, which stands in for ClearML's."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    ConfigUpdated,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    RunFinished,
    StepEvent,
    SummaryUpdated,
    TextEvent,
)
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_clearml import ClearmlSink

WALL = 1_700_000_000_123_456_789


def opened(**run: Any) -> ClearmlSink:
    sink = ClearmlSink()
    sink.open(RunInfo(**{"run_id": "r-1", "project": "proj", "name": "name"} | run))
    return sink


def blob_in(folder: Path, content: bytes) -> BlobRef:
    digest = hashlib.sha256(content).hexdigest()
    path = folder / "blobs" / digest
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return BlobRef(sha256=digest, size=len(content), mime="image/png")


def test_a_run_arrives(server: Any, tmp_path: Path) -> None:
    """Points, texts, config, media and the status reach the server, points in one request."""
    sink = opened(config={"lr": 0.1}, tags=("t",), notes="why", run_dir=tmp_path)
    assert sink.url == f"{server.url}/projects/project0/experiments/task0/output/log"
    assert sink.target() == f"{server.url}||"
    server.calls.clear()
    sink.write(
        [StepEvent(step=s, values={"train/loss": 0.5 * s}, wall=WALL, seq=s) for s in range(50)]
    )
    assert server.calls == ["events.add_batch"]
    assert server.events[7]["value"] == 3.5
    assert server.events[7]["timestamp"] == WALL // 1_000_000
    artifact = tmp_path / "model.bin"
    artifact.write_bytes(b"weights")
    image, figure = blob_in(tmp_path, b"png"), blob_in(tmp_path, b"figure")
    sink.write(
        [
            TextEvent(tag="note", text="hello", step=1, seq=100),
            ImageEvent(tag="val/x", blobs=[image, figure], step=2, caption="c", seq=101),
            FigureEvent(tag="fig", blob=figure, step=3, width=4, height=2, seq=102),
            HistogramEvent(tag="h", edges=[0, 1, 3], counts=[1, 2], n=3, step=4, seq=103),
            ArtifactEvent(name="model", kind="model", path=str(artifact), seq=104),
            ArtifactEvent(name="gone", path=str(tmp_path / "no"), size=5, seq=105),
            ArtifactEvent(name="copy", path="/x/copy.png", blob=image, seq=106),
            ConfigUpdated(config={"lr": 0.2}, seq=107),
            SummaryUpdated(summary={"best": 1.0}, seq=108),
            RunFinished(status="failed", error="boom", seq=109),
        ]
    )
    sink.close("failed")
    task = server.tasks["task0"]
    assert (task["status"], task["status_reason"]) == ("failed", "boom")
    assert (task["tags"], task["comment"]) == (["t"], "why")
    assert task["hyperparams"]["General"]["lr"]["value"] == "0.2"
    assert task["hyperparams"]["properties"]["error"]["value"] == "boom"
    artifacts = {item["key"]: item for item in task["execution"]["artifacts"]}
    assert server.files[artifacts["model"]["uri"].removeprefix(server.url)] == b"weights"
    assert server.files[artifacts["copy"]["uri"].removeprefix(server.url)] == b"png"
    assert artifacts["copy"]["uri"].endswith("/copy.png")
    assert artifacts["gone"]["uri"] == f"file://{tmp_path / 'no'}"
    images = [event for event in server.events if event["type"] == "training_debug_image"]
    assert [server.files["/" + event["key"]] for event in images] == [b"png", b"figure"]
    assert [event["variant"] for event in images] == ["val", "val"]
    assert [event["metric"] for event in images] == ["x 0", "x 1"]
    plots = [event["plot_str"] for event in server.events if event["type"] == "plot"]
    assert "fig" in plots[0]
    assert f'"source": "{server.url}/' in plots[0]
    assert '"width": [1, 2]' in plots[1]
    assert sink.unshown == {"artifact that is not there any more": 1}


def test_files_go_where_the_options_say(server: Any, tmp_path: Path) -> None:
    """Another place for files, addresses as options, and artifacts that are only named."""
    place = tmp_path / "place"
    place.mkdir()
    artifact = tmp_path / "model.bin"
    artifact.write_bytes(b"weights")
    image = blob_in(tmp_path, b"png")
    run = RunInfo(run_id="r-1", project="proj", name="name", rank=2, world_size=4, run_dir=tmp_path)
    options: dict[str, Any] = {"api_server": server.url, "web_server": "http://127.0.0.1:1"}
    sink = ClearmlSink(output_uri=str(place), upload_artifacts=False, project="other", **options)
    sink.open(run)
    assert str(sink.url).startswith("http://127.0.0.1:1/projects/")
    sink.write(
        [
            ArtifactEvent(name="model", path=str(artifact), seq=0),
            ImageEvent(tag="x", blobs=[image], step=2, seq=1),
        ]
    )
    sink.close("finished")
    assert list(server.projects) == ["other"]
    assert server.tasks["task0"]["name"] == "name rank 2"
    assert server.tasks["task0"]["execution"]["artifacts"][0]["uri"] == f"file://{artifact}"
    (copy,) = place.rglob("*.png")
    assert copy.read_bytes() == b"png"
    assert server.events[0]["url"].endswith(str(copy))
    assert server.files == {}
    ours = ClearmlSink(files_server=server.url, **options)
    ours.open(run)
    ours.write([ImageEvent(tag="x", blobs=[image], step=2, seq=1)])
    ours.close("finished")
    assert list(server.files.values()) == [b"png"]


def test_outages_and_refusals_are_told_apart(server: Any) -> None:
    """A server that is busy or broken is tried again by eventlog; what it refuses is not."""
    sink = opened()
    event = StepEvent(step=0, values={"v": 1.0}, seq=0)
    server.retry_after = "77"
    for status in (500, 502, 503, 429):
        server.fail = status
        start = time.monotonic()
        with pytest.raises(UnavailableError) as caught:
            sink.write([event])
        assert caught.value.retry_after == 77
        assert time.monotonic() - start < 20
    server.fail = 400
    with pytest.raises(RefusedError, match="1 events"):
        sink.write([event])
    server.fail = 0
    sink.write([event])
    assert [(e["iter"], e["value"]) for e in server.events] == [(0, 1.0)]
    sink.close("finished")
    assert server.tasks["task0"]["status"] == "completed"


def test_config_survives_an_outage(server: Any, tmp_path: Path) -> None:
    """What holds for the whole run is sent once the server is back, and nothing twice."""
    sink = opened(run_dir=tmp_path)
    batch = [
        ConfigUpdated(config={"lr": 0.5}, seq=0),
        SummaryUpdated(summary={"best": 2.0}, seq=1),
        StepEvent(values={"v": 1.0}, seq=2),
    ]
    server.fail = 503
    with pytest.raises(UnavailableError):
        sink.write(batch)
    server.fail = 0
    sink.write(batch)
    assert server.tasks["task0"]["hyperparams"]["General"]["lr"]["value"] == "0.5"
    curve = [event for event in server.events if event["metric"] == "v"]
    assert [(event["iter"], event["value"]) for event in curve] == [(0, 1.0)]
    assert any(event["variant"] == "best" for event in server.events)
    server.file_status = 500
    image = ImageEvent(tag="x", blobs=[blob_in(tmp_path, b"png")], step=2, seq=3)
    with pytest.raises(UnavailableError, match="file server"):
        sink.write([image])
    artifact = ArtifactEvent(name="a", path=str(tmp_path / "blobs" / image.blobs[0].sha256), seq=4)
    with pytest.raises(UnavailableError, match="file server"):
        sink.write([artifact])
    server.file_status = 200
    sink.write([image, artifact])
    assert sum(event["type"] == "training_debug_image" for event in server.events) == 1
    sink.close("finished")


def test_a_start_that_fails_leaves_no_second_task(server: Any) -> None:
    """When the server goes away while the task is described, the next try goes on with it."""
    sink = ClearmlSink()
    run = RunInfo(run_id="r-1", project="proj", name="name")
    server.fail, server.fail_on = 503, "tasks.edit_hyper_params"
    with pytest.raises(UnavailableError):
        sink.open(run)
    sink.close("failed")
    server.fail = 0
    sink.open(run)
    sink.write([StepEvent(step=0, values={"v": 1.0}, seq=0)])
    sink.close("finished")
    assert [task["status"] for task in server.tasks.values()] == ["completed"]
    assert len(server.events) == 1


def test_a_run_goes_on_in_its_task(server: Any) -> None:
    """A resumed run has the same task; one that is gone or published is replaced."""
    sink = opened()
    sink.close("killed")
    assert server.tasks["task0"]["status"] == "failed"
    again = opened(state=sink.state())
    assert again.run_id == "task0"
    again.close("interrupted")
    assert server.tasks["task0"]["status"] == "stopped"
    server.tasks["task0"]["status"] = "published"
    for gone in ("task0", "nobody", "offline-0"):
        other = opened(state={"run_id": gone})
        assert other.run_id not in ("task0", gone)
        other.close("finished")


def test_a_run_that_ends_well_has_no_error(server: Any) -> None:
    """What went wrong in a former attempt is not said of the task that has completed."""
    sink = opened()
    sink.write([RunFinished(status="failed", error="boom", seq=0)])
    sink.close("failed")
    again = opened(state=sink.state())
    again.close("finished")
    properties = server.tasks["task0"]["hyperparams"]["properties"]
    assert (properties["status"]["value"], properties["error"]["value"]) == ("finished", "")
    assert server.tasks["task0"]["status_reason"] != "boom"
    other = opened()
    other.close("finished")
    assert "error" not in server.tasks["task1"]["hyperparams"]["properties"]


def test_a_server_that_is_not_there(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed port is an outage, also in mid-run; missing credentials are a refusal."""
    sink = opened()
    server.close()
    start = time.monotonic()
    with pytest.raises(UnavailableError, match="not there"):
        opened()
    with pytest.raises(UnavailableError):
        sink.write([StepEvent(step=0, values={"v": 1.0}, seq=0)])
    with pytest.raises(UnavailableError):
        sink.close("finished")
    assert time.monotonic() - start < 20
    monkeypatch.delenv("CLEARML_API_ACCESS_KEY")
    monkeypatch.delenv("CLEARML_API_SECRET_KEY")
    with pytest.raises(RefusedError, match=r"clearml-init.* offline=True"):
        opened()


def test_an_offline_run_is_imported(server: Any, tmp_path: Path) -> None:
    """ClearML's own importer takes the folder, with points, texts, files and artifacts."""
    from clearml import Task

    artifact = tmp_path / "model.bin"
    artifact.write_bytes(b"weights")
    sink = ClearmlSink(offline=True, dir=tmp_path)
    run = RunInfo(run_id="r-1", project="proj", name="name", config={"lr": 0.1}, run_dir=tmp_path)
    sink.open(run)
    image = blob_in(tmp_path, b"png")
    sink.write(
        [
            StepEvent(step=4, values={"train/loss": 0.5}, wall=WALL, seq=0),
            TextEvent(tag="note", text="hello", step=1, seq=1),
            ImageEvent(tag="x", blobs=[image], step=2, seq=2),
            FigureEvent(tag="fig", blob=image, step=3, seq=3),
            ArtifactEvent(name="model", path=str(artifact), seq=4),
        ]
    )
    sink.close("failed")
    assert not Task.is_offline()
    task_id = Task.import_offline_session(f"{sink.url}.zip")
    task = server.tasks[task_id]
    assert task["hyperparams"]["General"]["lr"]["value"] == "0.1"
    assert task["hyperparams"]["properties"]["status"]["value"] == "failed"
    found = {event["type"]: event for event in server.events}
    assert all(event["task"] == task_id for event in server.events)
    scalar = found["training_stats_scalar"]
    assert (scalar["metric"], scalar["variant"], scalar["iter"]) == ("loss", "train", 4)
    assert (scalar["value"], scalar["timestamp"]) == (0.5, WALL // 1_000_000)
    assert found["log"]["msg"] == "note [step 1]: hello"
    assert found["training_debug_image"]["url"].startswith(server.url)
    assert f'"source": "{server.url}/' in found["plot"]["plot_str"]
    assert sorted(server.files.values()) == [b"png", b"png", b"weights"]
    assert task["execution"]["artifacts"][0]["uri"].startswith(server.url)
