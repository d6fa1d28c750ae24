"""Replay: the same events, any part of them, at any pace, and on from where it stopped."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventlog
from eventlog.cli.verify import verify_log
from eventlog.events import BatchEvent, EpochEvent, Event, StepEvent
from eventlog.log.seal import compact_log
from eventlog.sinks.base import Sink
from eventlog.testing import Fault, FaultySink, MemorySink


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs of 40 steps, of which the last 20 were done twice."""
    run = eventlog.Run("p", dir=tmp_path_factory.mktemp("runs"), config={"lr": 0.1})
    for _ in range(3):
        for i in range(40):
            run.batch(x=i)
            run.step(loss=float(i), acc=1.0)
        run.epoch({"val/acc": 0.5})
    run.rewind(100)
    for _ in range(20):
        run.step(loss=-1.0)
    run.close()
    assert run.dir is not None
    return run.dir


def steps(events: Sequence[Event]) -> list[int | None]:
    return [e.step for e in events if isinstance(e, StepEvent)]


def collect(run_dir: Path, **options: Any) -> list[Event]:
    seen: list[Event] = []
    report = eventlog.replay(run_dir, seen.append, **options)
    assert report.complete
    return seen


def test_replay_is_the_log(run_dir: Path) -> None:
    """A replay gives what reading the log gives, in the same order."""
    read = list(eventlog.open_log(run_dir).events(latest=True))
    assert [e.seq for e in collect(run_dir)] == [e.seq for e in read]


def test_the_latest_attempt_counts(run_dir: Path) -> None:
    """After a rewind each step comes once, with its latest value; all attempts on request."""
    events = [e for e in collect(run_dir) if isinstance(e, StepEvent)]
    assert steps(events) == list(range(120))
    assert [e.values["loss"] for e in events[-20:]] == [-1.0] * 20
    assert len(steps(collect(run_dir, latest=False))) == 140


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [((10, 20), range(10, 20)), ((None, 5), range(5)), ((115, None), range(115, 120))],
)
def test_a_range_of_steps(run_dir: Path, bounds: Any, expected: range) -> None:
    """Steps are taken from the first to the one before the stop."""
    assert steps(collect(run_dir, steps=bounds, types=["step"])) == list(expected)


def test_a_range_of_epochs(run_dir: Path) -> None:
    """An epoch's events can be taken alone."""
    events = collect(run_dir, epochs=(1, 2), types=[StepEvent, EpochEvent])
    assert {e.epoch for e in events} == {1}
    assert len(steps(events)) == 40


def test_a_range_of_time(run_dir: Path) -> None:
    """Times select by wall clock."""
    events = list(eventlog.open_log(run_dir).events(types=["batch"], latest=True))
    middle = events[60].wall
    part = collect(run_dir, time=(middle / 1e9 - 1e-6, None), types=[BatchEvent])
    assert all(e.wall >= middle - 2000 for e in part)
    assert len(events) - 62 <= len(part) <= len(events) - 58


def test_keys_and_cadence(run_dir: Path) -> None:
    """Keys keep what they match; a cadence is applied anew."""
    events = collect(run_dir, keys=["lo*"], every="30 steps", types=["step"])
    assert steps(events) == [0, 30, 60, 90, 99, 100, 119]  # 99: the first attempt's last
    assert {k for e in events for k in e.values} == {"loss"}


def test_bad_ranges_are_named(run_dir: Path) -> None:
    """A range that is none is an error that says what it must be."""
    with pytest.raises(TypeError, match="steps must be a pair"):
        collect(run_dir, steps=5)
    with pytest.raises(ValueError, match="ISO 8601"):
        collect(run_dir, time=("yesterday", None))
    with pytest.raises(ValueError, match="at least one sink"):
        eventlog.replay(run_dir, None)
    with pytest.raises(ValueError, match="speed must be greater"):
        collect(run_dir, speed=0)


def test_another_log(run_dir: Path, tmp_path: Path) -> None:
    """A copy of a log holds the same events under the same identity; replayed again, once."""
    for _ in range(2):
        report = eventlog.replay(run_dir, {"copy": {"sink": "log"}}, dir=tmp_path, resume=False)
        assert report.complete
    original = list(eventlog.open_log(run_dir).events(latest=True))
    copy = list(eventlog.open_log(tmp_path / "copy").events())
    assert copy == original
    assert eventlog.open_log(tmp_path / "copy").run_info().config == {"lr": 0.1}


