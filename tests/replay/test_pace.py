"""The pace of a replay, on a clock that jumps: exact instants, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog._pace import PacedSource
from eventlog._stream import EventStream
from eventlog.events import Event, StepEvent
from eventlog.exceptions import CodecError
from eventlog.log.source import Block, Reader, TailCache, describe
from eventlog.subscription import Mark, Subscription

MS = 1_000_000


def on_virtual_clock(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run on trio, on a clock that jumps to the next instant when everybody waits."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=clock)


def block_of(first: int, monos: Sequence[int], attempt: int = 1) -> Block:
    """Make a block of steps with these times, in ms."""
    events: list[Event] = [
        StepEvent(mono=mono * MS, step=first + i, attempt=attempt, seq=first + i, wall=mono * MS)
        for i, mono in enumerate(monos)
    ]
    flags, steps = describe(events)
    return Block(
        first, len(events), flags, steps, attempt=attempt, first_time=events[0].wall, size=1,
        events=events,
    )  # fmt: skip


def log_of(*blocks: tuple[int, Sequence[int]], closed: bool = True) -> TailCache:
    """Make a log of blocks: (attempt, times in ms)."""
    cache = TailCache()
    for attempt, monos in blocks:
        cache.append(block_of(cache.end, monos, attempt))
    if closed:
        cache.close()
    return cache


async def arrivals(source: PacedSource, start: int = 0, delay: float = 0.0) -> list[float]:
    """Return when the events come, in ms since the beginning of time."""
    found = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.run)
        stream = EventStream(source, Subscription(source, start=start))
        async for event in stream:
            assert isinstance(event, StepEvent)
            found.append(trio.current_time() * 1e3)
            await trio.sleep(delay)
        stream.close()
        nursery.cancel_scope.cancel()
    return found


def replayed(log: TailCache, speed: float, **more: Any) -> list[float]:
    async def main() -> list[float]:
        begin = trio.current_time() * 1e3
        return [at - begin for at in await arrivals(PacedSource(log, speed), **more)]

    found: list[float] = on_virtual_clock(main)
    return found


@settings(max_examples=50)
@given(
    gaps=st.lists(st.lists(st.integers(0, 5_000), min_size=1, max_size=5), min_size=1, max_size=5),
    speed=st.sampled_from([0.5, 1.0, 3.0, 10.0, 1e6]),
    begin=st.integers(0, 10**9),
)
def test_each_event_comes_when_it_is_due(gaps: list[list[int]], speed: float, begin: int) -> None:
    """As long after the first one as it was emitted after it, divided by the speed: to the us."""
    at = begin
    blocks = []
    for block in gaps:
        monos = []
        for gap in block:
            at += gap
            monos.append(at)
        blocks.append((1, monos))
    monos = [mono for _, block in blocks for mono in block]
    found = replayed(log_of(*blocks), speed)
    assert found == pytest.approx([(mono - monos[0]) / speed for mono in monos], abs=1e-3)


def test_an_attempt_begins_where_the_one_before_ended() -> None:
    """Neither the time that a machine was off is waited for, nor does its clock's zero matter."""
    log = log_of((1, [1000, 1100]), (1, [1250]), (2, [5, 25]), (3, [10**7, 10**7 + 7]))
    assert replayed(log, 1.0) == pytest.approx([0, 100, 250, 250, 270, 270, 277])


def test_an_event_that_was_emitted_before_its_predecessor_is_not_waited_for() -> None:
    """Threads may write a little out of order; the order of the log counts."""
    assert replayed(log_of((1, [100, 80, 150, 149])), 1.0) == pytest.approx([0, 0, 50, 50])


def test_who_is_slow_is_not_slower_for_it() -> None:
    """Time goes on while a sink works: what is due by then comes at once."""
    log = log_of((1, range(0, 100, 10)))
    assert replayed(log, 1.0, delay=0.025) == pytest.approx(
        [0, 25, 50, 75, 100, 125, 150, 175, 200, 225]
    )
    assert replayed(log, 1.0, delay=0.005) == pytest.approx(list(range(0, 100, 10)))


def test_a_replay_that_starts_in_the_middle_waits_for_nothing_before_it() -> None:
    """Time begins with the first event that is asked for."""
    log = log_of((1, [0, 1000, 2000]), (1, [3000, 4000]))
    assert replayed(log, 2.0, start=2) == pytest.approx([0, 500, 1000])


def test_an_empty_log_ends_at_once() -> None:
    """There is nothing to wait for."""
    assert replayed(log_of(), 1.0) == []
    assert replayed(log_of((1, [5])), 1.0, start=1) == []


@pytest.mark.parametrize("speed", [0, -1.0, float("nan")])
def test_a_speed_is_greater_than_0(speed: float) -> None:
    """Everything else is an error."""
    with pytest.raises(ValueError, match="speed must be greater than 0, not"):
        PacedSource(TailCache(), speed)


def test_as_fast_as_it_goes() -> None:
    """An infinite speed is no pace at all."""
    assert replayed(log_of((1, [0, 10**6])), float("inf")) == [0, 0]


