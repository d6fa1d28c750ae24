"""The sinks that fail by name: what they raise, what they keep, and that they can be mended."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, open_log
from eventlog.delivery import Retry
from eventlog.exceptions import UnavailableError
from eventlog.testing.faults import (
    FAULTS,
    MENDED,
    REFUSED,
    STRUCK,
    AsyncBrokenSink,
    BrokenSink,
    strike,
    taken,
)

FORMS = pytest.mark.parametrize("kind", ["BrokenSink", "AsyncBrokenSink"])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("exception", RuntimeError),
        ("system_exit", SystemExit),
        ("keyboard_interrupt", KeyboardInterrupt),
        ("cancellation", asyncio.CancelledError),
        ("busy", UnavailableError),
        ("down", ConnectionRefusedError),
    ],
)
def test_what_raises_does(fault: str, error: type[BaseException]) -> None:
    """As its description says."""
    with pytest.raises(error):
        strike(fault)


def test_what_only_takes_time_returns() -> None:
    """After as long as it is told."""
    for fault in ("slow", "late", "block"):
        before = time.monotonic()
        strike(fault, 0.05)
        assert time.monotonic() - before >= 0.05
    strike("log")  # there is no run


@pytest.mark.parametrize("kind", [BrokenSink, AsyncBrokenSink])
def test_options_that_are_none_are_refused(kind: Any) -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match="at must be one of open, write, flush, close, not 'x'"):
        kind(at="x")
    with pytest.raises(ValueError, match=f"fault must be one of {', '.join(FAULTS)}, not 'x'"):
        kind(fault="x")


@FORMS
def test_it_fails_until_it_is_mended(tmp_path: Path, kind: str) -> None:
    """Nothing is taken before, and everything once after."""
    sinks = {"broken": {"sink": f"eventlog.testing.faults:{kind}", "at": "open", "fault": "down"}}
    run = Run("p", dir=tmp_path, sinks=sinks, retry=Retry(first=0.01, most=0.02))
    assert run.dir is not None
    for _ in range(700):
        run.step(x=1.0)
    assert run.flush(0.2).left
    assert (run.dir / "broken" / STRUCK).exists()
    assert not taken(run.dir / "broken")
    (run.dir / "broken" / MENDED).touch()
    assert run.close().complete
    events = [(e.attempt, e.seq) for e in open_log(run.dir).events()]
    assert taken(run.dir / "broken") == dict.fromkeys(events, 1)


@FORMS
def test_a_picky_one_refuses_one_event_in_a_thousand(tmp_path: Path, kind: str) -> None:
    """And takes the others."""
    sinks = {"broken": {"sink": f"eventlog.testing.faults:{kind}", "fault": "picky"}}
    with Run("p", dir=tmp_path, sinks=sinks) as run:
        for _ in range(2100):
            run.step(x=1.0)
    assert run.dir is not None
    dead = [event.seq for event in open_log(run.dir / "dead" / "broken").events()]
    assert dead == [REFUSED, 1000 + REFUSED]
    seqs = {event.seq for event in open_log(run.dir).events()}
    assert {seq for _, seq in taken(run.dir / "broken")} == seqs - set(dead)
