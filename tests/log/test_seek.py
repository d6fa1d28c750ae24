"""Where in a log a step, an epoch or a time is."""

from __future__ import annotations

import datetime
import math
import os
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog import Run
from eventlog.events import Event, Rewound, RunFinished, RunStarted, StepEvent
from eventlog.log import open_log, seek
from eventlog.log.archive import Log
from eventlog.log.copy import LogCopy
from eventlog.log.index import IndexEntry, read_index
from eventlog.log.layout import BlockKind, Content, content_of
from eventlog.log.seal import compact_log
from eventlog.log.segment_reader import Segment

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def write(run_dir: Path, events: Sequence[Event], cuts: Sequence[int] = ()) -> Log:
    """Write events, in a block for each part between the cuts; every third begins a segment."""
    directory = run_dir / "rank-0"
    edges = [0, *sorted(cuts), len(events)]
    copy = LogCopy(directory, run_id="test")
    for number, (first, stop) in enumerate(pairwise(edges)):
        if first < stop:
            copy.write(events[first:stop])
        if number % 3 == 2:
            copy.close()
            copy = LogCopy(directory, run_id="test")
    copy.close()
    return open_log(run_dir)


Draw = tuple[int, int, list[tuple[int, bool, int]]]


def make(attempts: Sequence[Draw]) -> list[Event]:
    """Make the events of attempts, each with a step to rewind to and what it logs after that."""
    events: list[Event] = [RunStarted(run_id="test", step=0)]
    for number, (back, epoch, logged) in enumerate(attempts, 1):
        step = back
        if number > 1:
            events.append(Rewound(to_step=back, step=back, epoch=epoch, attempt=number))
        for ahead, named, epochs in logged:
            step += ahead
            epoch += epochs
            axis = "val_step" if named else "step"
            at = 7 * step if named else step
            events.append(StepEvent(step=at, epoch=epoch, axis=axis, attempt=number))
        events.append(StepEvent(attempt=number, values={"x": 1}))
    events.append(RunFinished(step=0, attempt=len(attempts)))
    return [
        type(e)(**{f: getattr(e, f) for f in e.__struct_fields__}
                | {"seq": i, "mono": i * SECOND, "wall": START + i * SECOND})
        for i, e in enumerate(events)
    ]  # fmt: skip


def sought(events: Sequence[Event], name: str, value: float) -> int:
    """Say what a search means, by going through all events."""
    placed = [e for e in events if content_of(type(e)) is not Content.RUN]
    if name == "step":
        placed = [e for e in placed if e.axis == "step"]
    spans: dict[int, list[float]] = {}
    for event in placed:
        at = getattr(event, name)
        if at is not None:
            span = spans.setdefault(event.attempt, [at, at])
            span[:] = [min(span[0], at), max(span[1], at)]
    for event in events:
        if isinstance(event, Rewound):
            start: float = getattr(event, name)
            spans[event.attempt] = [min(start, *spans.get(event.attempt, [start])), math.inf]
    while True:
        latest = max((a for a, (low, high) in spans.items() if low <= value <= high), default=0)
        for event in placed:
            at = getattr(event, name)
            if event.attempt == latest and at is not None and at >= value:
                return event.seq
        value = min((low for low, _ in spans.values() if value < low), default=math.inf)
        if value == math.inf:
            return len(events)


LOGGED = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 1)), min_size=0, max_size=12
)


@settings(max_examples=int(os.environ.get("EVENTLOG_EXAMPLES", "20")))
@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 4), LOGGED), min_size=1, max_size=4),
    st.lists(st.integers(0, 60), max_size=12),
    st.booleans(),
)
def test_any_place_is_found_as_if_all_were_read(
    attempts: list[Draw], cuts: list[int], compacted: bool
) -> None:
    """After any rewinds, in any blocks and segments, sealed or compacted, on any axis."""
    events = make(attempts)
    with tempfile.TemporaryDirectory() as directory:
        log = write(Path(directory) / "run", events, [c for c in cuts if c < len(events)])
        if compacted:
            list(compact_log(log.directory))
        for step in range(-1, 60):
            assert log.seek(step=step) == sought(events, "step", step)
        for epoch in (-1, 0, 0.5, 1, 2, 3.5, 5, 20):
            assert log.seek(epoch=epoch) == sought(events, "epoch", epoch)
        for i in range(len(events)):
            assert log.seek(time=START / 1e9 + i) == i
        assert log.seek(time=START / 1e9 + len(events)) == len(events)


