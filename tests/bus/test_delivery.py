"""Delivery: order, isolation, retries with backoff, bisecting, deadlines, accounting."""

import asyncio
import itertools
import sys
import threading
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing

from eventlog import Run, Sink, StepEvent
from eventlog._loop import Waker, in_asyncio, in_loop
from eventlog.delivery import Deadlines, Delivery, Port, Retry, SinkStatistics
from eventlog.events import Event, Flushed, RunFinished, RunStarted
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.keeping import Keeper
from eventlog.log.inbox import Inbox
from eventlog.log.source import TailCache
from eventlog.log.writer import Writer
from eventlog.sinks.base import RunInfo
from eventlog.subscription import Subscription
from eventlog.testing import AsyncFaultySink, AsyncMemorySink, Fault, FaultySink, MemorySink
from eventlog.testing.faults import PanicError

QUICK = Retry(first=0.001, most=0.002)
SHORT = Deadlines(open=0.1, write=0.1, flush=0.1, close=0.1)

_Memory = MemorySink | AsyncMemorySink | FaultySink | AsyncFaultySink


class Log:
    """A log in memory whose writer turns when the test says so, and a delivery from it."""

    def __init__(self) -> None:
        self.source = TailCache()
        self._inbox = Inbox()
        self._writer = Writer(self._inbox, self.source, None)
        self.delivery = Delivery(self.source)

    def emit(self, *events: Event) -> None:
        for event in events:
            self._inbox.put(event)
        self._writer.turn()

    def steps(self, first: int, end: int) -> None:
        self.emit(
            *(StepEvent(step=i, mono=i + 1, values={"x": float(i)}) for i in range(first, end))
        )

    def end(self) -> None:
        self._writer.stop(None)

    def port(self, alias: str, sink: Sink, *, every: str | None = None, **options: Any) -> Port:
        options = {"retry": QUICK, **options}
        subscription = Subscription(self.source, every=every)
        port = Port(alias, sink, subscription, lambda s: RunInfo(run_id="r", state=s), **options)
        self.delivery.add(port)
        return port

    async def run(self) -> None:
        """Deliver all there is; the log ends."""
        self.end()
        with anyio.fail_after(30):
            await self.delivery.run()


def check(s: SinkStatistics) -> SinkStatistics:
    assert s.read == s.delivered + s.filtered + s.dead + s.in_flight
    assert min(s.read, s.delivered, s.filtered, s.dead, s.in_flight) >= 0
    return s


def steps_of(sink: _Memory) -> list[int | None]:
    return [event.step for event in sink.events]


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - a condition of another thread
            await anyio.sleep(0.001)


@pytest.fixture(params=[FaultySink, AsyncFaultySink], ids=["thread", "loop"])
def faulty(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[MemorySink, AsyncMemorySink], ids=["thread", "loop"])
def memory(request: pytest.FixtureRequest) -> Any:
    return request.param


# -- order and threads ------------------------------------------------------------------------


async def test_a_sink_gets_everything_in_the_order_of_the_log(memory: Any) -> None:
    """Batches follow each other without gaps, and none is empty or too large."""
    log = Log()
    sink = memory()
    log.port("a", sink, batch=100)
    for i in range(0, 3_000, 37):
        log.steps(i, i + 37)
    await log.run()
    assert [event.seq for event in sink.events] == list(range(len(sink.events)))
    assert len(sink.events) == 3_034 - 3_034 % 37
    assert all(0 < len(batch) <= 100 for batch in sink.batches)
    assert [call.method for call in sink.calls if call.method != "write"] == [
        "open",
        "flush",
        "close",
    ]


async def test_a_synchronous_sink_has_one_thread_of_its_own() -> None:
    """All four methods are called there, and it is not the loop's."""
    log = Log()
    sinks = [MemorySink(), MemorySink()]
    for i, sink in enumerate(sinks):
        log.port(str(i), sink)
    log.steps(0, 2_000)
    await log.run()
    assert [len(sink.threads) for sink in sinks] == [1, 1]
    assert not sinks[0].threads & sinks[1].threads
    assert threading.get_ident() not in sinks[0].threads | sinks[1].threads


