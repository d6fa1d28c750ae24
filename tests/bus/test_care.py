"""What a sink costs the process that it is in: measured, cut to a length, and said."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog import Run
from eventlog._care import Care, Guest
from eventlog.delivery import Delivery, Port
from eventlog.events import Event, StepEvent
from eventlog.log.inbox import Inbox
from eventlog.log.source import TailCache
from eventlog.log.writer import Writer
from eventlog.sinks.base import RunInfo
from eventlog.subscription import Subscription
from eventlog.testing import AsyncMemorySink, MemorySink


def compute(seconds: float) -> None:
    """Take CPU time, however busy the machine is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(50))


class Computes(MemorySink):
    """Takes CPU time: so much a call, and so much an event, in seconds."""

    def __init__(self, *, once: float = 0.0, each: float = 0.0) -> None:
        super().__init__()
        self._once, self._each = once, each

    def write(self, batch: Sequence[Event]) -> None:
        compute(self._once + self._each * len(batch))
        super().write(batch)


class Sleeps(MemorySink):
    def write(self, batch: Sequence[Event]) -> None:
        time.sleep(0.05)
        super().write(batch)


class AsyncComputes(AsyncMemorySink):
    """Computes, and waits while others do."""

    async def write(self, batch: Sequence[Event]) -> None:
        compute(0.02)
        await anyio.sleep(0.05)
        compute(0.02)
        await super().write(batch)


class AsyncWaits(AsyncMemorySink):
    async def write(self, batch: Sequence[Event]) -> None:
        await anyio.sleep(0.05)
        await super().write(batch)


class Living:
    """A delivery from a log that has not ended yet."""

    def __init__(self) -> None:
        self.source = TailCache()
        self._inbox = Inbox()
        self._writer = Writer(self._inbox, self.source, None)
        self.delivery = Delivery(self.source)

    def port(self, sink: MemorySink | AsyncMemorySink, **options: Any) -> Port:
        alias = f"sink {len(self.delivery.ports)}"
        port = Port(
            alias,
            sink,
            Subscription(self.source),
            lambda s: RunInfo(run_id="r", state=s),
            **options,
        )
        self.delivery.add(port)
        return port

    def steps(self, number: int) -> None:
        for step in range(number):
            self._inbox.put(StepEvent(step=step, mono=step + 1, values={"x": 1.0}))
        self._writer.turn()

    @asynccontextmanager
    async def running(self) -> Any:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(self.delivery.run)
                yield
                self._writer.stop(None)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - a condition of another thread
            await anyio.sleep(0.001)


# -- statistics -------------------------------------------------------------------------------


async def test_what_a_sink_costs_is_in_the_statistics() -> None:
    """CPU time is told from time that is only waited, also among sinks that share the loop."""
    log = Living()
    ports = [
        log.port(sink) for sink in (Computes(once=0.04), Sleeps(), AsyncComputes(), AsyncWaits())
    ]
    log.steps(1)
    async with log.running():
        pass
    computes, sleeps, in_loop, waits = (port.statistics() for port in ports)
    assert computes.cpu >= 0.04
    assert computes.busy >= 0.04
    assert sleeps.busy >= 0.05
    assert sleeps.cpu < 0.04
    assert in_loop.cpu >= 0.04
    assert in_loop.busy >= 0.09
    assert waits.busy >= 0.05
    assert waits.cpu < 0.04
    # open, write, flush and close
    assert [port.statistics().calls for port in ports] == [4, 4, 4, 4]


def test_a_run_says_what_its_sinks_cost(tmp_path: Path) -> None:
    """Wherever they are: of one in the sidecar it is the sidecar that pays."""
    sinks = {"here": Computes(once=0.02), "there": {"sink": "log", "isolate": True}}
    with Run("p", dir=tmp_path, sinks=sinks) as run:
        run.step(loss=1.0)
    statistics = run.statistics().sinks
    assert statistics["here"].cpu >= 0.02
    assert statistics["there"].calls >= 4
    assert statistics["there"].busy >= statistics["there"].cpu > 0


# -- parts ------------------------------------------------------------------------------------


async def test_batches_are_cut_by_time() -> None:
    """A sink that takes long for each event is given few at once; all come, in order."""
    log = Living()
    sink = Computes(each=0.001)
    port = log.port(sink, care=Care(slice=0.004))
    log.steps(300)
    async with log.running():
        await until(lambda: len(sink.events) == 300)
        lengths = [len(batch) for batch in sink.batches]
    assert [event.seq for event in sink.events] == list(range(300))
    assert len(lengths) > 300 / 17
    assert max(lengths[5:]) <= 8
    assert port.statistics().delivered == 300


async def test_a_sink_that_takes_long_for_each_call_has_large_batches() -> None:
    """What a request costs is not multiplied by cutting it to pieces."""
    log = Living()
    sink = Computes(once=0.01, each=0.00001)
    log.port(sink, care=Care(slice=0.004))
    log.steps(3000)
    async with log.running():
        await until(lambda: len(sink.events) == 3000)
        lengths = [len(batch) for batch in sink.batches]
    assert len(lengths) < 30


async def test_at_the_end_nobody_is_held_up() -> None:
    """What is left when the run ends comes in whole batches, without pauses."""
    log = Living()
    sink = Computes(each=0.0001)
    log.port(sink, care=Care(slice=0.001, duty=0.0001), batch=512)
    log.steps(1024)
    log._writer.stop(None)
    async with log.running():
        pass
    assert [len(batch) for batch in sink.batches] == [512, 512]


