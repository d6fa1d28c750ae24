"""What is written is read: values, order, places and times; and what a segment says of itself."""

import json
import math
import struct
from typing import Any

import msgspec
import pytest

from eventlog.codec import json_schema
from eventlog.events import (
    ConfigUpdated,
    Event,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    TextEvent,
    UnknownEvent,
)
from eventlog.log import open_log
from eventlog.log.files import last_valid_seq
from eventlog.log.inbox import Inbox
from eventlog.log.layout import BlockKind, Content
from eventlog.log.records import ClockPair, Gap, SegmentHeader, decode_record
from eventlog.log.segment_reader import Segment
from eventlog.log.source import TailCache
from eventlog.log.writer import LogWriter, Writer
from eventlog.testing import FakeClock


def records(book: Any, kind: BlockKind) -> list[bytes]:
    """Return the payloads of all blocks of a kind."""
    found = []
    for path in book.segments():
        segment = Segment(path)
        found += [segment.payload(b) for b in segment.scan() if b.header.kind == kind]
        segment.close()
    return found


def test_what_is_written_is_read(book: Any) -> None:
    """Every event comes back with its values, a seq without gaps, and its times."""
    book.open()
    for count in (1, 7, 300, 2):
        book.emit(count)
        book.turn()
        book.clock.advance(0.02)
    events = book.events()
    assert [e.seq for e in events] == list(range(310))
    assert [e.values for e in events] == [{"n": n, "x": n / 3} for n in range(310)]
    offset = book.clock.wall_ns() - book.clock.monotonic_ns()
    assert all(e.wall == e.mono + offset for e in events)
    assert [e.mono for e in events] == sorted(e.mono for e in events)


def test_live_events_and_stored_ones_are_equal(book: Any) -> None:
    """Who reads from memory and who reads from the files see the same."""
    recorder = book.open()
    book.blocks(5, 20)
    recorder.inbox.put(TextEvent(mono=5, tag="t", text="ELB1" * 20))
    book.turn()
    live: list[Event] = []
    reader = recorder.source.open_reader()
    while (block := reader.read(len(live))) is not None:
        live += block.events()
    assert live == book.events()


def test_a_step_of_the_wall_clock_shows_in_the_next_batch(book: Any) -> None:
    """Wall time is monotonic time plus an offset that is measured anew for each batch."""
    book.open()
    start = book.clock.wall_ns() - book.clock.monotonic_ns()
    offsets = []
    for step in (0.0, 3600.0, -86_400.0, 0.0):
        book.clock.step_wall(step)
        start += round(step * 1e9)
        offsets.append(start)
        book.emit(3)
        book.turn()
    found = [e.wall - e.mono for e in book.events()]
    assert found == [offset for offset in offsets for _ in range(3)]
    pairs = [decode_record(p, ClockPair) for p in records(book, BlockKind.CLOCK)]
    # one when the log begins, and one for each step
    assert [p.wall - p.mono for p in pairs] == offsets[:3]


def test_small_drift_does_not_make_wall_time_jump(book: Any) -> None:
    """Less than a millisecond between the clocks is no step: intervals stay exact."""
    book.open()
    for _ in range(5):
        book.clock.step_wall(0.0001)
        book.emit(2)
        book.turn()
    assert len({e.wall - e.mono for e in book.events()}) == 1


def test_nan_bits_and_infinities_are_exact(book: Any) -> None:
    """A NaN keeps its bits; infinity stays infinity."""
    recorder = book.open()
    nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]
    values = {"nan": nan, "inf": math.inf, "low": -math.inf, "zero": -0.0, "big": 2**63 - 1}
    recorder.offer(StepEvent(mono=1, step=0), values)
    book.turn()
    (event,) = book.events()
    for name, value in values.items():
        found = event.values[name]
        assert type(found) is type(value)
        assert struct.pack("<d", found) == struct.pack("<d", value)


