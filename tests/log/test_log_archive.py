"""A log that is opened to be looked at: what it is about, and which of its events still hold."""

from typing import Any

from eventlog.events import (
    ConfigUpdated,
    EpochEvent,
    Event,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
)
from eventlog.log import open_log
from eventlog.log.attempts import Attempts
from eventlog.log.source import TailCache
from eventlog.subscription import Subscription


def put(book: Any, *events: Event) -> None:
    """Write events, in one turn."""
    for event in events:
        book.recorder.inbox.put(event)
    book.turn()


def test_what_a_log_is_about(book: Any) -> None:
    """Run id, names and the config of the end; what the last start says counts."""
    book.open()
    start: dict[str, Any] = {
        "run_id": "test",
        "project": "p",
        "group": "g",
        "notes": "n",
        "world_size": 2,
    }
    put(book, RunStarted(mono=1, name="first", config={"lr": 1, "a": 1}, tags=["t"], **start))
    put(book, ConfigUpdated(mono=2, config={"lr": 2}))
    info = open_log(book.run_dir).run_info()
    assert (info.run_id, info.project, info.name, info.tags) == ("test", "p", "first", ("t",))
    assert (info.group, info.notes, info.world_size, info.rank) == ("g", "n", 2, 0)
    assert info.config == {"lr": 2, "a": 1}
    assert info.replayed
    book.crash()
    book.open()
    put(book, RunStarted(mono=3, name="second", config={"b": 3}, attempt=2, **start))
    info = open_log(book.run_dir).run_info()
    assert (info.name, info.config) == ("second", {"lr": 2, "a": 1, "b": 3})


def test_a_log_without_a_start_is_named_by_its_header(book: Any) -> None:
    """Where the first events were lost, the segment still knows its run."""
    book.open()
    book.blocks(1, 2)
    info = open_log(book.run_dir).run_info()
    assert (info.run_id, info.name) == ("test", "run")


def test_how_a_run_ended(book: Any) -> None:
    """Running while its writer lives, killed when that died, and what it said itself otherwise."""
    book.open()
    put(book, RunStarted(mono=1, run_id="test"))
    log = open_log(book.run_dir)
    assert log.status() == "running"
    book.crash()
    assert log.status() == "killed"
    book.open()
    put(book, RunFinished(mono=2, status="failed", attempt=2))
    assert log.status() == "failed"
    put(book, RunStarted(mono=3, run_id="test", attempt=2))
    assert log.status() == "running"


async def test_events_can_be_read_asynchronously(book: Any) -> None:
    """The same events, from a start and up to a stop."""
    book.open()
    book.blocks(4, 300)
    log = open_log(book.directory)
    found = [event async for event in log.aevents(start=290, stop=910)]
    assert found == list(log.events(start=290, stop=910))
    assert [e.seq for e in found] == list(range(290, 910))
    assert [e.seq async for e in log.aevents(types=["epoch"])] == []
    assert repr(log) == f"<Log {str(book.run_dir)!r}, rank 0>"


def test_the_latest_attempt_holds_step_by_step(book: Any) -> None:
    """After a resume, earlier attempts' events at the steps that it covers are void."""
    book.open()
    put(book, *[StepEvent(mono=1, step=n, values={"a": 1}) for n in range(100)])
    put(book, *[StepEvent(mono=1, step=n, axis="val", values={"v": 1}) for n in range(10)])
    put(book, EpochEvent(mono=1, values={"e": 1}))
    book.crash()
    book.open()
    put(book, *[StepEvent(mono=2, step=n, attempt=2, values={"a": 2}) for n in range(50, 151)])
    log = open_log(book.run_dir)
    held = [(e.step, e.attempt) for e in log.events(latest=True) if "a" in e.values]
    assert held == [(n, 1) for n in range(50)] + [(n, 2) for n in range(50, 151)]
    assert len([e for e in log.events(latest=True) if "v" in e.values]) == 10
    assert len(list(log.events())) == 100 + 10 + 1 + 101


def test_a_rewind_voids_what_it_goes_back_over(book: Any) -> None:
    """Also where the new attempt logs less often, and beyond what it reaches."""
    book.open()
    put(book, *[StepEvent(mono=1, step=n) for n in range(100)])
    put(book, Rewound(mono=2, to_step=40, attempt=2))
    put(book, *[StepEvent(mono=2, step=n, attempt=2) for n in (60, 80)])
    attempts = Attempts.scan(book.directory)
    assert attempts.latest == 2
    held = [
        e.step
        for e in open_log(book.run_dir).events(types=[StepEvent])
        if not attempts.superseded(e)
    ]
    assert held == [*range(40), 60, 80]


def test_a_slow_reader_gets_from_the_files_what_memory_has_lost(book: Any) -> None:
    """The cache is bounded; behind it lie the files."""
    recorder = book.open(cache=TailCache(max_events=50))
    book.blocks(20, 10)
    assert recorder.cache.first == 150
    reader = recorder.source.open_reader()
    seen: list[Event] = []
    while (block := reader.read(len(seen))) is not None:
        assert block.first == len(seen)
        seen += block.events()
    assert seen == book.events()
    assert len(seen) == 200
    assert recorder.source.first == 0
    assert recorder.source.end == 200


def test_listeners_are_woken_for_each_batch(book: Any) -> None:
    """Until they say that they have heard enough."""
    recorder = book.open()
    calls: list[int] = []
    unlisten = recorder.source.listen(lambda: calls.append(1))
    book.blocks(3, 5)
    assert len(calls) == 3
    unlisten()
    book.blocks(1, 5)
    assert len(calls) == 3


def test_what_an_earlier_process_left_is_read_before_anything_new_comes(book: Any) -> None:
    """A sink that is behind goes on at once, and loses nothing where nothing new ever comes."""
    book.open()
    book.blocks(3, 5)
    book.crash()
    recorder = book.open()
    subscription = Subscription(recorder.source)
    seen: list[Event] = []
    while (ready := subscription.pull(4)) is not None:
        seen += ready.events
    assert [e.seq for e in seen] == list(range(15))
    recorder.stop(10)
    assert subscription.pull() is None
    assert subscription.lost == 0


def test_where_a_run_stands_is_told_of_any_place_in_its_log(book: Any) -> None:
    """The attempt that an event belongs to, and the last model update before it."""
    started: dict[str, Any] = {"run_id": "test"}
    book.open()
    put(book, RunStarted(mono=1, **started), ModelUpdateEvent(mono=2, kind="first"))
    put(book, StepEvent(mono=3, step=0), ModelUpdateEvent(mono=4, kind="second"))
    put(book, StepEvent(mono=5, step=1))
    book.crash()
    book.open()
    put(book, RunStarted(mono=6, attempt=2, **started), StepEvent(mono=7, step=2, attempt=2))
    book.crash()
    book.open()
    put(book, ModelUpdateEvent(mono=8, kind="third", attempt=3))
    log = open_log(book.run_dir)
    found = [log.standing(seq) for seq in range(10)]
    kinds = [None if update is None else update.kind for _, update in found]
    assert kinds == [None, None, "first", "first", *["second"] * 4, "third", "third"]
    assert [attempt for attempt, _ in found] == [1] * 5 + [2] * 2 + [3] * 3
    info = log.run_info(4)
    assert info.model_update is not None
    assert (info.attempt, info.model_update.kind) == (1, "second")
    # what was removed on purpose is still known
    for path in book.segments()[:1]:
        path.unlink()
    assert [None if u is None else u.kind for _, u in map(log.standing, (0, 7, 8))] == [
        "second",
        "second",
        "third",
    ]