def _many(run_dir: Path, n: int = 3000) -> list[Event]:
    events: list[Event] = [
        StepEvent(step=i, epoch=i // 100, seq=i, mono=i * SECOND, wall=START + i * SECOND)
        for i in range(n)
    ]
    write(run_dir, events, range(0, n, 100))
    return events


def test_times_are_given_in_any_form(tmp_path: Path) -> None:
    """As for a replay: a datetime, ISO 8601 text, or seconds."""
    _many(tmp_path / "run")
    log = open_log(tmp_path / "run")
    when = datetime.datetime.fromtimestamp(START / 1e9 + 1234, datetime.UTC)
    assert log.seek(time=when) == 1234
    assert log.seek(time=when.isoformat()) == 1234
    assert log.seek(time=when.timestamp()) == 1234
    assert log.seek(time=0) == 0


def test_few_blocks_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step or a time costs one block, an epoch as many as halving takes."""
    _many(tmp_path / "run")
    log = open_log(tmp_path / "run")
    decoded: list[int] = []
    events = seek._Part.events

    def watched(part: seek._Part, entry: IndexEntry) -> list[Event]:
        decoded.append(entry.first_seq)
        return events(part, entry)

    monkeypatch.setattr(seek._Part, "events", watched)
    assert log.seek(step=1717) == 1717
    assert len(decoded) == 1
    assert log.seek(time=START / 1e9 + 2222) == 2222
    assert len(decoded) == 2
    assert log.seek(epoch=20) == 2000
    assert len(decoded) <= 2 + 10
    before = len(decoded)
    assert log.seek(epoch=20) == 2000
    assert len(decoded) == before + 1, "what a block holds is known by now"


def test_a_log_that_grows_is_sought_to_its_end(tmp_path: Path) -> None:
    """One `Log` serves while the run writes, rotates, rewinds and ends."""
    with Run("p", dir=tmp_path, segment_bytes=4096) as run:
        assert run.dir is not None
        run.flush()
        log = open_log(run.dir)
        for begin in range(0, 500, 100):
            for step in range(begin, begin + 100):
                run.step(loss=0.5, step=step)
            run.flush()
            seq = log.seek(step=begin + 50)
            assert next(log.events(start=seq)).step == begin + 50
            assert log.seek(step=begin + 100) == log.source().end
        run.rewind(200)
        run.step(loss=1.5)
        run.flush()
        event = next(log.events(start=log.seek(step=200)))
        assert (event.step, event.attempt) == (200, 2)
        assert log.seek(step=201) == log.source().end, "what was there is void"


def test_a_damaged_block_is_passed_by(tmp_path: Path) -> None:
    """The next event that can be read is found."""
    _many(tmp_path / "run")
    path = sorted((tmp_path / "run" / "rank-0").glob("*.elog"))[0]
    data = bytearray(path.read_bytes())
    log = open_log(tmp_path / "run")
    assert log.seek(step=50) == 50
    segment = Segment(path)
    first = next(block for block in segment.scan() if block.header.kind == BlockKind.EVENTS)
    data[first.end - 1] ^= 0xFF
    segment.close()
    path.write_bytes(data)
    assert log.seek(step=50) == 100
    assert log.seek(step=150) == 150


def test_segments_that_go_meanwhile_are_no_matter(tmp_path: Path) -> None:
    """Retired or compacted: the next search looks again."""
    _many(tmp_path / "run")
    log = open_log(tmp_path / "run")
    assert log.seek(step=1500) == 1500
    list(compact_log(log.directory))
    assert log.seek(step=1500) == 1500
    first, second, *_ = sorted(log.directory.glob("*.elog"))
    first.unlink()
    assert log.seek(step=0) == int(second.stem)


def test_an_empty_log_has_nothing(tmp_path: Path) -> None:
    """Its end is the answer, whatever is asked for."""
    log = write(tmp_path / "run", [RunStarted(run_id="test", seq=0, wall=START)])
    assert log.seek(step=0) == 1
    assert log.seek(epoch=0) == 1


def test_one_of_three_must_be_given(tmp_path: Path) -> None:
    """Two would contradict each other."""
    _many(tmp_path / "run", 10)
    log = open_log(tmp_path / "run")
    with pytest.raises(ValueError, match="one of step, epoch and time, not 0"):
        log.seek()
    with pytest.raises(ValueError, match="not 2"):
        log.seek(step=1, epoch=1)
    with pytest.raises(TypeError, match="step must be a number, not 'x'"):
        log.seek(step="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ISO 8601"):
        log.seek(time="yesterday")


def test_an_index_that_lies_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block's own header counts; the segment is gone through then."""
    _many(tmp_path / "run")
    read = read_index

    def wrong(segment: Segment) -> list[IndexEntry] | None:
        index = read(segment)
        return None if index is None else [e._replace(max_step=e.max_step + 50) for e in index]

    monkeypatch.setattr("eventlog.log.seek.read_index", wrong)
    log = open_log(tmp_path / "run")
    assert [log.seek(step=step) for step in (120, 1499, 2999)] == [120, 1499, 2999]