async def test_a_pause_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever closes a run does not wait for what was to spare the training."""
    monkeypatch.setattr("eventlog._care.LONGEST_PAUSE", 1000.0)
    log = Living()
    sink = Computes(once=0.05)
    port = log.port(sink, care=Care(duty=0.0001))
    log.steps(1)
    async with log.running():
        await until(lambda: port.statistics().delivered == 1)
        log.steps(1)
    assert len(sink.events) == 2
    assert port.state == "closed"


async def test_a_run_that_ends_in_a_pause_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the sink has had, and flushed, all that there is."""
    monkeypatch.setattr("eventlog._care.LONGEST_PAUSE", 1000.0)
    log = Living()
    sink = Computes(once=0.05)
    port = log.port(sink, care=Care(duty=0.0001), flush_every=0.0)
    log.steps(1)
    async with log.running():
        await until(lambda: port.flushed_to == 1)
    assert port.state == "closed"


async def test_a_sink_that_has_everything_looks_for_more_now_and_then() -> None:
    """What comes meanwhile comes together, at the latest when somebody waits for it."""
    log = Living()
    sink = MemorySink()
    port = log.port(sink, care=Care(interval=1000.0), flush_every=1000.0)
    async with log.running():
        log.steps(1)
        await until(lambda: port.statistics().delivered == 1)
        for _ in range(50):
            log.steps(1)
            await anyio.lowlevel.checkpoint()
        assert len(sink.events) == 1
        log.delivery.hurry(51)
        await until(lambda: len(sink.events) == 51)
        log.steps(3)
    assert [len(batch) for batch in sink.batches] == [1, 50, 3]
    assert port.state == "closed"


async def test_a_sink_that_is_behind_does_not_wait_for_more() -> None:
    """The time between two looks is not between the parts of a backlog."""
    log = Living()
    sink = MemorySink()
    log.port(sink, care=Care(interval=1000.0), batch=10)
    log.steps(300)
    async with log.running():
        await until(lambda: len(sink.events) == 300)


async def test_a_backlog_leaves_a_part_of_the_core() -> None:
    """While there is much to catch up, the sink's thread is not at work all the time."""
    log = Living()
    sink = Computes(each=0.0005)
    port = log.port(sink, care=Care(slice=0.005, duty=0.25))
    log.steps(400)
    begun = time.monotonic()
    async with log.running():
        await until(lambda: len(sink.events) == 400)
        seconds = time.monotonic() - begun
    assert seconds > port.statistics().cpu * 2


async def test_without_care_batches_are_whole() -> None:
    """Where nobody trains, in a replay or in the sidecar, there are neither parts nor pauses."""
    log = Living()
    sink = Computes(each=0.00005)
    log.port(sink, batch=512)
    log.steps(1024)
    async with log.running():
        await until(lambda: len(sink.events) == 1024)
    assert [len(batch) for batch in sink.batches] == [512, 512]


@given(
    once=st.floats(0, 0.1),
    each=st.floats(1e-7, 0.1),
    lengths=st.lists(st.integers(1, 512), max_size=20),
)
def test_the_length_follows_the_costs(once: float, each: float, lengths: list[int]) -> None:
    """After some calls, one takes the slice, or as long as makes its own beginning worth it."""
    care = Care()
    guest = Guest(care)
    for length in [*lengths, *(None,) * 30]:
        events = guest.most(512) if length is None else length
        guest.learn(events, once + each * events)
    events = guest.most(512)
    assert 1 <= events <= 512
    wanted = max(care.slice, once / care.overhead)
    if events < 512:
        assert once + each * events <= wanted * 1.5 or events == 1
    if events > 1:
        # neither is it cut to less than what is right
        assert events == 512 or once + each * (events + 1) > care.slice * 0.5


@given(st.lists(st.tuples(st.integers(1, 512), st.floats(0, 1)), max_size=30), st.integers(1, 512))
def test_whatever_is_measured_there_is_a_length(calls: list[tuple[int, float]], limit: int) -> None:
    """Noise makes no batch empty, and none larger than what there is."""
    guest = Guest(Care())
    for events, seconds in calls:
        guest.learn(events, seconds)
        assert 1 <= guest.most(limit) <= limit


# -- the warning ------------------------------------------------------------------------------


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "eventlog")
    return lambda: [r.getMessage() for r in caplog.records if "of a core" in r.getMessage()]


async def test_a_sink_that_takes_too_much_is_named(said: Callable[[], list[str]]) -> None:
    """Once, with what to do about it."""
    log = Living()
    sink = Computes(once=0.02, each=0.02)
    log.port(sink, care=Care(window=0.05), flush_every=0.01)
    async with log.running():
        log.steps(20)
        await until(said)
        await until(lambda: len(sink.events) == 20)
        # as much again as it was named for, several times
        taken = len(sink.events)
        log.steps(20)
        await until(lambda: len(sink.events) == taken + 20)
    (text,) = said()
    assert "sink 'sink 0' takes" in text
    assert "isolate=True" in text
    assert "every=" in text


async def test_a_sink_that_waits_is_not_named(said: Callable[[], list[str]]) -> None:
    """A tracker that is slow costs training nothing."""
    log = Living()
    sink = Sleeps()
    log.port(sink, care=Care(window=0.05, share=0.5), flush_every=0.01)
    async with log.running():
        for written in range(5):
            log.steps(1)
            await until(lambda: len(sink.events) > written)  # noqa: B023
    assert said() == []