class StopsHalfway(Sink):
    """Is given up after some events, as if the process had died."""

    name = "half"

    def __init__(self, seen: list[int], most: int) -> None:
        self._seen, self._most = seen, most

    def write(self, batch: Sequence[Event]) -> None:
        if len(self._seen) + len(batch) > self._most:
            raise KeyboardInterrupt
        self._seen.extend(e.seq for e in batch)


def test_an_interrupted_replay_goes_on(run_dir: Path, tmp_path: Path) -> None:
    """A replay into the same directory goes on after what was confirmed, and repeats nothing."""

    async def part(sink: Sink) -> None:
        with anyio.move_on_after(30) as scope:
            counter = itertools.count()

            def progress(p: eventlog._replay.Progress) -> None:
                if sink is interrupted and p.read and next(counter) > 1:
                    scope.cancel()

            await eventlog.areplay(run_dir, sink, dir=tmp_path, speed=50, progress=progress)

    seen: list[int] = []
    interrupted = StopsHalfway(seen, 10**9)
    anyio.run(part, interrupted)
    halfway = len(seen)
    report = eventlog.replay(run_dir, StopsHalfway(seen, 10**9), dir=tmp_path)
    assert report.complete
    everything = [e.seq for e in eventlog.open_log(run_dir).events(latest=True)]
    assert seen == everything
    assert halfway <= len(everything)
    eventlog.replay(run_dir, StopsHalfway(seen, 10**9), dir=tmp_path)
    assert seen == everything


def test_the_original_pace(tmp_path: Path) -> None:
    """At speed 1 a replay takes as long as the run did, at 4 a quarter; order and count stay."""
    run = eventlog.Run("p", dir=tmp_path)
    start = time.monotonic_ns()
    for i in range(5):
        run.emit(StepEvent(mono=start + i * 100_000_000, step=i, values={"x": 1.0}))
    run.close()
    assert run.dir is not None
    mono = [e.mono for e in eventlog.open_log(run.dir).events(types=["step"])]
    lasted = (mono[-1] - mono[0]) / 1e9
    for speed in (1.0, 4.0):
        begin = time.monotonic()
        assert steps(collect(run.dir, speed=speed)) == list(range(5))
        assert time.monotonic() - begin >= lasted / speed * 0.9


async def test_stream_gives_every_event(run_dir: Path) -> None:
    """The async iterator gives what the log holds, with a cadence if asked."""
    events = [e async for e in eventlog.stream(run_dir, types=["step"], every="50 steps")]
    assert steps(events) == [0, 50, 99, 100, 119]  # 99: the first attempt's last


async def test_stream_follows_a_log_that_is_written(tmp_path: Path) -> None:
    """Events come while they are written, and the iterator ends with the run."""
    run = eventlog.Run("p", dir=tmp_path)
    assert run.dir is not None
    run.step(loss=0.0)
    run.flush()
    seen = []
    async for event in eventlog.stream(run.dir, types=["step"], follow=True):
        seen.append(event.step)
        if len(seen) < 20:
            run.step(loss=1.0)
        else:
            await anyio.to_thread.run_sync(run.close)
    assert seen == list(range(20))


async def test_replay_inside_a_running_loop(run_dir: Path) -> None:
    """The synchronous call works where a loop runs already, as in a notebook."""
    assert len(collect(run_dir)) > 0


# -- what is said of it -----------------------------------------------------------------------


def long_run(tmp_path: Path, steps: int = 5_000, **options: Any) -> Path:
    with eventlog.Run("p", dir=tmp_path / "runs", **options) as run:
        for i in range(steps):
            run.step(loss=float(i), i=i)
            if i == 200:
                run.model_updated("prune")
            if options and i % 500 == 499:
                run.flush()
    assert run.dir is not None
    return run.dir


def test_events_that_cannot_be_had_are_no_complete_replay(tmp_path: Path) -> None:
    """One bit in the middle of a log costs a block: that is counted, and the rest is there."""
    run_dir = long_run(tmp_path)
    (path,) = (run_dir / "rank-0").glob("*.elog")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    memory = MemorySink()
    report = eventlog.replay(run_dir, memory)
    lost = report.sinks["memory"].lost
    assert lost > 0
    assert not report.complete
    assert report.damage
    assert len(memory.events) == 5_003 - lost


def test_what_was_removed_on_purpose_is_said_and_not_lost(tmp_path: Path) -> None:
    """A replay of a log that retention has trimmed is one of what is there."""
    memory = MemorySink()
    options: dict[str, Any] = {"segment_bytes": 20_000, "retain": "60 kB", "sinks": memory}
    run_dir = long_run(tmp_path, **options)
    first = eventlog.open_log(run_dir).source().first
    assert first > 0
    for follow in (False, True):
        replayed = MemorySink()
        report = eventlog.replay(run_dir, replayed, follow=follow)
        assert report.complete
        assert (report.sinks["memory"].lost, report.trimmed) == (0, first)
        assert replayed.events == [e for e in memory.events if e.seq >= first]
        (told,) = replayed.runs
        assert told.model_update is not None
        assert (told.attempt, told.model_update.kind) == (1, "prune")
    assert eventlog.replay(run_dir, MemorySink(), start=first).trimmed == 0


