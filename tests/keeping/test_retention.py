"""How much of the log stays: nothing goes that a sink has not confirmed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog._retention import Retention, parse_retain
from eventlog.delivery import Retry
from eventlog.events import Event, StepEvent
from eventlog.exceptions import UnavailableError
from eventlog.log.checkpoint import Checkpoint, CheckpointFile, checkpoint_path
from eventlog.log.live import LiveSource
from eventlog.sinks.base import Sink
from eventlog.subscription import Subscription
from eventlog.testing import MemorySink

SMALL = 20_000
QUICK = Retry(first=0.01, most=0.02)


class Gate(Sink):
    """Takes nothing until it is opened."""

    name = "gate"

    def __init__(self) -> None:
        self.up = threading.Event()
        self.events: list[Event] = []

    def write(self, batch: Sequence[Event]) -> None:
        if not self.up.is_set():
            raise UnavailableError("closed")
        self.events += batch


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def numbers(events: Sequence[Event]) -> list[Any]:
    return [event.values["n"] for event in events if type(event) is StepEvent]


def segments(run: Any) -> list[int]:
    return sorted(int(p.stem) for p in (run.dir / "rank-0").glob("*.elog"))


def size(run: Any) -> int:
    return sum(p.stat().st_size for p in (run.dir / "rank-0").glob("*.elog"))


def steps(run: Any, n: int) -> None:
    """Make steps in many blocks; each hundred is with the sinks before the next."""
    for i in range(n):
        run.step(n=i)
        if i % 100 == 99:
            run.flush(10)


def test_what_every_sink_has_confirmed_goes(tmp_path: Path) -> None:
    """With "delivered", files go as sinks confirm; who reads the log is told what is gone."""
    memory = MemorySink()
    with eventlog.Run(
        "p", dir=tmp_path, sinks={"m": memory}, retain="delivered", segment_bytes=SMALL
    ) as run:
        steps(run, 3000)
        bases = segments(run)
        assert bases[0] > 1000
    assert numbers(memory.events) == list(range(3000))
    assert run.dir is not None
    log = eventlog.open_log(run.dir)
    assert log.source().first == segments(run)[0] > 0
    events = list(log.events())
    assert numbers(events) == list(range(3000 - len(numbers(events)), 3000))
    # what is said about the run stays known, though its first event is gone
    assert log.run_info().project == "p"
    subscription = Subscription(log.source())
    while subscription.pull() is not None:
        pass
    assert subscription.lost == log.source().first
    assert subscription.delivered == len(events)


def test_the_source_of_the_run_itself_says_where_it_begins(tmp_path: Path) -> None:
    """`first` is the first event that can still be read, for whoever reads the live log, too."""
    with eventlog.Run(
        "p", dir=tmp_path, sinks={"m": MemorySink()}, retain="delivered", segment_bytes=SMALL
    ) as run:
        run._recorder.cache._max_events = 100
        steps(run, 2000)
        source = run._recorder.source
        assert isinstance(source, LiveSource)
        assert source.first == segments(run)[0] > 0


def test_a_sink_that_is_down_keeps_what_it_lacks(tmp_path: Path) -> None:
    """Nothing goes while one sink lacks it, whatever the limit; all goes to it afterwards."""
    gate, memory = Gate(), MemorySink()
    with eventlog.Run(
        "p",
        dir=tmp_path,
        sinks={"gate": gate, "m": memory},
        retain=30_000,
        segment_bytes=SMALL,
        retry=QUICK,
    ) as run:
        for i in range(3000):
            run.step(n=i)
            if i % 100 == 99:
                time.sleep(0.03)
        wait_for(lambda: len(memory.events) == 3001)
        assert segments(run)[0] == 0
        assert size(run) > 100_000
        gate.up.set()
        wait_for(lambda: len(gate.events) == 3001)
        run.flush(10)
        steps(run, 500)
        assert segments(run)[0] > 2000
        assert size(run) < 30_000 + 2 * SMALL
    assert gate.events == memory.events
    assert numbers(gate.events) == [*range(3000), *range(500)]


def test_a_sink_that_cannot_be_made_keeps_everything(tmp_path: Path) -> None:
    """A plugin that is broken today gets its points from a later run of the delivery."""
    with eventlog.Run(
        "p",
        dir=tmp_path,
        sinks={"m": MemorySink(), "broken": {"sink": "no_such_module:Sink"}},
        retain="delivered",
        segment_bytes=SMALL,
    ) as run:
        steps(run, 1000)
        assert run.sink("broken").state == "failed"
        assert segments(run)[0] == 0
        assert len(segments(run)) > 2


def test_an_isolated_sink_keeps_what_it_lacks(tmp_path: Path) -> None:
    """The position of a sink in the sidecar counts like that of one in the process."""
    with eventlog.Run(
        "p",
        dir=tmp_path,
        sinks={"far": {"sink": "log", "isolate": True}},
        retain="delivered",
        segment_bytes=SMALL,
    ) as run:
        for i in range(300):
            run.step(n=i)
        assert run.flush(20).complete
        steps(run, 2000)
        deadline = time.monotonic() + 20
        while segments(run)[0] <= 1000:
            run.step(n=0)
            time.sleep(0.02)
            assert time.monotonic() < deadline
    assert run.dir is not None
    far = list(eventlog.open_log(run.dir / "far").events())
    assert numbers(far)[:2300] == [*range(300), *range(2000)]
    assert run.statistics().sinks["far"].lost == 0


@pytest.mark.parametrize("held", [True, False])
def test_the_target_that_is_delivered_to_counts(tmp_path: Path, held: bool) -> None:
    """An alias with several targets keeps what the one in use lacks, or else what any lacks."""
    for name, seq in (("old", 900), ("new", 30)):
        file = CheckpointFile(checkpoint_path(tmp_path, "a", name))
        file.save(Checkpoint(alias="a", fingerprint=name, seq=seq, passed=seq), sync=False)
        if name == "old" or not held:
            file.close()
    for base in (0, 20, 40, 800):
        (tmp_path / f"{base:020d}.elog").write_bytes(bytes(10))
    Retention(tmp_path, "delivered", lambda: ["a"])()
    assert sorted(int(p.stem) for p in tmp_path.glob("*.elog")) == [20, 40, 800]
    if held:
        file.close()


@pytest.mark.parametrize("seed", range(3))
def test_rotation_rewind_and_resume_together(tmp_path: Path, seed: int) -> None:
    """Whatever is mixed: each sink has each event once, in order, and the log its newest ones."""
    rng = random.Random(seed)
    copies = tmp_path / "copies"
    run_id = None
    position = 0
    for _ in range(4):
        run = eventlog.Run(
            "p",
            dir=tmp_path,
            sinks={
                "a": {"sink": "log", "dir": str(copies / "a")},
                "b": {"sink": "log", "dir": str(copies / "b"), "every": "3 steps"},
            },
            retain=rng.choice(["delivered", 50_000]),
            segment_bytes=SMALL,
            resume=run_id,
        )
        for _ in range(rng.randrange(3, 8)):
            for _ in range(rng.randrange(50, 300)):
                run.step(n=position)
                position += 1
            if rng.random() < 0.4:
                run.rewind(rng.randrange(0, 100))
            if rng.random() < 0.7:
                assert run.flush(20).complete
        run_id = run.id
        assert run.close().complete
    assert run.dir is not None
    log = eventlog.open_log(run.dir)
    a = list(eventlog.open_log(copies / "a").events())
    assert numbers(a) == list(range(position))
    kept = list(log.events())
    assert kept == a[-len(kept) :]
    assert kept[0].seq > 0
    b = list(eventlog.open_log(copies / "b").events())
    assert b == list(eventlog.open_log(copies / "a").events(every="3 steps"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [("all", "all"), ("delivered", "delivered"), (5, 5), ("10 GB", 10**10), ("1.5k", 1500)],
)
def test_what_retain_may_be(given: Any, meant: Any) -> None:
    """A word, or a size as a number or in words."""
    assert parse_retain(given) == meant


@pytest.mark.parametrize("given", ["some", -1, 0, True, None, "10 parsecs", 1.5])
def test_what_retain_may_not_be(given: Any) -> None:
    """Anything else is refused with what it may be."""
    with pytest.raises(ValueError, match="retain must be"):
        parse_retain(given)
