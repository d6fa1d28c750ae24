"""What a sink has not had by the end is named, and the next attempt delivers it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventlog
from eventlog.delivery import Retry
from eventlog.events import Event
from eventlog.exceptions import UnavailableError
from eventlog.sidecar import deliver_plan
from eventlog.sinks.base import Sink
from eventlog.testing import Fault, FaultySink, MemorySink


class Slow(Sink):
    """Takes half a second for each batch."""

    name = "slow"

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.events: list[Event] = []
        self.statuses: list[str] = []

    def write(self, batch: Sequence[Event]) -> None:
        time.sleep(self.pause)
        self.events += batch

    def close(self, status: str) -> None:
        self.statuses.append(status)


def run_with(tmp_path: Path, sink: Any, resume: str | None = None, **options: Any) -> Any:
    sinks = {"a": sink, "good": MemorySink()}
    return eventlog.Run("p", dir=tmp_path, sinks=sinks, resume=resume, **options)


def test_close_says_what_is_left_and_the_next_attempt_delivers_it(tmp_path: Path) -> None:
    """What a slow sink has not had is counted exactly; nothing is missing or twice afterwards."""
    slow = Slow(0.2)
    run = run_with(tmp_path, slow)
    for i in range(5_000):
        run.step(n=i)
    begun = time.monotonic()
    report = run.close(timeout=0.5)
    assert time.monotonic() - begun < 2
    assert not report.complete
    assert report.written
    assert set(report.left) == {"a"}
    assert report.left["a"] >= 5_002 - 512 * 4
    # the old delivery is a thread of this process: it ends with what it has in hand
    deadline = time.monotonic() + 20
    while run.sink("a").state not in ("closed", "failed"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    again = Slow(0.0)
    run = run_with(tmp_path, again, resume=run.id)
    run.step(n=5_000)
    assert run.close().complete
    taken = slow.events + again.events
    assert [e.seq for e in taken] == list(range(5_005))
    assert again.statuses == ["finished"]


def test_a_sink_that_was_down_to_the_end_gets_all_of_it_from_the_next_attempt(
    tmp_path: Path,
) -> None:
    """A whole attempt that a sink has not seen comes first, in order."""
    down = FaultySink(write=UnavailableError("down"))
    run = run_with(tmp_path, down, retry=Retry(first=0.01, most=0.05))
    for i in range(3_000):
        run.step(n=i)
    report = run.close(timeout=0.5)
    assert report.left == {"a": 3_002}
    assert "down" in run.sink("a").error
    # its process goes away; here that is a task that is not needed any more
    down.release()
    port = run._delivery.ports["a"]
    port._keeper.close()
    memory = MemorySink()
    second = run_with(tmp_path, memory, resume=run.id)
    second.step(n=3_000)
    assert second.close().complete
    assert [e.seq for e in memory.events] == list(range(3_005))
    assert memory.statuses == ["finished"]


def test_a_run_without_a_successor_is_delivered_from_its_plan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is in the log goes to the sinks that were given by name; a second time nothing does."""
    with eventlog.Run("p", dir=tmp_path, sinks={"copy": {"sink": "log"}}) as run:
        run.step(n=1)
    assert run.dir is not None
    for _ in range(2):
        taken = anyio.run(deliver_plan, eventlog.open_log(run.dir))
        assert taken["copy"].state == "closed"
        assert taken["copy"].read == 0
    assert caplog.text == ""
    assert len(list(eventlog.open_log(run.dir / "copy").events())) == 3


def test_a_sink_that_does_not_take_the_end_is_closed_with_the_runs_status(tmp_path: Path) -> None:
    """The status is known also where RunFinished is not among the types that a sink takes."""
    for status in ("finished", "failed", "interrupted"):
        memory = MemorySink()
        sinks = {"a": {"sink": memory, "types": ["step"]}}
        run = eventlog.Run("p", dir=tmp_path, sinks=sinks)
        run.step(n=1)
        run.close(status)
        assert memory.statuses == [status]
        assert len(memory.events) == 1


def test_a_rate_is_kept_and_costs_no_event(tmp_path: Path) -> None:
    """At most so many calls a second, whatever waits; batches grow instead."""
    memory = MemorySink()
    sinks = {"a": {"sink": memory, "rate": 10}}
    with eventlog.Run("p", dir=tmp_path, sinks=sinks, close_timeout=30) as run:
        for i in range(1_000):
            run.step(n=i)
            time.sleep(0.001)
    times = [call.at for call in memory.calls if call.method == "write"]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(times) >= 5
    assert min(gaps) > 0.09
    assert [e.seq for e in memory.events] == list(range(1_002))


def test_a_trackers_own_wish_comes_before_the_backoff(tmp_path: Path) -> None:
    """`retry_after` is waited for, neither more nor less, also at the end of the run."""
    busy = UnavailableError("busy", retry_after=0.4)
    sink = FaultySink(write=Fault(busy, times=2))
    # the backoff would be a minute
    retry = Retry(first=60, most=60)
    with eventlog.Run("p", dir=tmp_path, sinks={"a": sink}, retry=retry) as run:
        run.step(n=1)
    times = [call.at for call in sink.calls if call.method == "write"]
    assert len(times) == 3
    assert all(0.39 < b - a < 2 for a, b in itertools.pairwise(times))
    assert [e.seq for e in sink.events] == [0, 1, 2]
    assert run.statistics().sinks["a"].retries == 2


def test_a_wish_that_is_longer_than_the_end_is_reported(tmp_path: Path) -> None:
    """Nobody waits an hour for a tracker at the end: what is left is in the log."""
    sink = FaultySink(write=UnavailableError("busy", retry_after=3600))
    run = run_with(tmp_path, sink)
    run.step(n=1)
    begun = time.monotonic()
    assert run.close(timeout=0.3).left == {"a": 3}
    assert time.monotonic() - begun < 2
