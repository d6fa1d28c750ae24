"""Sinks that talk back: on the bus that feeds them, and to the run."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from eventlog import EventBus, Sink, StepEvent
from eventlog.events import Event
from eventlog.testing import MemorySink

FIRST = 600
"""More than a batch has."""


class Echo(Sink):
    """Says again on its bus what it is given; what was said again, it does not."""

    bus: EventBus
    name = "echo"

    def write(self, batch: Sequence[Event]) -> None:
        for event in batch:
            if "heard" in event.values:
                self.bus.emit(StepEvent(values={"echoed": event.values["heard"]}))


class AsyncEcho(Echo):
    """The same in the loop."""

    async def write(self, batch: Sequence[Event]) -> None:  # type: ignore[override]
        super().write(batch)


@pytest.mark.parametrize("kind", [Echo, AsyncEcho])
async def test_a_sink_that_emits_on_its_own_bus_is_fed_that_too(kind: type[Echo]) -> None:
    """Nothing waits for itself, all comes once and in order, and the account is exact."""
    echo, good = kind(), MemorySink()
    async with EventBus(sinks={"echo": echo, "good": good}) as bus:
        echo.bus = bus
        for number in range(FIRST):
            assert bus.emit(StepEvent(values={"heard": number}))
        with anyio.fail_after(30):
            while len(good.events) < 2 * FIRST:  # noqa: ASYNC110 - set by any thread
                await anyio.sleep(0.005)
    assert [value for _, value in good.values("heard")] == list(range(FIRST))
    assert [value for _, value in good.values("echoed")] == list(range(FIRST))
    statistics = bus.statistics()
    assert (statistics.log.emitted, statistics.log.written) == (2 * FIRST, 2 * FIRST)
    assert statistics.log.dropped == {}
    for sink in statistics.sinks.values():
        assert (sink.read, sink.delivered, sink.state) == (2 * FIRST, 2 * FIRST, "closed")


@pytest.mark.parametrize("kind", [Echo, AsyncEcho])
async def test_a_sink_that_answers_for_ever_does_not_keep_its_bus_open(kind: type[Echo]) -> None:
    """What it says after the end is counted as dropped, and everything else is delivered."""

    class Endless(kind):  # type: ignore[misc, valid-type]
        def write(self, batch: Sequence[Event]) -> None:
            for _ in batch:
                self.bus.emit(StepEvent(values={"again": 1.0}))

    class AsyncEndless(kind):  # type: ignore[misc, valid-type]
        async def write(self, batch: Sequence[Event]) -> None:
            for _ in batch:
                self.bus.emit(StepEvent(values={"again": 1.0}))

    echo = Endless() if kind is Echo else AsyncEndless()
    good = MemorySink()
    bus = EventBus(sinks={"echo": echo, "good": good})
    echo.bus = bus
    with anyio.fail_after(30):
        async with bus:
            bus.emit(StepEvent(values={"heard": 1.0}))
            while len(good.events) < 5:  # noqa: ASYNC110 - set by any thread
                await anyio.sleep(0.005)
    log = bus.statistics().log
    assert set(log.dropped) == {"closed"}
    assert log.emitted == log.written + sum(log.dropped.values())
    assert len(good.events) == log.written
    assert good.statuses == ["finished"]
