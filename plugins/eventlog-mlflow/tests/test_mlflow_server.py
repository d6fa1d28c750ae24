"""The sink and a real MLflow server on loopback: slow, refusing, stopped and started again."""

from __future__ import annotations

import contextlib
import email.utils
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog.delivery import Retry
from eventlog.events import ArtifactEvent, Event, Scalar, StepEvent, TextEvent
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_mlflow import MlflowSink, sdk

WALL = 1_700_000_000_123_456_789

Opener = Callable[..., MlflowSink]


def steps(first: int, last: int) -> list[Event]:
    return [
        StepEvent(step=n, values={"loss": n / 3, "nan": float("nan")}, wall=WALL + n, seq=n)
        for n in range(first, last)
    ]


def shown(uri: str, run_id: str | None, key: str = "loss") -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    with sdk.calls():
        history = MlflowClient(uri).get_metric_history(str(run_id), key)
        return sorted((metric.step, metric.value) for metric in history)


def wait_until(holds: Callable[[], object]) -> None:
    """Wait for what other threads do."""
    deadline = time.monotonic() + 40
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Proxy:
    """Passes bytes on to a port, late, or not at all.

    Attributes:
        delay: Seconds before each piece of an answer.
        lose: How many answers are cut off: the server has the request, and nobody hears of it.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self.uri = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.delay = 0.0
        self.lose = 0
        self._start(self._accept)

    def _start(self, function: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                self._start(self._pass_on, client, server, False)
                self._start(self._pass_on, server, client, True)

    def _pass_on(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers and self.lose:
                    self.lose -= 1
                    break
                if answers and self.delay:
                    self._ended.wait(self.delay)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Refuse and cut off everything."""
        self._ended.set()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def proxy(server: Any) -> Iterator[Proxy]:
    found = Proxy(server.port)
    yield found
    found.close()


def test_a_run_goes_to_a_server(server: Any, opened: Opener, tmp_path: Path) -> None:
    """Points, params, tags, files and the status arrive, and there is a page to look at."""
    run = RunInfo(run_id="online", project="online", name="n", tags=("red",), config={"a": ""})
    file = tmp_path / "odd name#1.bin"
    file.write_bytes(b"x" * 3_000_000)
    sink = opened(run, tracking_uri=server.uri)
    sink.write(steps(0, 1500))
    values = {"Loss": 1.0, "loss/x": 2.0, "é": float("inf")}
    sink.write(
        [
            StepEvent(step=1, values={**values, "word": "up"}, wall=WALL, seq=1500),
            TextEvent(step=1, tag="t/ü", text="täxt", wall=WALL, seq=1501),
            ArtifactEvent(name="big", path=str(file), wall=WALL, seq=1502),
        ]
    )
    sink.close("failed")
    assert shown(server.uri, sink.run_id) == [(n, n / 3) for n in range(1500)]
    assert len(shown(server.uri, sink.run_id, "nan")) == 1500
    found = sink.tracker.get_run(sink.run_id)
    assert found.info.status == "FAILED"
    assert found.data.params == {"a": ""}
    assert (found.data.tags["red"], found.data.tags["word"]) == ("true", "up")
    # the server's database might not know Loss from loss
    assert {"Loss_2", "loss/x", "é"} < set(found.data.metrics)
    assert sink.unshown == {"infinity shown as 1.797e308": 1}
    for path, contents in (
        ("texts/t/_/step_00000001_1-1501.md", "täxt".encode()),
        ("artifacts/big/odd name_1.bin", file.read_bytes()),
    ):
        local = sink.tracker.download_artifacts(sink.run_id, path)
        assert Path(local).read_bytes() == contents
    assert sink.url == (
        f"{server.uri}/#/experiments/{found.info.experiment_id}/runs/{found.info.run_id}"
    )


def test_a_server_that_stops_and_comes_back(server: Any, tmp_path: Path) -> None:
    """What is logged while the server is away arrives when it is back, and all of it once."""
    run = eventlog.Run(
        "restart",
        dir=tmp_path,
        sinks={"mlflow": {"tracking_uri": server.uri, "isolate": False}},
        retry=Retry(first=0.05, most=0.3),
    )
    try:
        for step in range(100):
            run.step(loss=step / 3)
        wait_until(lambda: run.statistics().sinks["mlflow"].delivered > 100)
        server.stop()
        for step in range(100, 200):
            run.step(loss=step / 3)
        wait_until(lambda: run.sink("mlflow").state == "retrying")
        run.text("t", "while it was away")
    finally:
        server.start()
    for step in range(200, 300):
        run.step(loss=step / 3)
    report = run.close("finished")
    handle = run.sink("mlflow")
    assert not report.left.get("mlflow")
    assert [value for _, value in shown(server.uri, handle.run_id)] == [n / 3 for n in range(300)]
    from mlflow import MlflowClient

    client, run_id = MlflowClient(server.uri), str(handle.run_id)
    assert client.get_run(run_id).info.status == "FINISHED"
    assert len(client.list_artifacts(run_id, "texts/t")) == 1


