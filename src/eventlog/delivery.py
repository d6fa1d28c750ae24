"""Delivery: from a source to sinks, each at its own pace, each alone with its failures.

It is a set of tasks on an anyio loop, one for each sink. A task pulls from its subscription, gives
the batch to its sink, and moves its mark once the sink has confirmed. Nothing that one sink does
reaches another, or whoever emits.
"""

from __future__ import annotations

import logging

import anyio

from eventlog._loop import Waker
from eventlog._terms import DEADLINES, RETRY, Deadlines, Retry
from eventlog.log.source import Source
from eventlog.port import Port, PortState, SinkStatistics

__all__ = [
    "DEADLINES",
    "RETRY",
    "Deadlines",
    "Delivery",
    "Port",
    "PortState",
    "Retry",
    "SinkStatistics",
]

logger = logging.getLogger("eventlog")


class Delivery:
    """The ports of one source.

    Args:
        source: The log.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.ports: dict[str, Port] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._stop: Waker | None = None
        self._stopped = False

    def add(self, port: Port) -> None:
        """Add a sink; delivery to it starts at once, or with `run`.

        Raises:
            ValueError: The alias is taken.
        """
        if port.alias in self.ports:
            raise ValueError(f"there is already a sink with the alias {port.alias!r}")
        self.ports[port.alias] = port
        if self._stopped:
            port.stop()
        if self._group is not None:
            self._group.start_soon(self._run_port, port)

    async def run(self) -> None:
        """Deliver everything to every sink until the source has ended."""
        self._stop = Waker()
        if self._stopped:
            self._stop_ports()
        async with anyio.create_task_group() as outer:
            outer.start_soon(self._wait_for_stop, self._stop)
            async with anyio.create_task_group() as group:
                self._group = group
                for port in self.ports.values():
                    group.start_soon(self._run_port, port)
            outer.cancel_scope.cancel()

    async def _wait_for_stop(self, stop: Waker) -> None:
        await stop.wait()
        self._stop_ports()

    def _stop_ports(self) -> None:
        for port in self.ports.values():
            port.stop()

    def stop(self) -> None:
        """Give up what is not delivered yet; from any thread. It stays in the log."""
        self._stopped = True
        if self._stop is not None:
            self._stop()

    def hurry(self, seq: int) -> None:
        """Have no sink rest until all before `seq` is flushed; from any thread."""
        for port in tuple(self.ports.values()):
            port.hurry(seq)

    async def _run_port(self, port: Port) -> None:
        try:
            await port.run(self._source)
        except Exception as error:
            # a fault of ours: the other sinks go on
            logger.exception("eventlog: delivery to %r failed", port.alias)
            port.state = "failed"
            port.error = f"{type(error).__name__}: {error}"
            port.end()
