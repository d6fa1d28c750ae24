"""What a sink refuses for good: set aside under its own seq, once, and replayable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog.cli.verify import verify_log
from eventlog.delivery import Retry
from eventlog.events import Event, StepEvent
from eventlog.exceptions import LogError, RefusedError
from eventlog.keeping import DeadLetters
from eventlog.sinks.base import Sink
from eventlog.testing import MemorySink

ONE_IN = 1_000
QUICK = Retry(first=0.001, most=0.002)


def culprit(event: Event) -> bool:
    return type(event) is StepEvent and event.values["n"] % ONE_IN == ONE_IN // 2


class Picky(Sink):
    """Refuses one event in a thousand for good, whatever it comes with.

    Args:
        error: How it says so.
        dies_after: After so many writes its process is gone: it raises what ends the delivery.
    """

    name = "picky"

    def __init__(self, error: type[Exception] = RefusedError) -> None:
        self.error = error
        self.events: list[Event] = []
        self.largest = 0

    def write(self, batch: Sequence[Event]) -> None:
        if any(map(culprit, batch)):
            raise self.error("that one never")
        self.largest = max(self.largest, len(batch))
        self.events += batch


def steps(run: Any, n: int, first: int = 0) -> None:
    for i in range(first, first + n):
        run.step(n=i)


@pytest.mark.parametrize("error", [RefusedError, ZeroDivisionError])
def test_one_in_a_thousand_is_set_aside_and_replayed(
    tmp_path: Path, error: type[Exception]
) -> None:
    """All others are delivered, in order; the culprits are in a log that a replay delivers."""
    picky = Picky(error)
    with eventlog.Run("p", dir=tmp_path, sinks={"picky": picky}, retry=QUICK,
                      config={"lr": 0.1}) as run:  # fmt: skip
        steps(run, 10_000)
    assert run.dir is not None
    everything = list(eventlog.open_log(run.dir).events())
    refused = [event for event in everything if culprit(event)]
    assert len(refused) == 10
    assert picky.events == [event for event in everything if not culprit(event)]
    statistics = run.statistics().sinks["picky"]
    assert (statistics.read, statistics.dead, statistics.in_flight) == (10_002, 10, 0)
    assert statistics.delivered == 10_002 - 10 - statistics.filtered
    assert statistics.state == "closed"
    assert error.__name__ in str(statistics.refusal)
    dead = run.dir / "dead" / "picky"
    letters = eventlog.open_log(dead)
    assert list(letters.events()) == refused
    assert letters.summary().damage == []
    memory = MemorySink()
    progress: list[Any] = []
    report = eventlog.replay(dead, memory, progress=progress.append)
    assert report.complete
    assert report.sinks["memory"].lost == 0
    assert progress[-1][:2] == (10, 10)
    assert memory.events == refused
    # who takes them is told as much of the run as the one that refused them
    (told,) = memory.runs
    assert (told.run_id, told.project, told.config) == (run.id, "p", {"lr": 0.1})
    assert told.provenance == everything[0].provenance  # type: ignore[attr-defined]
    assert verify_log(letters)[3:5] == ([], [])


def test_a_batch_that_comes_again_is_set_aside_once(tmp_path: Path) -> None:
    """After a crash before the confirmation the same events are refused again: they are there."""
    letters = DeadLetters(tmp_path, "a", run_id="r")
    events = [StepEvent(step=i, mono=i, wall=i, seq=i, attempt=1) for i in range(0, 100, 10)]
    letters.add(events[:5])
    letters.close()
    letters = DeadLetters(tmp_path, "a", run_id="r")
    for event in events[3:]:
        letters.add([event])
    letters.close()
    assert list(eventlog.open_log(tmp_path / "dead" / "a").events()) == events


def test_an_event_that_would_break_the_order_is_said(tmp_path: Path) -> None:
    """A log has its events in order: one that is refused only after later ones cannot be kept."""
    letters = DeadLetters(tmp_path, "a", run_id="r")
    letters.add([StepEvent(seq=5, wall=1), StepEvent(seq=7, wall=1)])
    with pytest.raises(LogError, match="event 6 is refused after later ones"):
        letters.add([StepEvent(seq=6, wall=1)])
    letters.close()


def test_a_resumed_run_goes_on_with_the_same_dead_letters(tmp_path: Path) -> None:
    """Attempts share one log of dead letters, as they share one log."""
    run_id = None
    for attempt in range(3):
        sinks = {"picky": Picky()}
        with eventlog.Run("p", dir=tmp_path, sinks=sinks, retry=QUICK, resume=run_id) as run:
            steps(run, 2000, attempt * 2000)
        run_id = run.id
    assert run.dir is not None
    refused = [event for event in eventlog.open_log(run.dir).events() if culprit(event)]
    assert len(refused) == 6
    assert list(eventlog.open_log(run.dir / "dead" / "picky").events()) == refused


def test_dead_letters_that_cannot_be_kept_are_counted(tmp_path: Path) -> None:
    """A place that cannot be written costs the event itself, not the account or the others."""
    with eventlog.Run("p", dir=tmp_path, sinks={"picky": (picky := Picky())}, retry=QUICK) as run:
        assert run.dir is not None
        (run.dir / "dead").write_text("not a directory")
        steps(run, 2000)
    statistics = run.statistics().sinks["picky"]
    assert statistics.dead == 2
    assert statistics.state == "closed"
    assert "could not be set aside" in str(statistics.refusal)
    assert len(picky.events) == 2000