async def test_an_asynchronous_sink_runs_in_the_loop() -> None:
    """Its methods are awaited on the loop's thread."""
    log = Log()
    sink = AsyncMemorySink()
    log.port("a", sink)
    log.steps(0, 10)
    await log.run()
    assert sink.threads == {threading.get_ident()}


async def test_only_write_must_be_async() -> None:
    """The other methods of an asynchronous sink may be plain, or left out."""

    class Small(Sink):
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def write(self, batch: Any) -> None:
            self.seen.append("write")

        def close(self, status: Any) -> None:
            self.seen.append(status)

    log = Log()
    sink = Small()
    log.port("a", sink)
    log.steps(0, 1)
    await log.run()
    assert sink.seen == ["write", "killed"]


async def test_a_port_starts_at_once_when_delivery_goes_on() -> None:
    """A sink may be added later; it gets what the source still has."""
    log = Log()
    first, second = MemorySink(), MemorySink()
    log.port("first", first)
    async with anyio.create_task_group() as group:
        group.start_soon(log.delivery.run)
        log.steps(0, 10)
        await until(lambda: len(first.events) == 10)
        log.port("second", second)
        with pytest.raises(ValueError, match="already a sink with the alias 'second'"):
            log.port("second", MemorySink())
        await until(lambda: len(second.events) == 10)
        log.end()


# -- failures ---------------------------------------------------------------------------------


async def test_an_outage_is_waited_out(faulty: Any) -> None:
    """OSError and UnavailableError are tried again, in each method, for as long as it takes."""
    log = Log()
    down = [Fault(OSError("down"), times=7), Fault(UnavailableError("busy"), times=7, after=7)]
    sink = faulty(open=down, write=down, confirms="flush")
    port = log.port("a", sink)
    log.steps(0, 50)
    await log.run()
    assert steps_of(sink) == list(range(50))
    s = check(port.statistics())
    assert (s.read, s.delivered, s.dead, s.retries, s.state) == (50, 50, 0, 28, "closed")
    assert s.error is None


async def test_a_refused_batch_is_halved_until_only_the_culprits_are_dead(faulty: Any) -> None:
    """The others are delivered, once, in order."""
    log = Log()
    bad = {3, 4, 99, 512, 700}
    sink = faulty(refuse=lambda event: event.step in bad)
    port = log.port("a", sink)
    log.steps(0, 1_000)
    await log.run()
    assert steps_of(sink) == [i for i in range(1_000) if i not in bad]
    s = check(port.statistics())
    assert (s.read, s.delivered, s.dead, s.in_flight) == (1_000, 995, 5, 0)


async def test_an_unknown_error_counts_as_a_refusal_after_a_few_tries(faulty: Any) -> None:
    """What passes by itself costs nothing; what stays costs the events that cause it."""
    log = Log()
    passing = faulty(write=Fault(RuntimeError("hiccup"), times=2))
    log.port("passing", passing)

    class Picky(Sink):
        taken: list[int | None] = []  # noqa: RUF012 - one sink, one test

        def write(self, batch: Any) -> None:
            if any(event.step == 5 for event in batch):
                raise RuntimeError("no 5")
            self.taken.extend(event.step for event in batch)

    Picky.taken = []
    staying = log.port("staying", Picky())
    log.steps(0, 16)
    await log.run()
    assert steps_of(passing) == list(range(16))
    assert Picky.taken == [i for i in range(16) if i != 5]
    assert check(staying.statistics()).dead == 1


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
async def test_what_would_end_a_program_stays_in_the_sink(error: BaseException) -> None:
    """A synchronous sink's SystemExit, interrupt or cancellation is a failure like any other."""
    log = Log()
    bad = FaultySink(write=error)
    good = MemorySink()
    port = log.port("bad", bad)
    log.port("good", good)
    log.steps(0, 4)
    await log.run()
    assert steps_of(good) == [0, 1, 2, 3]
    assert check(port.statistics()).dead == 4
    assert port.statistics().state == "closed"