def test_events_of_other_versions_pass_through(book: Any) -> None:
    """An unknown event that is logged again is in the new log byte for byte."""
    recorder = book.open()
    raw = msgspec.msgpack.encode({"type": "newer", "mono": 9, "step": 4, "what": [1, {"a": None}]})
    for item in (StepEvent(mono=1), UnknownEvent(mono=9, step=4, type_name="newer", raw=raw)):
        recorder.inbox.put(item)
    recorder.inbox.put(UnknownEvent(mono=9, type_name="made up", raw=b"\xc1"))
    recorder.inbox.put(StepEvent(mono=12))
    book.offered = 4
    book.turn()
    assert book.statistics().dropped == {"unencodable": 1}
    first, unknown, last = book.events()
    assert isinstance(unknown, UnknownEvent)
    assert (unknown.raw, unknown.step, unknown.seq) == (raw, 4, 1)
    assert last.wall - last.mono == first.wall - first.mono == unknown.wall - unknown.mono


def test_a_rewind_cuts_blocks_and_segments(book: Any) -> None:
    """Events of two attempts in one batch lie in two segments, each under its own attempt."""
    recorder = book.open()
    book.emit(5)
    recorder.inbox.put(Rewound(mono=1, to_step=2, attempt=2))
    recorder.inbox.put(StepEvent(mono=1, step=2, attempt=2))
    recorder.inbox.put(StepEvent(mono=1, step=9, attempt=1))  # by another thread, just before
    book.turn()
    reader = recorder.source.open_reader()
    live = [reader.read(seq) for seq in (0, 5)]
    assert [(b.attempt, b.first, b.end) for b in live if b is not None] == [(1, 0, 5), (2, 5, 8)]
    headers = [Segment(path).header for path in book.segments()]
    assert [(h.attempt, h.base_seq) for h in headers if h is not None] == [(1, 0), (2, 5)]
    assert [e.attempt for e in book.events()] == [1] * 5 + [2] * 3
    assert open_log(book.run_dir).summary().attempts == 2


def test_block_headers_let_readers_pass_blocks_by(book: Any) -> None:
    """Flags and ranges say what is in a block; run events do not count as steps."""
    recorder = book.open()
    book.emit(3)
    book.turn()
    recorder.inbox.put(RunFinished(mono=5, step=1000))
    book.turn()
    recorder.inbox.put(StepEvent(mono=6, step=9))
    recorder.inbox.put(StepEvent(mono=7, step=4))
    book.turn()
    recorder.inbox.put(StepEvent(mono=6, axis="val"))
    book.turn()
    segment = Segment(book.segments()[0])
    headers = [b.header for b in segment.scan() if b.header.kind == BlockKind.EVENTS]
    assert [h.flags for h in headers] == [
        Content.STEP | Content.SORTED,
        Content.RUN | Content.SORTED,
        Content.STEP,
        Content.STEP | Content.NO_STEP | Content.NAMED_AXIS,
    ]
    assert [(h.min_step, h.max_step) for h in headers] == [
        (0, 2),
        (2**63 - 1, -1),
        (4, 9),
        (2**63 - 1, -1),
    ]
    assert [(h.first_seq, h.events) for h in headers] == [(0, 3), (3, 1), (4, 2), (6, 1)]


def test_the_schema_block_is_the_json_schema_of_the_types(book: Any) -> None:
    """A log describes its events without any Python."""
    book.open()
    book.blocks(1, 1)
    (payload,) = records(book, BlockKind.SCHEMA)
    assert json.loads(payload) == json.loads(msgspec.json.encode(json_schema()))


def test_a_segment_says_how_the_run_stands(tmp_path: Any) -> None:
    """Each segment's header repeats the config of then and the last model update."""
    clock, inbox = FakeClock(), Inbox()
    log = LogWriter(tmp_path, run_id="r", project="p", rank=3, segment_bytes=1)
    writer = Writer(inbox, TailCache(), log, clock=clock)
    turns: list[list[Event]] = [
        [RunStarted(run_id="r", config={"lr": 1, "n": {"a": 1}}, mono=1)],
        [ModelUpdateEvent(kind="pruned", mono=2), ConfigUpdated(config={"lr": 2}, mono=3)],
        [ModelUpdateEvent(kind="frozen", mono=4)],
        [StepEvent(mono=5)],
    ]
    for events in turns:
        for event in events:
            inbox.put(event)
        writer.turn()
    writer.stop(None)
    headers = [Segment(path).header for path in sorted(tmp_path.glob("*.elog"))]
    assert [h.base_seq for h in headers if h] == [0, 1, 3, 4]
    last = headers[-1]
    assert isinstance(last, SegmentHeader)
    assert (last.run_id, last.project, last.rank, last.format) == ("r", "p", 3, 1)
    assert (last.mono, last.wall) == (clock.monotonic_ns(), clock.wall_ns())
    started, model = last.latched_events()
    assert isinstance(started, RunStarted)
    assert started.config == {"lr": 2, "n": {"a": 1}}
    assert isinstance(model, ModelUpdateEvent)
    assert model.kind == "frozen"
    assert len({h.uuid for h in headers if h}) == 4


