"""A TCP proxy on loopback that stands before a server and misbehaves when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

__all__ = ["LATE", "Fault", "Proxy"]

Fault = Literal["refused", "silent", "late", "cut", "429", "503"]

LATE = 10.0
"""Seconds by which an answer is late."""

_ANSWERS = {
    "429": b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n",
    "503": b"HTTP/1.1 503 Service Unavailable\r\n",
}
_REST = b"Content-Type: text/plain\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot today"


class Proxy:
    """Passes connections on to a port of this machine, but for a fault that is set.

    The faults: ``refused`` has nobody listen; ``silent`` accepts and never answers; ``late``
    holds each answer back for `LATE` seconds; ``cut`` passes the request on, and ends the
    connection in the middle of the answer; ``429`` (with Retry-After) and ``503`` answer so. A
    change of the fault ends all connections, as a server that is started again does.

    Attributes:
        port: Where it listens.
        met: How many connections have met the fault that is set; refused ones are not seen.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._changed = threading.Event()
        self._fault: Fault | None = None
        self.met = 0
        self._listener: socket.socket | None = None
        self.port = 0
        self._listen()

    @property
    def uri(self) -> str:
        """The address to give to a client."""
        return f"http://127.0.0.1:{self.port}"

    def fail(self, fault: Fault) -> None:
        """Misbehave from now on."""
        self._change(fault)
        if fault == "refused":
            self._stop_listening()

    def heal(self) -> None:
        """Pass everything on from now on."""
        self._change(None)
        if self._listener is None:
            self._listen()

    def close(self) -> None:
        """Let go of everything."""
        self._stop_listening()
        self._change(None)

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _change(self, fault: Fault | None) -> None:
        with self._lock:
            self._fault, self.met = fault, 0
            self._changed.set()
            self._changed = threading.Event()
            ending, self._open = self._open, []
        for one in ending:
            _end(one)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            fault, changed = self._fault, self._changed
            self._open.append(client)
            self.met += fault is not None
        with client, contextlib.suppress(OSError):
            if fault == "silent":
                changed.wait()
            elif fault in _ANSWERS:
                _take_request(client)
                client.sendall(_ANSWERS[fault] + _REST)
            else:
                self._pass_on(client, fault, changed)

    def _pass_on(
        self, client: socket.socket, fault: Fault | None, changed: threading.Event
    ) -> None:
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            with self._lock:
                if changed is not self._changed:
                    return
                self._open.append(server)
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            while data := server.recv(65536):
                if fault == "cut":
                    client.sendall(data[: len(data) // 2])
                    break
                if fault == "late" and changed.wait(LATE):
                    break
                client.sendall(data)
            _end(client)
            _end(server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _end(target)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _take_request(client: socket.socket) -> None:
    """Read one request: an answer to a part of one would be a connection that is reset."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        piece = client.recv(65536)
        if not piece:
            return
        body += piece
