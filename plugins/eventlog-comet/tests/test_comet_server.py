"""Online use, and uploads of archives, against a stand-in for Comet's server on loopback.

The real server cannot run here. The stand-in knows as much of its protocol as the SDK needs to go
on; that the SDK sends what it should, and what the sink makes of answers, is real.
"""

from __future__ import annotations

import gzip
import http.server
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import Event, StepEvent, TextEvent
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_comet import CometSink

UNPACK: dict[str | None, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}
EXISTS = {"msg": "exists", "sdk_error_code": 90999}


class StandIn(http.server.ThreadingHTTPServer):
    """Keeps what it is sent; experiments exist once they were added."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken: list[tuple[str, Any]] = []
        self.added: set[str] = set()
        self.failure: tuple[int, dict[str, Any]] | None = None
        self.refused: str | None = None
        self.url = f"http://127.0.0.1:{self.server_port}"

    def of(self, end: str) -> list[Any]:
        """Return what came to paths that end so, in order."""
        return [body for path, body in tuple(self.taken) if path.partition("?")[0].endswith(end)]

    def metrics(self) -> list[dict[str, Any]]:
        return [value for body in self.of("/experiment/metric") for value in body["values"]]

    def answer(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        if self.failure is not None:
            return self.failure
        if path.endswith("/metric") and self.refused in [v["metricName"] for v in body["values"]]:
            return 400, {"msg": "no such thing"}
        self.taken.append((path, body))
        if path.endswith("/add/run"):
            key = body["experimentKey"]
            if key in self.added and not body["getOrCreateEnabled"]:
                return 400, EXISTS
            self.added.add(key)
        if path.endswith(("/add/run", "/get/run")):
            return 200, {
                "runId": "run",
                "project_id": "project",
                "focusUrl": f"{self.url}/w/p/",
                "experiment_name": "n",
                "lastOffset": 0,
            }
        return 200, {
            "msg": "4.0.0" if path.endswith("/ver") else "ok",
            "is_alive_beat_duration_millis": 10_000,
            "gpu_monitor_interval_millis": 10_000,
        }


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers in JSON."""

    server: StandIn

    def handle_any(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = UNPACK.get(self.headers.get("Content-Encoding"), bytes)(data)
        try:
            body = json.loads(data)
        except ValueError:
            body = data
        status, answer = self.server.answer(self.path, body)
        sent = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_PUT = handle_any

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("COMET_API_KEY", "k" * 25)
    monkeypatch.delenv("COMET_URL_OVERRIDE", raising=False)
    look_up = socket.getaddrinfo

    def on_loopback(host: Any, *arguments: Any, **options: Any) -> Any:
        assert host in ("127.0.0.1", "localhost"), host
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", on_loopback)
    with StandIn() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def opened(folder: Path, server: StandIn, state: dict[str, Any] | None = None) -> CometSink:
    sink = CometSink(online=True, server=server.url, workspace="w")
    about: dict[str, Any] = {"name": "n", "tags": ("t",), "config": {"a": {"b": 1}}}
    info = RunInfo(run_id="r", project="p", directory=folder, state=state or {}, **about)
    for _ in range(2):
        try:
            sink.open(info)
            return sink
        except UnavailableError:  # the SDK's own patience ended on a busy machine: as delivery does
            continue
    sink.open(info)
    return sink


def steps(first: int, last: int) -> list[Event]:
    return [
        StepEvent(step=s, epoch=0, values={"v": 1.0}, wall=10**18, seq=s)
        for s in range(first, last)
    ]


def test_a_run_online(tmp_path: Path, server: StandIn) -> None:
    """Everything has reached the server when flush returns, and a failure is told as one."""
    sink = opened(tmp_path, server)
    assert sink.url == f"{server.url}/w/p/{sink.run_id}"
    sink.write([*steps(0, 50), TextEvent(tag="t", text="hello", step=3, seq=50)])
    sink.flush()
    assert [(m["step"], m["epoch"], m["metricValue"]) for m in server.metrics()] == [
        (s, 0, 1.0) for s in range(50)
    ]
    assert {m["timestamp"] for m in server.metrics()} == {10**12}
    (added, _) = server.of("/add/run")
    assert (added["projectName"], added["teamName"]) == ("p", "w")
    (text,) = server.of("/asset/upload")
    assert b"hello" in text
    assert b'{"tag":"t"}' in text
    sink.close("failed")
    assert server.of("/add-tags-to-experiment")[0]["addedTags"] == ["t"]
    (parameter,) = (v for b in server.of("/experiment/parameter") for v in b["values"])
    assert (parameter["parameterName"], parameter["parameterValue"]) == ("a/b", 1)
    told = {body["key"]: body["value"] for body in server.of("/log-other")}
    assert (told["Name"], told["run/status"]) == ("n", "failed")
    assert any(body["hasCrashed"] for body in server.of("/update-status"))
    assert list(tmp_path.glob("*.zip")) == []


def test_a_run_goes_on_online(tmp_path: Path, server: StandIn) -> None:
    """A later process goes on with the same experiment, and does not introduce it again."""
    sink = opened(tmp_path, server)
    sink.write(steps(0, 3))
    sink.close("finished")
    again = opened(tmp_path, server, sink.state())
    again.write(steps(0, 5))
    again.close("finished")
    assert server.added == {sink.run_id}
    assert [m["step"] for m in server.metrics() if m["metricName"] == "v"] == [0, 1, 2, 3, 4]
    assert [body["key"] for body in server.of("/log-other")].count("Name") == 1


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ((503, {"msg": "busy"}), UnavailableError),
        ((400, {"msg": "no", "sdk_error_code": 90202}), RefusedError),
        ((400, {"msg": "bad"}), RefusedError),
    ],
)
def test_answers_to_an_open(
    tmp_path: Path, server: StandIn, failure: tuple[int, dict[str, Any]], error: type[Exception]
) -> None:
    """A server's trouble is an outage, a refusal is one; both come within seconds."""
    server.failure = failure
    start = time.monotonic()
    with pytest.raises(error):
        opened(tmp_path, server)
    assert time.monotonic() - start < 30