def test_two_sinks_keep_the_same_time() -> None:
    """A slow one does not hold up the other, and each gets everything."""

    async def main() -> dict[float, list[float]]:
        source = PacedSource(log_of((1, [0, 100]), (2, [50, 250])), 1.0)
        begin = trio.current_time() * 1e3
        found: dict[float, list[float]] = {}

        async def take(delay: float) -> None:
            stream = EventStream(source, Subscription(source))
            found[delay] = []
            async for _ in stream:
                found[delay].append(trio.current_time() * 1e3 - begin)
                await trio.sleep(delay)

        async with trio.open_nursery() as pace:
            pace.start_soon(source.run)
            async with trio.open_nursery() as nursery:
                for delay in (0.0, 0.15, 1.0):
                    nursery.start_soon(take, delay)
            pace.cancel_scope.cancel()
        return found

    assert on_virtual_clock(main) == {
        0.0: pytest.approx([0, 100, 100, 300]),
        0.15: pytest.approx([0, 150, 300, 450]),
        1.0: pytest.approx([0, 1000, 2000, 3000]),
    }


@pytest.mark.parametrize("first", [0, 1])
def test_sinks_that_resume_at_different_places_both_get_everything(first: int) -> None:
    """Who is behind catches up at once; nobody is told of the end before its own."""

    async def main() -> list[list[int]]:
        source = PacedSource(log_of((1, [0, 10_000]), (2, [0, 100, 9_000])), 1.0)
        found: list[list[int]] = [[], []]

        async def take(number: int, at: int) -> None:
            subscription = Subscription(source)
            subscription.restore(Mark(at))
            stream = EventStream(source, subscription)
            async for event in stream:
                found[number].append(event.seq)
            assert subscription.lost == 0

        async with trio.open_nursery() as pace:
            pace.start_soon(source.run)
            async with trio.open_nursery() as nursery:
                with trio.fail_after(100):
                    for number in (first, 1 - first):
                        nursery.start_soon(take, number, (0, 3)[number])
                        await trio.testing.wait_all_tasks_blocked()
            pace.cancel_scope.cancel()
        return found

    assert on_virtual_clock(main) == [[0, 1, 2, 3, 4], [3, 4]]


def test_a_log_that_grows_is_paced_as_well() -> None:
    """New events are let out when they are due, late ones at once; the end is the log's end."""

    async def main() -> list[float]:
        log = log_of((1, [0, 50]), closed=False)
        found: list[float] = []
        begin = trio.current_time() * 1e3

        async def write() -> None:
            await trio.sleep(0.2)
            log.append(block_of(2, [60, 500]))
            log.notify()
            await trio.sleep(0.7)
            log.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            found += [at - begin for at in await arrivals(PacedSource(log, 1.0))]
            found.append(trio.current_time() * 1e3 - begin)
        return found

    assert on_virtual_clock(main) == pytest.approx([0, 50, 200, 500, 900])


class Broken(TailCache):
    """A log of which a block cannot be had, or cannot be understood."""

    def __init__(self, missing: int) -> None:
        super().__init__()
        self.missing = missing

    def open_reader(self) -> Reader:
        inner, missing = super().open_reader(), self.missing

        class Gap:
            def read(self, seq: int) -> Block | None:
                block = inner.read(seq)
                return inner.read(block.end) if block and block.first == missing else block

        return Gap()


@pytest.mark.parametrize("missing", [0, 2, 4])
def test_damage_does_not_make_a_paced_replay_wait_for_ever(missing: int) -> None:
    """Also where the last events of a log cannot be read."""
    log = Broken(missing)
    for monos in ([0, 10], [20, 30], [40, 50]):
        log.append(block_of(log.end, monos))
    log.close()
    expected = [
        at for i, at in enumerate([0, 10, 20, 30, 40, 50]) if i not in (missing, missing + 1)
    ]
    begin = expected[0]
    assert replayed(log, 1.0) == pytest.approx([at - begin for at in expected])


def test_a_payload_that_is_not_understood_is_passed_by() -> None:
    """As without a pace: its events are lost, and the rest comes."""
    log = log_of((1, [0, 10]), closed=False)
    block = block_of(2, [20, 30])

    def damaged() -> bytes:
        raise CodecError("no")

    log.append(
        Block(2, 2, block.flags, block.steps, attempt=1, first_time=0, size=1, payload=damaged)
    )
    log.append(block_of(4, [40]))
    log.close()
    assert replayed(log, 1.0) == pytest.approx([0, 10, 40])


def test_what_is_said_of_a_paced_log_is_said_of_the_log() -> None:
    """Its first and last seq, and what is safe."""
    log = log_of((1, [0, 10]), closed=False)
    source = PacedSource(log, 1.0)
    assert (source.first, source.end, source.synced, source.closed) == (0, 2, 2, False)
    heard: list[int] = []
    unlisten = source.listen(lambda: heard.append(1))
    log.notify()
    unlisten()
    log.notify()
    assert heard == [1]
