"""The bus on the user's own loop: subscriptions, ends, cancellation, accounting."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from blockbuster import BlockBuster

import eventlog.bus
from eventlog import EventBus, Sink, StepEvent, open_log
from eventlog.bus import EventStream
from eventlog.events import BatchEvent, EpochEvent, Event
from eventlog.exceptions import ClosedError
from eventlog.log.source import TailCache
from eventlog.recorder import Recorder
from eventlog.testing import AsyncFaultySink, AsyncMemorySink, Fault, FaultySink, MemorySink


def step(number: int, **values: float) -> StepEvent:
    return StepEvent(step=number, values=dict(values))


async def collect(stream: EventStream, into: list[Event]) -> None:
    async for event in stream:
        into.append(event)


async def take(stream: EventStream, n: int) -> list[Event]:
    return [await anext(stream) for _ in range(n)]


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a bus keep no more than about 600 events in memory."""

    def recorder(run_dir: Path | None, **options: Any) -> Recorder:
        return Recorder(run_dir, cache=TailCache(max_events=600), **options)

    monkeypatch.setattr(eventlog.bus, "Recorder", recorder)


@pytest.fixture
def no_blocking() -> Iterator[None]:
    """Raise where eventlog blocks a loop."""
    blockbuster = BlockBuster("eventlog")
    blockbuster.activate()
    yield
    blockbuster.deactivate()


async def test_a_subscriber_sees_all_that_is_emitted_after_it_subscribed_in_order() -> None:
    """Events come in the order in which they were emitted, with a seq and a wall time."""
    async with EventBus() as bus, bus.subscribe() as events:
        for i in range(1_000):
            assert bus.emit(step(i, loss=i / 2))
        got = await take(events, 1_000)
    assert [event.step for event in got] == list(range(1_000))
    assert [event.seq for event in got] == list(range(1_000))
    assert all(event.wall > 0 and event.mono > 0 for event in got)


async def test_emitting_from_threads_loses_nothing() -> None:
    """Eight threads emit while the loop reads; each thread's events stay in order."""
    got: list[Event] = []

    def work(bus: EventBus, name: int) -> None:
        for i in range(500):
            bus.emit(step(i, thread=name))

    async with anyio.create_task_group() as group, EventBus() as bus, bus.subscribe() as events:
        group.start_soon(collect, events, got)
        async with anyio.create_task_group() as workers:
            for name in range(8):
                workers.start_soon(to_thread.run_sync, work, bus, name)
        await bus.aclose()
    assert len(got) == 4_000
    for name in range(8):
        assert [e.step for e in got if e.values["thread"] == name] == list(range(500))


async def test_iterators_end_with_the_block_after_all_events() -> None:
    """A consumer outside the block sees every event, and then its loop ends."""
    got: list[Event] = []
    async with anyio.create_task_group() as group, EventBus() as bus, bus.subscribe() as events:
        group.start_soon(collect, events, got)
        for i in range(2_000):
            bus.emit(step(i))
        # the block ends here, and with it, once it has all, the consumer
        await bus.aclose()
    assert [event.step for event in got] == list(range(2_000))


async def test_a_block_that_waits_for_its_own_consumers_closes_the_bus_first() -> None:
    """aclose lets a task group inside the block come to its end; leaving the block is fine."""
    got: list[Event] = []
    async with EventBus() as bus, bus.subscribe() as events, anyio.create_task_group() as group:
        group.start_soon(collect, events, got)
        bus.emit(step(1))
        await bus.aclose()
        await bus.aclose()
        assert not bus.emit(step(2))
    assert [event.step for event in got] == [1]
    assert bus.statistics().log.dropped == {"closed": 1}