def test_a_server_that_is_not_there(tmp_path: Path, server: StandIn) -> None:
    """A closed port is an outage."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server.url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnavailableError):
            opened(tmp_path, server)


def test_a_server_that_has_an_outage(tmp_path: Path, server: StandIn) -> None:
    """Meanwhile nothing is confirmed and large batches wait; then each point arrives, once."""
    sink = opened(tmp_path, server)
    sink.write(steps(0, 3))
    sink.flush()
    server.failure = (503, {"msg": "busy"})
    with pytest.raises(UnavailableError):
        sink.write(steps(3, 1100))
    with pytest.raises(UnavailableError):
        sink.flush()
    server.failure = None
    deadline = time.monotonic() + 20
    while not sink.tracker.streamer.has_connection_to_server():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    sink.write(steps(3, 1102))
    sink.flush()
    assert [m["step"] for m in server.metrics()] == [*range(1102)]
    sink.close("finished")
    assert sink.unshown == {}


def test_points_that_are_refused(tmp_path: Path, server: StandIn) -> None:
    """A point that the server will never take does not take others with it, and is counted."""
    sink = opened(tmp_path, server)
    server.refused = "bad"
    values: dict[str, Any] = {"bad": 1.0}
    sink.write([*steps(0, 10), StepEvent(step=1, values=values, seq=10), *steps(11, 20)])
    sink.flush()
    assert [m["step"] for m in server.metrics()] == [*range(10), *range(11, 20)]
    server.failure = (401, {"msg": "key revoked"})
    sink.write(steps(20, 21))
    with pytest.raises(UnavailableError):
        sink.flush()
    server.failure = None
    sink.close("finished")
    assert sink.unshown == {"point that Comet refuses": 1}
    assert 20 in [m["step"] for m in server.metrics()]


def test_uploads_of_several_archives_are_one_experiment(
    tmp_path: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archives of a run and of its resumption go into one experiment, in either order."""
    from comet_ml.offline import upload_single_offline_experiment

    monkeypatch.setenv("COMET_URL_OVERRIDE", f"{server.url}/clientlib/")
    state: dict[str, Any] = {}
    paths = []
    for last in (3, 6):
        sink = CometSink()
        sink.open(RunInfo(run_id="r", project="p", directory=tmp_path, state=state))
        values: dict[str, Any] = {"v": float("nan"), "1\n": float("nan")}
        sink.write([StepEvent(step=s, values=values, seq=s) for s in range(last)])
        sink.close("finished")
        state = sink.state()
        paths.append(str(sink.url))
    for path in reversed(paths):
        assert upload_single_offline_experiment(path, "k" * 25, force_upload=False)
    assert server.added == {sink.run_id}
    found = [(m["metricName"], m["step"], m["metricValue"]) for m in server.metrics()]
    expected = [(name, s, "NaN") for s in (3, 4, 5, 0, 1, 2) for name in ("v", "1_")]
    assert found == expected