def test_what_is_latched_survives_a_crash(book: Any) -> None:
    """The next attempt's segments know of model updates of the one before."""
    recorder = book.open()
    recorder.inbox.put(RunStarted(run_id="test", config={"lr": 1}, mono=1))
    recorder.inbox.put(ModelUpdateEvent(kind="pruned", mono=2))
    book.turn()
    book.crash()
    book.open()
    book.blocks(1, 1)
    header = Segment(book.segments()[-1]).header
    assert header is not None
    assert [type(e) for e in header.latched_events()] == [RunStarted, ModelUpdateEvent]


def test_gaps_say_what_is_missing(book: Any) -> None:
    """Dropped events are counted in the log, by reason, and add up over restarts."""
    recorder = book.open()
    book.blocks(1, 2)
    recorder.inbox.drop("media")
    book.blocks(1, 2)
    recorder.inbox.drop("media")
    recorder.inbox.drop("no_value")
    book.turn()
    gaps = [decode_record(p, Gap).dropped for p in records(book, BlockKind.GAP)]
    assert gaps == [{"media": 1}, {"media": 1, "no_value": 1}]
    book.crash()
    recorder = book.open()
    recorder.inbox.drop("media")
    book.blocks(1, 1)
    assert open_log(book.run_dir).summary().dropped == {"media": 3, "no_value": 1}


def test_a_gap_before_the_first_event_is_kept_for_later(book: Any) -> None:
    """What was dropped while nothing could be written is noted once something can be."""
    recorder = book.open()
    recorder.inbox.drop("media")
    book.turn()
    book.blocks(1, 1)
    assert open_log(book.run_dir).summary().dropped == {"media": 1}


def test_an_idle_log_has_a_heartbeat(book: Any) -> None:
    """Now and then both clocks are noted while nothing is emitted."""
    book.open()
    book.blocks(1, 1)
    for _ in range(30):
        book.clock.advance(1)
        book.turn()
    assert len(records(book, BlockKind.CLOCK)) == 1 + 3


def test_segments_end_at_their_size(tmp_path: Any) -> None:
    """A log is cut into segments that are named by their first seq."""
    inbox = Inbox()
    log = LogWriter(tmp_path / "rank-0", run_id="r", segment_bytes=20_000)
    writer = Writer(inbox, TailCache(), log, clock=FakeClock())
    for n in range(600):
        inbox.put(StepEvent(mono=n, step=n, values={"n": n, "text": "x" * 50}))
        if n % 20 == 19:
            writer.turn()
    writer.stop(None)
    opened = open_log(tmp_path)
    assert [e.values["n"] for e in opened.events()] == list(range(600))
    assert opened.summary().segments > 2
    for start in (0, 1, 299, 300, 599):
        assert next(opened.events(start=start)).seq == start
    assert last_valid_seq(opened.directory) == 600


@pytest.mark.parametrize("size", [1, 1_000, 70_000, 3_000_000])
def test_events_of_any_size_are_written(book: Any, size: int) -> None:
    """Blocks adapt to what they hold."""
    recorder = book.open()
    for n in range(8):
        recorder.inbox.put(TextEvent(mono=n, tag="t", text=f"{n}" * size))
    book.turn()
    assert [e.text[0] for e in book.events() if isinstance(e, TextEvent)] == list("01234567")


def test_an_event_that_no_block_can_hold_is_dropped_alone(book: Any) -> None:
    """More than 64 MiB in one event: counted, and its neighbours are written."""
    recorder = book.open()
    for size in (1, 65 * 1024 * 1024, 1):
        recorder.inbox.put(TextEvent(mono=1, tag="t", text="x" * size))
        book.offered += 1
    book.turn()
    assert book.statistics().dropped == {"too_large": 1}
    assert len(book.events()) == 2