async def test_subscribers_with_different_cadences_run_side_by_side() -> None:
    """Each has its own place and its own rule."""
    all_steps: list[Event] = []
    tens: list[Event] = []
    means: list[Event] = []
    epochs: list[Event] = []
    async with (
        anyio.create_task_group() as group,
        EventBus() as bus,
        bus.subscribe(StepEvent) as first,
        bus.subscribe(StepEvent, every="10 steps") as second,
        bus.subscribe(StepEvent, every="10 steps", reduce="mean") as third,
        bus.subscribe(EpochEvent) as fourth,
    ):
        for stream, into in (
            (first, all_steps),
            (second, tens),
            (third, means),
            (fourth, epochs),
        ):
            group.start_soon(collect, stream, into)
        for i in range(100):
            bus.emit(step(i, x=float(i)))
        bus.emit(EpochEvent(epoch=0))
        await bus.aclose()
    assert len(all_steps) == 100
    # the last one passes as well, so that the end of a curve is never missing
    assert [event.step for event in tens] == [*range(0, 100, 10), 99]
    assert sum(e.window.n for e in means if e.window is not None) == 100
    assert [event.epoch for event in epochs] == [0]


async def test_three_metrics_by_three_calls_arrive_at_the_same_steps() -> None:
    """A tick belongs to a step, not to an event."""
    got: list[Event] = []
    async with (
        anyio.create_task_group() as group,
        EventBus() as bus,
        bus.subscribe(StepEvent, every="10 steps") as events,
    ):
        group.start_soon(collect, events, got)
        for i in range(95):
            for name in ("loss", "lr", "grad_norm"):
                bus.emit(step(i, **{name: 1.0}))
        await bus.aclose()
    wanted = [*range(0, 95, 10), 94]
    for name in ("loss", "lr", "grad_norm"):
        assert [event.step for event in got if name in event.values] == wanted


@pytest.mark.usefixtures("small_cache")
async def test_without_a_directory_a_slow_subscriber_loses_and_counts() -> None:
    """What fell out of memory is counted as lost, and the newest events are there."""
    async with EventBus() as bus, bus.subscribe() as events:
        for i in range(5_000):
            bus.emit(step(i))
        await bus.aclose()
        got = [event async for event in events]
        assert got[-1].step == 4_999
        assert events.subscription.lost > 0
        assert events.subscription.lost + len(got) == 5_000


@pytest.mark.usefixtures("small_cache")
async def test_with_a_directory_a_slow_subscriber_reads_the_log_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """What is no longer in memory comes from the files."""
    async with EventBus(dir=tmp_path / "log") as bus, bus.subscribe() as events:
        for i in range(5_000):
            bus.emit(step(i))
        await bus.aclose()
        got = [event async for event in events]
        assert events.subscription.lost == 0
    assert [event.step for event in got] == list(range(5_000))
    assert [e.step for e in open_log(tmp_path / "log").events()] == list(range(5_000))


async def test_cancelling_a_consumer_loses_nothing_and_leaves_the_bus_usable() -> None:
    """A read that is cancelled again and again, between events and while waiting, goes on."""
    got: list[Event] = []
    async with EventBus() as bus, bus.subscribe() as events:
        for i in range(200):
            bus.emit(step(i))
            for _ in range(3):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await events.next_batch()
            if i % 7 == 0:
                got.append(await anext(events))
        with anyio.move_on_after(0.05):
            while True:
                got.append(await anext(events))
        bus.emit(step(200))
        got.append(await anext(events))
    assert [event.step for event in got] == list(range(201))


async def test_cancelling_the_block_writes_what_was_emitted(tmp_path: Path) -> None:
    """A cancelled block ends soon, with its log and its sinks complete, and stays cancelled."""
    sink = MemorySink()
    with anyio.CancelScope() as scope:
        async with EventBus(dir=tmp_path / "log", sinks=[sink]) as bus:
            for i in range(100):
                bus.emit(step(i))
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert len(list(open_log(tmp_path / "log").events())) == 100
    assert len(sink.events) == 100
    assert sink.statuses == ["interrupted"]


