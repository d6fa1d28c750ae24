"""A real Aim server on the loopback: away, back again, slow, refusing, frozen."""

from __future__ import annotations

import importlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run
from eventlog.delivery import Retry
from eventlog.events import BlobRef, Event, ImageEvent, StepEvent, TextEvent
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog.testing.shown import Shown
from eventlog_aim import AimSink
from eventlog_aim import link as link_module

Read = Callable[[Any, "str | None"], Shown]
WALL = 1_700_000_000_000_000_000


def steps(first: int, last: int) -> list[Event]:
    return [
        StepEvent(step=s, values={"loss": s / 4}, wall=WALL + s * 10**9, seq=s)
        for s in range(first, last)
    ]


def opened(address: str, state: dict[str, Any] | None = None, **options: Any) -> AimSink:
    sink = AimSink(repo=address, **options)
    sink.open(RunInfo(run_id="r1", project="p", name="remote", state=state or {}))
    return sink


class Proxy:
    """A TCP relay on the loopback that is as slow, or as silent, as it is told.

    Attributes:
        port: Where it listens.
        delay: Seconds before each piece goes on.
        silent: Whether nothing goes on any more.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.delay = 0.0
        self.silent = False
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._relay, args=(source, sink), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                time.sleep(self.delay)
                if not self.silent:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        """Close all connections, which ends the threads."""
        for each in self._sockets:
            each.close()


@pytest.fixture
def proxy(server: Any) -> Iterator[Proxy]:
    """Return a relay to the server."""
    relay = Proxy(server.port)
    yield relay
    relay.close()


def test_online_mode(server: Any, read_back: Read, tmp_path: Path) -> None:
    """A run into a server shows what one into a folder does."""
    sinks = {"aim": {"repo": server.address}}
    config = {"lr": 0.1, "net": {"layers": [1, 2]}}
    with Run("online", dir=tmp_path, config=config, tags=["red"], sinks=sinks) as run:
        for step in range(50):
            run.step(loss=step / 4)
        run.text("note", "hello")
        run.histogram("h", [1.0, 2.0, 3.0], bins=3)
        run.summary.update({"best": 0.5})
    handle = run.sink("aim")
    assert (handle.error, handle.url) == (None, server.address)
    shown = read_back(server.repo, handle.run_id)
    assert shown.scalars["loss"] == [(s, s / 4) for s in range(50)]
    assert shown.texts == {"note": [(50, "hello")]}
    assert [sum(h) for h, _ in (v for _, v in shown.histograms["h"])] == [3.0]
    assert (shown.config, shown.summary) == ({"lr": 0.1, "net/layers": [1, 2]}, {"best": 0.5})
    assert (shown.status, shown.tags) == ("finished", ["red"])


def test_a_server_that_is_restarted_in_mid_run(
    server: Any, read_back: Read, tmp_path: Path
) -> None:
    """A run goes on while its server is away; all of it arrives, once."""
    retry = Retry(first=0.05, most=0.2)
    sinks = {"aim": {"repo": server.address, "isolate": False}}
    with Run("online", dir=tmp_path, sinks=sinks, retry=retry) as run:
        for step in range(100):
            if step == 30:
                assert run.flush(timeout=20).complete
                server.stop(signal.SIGTERM)
            if step == 60:
                assert not run.flush(timeout=0.5).complete
                server.start()
            run.step(loss=step / 4)
            run.batch(micro=step)
    handle = run.sink("aim")
    assert handle.state == "closed"
    shown = read_back(server.repo, handle.run_id)
    assert shown.scalars == {
        "loss": [(s, s / 4) for s in range(100)],
        "micro [axis=batch]": [(s, float(s)) for s in range(100)],
    }
    assert shown.status == "finished"


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back(server: Any, read_back: Read) -> None:
    """What comes meanwhile is refused for now, at once, and is there once when it comes again."""
    sink = opened(server.address)
    sink.write(steps(0, 10))
    server.stop(signal.SIGKILL)
    lost = [*steps(10, 20), StepEvent(values={"stepless": 1.0}, wall=WALL, seq=20)]
    for _ in range(3):
        started = time.monotonic()
        with pytest.raises(UnavailableError):
            sink.write(lost)
        assert time.monotonic() - started < 10
    server.start()
    sink.write(lost)
    sink.write(steps(30, 35))
    assert sink.state()["seq"] == 34
    sink.close("finished")
    shown = read_back(server.repo, sink.run_id)
    assert [at for at, _ in shown.scalars["loss"]] == [*range(20), *range(30, 35)]
    assert shown.scalars["stepless"] == [(0, 1.0)]
    assert shown.status == "finished"


def test_nobody_listens() -> None:
    """A closed port is an outage, and known at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sink = AimSink(repo=f"aim://127.0.0.1:{port}")
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="no Aim server listens"):
        sink.open(RunInfo(run_id="r1"))
    assert time.monotonic() - started < 10
    sink.close("failed")