def test_a_lost_answer_does_no_harm(server: Any, proxy: Proxy, opened: Opener) -> None:
    """What the server took without the sink's hearing of it is there once."""
    sink = opened(RunInfo(run_id="lost", project="lost"), tracking_uri=proxy.uri)
    proxy.lose = 1
    with pytest.raises(UnavailableError):
        sink.write(steps(0, 20))
    assert len(shown(server.uri, sink.run_id)) == 20
    sink.write(steps(0, 30))
    assert shown(server.uri, sink.run_id) == [(n, n / 3) for n in range(30)]
    assert len(shown(server.uri, sink.run_id, "nan")) == 30


def test_a_slow_server(server: Any, proxy: Proxy, opened: Opener) -> None:
    """A server that takes its time gets everything; one that never answers is an outage."""
    sink = opened(RunInfo(run_id="slow", project="slow"), tracking_uri=proxy.uri)
    proxy.delay = 0.3
    sink.write(steps(0, 20))
    assert len(shown(server.uri, sink.run_id)) == 20
    proxy.delay = 30.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sdk._FORCED, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="timed out"):
            sink.write(steps(20, 30))
        assert time.monotonic() - begun < 10
    proxy.close()
    sink._started = False


def test_a_server_that_is_not_there(proxy: Proxy, opened: Opener) -> None:
    """A closed port is an outage within seconds, when opening and when writing."""
    sink = opened(RunInfo(run_id="gone", project="gone"), tracking_uri=proxy.uri)
    proxy.close()
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match="refused"):
        sink.write(steps(0, 3))
    sink._started = False
    with pytest.raises(UnavailableError, match="refused"):
        opened(RunInfo(run_id="r"), tracking_uri=proxy.uri)
    assert time.monotonic() - begun < 10


class StandIn:
    """A server that answers everything in the same way."""

    def __init__(self, status: int, headers: dict[str, str], body: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_POST = do_PUT = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.mark.parametrize(
    ("status", "wait", "body", "error", "retry_after"),
    [
        (429, "7", "", UnavailableError, 7),
        (503, "date", "", UnavailableError, 60),
        (503, None, "", UnavailableError, None),
        (429, "soon", "{}", UnavailableError, None),
        (500, None, '{"error_code": "INTERNAL_ERROR"}', UnavailableError, None),
        (401, None, "who are you", UnavailableError, None),
        (200, None, "<html>please log in</html>", UnavailableError, None),
        (400, None, '{"error_code": "INVALID_PARAMETER_VALUE"}', RefusedError, None),
        (413, None, "too much", RefusedError, None),
    ],
)
def test_what_a_server_says(
    status: int,
    wait: str | None,
    body: str,
    error: type[Exception],
    retry_after: float | None,
    opened: Opener,
) -> None:
    """What may pass is tried again, when the server says; what will not is refused."""
    headers = {}
    if wait is not None:
        date = email.utils.formatdate(time.time() + 60, usegmt=True)
        headers["Retry-After"] = date if wait == "date" else wait
    server = StandIn(status, headers, body)
    try:
        with pytest.raises(error) as caught:
            opened(RunInfo(run_id="r", project="p"), tracking_uri=server.uri)
    finally:
        server.close()
    if isinstance(caught.value, UnavailableError):
        found = caught.value.retry_after
        assert found == (None if retry_after is None else pytest.approx(retry_after, abs=5))


def test_an_answer_that_is_cut_amid_its_headers_refuses_nothing(opened: Opener) -> None:
    """A 404 with neither a body nor its length is not all that a server said: it may pass."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.recv(65536)
                    client.sendall(b"HTTP/1.1 404 NOT FOUND\r\nserver: uvicorn\r\n")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        with pytest.raises(UnavailableError):
            opened(tracking_uri=f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def test_requests_are_small_enough(server: Any, opened: Opener) -> None:
    """Long names in long batches stay below what MLflow takes in one request."""
    sink = opened(RunInfo(run_id="long", project="long"), tracking_uri=server.uri)
    values: dict[str, Scalar] = {f"{n}" + "é" * 246: float(n) for n in range(1200)}
    sink.write([StepEvent(step=0, values=values, wall=WALL, seq=0)])
    assert len(sink.tracker.get_run(sink.run_id).data.metrics) == 1200
    assert json.dumps(sink.state())