async def test_a_cancelled_block_does_not_wait_for_a_sink_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gives the sinks a bounded time only."""
    monkeypatch.setattr(eventlog.bus, "CANCELLED_TIMEOUT", 0.05)
    sink = FaultySink(write=Fault(hang=True))
    with anyio.fail_after(10), anyio.CancelScope() as scope:
        async with EventBus(sinks=[sink]) as bus:
            bus.emit(step(0))
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    sink.release()


async def test_an_exception_in_the_block_comes_out_as_it_is_and_the_bus_drains(
    tmp_path: Path,
) -> None:
    """It is not wrapped in a group; sinks get everything and are told of the failure."""
    sink = MemorySink()
    other = AsyncMemorySink()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
        async with EventBus(dir=tmp_path / "log", sinks={"a": sink, "b": other}) as bus:
            for i in range(100):
                bus.emit(step(i))
            raise ZeroDivisionError
    for each in (sink, other):
        assert len(each.events) == 100
        assert each.statuses == ["failed"]
    assert len(list(open_log(tmp_path / "log").events())) == 100


async def test_a_block_that_ends_well_tells_its_sinks_so() -> None:
    """Sinks of a bus are closed as finished."""
    sink = MemorySink()
    async with EventBus(sinks=[sink]) as bus:
        bus.emit(step(0))
    assert sink.statuses == ["finished"]
    assert bus.statistics().sinks["memory"].state == "closed"


async def test_leaving_the_block_does_not_wait_for_ever_for_a_tracker_that_is_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The end has a deadline, and says what was left."""
    with caplog.at_level(logging.WARNING, "eventlog"), anyio.fail_after(20):
        async with EventBus(sinks=[FaultySink(write=OSError("down"))], close_timeout=0.1) as bus:
            bus.emit(step(0))
    assert "sink 'faulty' has not taken 1 events" in caplog.text
    assert bus.statistics().sinks["faulty"].in_flight == 1


async def test_a_bus_is_used_inside_its_block_only() -> None:
    """Before the block emitting raises; after it events are counted; it is entered once."""
    bus = EventBus()
    with pytest.raises(ClosedError):
        bus.emit(step(0))
    with pytest.raises(ClosedError):
        bus.statistics()
    with pytest.raises(ClosedError):
        await bus.aclose()
    with pytest.raises(ClosedError):
        async with bus.subscribe():
            pass
    async with bus:
        assert bus.emit(step(0))
    assert not bus.emit(step(1))
    assert bus.statistics().log.dropped == {"closed": 1}
    with pytest.raises(ClosedError, match="once"):
        await bus.__aenter__()


async def test_what_is_no_event_is_refused_with_a_reason() -> None:
    """An argument of a wrong type is the caller's error."""
    async with EventBus() as bus:
        with pytest.raises(TypeError, match="event must be an Event, not dict"):
            bus.emit({"loss": 1.0})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="values must be a mapping, not list"):
            bus.emit(StepEvent(values=[1.0]))  # type: ignore[arg-type]


async def test_steps_that_are_none_cost_their_place_and_nothing_else(tmp_path: Path) -> None:
    """Values are kept, and so are the events around them."""
    odd = [-1, 1.5, True, 2**63, 2**64, "x", float("nan")]
    async with EventBus(dir=tmp_path / "log") as bus:
        bus.emit(step(0, x=1.0))
        for number in odd:
            bus.emit(StepEvent(step=number, values={"x": 1.0}))  # type: ignore[arg-type]
        bus.emit(StepEvent(step=7, batch=-3, epoch=float("inf"), values={"x": 1.0}))
        bus.emit(step(8, x=1.0))
    events = list(open_log(tmp_path / "log").events())
    assert [type(e) for e in events] == [StepEvent] * (len(odd) + 3)
    assert [e.step for e in events] == [0, *[None] * len(odd), 7, 8]
    assert all(e.values == {"x": 1.0} for e in events)
    assert bus.statistics().log.dropped == {}


async def test_values_are_a_snapshot() -> None:
    """A dictionary that is changed after emit has no effect on what was emitted."""
    values: dict[str, Any] = {"loss": 1.0}
    async with EventBus() as bus, bus.subscribe() as events:
        bus.emit(StepEvent(step=0, values=values))
        values["loss"] = 2.0
        assert (await anext(events)).values == {"loss": 1.0}