@pytest.mark.parametrize(
    ("status", "error", "wait"),
    [("503 Busy", UnavailableError, 7.0), ("404 Not Found", RefusedError, None)],
)
def test_something_else_listens(status: str, error: type[Exception], wait: float | None) -> None:
    """What an HTTP server says that is no Aim server, or not for now, tells which of these."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            for _ in range(2):  # the first connection only looks whether anybody is there
                client, _ = listener.accept()
                with client:
                    if client.recv(65536):
                        head = f"HTTP/1.1 {status}\r\nRetry-After: 7\r\n"
                        client.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(error) as caught:
            opened(f"aim://127.0.0.1:{port}")
        thread.join(10)
    assert getattr(caught.value, "retry_after", None) == wait


def test_a_slow_server(server: Any, proxy: Proxy, read_back: Read) -> None:
    """A batch is one message, so that a long way costs its time once, not for each point."""
    sink = opened(f"aim://127.0.0.1:{proxy.port}")
    proxy.delay = 0.1
    started = time.monotonic()
    sink.write(steps(0, 512))
    assert time.monotonic() - started < 5
    proxy.delay = 0.0
    sink.close("finished")
    assert read_back(server.repo, sink.run_id).scalars["loss"] == [(s, s / 4) for s in range(512)]


@pytest.mark.slow
def test_a_server_that_says_nothing_any_more(
    server: Any, proxy: Proxy, read_back: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait has an end; what was not answered is sent again, and is there once."""
    monkeypatch.setattr(link_module, "ANSWER", 1.0)
    sink = opened(f"aim://127.0.0.1:{proxy.port}")
    sink.write(steps(0, 5))
    proxy.silent = True
    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(UnavailableError):
            sink.write(steps(5, 10))
        assert time.monotonic() - started < 20
    proxy.silent = False
    sink.write(steps(5, 10))
    sink.close("finished")
    assert read_back(server.repo, sink.run_id).scalars["loss"] == [(s, s / 4) for s in range(10)]


def test_an_opening_that_fails_half_way(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try goes on with the run that was begun, and does not begin another."""
    aim = importlib.import_module("aim")
    sink = AimSink(repo=server.address)
    info = RunInfo(run_id="r1", project="p", name="n", config={"lr": 1})
    with monkeypatch.context() as patched:
        patched.setattr(AimSink, "commit", _fail)
        with pytest.raises(UnavailableError):
            sink.open(info)
    begun = sink.run_id
    before = len(aim.Repo(str(server.repo)).list_all_runs())
    sink.open(info)
    assert sink.run_id == begun
    sink.close("finished")
    assert len(aim.Repo(str(server.repo)).list_all_runs()) == before


def _fail(_: object) -> None:
    raise UnavailableError("away")


@pytest.mark.slow
def test_a_server_that_forgot_us(server: Any, read_back: Read) -> None:
    """Questions and instructions to a server that was restarted go to it as new ones."""
    sink = opened(server.address)
    server.stop(signal.SIGTERM)
    server.start()
    assert sink.tracker["eventlog", "status"] == "running"
    sink.write(steps(0, 3))
    sink.close("finished")
    shown = read_back(server.repo, sink.run_id)
    assert (shown.status, len(shown.scalars["loss"])) == ("finished", 3)


def test_close_does_not_wait_for_a_server_that_is_gone(server: Any) -> None:
    """The end of a run has an end, also where the server stays away."""
    sink = opened(server.address)
    sink.write(steps(0, 5))
    server.stop(signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises((UnavailableError, OSError)):
        sink.close("finished")
    assert time.monotonic() - started < 15
    sink.close("finished")


def test_a_run_is_taken_over_from_a_client_that_died(server: Any, read_back: Read) -> None:
    """The server still holds the lock of a process that is gone; the next one goes on."""
    first = opened(server.address)
    first.write(steps(0, 5))
    state = first.state()
    assert first._opened is not None
    first._opened.abandon()  # as a killed process leaves it: the server is told nothing
    second = opened(server.address, state)
    assert second.run_id == first.run_id
    second.write(steps(3, 8))
    second.close("finished")
    assert read_back(server.repo, second.run_id).scalars["loss"] == [(s, s / 4) for s in range(8)]


def test_a_record_that_the_server_refuses(
    server: Any, read_back: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The culprit alone is refused, whole batches are not; the rest arrives."""
    sink = opened(server.address)
    link = sink._opened.link if sink._opened is not None else None
    assert link is not None
    resource = sink.tracker.meta_tree.tree._handler
    link.instruct("x", resource, "no_such_method", (), is_write_only=True)
    sink._curves.commit()
    with pytest.raises(RefusedError, match="no_such_method"):
        link.send()
    sink.write(steps(0, 5))
    sink.close("finished")
    assert read_back(server.repo, sink.run_id).scalars["loss"] == [(s, s / 4) for s in range(5)]


def test_images_and_texts_through_a_server(server: Any, read_back: Read, tmp_path: Path) -> None:
    """Media go the same way, with the bytes that they have."""
    pillow = pytest.importorskip("PIL.Image")
    path = tmp_path / "blobs" / ("a" * 64)
    path.parent.mkdir()
    pillow.new("RGB", (30, 20), (9, 8, 7)).save(path, "PNG")
    sink = AimSink(repo=server.address)
    sink.open(RunInfo(run_id="r1", run_dir=tmp_path))
    blob = BlobRef("a" * 64, path.stat().st_size, "image/png")
    sink.write([ImageEvent(tag="i", blobs=[blob], step=3, seq=0, wall=WALL)])
    sink.write([TextEvent(tag="t", text="x" * 2_000_000, step=3, seq=1, wall=WALL)])
    sink.close("finished")
    shown = read_back(server.repo, sink.run_id)
    assert shown.images == {"i": [(3, path.read_bytes())]}
    assert shown.texts == {"t": [(3, "x" * 2_000_000)]}
