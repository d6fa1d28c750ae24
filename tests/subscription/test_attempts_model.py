"""Which events hold after rewinds and resumes, against a model that looks at all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.events import EpochEvent, Event, Rewound, RunStarted, StepEvent
from eventlog.log.archive import open_log
from eventlog.log.attempts import Attempts
from eventlog.recorder import Recorder

spans = st.dictionaries(
    st.tuples(st.integers(1, 8), st.sampled_from(["step", "val"])),
    st.tuples(st.integers(0, 30), st.integers(-1, 30)),
    max_size=12,
)


@settings(max_examples=int(os.environ.get("EVENTLOG_EXAMPLES", "150")), deadline=None)
@given(spans)
def test_an_event_is_void_where_a_later_attempt_covers_its_step(
    spans: dict[tuple[int, str], tuple[int, int]],
) -> None:
    """Whatever the spans are: nested, apart, or empty since a rewind was followed by nothing."""
    attempts = Attempts(spans)
    for attempt in range(1, 10):
        for axis in ("step", "val", "other"):
            for step in range(-1, 33):
                event = StepEvent(step=step, axis=axis, attempt=attempt)
                covered = any(
                    a > attempt and of == axis and first <= step <= last
                    for (a, of), (first, last) in spans.items()
                )
                assert attempts.superseded(event) is covered
                assert not attempts.superseded(msgspec.structs.replace(event, step=None))
    said = RunStarted(run_id="r", step=3)
    assert not attempts.superseded(said)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Attempts that go on from a step, by a rewind or by a resume that says nothing."""
    events: list[Event] = [RunStarted(run_id="r")]
    step = val = 0
    for attempt in range(1, draw(st.integers(1, 5)) + 1):
        if attempt > 1:
            step = max(0, step - draw(st.integers(0, 12)))
            if draw(st.booleans()):
                events.append(Rewound(to_step=step, attempt=attempt))
        stride = draw(st.sampled_from([1, 1, 2, 5]))
        for _ in range(draw(st.integers(0, 12))):
            for _ in range(draw(st.integers(1, 2))):
                events.append(StepEvent(step=step, attempt=attempt, values={"x": 1.0}))
            if draw(st.integers(0, 4)) == 0:
                val += 1
                events.append(StepEvent(step=val, axis="val", attempt=attempt, values={"y": 1.0}))
            if draw(st.integers(0, 6)) == 0:
                events.append(EpochEvent(step=step, epoch=step // 5, attempt=attempt))
            step += stride
        val = max(0, val - draw(st.integers(0, 2)))
    return events


@settings(max_examples=80, deadline=None)
@given(histories(), st.integers(1, 20))
def test_the_latest_value_of_each_step_comes_once(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], turn: int
) -> None:
    """Read back from a real log: at each step what one attempt said of it, the latest one there."""
    run_dir: Path = tmp_path_factory.mktemp("run")
    recorder = Recorder(run_dir, run_id="r", attempt=1)
    for at in range(0, len(events), turn):
        for event in events[at : at + turn]:
            recorder.inbox.put(event)
        recorder.writer.turn()
    recorder.stop(None)
    log = open_log(run_dir)
    found = [e for e in log.events(latest=True) if e.step is not None]

    logged: dict[tuple[str, int], list[int]] = {}
    reach: dict[tuple[str, int], tuple[int, int]] = {}
    for event in events:
        if isinstance(event, Rewound):
            reach["step", event.attempt] = (event.to_step, 2**63)
        elif event.step is not None:
            logged.setdefault((event.axis, event.step), []).append(event.attempt)
            low, high = reach.get((event.axis, event.attempt), (event.step, event.step))
            reach[event.axis, event.attempt] = (min(low, event.step), max(high, event.step))
    expected: dict[tuple[str, int], list[int]] = {}
    for (axis, step), attempts in logged.items():
        passed_over = [
            a for (of, a), (low, high) in reach.items() if of == axis and low <= step <= high
        ]
        latest = max(passed_over)
        if latest in attempts:
            expected[axis, step] = [latest] * attempts.count(latest)
    got: dict[tuple[str, int], list[int]] = {}
    for event in found:
        got.setdefault((event.axis, event.step or 0), []).append(event.attempt)
    assert got == expected
    assert Attempts.scan(log.directory).latest <= max(e.attempt for e in events)


def test_many_attempts_cost_no_more_than_few(tmp_path: Path) -> None:
    """The attempts that cover a step are not gone through one by one."""
    many = Attempts({(a, "step"): (a, a + 1_000) for a in range(1, 2_001)})
    looked: list[Any] = []
    event = StepEvent(step=1_500, attempt=3)
    starts, latest = many._cover["step"]
    assert len(starts) == len(latest) - 1 <= 4_000
    looked.append(many.superseded(event))
    assert looked == [True]
    assert not many.superseded(StepEvent(step=1_500, attempt=1_500))
    assert many.superseded(StepEvent(step=1_500, attempt=1_499))
