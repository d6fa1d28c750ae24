"""`Link`: what goes to an Aim server, in the sink's own thread, with an end to every wait.

Aim's client hands what it writes to a thread with a queue of its own. There, a message is lost
from sight: `track` returns at once, a server that is away makes `close` wait for ever, an error
ends the thread with a traceback and everything after it waits in vain. A `Link` takes the place of
that queue: it keeps the instructions, sends them when it is told to, and raises what went wrong.
What was not answered stays, in order, and goes first the next time; all instructions set something
to a value, so that one that arrives twice does no harm.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from eventlog.exceptions import RefusedError, UnavailableError

__all__ = ["Link", "bounded"]

ANSWER = 20.0
"""Seconds to wait for the server's answer, and for all answers of one `send` together."""

_INSTRUCTIONS = 2000
_BYTES = 4 * 2**20
_TOO_BIG = 1009
_FORGOTTEN = "UnauthorizedRequestError"
"""What a server says that was restarted, or has not heard of us for minutes."""


class Link:
    """The way to an Aim server, in place of the queue of Aim's own client.

    Args:
        client: The client of an `aim.Repo` that nobody else uses.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._owner = threading.get_ident()
        self._lock = threading.RLock()
        self._pending: deque[Any] = deque()
        self._packed: deque[list[Any]] = deque()
        self._broken = False
        self._messages = importlib.import_module("aim.ext.transport.message_utils")
        self._failures: tuple[type[Exception], ...] = (
            OSError,
            EOFError,
            importlib.import_module("websockets.exceptions").WebSocketException,
        )
        _end_worker(client)
        client._queue = self
        client.run_instruction = self.instruct
        client.refresh_ws = self._dial

    @property
    def pending(self) -> bool:
        """Whether something was not sent, or not answered."""
        return bool(self._pending or self._packed)

    # -- what Aim's own objects call ------------------------------------------------------------

    def instruct(
        self, queue_id: Any, resource: str, method: str, args: Any = (), is_write_only: bool = False
    ) -> Any:
        """Keep an instruction that writes; send one that reads, after those that wait."""
        if is_write_only:
            self._pending.append((resource, method, args))
            return None
        read = self._client._run_read_instructions
        with bounded():
            try:
                return read(queue_id, resource, method, args)
            except Exception as error:
                if type(error).__name__ != _FORGOTTEN:
                    raise
            with self._lock:
                self._break()
                self._connection()
            return read(queue_id, resource, method, args)

    def register_task(self, client: Any, task: Any, instructions: list[Any]) -> None:
        """Keep instructions that are encoded already."""
        if instructions:
            self._packed.append(instructions)

    def wait_for_finish(self) -> None:
        """Send what waits; a thread of Aim's own does not wait for that."""
        if threading.get_ident() == self._owner:
            self.send()

    def stop(self) -> None:
        """Nothing to stop: there is no thread."""

    # -- what the sink calls --------------------------------------------------------------------

    def send(self) -> None:
        """Send what waits.

        Raises:
            UnavailableError: The server did not take all; the rest stays.
            RefusedError: It refused some, which are dropped; the rest is sent.
        """
        refused: list[str] = []
        until = time.monotonic() + ANSWER
        with self._lock, bounded():
            alone = 0
            while self.pending:
                size, message = self._next(1 if alone else _INSTRUCTIONS)
                problem = self._exchange(message, until)
                if problem is not None and size > 1:
                    alone = size  # one of them is to blame: each by itself
                    continue
                if problem is not None:
                    refused.append(problem)
                self._drop(size)
                alone = max(0, alone - 1)
        if refused:
            raise RefusedError(f"the Aim server refused {len(refused)} instructions: {refused[0]}")

    def close(self, handlers: list[str]) -> None:
        """Tell the server that its resources are not needed any more, and end the connection."""
        client = self._client
        self._end_threads()
        with contextlib.suppress(Exception), bounded():
            for handler in handlers:
                with contextlib.suppress(KeyError):  # the client's own table forgot it
                    client.release_resource(-1, handler)
            self._break()
            client.disconnect()

    def abandon(self) -> None:
        """Let go of a server that is away; what waits is lost to this process."""
        self._end_threads()
        self._break()
        self._pending.clear()
        self._packed.clear()

    def _end_threads(self) -> None:
        sender = self._client._heartbeat_sender
        sender._shutdown = True
        sender._started = False  # its stop() would wait for the thread's nap to end

    def _next(self, most: int) -> tuple[int, bytes]:
        """Return how many instructions the next message has, and the message."""
        pack, encode = self._messages.pack_args, self._messages.encode_tree
        if self._packed and not self._pending:
            return 1, pack(iter(self._packed[0]))
        size = min(most, len(self._pending))
        while True:
            chosen = [self._pending[at] for at in range(size)]
            message = pack(encode(chosen, strict=False))
            if len(message) <= _BYTES or size == 1:
                return size, message
            size = max(1, size * _BYTES // (2 * len(message)))

    def _drop(self, size: int) -> None:
        if self._packed and not self._pending:
            self._packed.popleft()
            return
        for _ in range(size):
            self._pending.popleft()

    def _exchange(self, message: bytes, until: float) -> str | None:
        """Send a message and wait for its answer; return why the server refused it, if it did."""
        error: Exception = TimeoutError(f"no answer within {ANSWER:g} s")
        for last in (False, True):
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                connection = self._connection()
                connection.send(message)
                answer = connection.recv(timeout=left)
            except self._failures as problem:
                error = problem
                self._break()
                if getattr(getattr(problem, "rcvd", None), "code", None) == _TOO_BIG:
                    return f"{len(message)} bytes in one message are too many for it"
                if isinstance(problem, TimeoutError):
                    break
                continue
            if answer == b"OK":
                return None
            self._break()  # the server listens no more after an error
            said = self._messages.decode_tree(self._messages.unpack_args(answer))
            if said.get("class_name") == _FORGOTTEN and not last:
                continue  # it has forgotten us: a new connection makes it know us again
            return f"{said.get('class_name')}: {said.get('message')}"
        where = self._client.remote_path
        reason = f"{type(error).__name__}: {error}"
        raise UnavailableError(f"the Aim server at {where} does not take it: {reason}") from error

    def _connection(self) -> Any:
        client = self._client
        if self._broken:
            try:
                client.reconnect()
            except Exception as error:
                # whatever answers for a server that is away, down to a proxy's page of HTML
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
            self._broken = False
        if client._ws is None:
            self._dial()
        return client._ws

    def _dial(self) -> None:
        """Connect, in place of the client's own way, whose arguments websockets warns of."""
        client = self._client
        connect = importlib.import_module("websockets.sync.client").connect
        given = {} if client.ssl_context is None else {"ssl": client.ssl_context}
        address = f"{client._ws_protocol}{client._tracking_endpoint}/{client.uri}"
        connection = connect(
            f"{address}/write-instruction/",
            additional_headers=client.request_headers,
            max_size=None,
            open_timeout=ANSWER / 2,
            **given,
        )
        client._ws = connection.__enter__()  # newer ones warn where nobody does that
        # a peer that does not read any more must not hold us up
        with contextlib.suppress(AttributeError, OSError):
            limit = struct.pack("ll", int(ANSWER), 0)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _break(self) -> None:
        connection, self._client._ws = self._client._ws, None
        self._broken = True
        if connection is None:
            return
        connection.close_timeout = 0.5
        with contextlib.suppress(Exception):
            connection.close()


def _end_worker(client: Any) -> None:
    """End the thread that the client's own queue has; nothing was given to it yet."""
    queue = client._queue
    queue._shutdown = True
    # it looks at that after the next task, which is an empty one
    queue._queue.put((lambda *_: None, ([],)))


class _Requests:
    """The module `requests`, with an end to waiting where Aim's client sets none."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def get(self, url: str, **given: Any) -> Any:
        return self._module.get(url, **_with_end(given))

    def post(self, url: str, **given: Any) -> Any:
        return self._module.post(url, **_with_end(given))


def _with_end(given: dict[str, Any]) -> dict[str, Any]:
    most = ANSWER / 2
    return given | {"timeout": min(given.get("timeout") or most, most)}


_swap = threading.Lock()
_swapped = 0


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Within this, no request of Aim's client waits for ever."""
    global _swapped
    module: Any = importlib.import_module("aim.ext.transport.client")
    with _swap:
        if _swapped == 0:
            module.requests = _Requests(module.requests)
        _swapped += 1
    try:
        yield
    finally:
        with _swap:
            _swapped -= 1
            if _swapped == 0:
                module.requests = module.requests._module
