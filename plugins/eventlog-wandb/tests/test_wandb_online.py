"""Online: a run on a server, outages, and what comes once to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import (
    ArtifactEvent,
    ConfigUpdated,
    Event,
    RunFinished,
    StepEvent,
    TableEvent,
    TextEvent,
)
from eventlog.exceptions import SinkError, UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.media import text_of
from eventlog_wandb.opening import _check_reachable
from eventlog_wandb.session import _core_process

WALL = 1_700_000_000_000_000_000
SHORT = {"settings": {"init_timeout": 2.0, "finish_timeout": 2.0}}


def steps(values: range, seq: int = 0) -> list[Event]:
    return [
        StepEvent(step=s, values={"v": float(s)}, wall=WALL, seq=seq + i)
        for i, s in enumerate(values)
    ]


def opened(server: Any, where: Path, **run: Any) -> WandbSink:
    sink = WandbSink(server=server.url, dir=where, init=SHORT)
    sink.open(RunInfo(run_id="r1", project="p", **run))
    return sink


def values(server: Any) -> list[tuple[int, float]]:
    return [(row["step"], row["v"]) for row in server.rows("r1") if "v" in row]


def test_a_run_reaches_the_server_and_goes_on_there(server: Any, tmp_path: Path) -> None:
    """Rows, config, summary, files and status arrive; a later process adds what is new, once."""
    sink = opened(server, tmp_path, config={"lr": 0.1}, tags=("t",))
    assert sink.url == f"{server.url}/me/p/runs/r1"
    assert sink.confirms == "close"
    sink.write(steps(range(5)))
    sink.write([TextEvent(tag="note", text="hello", step=5, wall=WALL, seq=5)])
    sink.write([ConfigUpdated(config={"lr": 0.2}, seq=6)])
    sink.write([RunFinished(error="no", status="failed", summary={"best": 1}, seq=7)])
    sink.close("failed")
    run = server.runs["r1"]
    assert values(server) == [(s, float(s)) for s in range(5)]
    assert run["exit"] == 1
    assert run["tags"] == ["t"]
    assert '"lr":{"value":0.2}' in run["config"]
    assert '"eventlog/error":"no"' in run["summary"]
    note = server.rows("r1")[5]["note"]
    assert text_of(server.files[note["path"]].decode()) == "hello"

    again = opened(server, tmp_path)  # nothing was confirmed: all comes again
    assert again.tracker.resumed
    again.write(steps(range(5)))
    again.write([TextEvent(tag="note", text="hello", step=5, wall=WALL, seq=5)])
    again.write(steps(range(2, 6), seq=8))
    again.close("finished")
    assert values(server) == [(s, float(s)) for s in [0, 1, 2, 3, 4, 2, 3, 4, 5]]
    assert run["exit"] == 0
    assert "eventlog/error" not in run["summary"]
    assert '"eventlog/status":"finished"' in run["summary"]
    assert [row["_step"] for row in server.rows("r1")] == list(range(10))
    assert _core_process() is None


def test_rows_that_the_summary_only_promises_are_sent(server: Any, tmp_path: Path) -> None:
    """The SDK may send a summary before its rows: rows that did not arrive come again."""
    sink = opened(server, tmp_path)
    sink.write(steps(range(4)))
    sink.close("finished")
    # as if the process had been killed in between
    del server.runs["r1"]["lines"][3], server.runs["r1"]["lines"][2]
    server.runs["r1"]["summary"] = '{"_eventlog": "1:3", "v": 3}'
    again = opened(server, tmp_path)
    again.write(steps(range(6)))
    again.close("finished")
    assert values(server) == [(s, float(s)) for s in range(6)]


def test_artifacts_and_tables_reach_the_server(server: Any, tmp_path: Path) -> None:
    """They are told to the server by their digests, with aliases and metadata."""
    (tmp_path / "model.bin").write_bytes(b"weights")
    path, options = str(tmp_path / "model.bin"), {"wandb": {"aliases": ["best"]}}
    sink = opened(server, tmp_path)
    sink.write(
        [
            ArtifactEvent(name="m", kind="model", path=path, options=options, seq=0),
            TableEvent(tag="t", columns=["a"], rows=[[1]], step=1, seq=1),
        ]
    )
    sink.close("finished")
    # the SDK sends them side by side
    model, table = sorted(server.artifacts, key=lambda told: told["artifactTypeName"] != "model")
    assert (model["artifactCollectionName"], model["artifactTypeName"]) == ("m", "model")
    assert "best" in [each["alias"] for each in model["aliases"]]
    assert table["artifactTypeName"] == "run_table"
    assert server.rows("r1")[0]["t"]["nrows"] == 1


def test_offline_files_of_a_resumed_run_are_one_run_after_sync(server: Any, tmp_path: Path) -> None:
    """`wandb sync` sends what two processes wrote as one run, with all its rows."""
    for rows, status in ((range(5), "failed"), (range(8), "finished")):
        sink = WandbSink(mode="offline", dir=tmp_path)
        sink.open(RunInfo(run_id="r1", project="p"))
        sink.write(steps(rows))
        if status == "failed":
            sink.write([RunFinished(status="failed", error="no", seq=5)])
        sink.close(status)  # type: ignore[arg-type]
    wandb = str(Path(sys.executable).with_name("wandb"))
    env = os.environ | {"WANDB_BASE_URL": server.url, "WANDB_ERROR_REPORTING": "false"}
    subprocess.run([wandb, "sync", "--yes"], env=env, cwd=tmp_path, check=True, capture_output=True)
    assert values(server) == [(s, float(s)) for s in range(8)]
    assert [row["_step"] for row in server.rows("r1")] == list(range(8))
    assert server.runs["r1"]["exit"] == 0
    assert "eventlog/error" not in server.runs["r1"]["summary"]


def test_a_deleted_run_is_begun_anew(server: Any, tmp_path: Path) -> None:
    """An id that W&B does not take again is replaced, which is counted."""
    server.deleted.add("r1")
    sink = opened(server, tmp_path)
    sink.write(steps(range(2)))
    sink.close("finished")
    assert sink.run_id is not None
    assert sink.run_id.startswith("r1-")
    assert len(server.rows(sink.run_id)) == 2
    assert sink.unshown == {"run that was deleted in W&B: a new one was started": 1}


@pytest.mark.parametrize(("status", "error"), [(401, SinkError), (404, SinkError), (503, None)])
def test_refusals_and_outages_are_told_apart(
    server: Any, tmp_path: Path, status: int, error: type[Exception] | None
) -> None:
    """A server that is down may be tried again, one that refuses not; neither leaves a thing."""
    server.status = status
    begun = time.monotonic()
    with pytest.raises(error or UnavailableError) as raised:
        opened(server, tmp_path)
    assert isinstance(raised.value, UnavailableError) == (error is None)
    assert time.monotonic() - begun < 20
    assert _core_process() is None
    assert list(tmp_path.glob("wandb/run-*")) == []


def test_a_server_that_is_not_there_is_named(server: Any, tmp_path: Path) -> None:
    """A closed port is an outage at once, which leaves no folder and no helper."""
    server.close()
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match=server.url.removeprefix("http://")):
        opened(server, tmp_path)
    assert time.monotonic() - begun < 10
    assert list(tmp_path.rglob("*run-*")) == []
    assert _core_process() is None


def test_a_server_behind_a_proxy_is_left_to_the_sdk(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only a proxy can reach is not asked for without it."""
    server.close()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    _check_reachable({"base_url": server.url})
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _check_reachable({"base_url": server.url, "http_proxy": "http://127.0.0.1:9"})
    with pytest.raises(UnavailableError, match="cannot be reached"):
        _check_reachable({"base_url": server.url})


def test_what_an_outage_kept_back_is_not_confirmed(server: Any, tmp_path: Path) -> None:
    """A server that goes away in mid-run delays nothing; close says that not all was sent."""
    sink = opened(server, tmp_path)
    server.status = 503
    begun = time.monotonic()
    sink.write(steps(range(100)))
    sink.flush()
    assert time.monotonic() - begun < 10
    with pytest.raises(UnavailableError, match="wandb sync"):
        sink.close("finished")
    assert _core_process() is None
    server.status = None
    again = opened(server, tmp_path)
    again.write(steps(range(100)))
    again.close("finished")
    assert values(server) == [(s, float(s)) for s in range(100)]