async def test_a_consumer_and_a_sink_may_emit_on_the_bus() -> None:
    """What is emitted in answer to an event is delivered like any other."""

    class Echo(Sink):
        name = "echo"

        def write(self, batch: object) -> None:
            for event in batch:  # type: ignore[attr-defined]
                if isinstance(event, StepEvent):
                    bus.emit(BatchEvent(batch=event.step, values={"from": "sink"}))

    got: list[Event] = []
    async with EventBus(sinks=[Echo()]) as bus, bus.subscribe() as events:
        for i in range(10):
            bus.emit(step(i))
        with anyio.fail_after(10):
            while sum(isinstance(e, BatchEvent) for e in got) < 10:
                got.append(await anext(events))
    assert [e.batch for e in got if isinstance(e, BatchEvent)] == list(range(10))


@pytest.mark.usefixtures("no_blocking")
async def test_the_loop_is_never_blocked(tmp_path: Path) -> None:
    """Opening the log, emitting, delivering, closing: none of it waits for a disk in the loop."""
    got: list[Event] = []
    sinks = {"sync": MemorySink(), "async": AsyncMemorySink()}
    async with (
        anyio.create_task_group() as group,
        EventBus(dir=tmp_path / "log", sinks=sinks) as bus,
        bus.subscribe(StepEvent, every="10 steps") as events,
    ):
        group.start_soon(collect, events, got)
        for i in range(3_000):
            bus.emit(step(i))
            if i % 500 == 0:
                await anyio.sleep(0.005)
        await bus.aclose()
    assert len(sinks["sync"].events) == len(sinks["async"].events) == 3_000
    assert len(got) == 301


async def test_statistics_account_for_everything_at_each_moment() -> None:
    """While threads emit and sinks are slow and refuse, the sums hold and nothing goes back."""
    slow = FaultySink(write=Fault(sleep=0.002), refuse=lambda e: e.step == 77)
    thinned = MemorySink()
    looked: list[eventlog.bus.BusStatistics] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.001):
            looked.append(bus.statistics())

    def work() -> None:
        for i in range(1_000):
            bus.emit(step(i))

    async with EventBus(sinks={"slow": slow, "thin": {"sink": thinned, "every": "9 steps"}}) as bus:
        watcher = threading.Thread(target=look)
        watcher.start()
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(to_thread.run_sync, work)
    ended.set()
    watcher.join()
    looked.append(bus.statistics())
    for one in looked:
        log = one.log
        assert log.emitted == log.written + sum(log.dropped.values()) + log.queued
        for s in one.sinks.values():
            assert s.read == s.delivered + s.filtered + s.dead + s.in_flight
    final = looked[-1]
    assert final.log.emitted == final.log.written == 2_000
    assert final.sinks["slow"].delivered == 1_998
    assert final.sinks["slow"].dead == 2
    assert final.sinks["slow"].in_flight == final.sinks["thin"].in_flight == 0
    thin = final.sinks["thin"]
    assert thin.read == 2_000
    assert thin.delivered == len(thinned.events)


async def test_one_sink_that_hangs_leaves_the_others_alone() -> None:
    """Each sink has its own thread and its own pace."""
    hung = FaultySink(open=Fault(hang=True))
    hung_async = AsyncFaultySink(write=Fault(hang=True))
    good = MemorySink()
    async with EventBus(sinks={"a": hung, "b": hung_async, "c": good}, close_timeout=0.3) as bus:
        for i in range(1_000):
            bus.emit(step(i))
        assert await to_thread.run_sync(good.wait_for, 1_000)
    assert good.statuses == ["finished"]
    states = {alias: s.state for alias, s in bus.statistics().sinks.items()}
    assert states["c"] == "closed"
    assert states["a"] != "closed"
    hung.release()
    hung_async.release()


def test_a_bus_can_be_made_outside_a_loop() -> None:
    """Only entering it needs one."""
    bus = EventBus(sinks=[MemorySink()])

    async def main() -> None:
        async with bus:
            bus.emit(step(0))

    anyio.run(main)
    assert bus.statistics().log.written == 1