@pytest.mark.parametrize("method", ["open", "write", "flush", "close"])
@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        asyncio.CancelledError(),
        PanicError("native"),
        BaseExceptionGroup("several", [PanicError("native"), ValueError()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_would_end_a_loop_stays_in_the_asynchronous_sink(
    method: str, error: BaseException
) -> None:
    """The same for a sink in the loop, in each of its methods."""
    log = Log()
    bad = AsyncFaultySink(**{method: error})  # type: ignore[arg-type]
    good = AsyncMemorySink()
    port = log.port("bad", bad)
    log.port("good", good)
    log.steps(0, 4)
    await log.run()
    assert steps_of(good) == [0, 1, 2, 3]
    assert good.statuses == ["killed"]
    assert port.finished
    assert port.statistics().error is not None or check(port.statistics()).dead == 4


def test_an_interrupt_of_an_asynchronous_sink_stays_there_on_delivery_s_own_thread() -> None:
    """Where no Ctrl-C can arrive, a KeyboardInterrupt is the sink's own doing."""
    log = Log()
    bad, good = AsyncFaultySink(write=KeyboardInterrupt()), AsyncMemorySink()
    port = log.port("bad", bad)
    log.port("good", good)
    log.steps(0, 4)
    log.end()
    thread = threading.Thread(target=anyio.run, args=(log.delivery.run,), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert steps_of(good) == [0, 1, 2, 3]
    assert check(port.statistics()).dead == 4


async def test_a_sink_that_does_not_open_is_given_up_after_a_few_tries(faulty: Any) -> None:
    """An error that is no outage will not go away; nothing is read for it."""
    log = Log()
    sink = faulty(open=RuntimeError("no such workspace"))
    port = log.port("a", sink)
    log.steps(0, 10)
    await log.run()
    assert sink.count("open") == QUICK.permanent
    assert sink.count("close") == 0
    s = check(port.statistics())
    assert (s.state, s.error, s.read) == ("failed", "RuntimeError: no such workspace", 0)


async def test_a_flush_that_fails_confirms_nothing_and_is_tried_again(faulty: Any) -> None:
    """The position stays until a flush went well; the sink goes on meanwhile."""
    log = Log()
    sink = faulty(flush=Fault(OSError("no"), times=2), confirms="flush")
    port = log.port("a", sink, flush_every=0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(log.delivery.run)
        log.steps(0, 10)
        await until(lambda: port.error is not None)
        assert port.confirmed == 0
        await until(lambda: port.confirmed == 10)
        log.end()
    assert steps_of(sink) == list(range(10))
    assert port.state == "closed"


@pytest.mark.parametrize("method", ["open", "flush", "close"])
async def test_what_does_not_go_away_is_tried_a_few_times(faulty: Any, method: str) -> None:
    """An error that is no outage, a refusal (once), and a disk that lost what it had taken."""
    for error, tries in ((ValueError("no"), 3), (RefusedError("no"), 1), (OSError(5, "EIO"), 3)):
        log = Log()
        sink = faulty(**{method: error})
        port = log.port("a", sink, flush_every=1e9)
        log.steps(0, 10)
        await log.run()
        assert (port.state, sink.count(method)) == ("failed", tries)
        assert type(error).__name__ in str(port.error)


@pytest.mark.parametrize("method", ["open", "flush", "close"])
async def test_what_goes_away_by_itself_is_no_failure(faulty: Any, method: str) -> None:
    """A hiccup in any method, of any kind."""
    log = Log()
    sink = faulty(**{method: Fault(ValueError("hiccup"), times=2)})
    port = log.port("a", sink, flush_every=1e9)
    log.steps(0, 10)
    await log.run()
    assert (port.state, port.error, port.retries) == ("closed", None, 2)
    assert steps_of(sink) == list(range(10))


async def test_a_close_that_fails_is_told_and_loses_nothing_of_before(faulty: Any) -> None:
    """What was written and confirmed stays so."""
    log = Log()
    sink = faulty(close=RuntimeError("no"))
    port = log.port("a", sink)
    log.steps(0, 10)
    await log.run()
    s = check(port.statistics())
    assert (s.delivered, s.state, s.error, s.position) == (10, "failed", "RuntimeError: no", 10)


@pytest.mark.parametrize("method", ["open", "write", "flush", "close"])
async def test_a_call_that_hangs_is_given_up_at_its_deadline(faulty: Any, method: str) -> None:
    """The others go on, delivery ends, and the sink's state says which call it was."""
    log = Log()
    bad = faulty(**{method: Fault(hang=True)})
    good = MemorySink()
    port = log.port("bad", bad, deadlines=SHORT)
    log.port("good", good)
    log.steps(0, 10)
    await log.run()
    assert steps_of(good) == list(range(10))
    s = check(port.statistics())
    assert s.state == "failed"
    assert s.error == (f"SinkTimeoutError: sink 'bad': {method}() took longer than 0.1 s")
    bad.release()


async def test_what_a_slow_call_returns_after_its_deadline_is_of_no_account() -> None:
    """A call that ends late, when nobody waits any more, disturbs nobody."""
    log = Log()
    sink = FaultySink(write=Fault(hang=True))
    port = log.port("bad", sink, deadlines=SHORT)
    log.steps(0, 10)
    await log.run()
    sink.release()
    assert sink.wait_for(10)
    assert port.state == "failed"
    assert sink.count("close") == 0


async def test_events_given_again_after_a_lost_answer_are_recognisable(faulty: Any) -> None:
    """Delivery is at least once, with the same seq."""
    log = Log()
    sink = faulty(write=Fault(OSError("lost answer"), times=1, kept=True))
    log.port("a", sink)
    log.steps(0, 3)
    await log.run()
    assert [event.seq for event in sink.events] == [0, 1, 2, 0, 1, 2]


# -- status, flush, cadence -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "killed"),
        ([RunStarted(run_id="r")], "killed"),
        ([RunFinished(status="finished")], "finished"),
        ([RunFinished(status="failed")], "failed"),
        ([RunFinished(status="finished"), RunStarted(run_id="r")], "killed"),
    ],
)
async def test_a_sink_is_closed_with_the_run_s_status(events: list[Event], status: str) -> None:
    """A log without an end is that of a run that was killed."""
    log = Log()
    sink = MemorySink()
    log.port("a", sink)
    log.emit(*events)
    await log.run()
    assert sink.statuses == [status]


async def test_a_log_without_an_event_is_delivered_once(tmp_path: Path) -> None:
    """A run that was killed before its first event is no work for each replay."""
    sinks = [MemorySink(), MemorySink()]
    for sink in sinks:
        log = Log()
        log.port("a", sink, keeper=partial(Keeper, tmp_path, "a", sink))
        await log.run()
    assert [sink.count("open") for sink in sinks] == [1, 0]


async def test_a_flush_in_the_log_flushes_the_sink(memory: Any) -> None:
    """`Run.flush` is an event; sinks flush when they come to it."""
    log = Log()
    sink = memory(confirms="flush")
    port = log.port("a", sink, flush_every=1e9)
    async with anyio.create_task_group() as group:
        group.start_soon(log.delivery.run)
        log.steps(0, 10)
        log.emit(Flushed())
        await until(lambda: port.flushed_to == 11)
        assert sink.count("flush") == 1
        assert port.confirmed == 11
        log.end()


async def test_what_was_written_is_flushed_when_nothing_comes_for_a_while(memory: Any) -> None:
    """A sink that confirms by flush is not left unconfirmed."""
    log = Log()
    sink = memory(confirms="flush")
    port = log.port("a", sink, flush_every=0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(log.delivery.run)
        log.steps(0, 10)
        await until(lambda: port.confirmed == 10)
        log.end()


async def test_the_end_of_a_buffered_sink_s_data_is_flushed_while_it_idles(memory: Any) -> None:
    """Also a sink that confirms by write may have a buffer: a file, for one."""
    log = Log()
    sink = memory(confirms="write")
    log.port("a", sink, flush_every=0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(log.delivery.run)
        log.steps(0, 10)
        with anyio.move_on_after(0.5):
            while not sink.count("flush"):  # noqa: ASYNC110 - a condition of another thread
                await anyio.sleep(0.001)
        flushes = sink.count("flush")
        log.end()
    assert flushes == 1


async def test_a_sink_that_confirms_by_close_is_confirmed_then_only(memory: Any) -> None:
    """Its position does not move before."""
    log = Log()
    sink = memory(confirms="close")
    port = log.port("a", sink, flush_every=0.0)
    async with anyio.create_task_group() as group:
        group.start_soon(log.delivery.run)
        log.steps(0, 10)
        await until(lambda: sink.count("flush") > 0)
        assert port.confirmed == 0
        log.end()
    assert port.confirmed == 10


async def test_a_cadence_that_was_never_due_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A tracker without a single point is a mistake in the cadence."""
    log = Log()
    log.port("a", MemorySink(), every="10 epochs")
    log.steps(0, 10)
    await log.run()
    assert "received no step or batch event: its cadence was never due" in caplog.text


# -- time, on a virtual clock -----------------------------------------------------------------


class TestOnAVirtualClock:
    """Waits of minutes pass at once; each second of them is accounted for."""

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    async def test_the_pause_grows_up_to_its_most_with_jitter(self) -> None:
        """Full jitter below 1, 2, 4, ... 128 s, for ever."""
        log = Log()
        sink = AsyncFaultySink(write=Fault(OSError("down"), times=20))
        times: list[float] = []

        class Timed(AsyncFaultySink):
            async def write(self, batch: Any) -> None:
                times.append(anyio.current_time())
                await super().write(batch)

        sink = Timed(write=Fault(OSError("down"), times=20))
        log.port("a", sink, retry=Retry())
        log.steps(0, 1)
        log.end()
        await log.delivery.run()
        pauses = [b - a for a, b in itertools.pairwise(times)]
        assert len(pauses) == 20
        assert all(p <= min(128, 2**i) for i, p in enumerate(pauses))
        assert sum(pauses) > 60
        assert steps_of(sink) == [0]

    async def test_a_tracker_s_own_wish_to_wait_is_respected(self) -> None:
        """retry_after comes before the backoff."""
        log = Log()
        sink = AsyncFaultySink(write=Fault(UnavailableError("429", retry_after=300.0), times=2))
        log.port("a", sink, retry=Retry())
        log.steps(0, 1)
        log.end()
        start = anyio.current_time()
        await log.delivery.run()
        assert anyio.current_time() - start == pytest.approx(600.0)

    @pytest.mark.parametrize(
        "retry_after",
        [-1.0, 0.0, float("nan"), float("inf"), "", "Fri, 31 Dec 1999 23:59:59 GMT", b"\xff", [1]],
    )
    async def test_a_wish_that_is_none_is_not_heeded(self, retry_after: Any) -> None:
        """A header may say anything, and a tracker's clock be ahead: the usual pauses are made."""
        log = Log()
        error = UnavailableError("429", retry_after=retry_after)
        sink = AsyncFaultySink(write=Fault(error, times=4))
        log.port("a", sink, retry=Retry())
        log.steps(0, 1)
        log.end()
        start = anyio.current_time()
        await log.delivery.run()
        assert steps_of(sink) == [0]
        assert 0 < anyio.current_time() - start <= 1 + 2 + 4 + 8

    async def test_a_wish_that_is_a_text_is_heeded(self) -> None:
        """Sinks hand on the header as it came."""
        log = Log()
        error = UnavailableError("429", retry_after="120")  # type: ignore[arg-type]
        log.port("a", AsyncFaultySink(write=Fault(error, times=2)), retry=Retry())
        log.steps(0, 1)
        log.end()
        start = anyio.current_time()
        await log.delivery.run()
        assert anyio.current_time() - start == pytest.approx(240.0)

    @pytest.mark.parametrize("method", ["flush", "close"])
    async def test_the_end_is_tried_again_like_a_write(self, method: str) -> None:
        """A tracker that is down for a moment at the end costs no sink its last events."""
        log = Log()
        fault = [Fault(UnavailableError("503", retry_after=30.0), times=3)]
        sink = AsyncFaultySink(confirms="flush", **{method: fault})  # type: ignore[arg-type]
        port = log.port("a", sink, retry=Retry(), flush_every=1e9)
        log.steps(0, 10)
        log.end()
        start = anyio.current_time()
        await log.delivery.run()
        assert anyio.current_time() - start == pytest.approx(90.0)
        s = check(port.statistics())
        assert (s.state, s.error, s.position, s.retries) == ("closed", None, 10, 3)
        assert sink.statuses == ["killed"]

    async def test_the_end_is_tried_until_whoever_ends_it_has_no_more_time(self) -> None:
        """No try is made after that, and the last error is the one that is told."""
        log = Log()
        sink = AsyncFaultySink(flush=OSError("down"), confirms="flush")
        port = log.port("a", sink, retry=Retry(most=5.0), flush_every=1e9)
        log.steps(0, 10)
        log.end()
        async with anyio.create_task_group() as group:
            group.start_soon(log.delivery.run)
            await anyio.sleep(60)
            assert port.state == "retrying"
            log.delivery.stop()
        assert anyio.current_time() >= 60
        assert (port.state, port.error, port.confirmed) == ("failed", "OSError: down", 0)
        assert sink.count("close") == 0
        assert sink.count("flush") > 10

    async def test_a_flush_that_fails_is_not_tried_each_second(self) -> None:
        """While the run goes on, the pauses between its tries grow as those of writes do."""
        log = Log()
        wish = UnavailableError("429", retry_after=600.0)
        sink = AsyncFaultySink(flush=Fault(wish, times=2), confirms="flush")
        port = log.port("a", sink, retry=Retry())
        async with anyio.create_task_group() as group:
            group.start_soon(log.delivery.run)
            log.steps(0, 10)
            await anyio.sleep(1250)
            assert sink.count("flush") == 3
            assert (port.confirmed, port.error) == (10, None)
            log.end()

    async def test_culprits_are_found_without_long_pauses(self) -> None:
        """Ten in a thousand that raise anything at all: less than a second is waited, in all."""
        log = Log()
        taken: list[int | None] = []

        class Picky(Sink):
            async def write(self, batch: Any) -> None:
                if any(event.step % 100 == 7 for event in batch):
                    raise ValueError("not that one")
                taken.extend(event.step for event in batch)

        port = log.port("a", Picky(), retry=Retry())
        log.steps(0, 1_000)
        log.end()
        start = anyio.current_time()
        await log.delivery.run()
        assert anyio.current_time() - start < 1.0
        assert taken == [i for i in range(1_000) if i % 100 != 7]
        s = check(port.statistics())
        assert (s.delivered, s.dead, s.state) == (990, 10, "closed")

    async def test_a_sink_that_takes_nothing_at_all_is_not_taken_for_a_picky_one(self) -> None:
        """An SDK that says RuntimeError while its server is down for an hour costs few events."""
        log = Log()

        class Down(AsyncMemorySink):
            async def write(self, batch: Any) -> None:
                if anyio.current_time() - start < 3_600:
                    raise RuntimeError("no answer")
                await super().write(batch)

        sink = Down()
        port = log.port("a", sink, retry=Retry())
        log.steps(0, 1_000)
        log.end()
        start = anyio.current_time()
        await log.delivery.run()
        s = check(port.statistics())
        assert s.dead < 60
        assert s.delivered == 1_000 - s.dead == len(sink.events)

    async def test_nothing_is_written_after_the_stop(self) -> None:
        """A sink with a rate that waits for its turn does not get it after the end."""
        log = Log()
        sink = AsyncMemorySink()
        port = log.port("a", sink, rate=0.2, batch=10)
        log.steps(0, 100)
        log.end()
        async with anyio.create_task_group() as group:
            group.start_soon(log.delivery.run)
            await anyio.sleep(1)
            log.delivery.stop()
            with anyio.fail_after(1):
                await until(lambda: port.finished)
            calls = len(sink.calls)
        assert len(sink.events) == 10
        assert len(sink.calls) == calls
        assert port.confirmed == 10
        assert check(port.statistics()).in_flight == 10

    async def test_a_sink_that_waits_for_another_process_is_not_opened_after_the_stop(self) -> None:
        """Whoever holds its position may let go of it later: this delivery is over."""
        log = Log()
        sink = AsyncMemorySink()
        held = True

        def keeper() -> Any:
            if held:
                raise BlockingIOError("held by another delivery")
            raise AssertionError("asked after the end")

        port = log.port("a", sink, keeper=keeper)
        log.steps(0, 1)
        log.end()
        async with anyio.create_task_group() as group:
            group.start_soon(log.delivery.run)
            await anyio.sleep(10)
            log.delivery.stop()
            await until(lambda: port.finished)
            held = False
        assert sink.calls == []
        assert (port.state, port.error) == (
            "failed",
            "BlockingIOError: held by another delivery",
        )

    async def test_a_delivery_that_was_stopped_before_it_began_does_not_begin(self) -> None:
        """The end may come while its loop is still being made."""
        log = Log()
        sink = AsyncMemorySink()
        port = log.port("a", sink)
        log.steps(0, 1)
        log.end()
        log.delivery.stop()
        await log.delivery.run()
        assert (sink.calls, port.state) == ([], "failed")

    async def test_an_outage_of_days_loses_nothing_that_memory_holds(self) -> None:
        """It is tried again until the tracker is back; what came meanwhile follows."""
        log = Log()
        sink = AsyncFaultySink(write=Fault(OSError("down"), times=2_000))
        port = log.port("a", sink, retry=Retry())
        async with anyio.create_task_group() as group:
            group.start_soon(log.delivery.run)
            log.steps(0, 10)
            await anyio.sleep(3_600)
            assert port.state == "retrying"
            assert port.error == "OSError: down"
            log.steps(10, 1_000)
            log.end()
        assert anyio.current_time() > 86_400 / 2
        assert steps_of(sink) == list(range(1_000))
        assert check(port.statistics()).retries == 2_000

    async def test_deadlines_are_those_that_were_given(self) -> None:
        """Each call has its own."""
        for method, deadline in {"open": 120, "write": 60, "flush": 60, "close": 60}.items():
            log = Log()
            port = log.port("a", AsyncFaultySink(**{method: Fault(hang=True)}))  # type: ignore[arg-type]
            log.steps(0, 1)
            log.end()
            start = anyio.current_time()
            await log.delivery.run()
            assert anyio.current_time() - start == pytest.approx(deadline, abs=0.1)
            assert port.error is not None
            assert f"{method}() took longer than {deadline} s" in port.error

    async def test_a_rate_limits_the_writes(self) -> None:
        """Two writes a second take five seconds for ten batches."""
        log = Log()
        sink = AsyncMemorySink()
        log.port("a", sink, rate=2.0, batch=10)
        log.steps(0, 100)
        log.end()
        start = anyio.current_time()
        await log.delivery.run()
        assert 4.4 <= anyio.current_time() - start <= 5.1
        assert steps_of(sink) == list(range(100))

    async def test_a_sink_that_stalls_does_not_slow_the_others(self) -> None:
        """The quick one has everything while the slow one is at its first batch."""
        log = Log()
        slow, quick = AsyncFaultySink(write=Fault(sleep=50.0)), AsyncMemorySink()
        log.port("slow", slow)
        log.port("quick", quick)
        async with anyio.create_task_group() as group:
            group.start_soon(log.delivery.run)
            log.steps(0, 2_000)
            await anyio.sleep(1)
            assert len(quick.events) == 2_000
            assert slow.events == []
            log.end()
        assert len(slow.events) == 2_000


# -- accounting -------------------------------------------------------------------------------


async def test_the_account_holds_between_all_calls_of_a_sink() -> None:
    """Asked from within each call, and from another thread all the time."""
    log = Log()
    seen: list[SinkStatistics] = []

    class Asking(FaultySink):
        def write(self, batch: Any) -> None:
            seen.append(port.statistics())
            super().write(batch)
            seen.append(port.statistics())

    sink = Asking(
        write=[Fault(OSError("x"), times=2, after=1), Fault(ValueError("y"), times=3, after=5)],
        refuse=lambda event: event.step in {5, 600},
    )
    port = log.port("a", sink, every="3 steps", batch=64)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.0002):
            seen.append(port.statistics())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for i in range(0, 1_000, 10):
        log.steps(i, i + 10)
    await log.run()
    ended.set()
    watcher.join()
    for s in seen:
        assert s.read == s.delivered + s.filtered + s.dead + s.in_flight
    final = check(port.statistics())
    assert final.read == 1_000
    assert final.delivered == len(sink.events)
    assert final.in_flight == 0


async def test_a_fault_of_delivery_itself_costs_one_sink_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that is nobody's is logged; the other sinks go on."""
    log = Log()
    bad = log.port("bad", MemorySink())
    good = MemorySink()
    log.port("good", good)

    def broken(limit: int = 0) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(bad.subscription, "pull", broken)
    log.steps(0, 10)
    await log.run()
    assert len(good.events) == 10
    assert bad.state == "failed"
    assert "delivery to 'bad' failed" in caplog.text


async def test_a_refusal_of_everything_still_ends(faulty: Any) -> None:
    """A tracker that takes nothing leaves all events dead, and the sink is closed well."""
    log = Log()
    sink = faulty(write=RefusedError("no"))
    port = log.port("a", sink)
    log.steps(0, 100)
    await log.run()
    s = check(port.statistics())
    assert (s.dead, s.delivered, s.state) == (100, 0, "closed")


def test_a_loop_is_asyncio_s_while_another_thread_imports_trio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A half imported trio runs no loop, and its lack of a module is no sink's fault."""
    monkeypatch.setitem(sys.modules, "trio", types.ModuleType("trio"))

    async def main() -> bool:
        Waker()
        return in_asyncio()

    assert anyio.run(main, backend="asyncio")
    assert not in_loop()


def test_secrets_in_what_an_sdk_raises_go_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An address with its password, quoted by an exception, is redacted wherever it is shown."""
    sink = FaultySink(write=Fault(UnavailableError("no answer from http://bob:SECRET1@host:1/x")))
    refusing = FaultySink(write=Fault(RefusedError("http://bob:SECRET1@host")))
    with Run("p", dir=tmp_path, sinks={"a": sink, "b": refusing}, close_timeout=0.5) as run:
        run.step(x=1)
    shown = [run.sink("a").error, run.statistics().sinks["b"].refusal, caplog.text]
    assert all("bob" in str(text) and "SECRET1" not in str(text) for text in shown)