def test_each_part_has_a_position_of_its_own(run_dir: Path, tmp_path: Path) -> None:
    """Into one directory: another selection is delivered, the same one is not repeated."""
    parts: list[dict[str, Any]] = [
        {"steps": (0, 50)},
        {"steps": (50, 100)},
        {"epochs": (1, 2)},
        {"types": [StepEvent]},
        {"keys": ["acc"]},
        {"every": "10 steps"},
        {"every": "10 steps", "reduce": "mean"},
        {"every": {"step": "7 steps"}},
        {"latest": False},
        {"start": 7},
        {"time": ("2020-01-01", None)},
        {},
    ]
    for part in parts:
        memory = MemorySink()
        report = eventlog.replay(run_dir, memory, dir=tmp_path, **part)
        assert report.complete
        assert [e.seq for e in memory.events] == [e.seq for e in collect(run_dir, **part)]
    same: list[dict[str, Any]] = [
        *parts,
        {"types": ["step"]},
        {"every": eventlog.every("10  steps")},
        {"every": {StepEvent: "7 steps"}},
    ]
    for part in same:
        report = eventlog.replay(run_dir, MemorySink(), dir=tmp_path, **part)
        assert report.sinks["memory"].read == 0, part


def test_following_begins_with_what_the_latest_attempt_says(run_dir: Path) -> None:
    """What is superseded by what is there already does not come."""
    for latest in (True, False):
        plain = collect(run_dir, latest=latest)
        assert collect(run_dir, latest=latest, follow=True) == plain
    assert len(steps(collect(run_dir, follow=True))) == 120


def test_what_is_superseded_while_following_comes_twice(tmp_path: Path) -> None:
    """Nobody can know then that a step is to be logged again."""
    run = eventlog.Run("p", dir=tmp_path)
    assert run.dir is not None
    for _ in range(10):
        run.step(loss=1.0)
    run.rewind(5)
    run.step(loss=2.0)
    run.flush()
    seen: list[Event] = []

    def take(event: Event) -> None:
        seen.append(event)
        if steps(seen)[-1:] == [5] and len(steps(seen)) == 6:
            run.rewind(5)
            for _ in range(5):
                run.step(loss=3.0)
            threading.Thread(target=run.close).start()

    eventlog.replay(run.dir, take, follow=True)
    assert steps(seen) == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]


def test_progress_is_what_the_sinks_took(run_dir: Path) -> None:
    """A sink that holds the first batch has taken nothing, whatever was read for it."""
    sink = FaultySink(write=Fault(hang=True))
    told: list[eventlog._replay.Progress] = []

    def progress(now: eventlog._replay.Progress) -> None:
        told.append(now)
        if sink.count("write"):
            sink.release()

    report = eventlog.replay(run_dir, sink, progress=progress)
    assert report.complete
    assert told[0].read == 0
    assert told[-1].read == told[-1].total == told[0].total
    assert all(now.read == 0 for now in told if not now.delivered["faulty"])


def test_a_thinned_copy_lacks_nothing(run_dir: Path, tmp_path: Path) -> None:
    """A log that leaves events out on purpose says so: nothing is missing in it, nothing lost."""
    part: dict[str, Any] = {"every": "10 steps", "types": ["step", "epoch"]}
    eventlog.replay(run_dir, {"copy": {"sink": "log"}}, dir=tmp_path, **part)
    thin = eventlog.open_log(tmp_path / "copy")
    events = list(thin.events())
    assert 0 < len(events) < 30
    told: list[eventlog._replay.Progress] = []
    for options in ({}, {"speed": 1e6}, {"follow": True}):
        memory = MemorySink()
        report = eventlog.replay(thin, memory, progress=told.append, **options)
        assert report.complete
        s = report.sinks["memory"]
        assert (s.read, s.delivered, s.lost, report.trimmed) == (len(events), len(events), 0, 0)
        assert memory.events == events
    assert told[0].total == len(events)
    list(compact_log(thin.directory))
    for where in (thin, eventlog.open_log(tmp_path / "copy")):
        found = verify_log(where)
        assert (found.missing, found.damage, found.events) == ([], [], len(events))
