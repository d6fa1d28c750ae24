"""Whatever happens: emitted = written + dropped + queued, and every drop has a reason."""

import errno
import os
import shutil
from typing import Any

import pytest

from eventlog.events import (
    ConfigUpdated,
    Event,
    RunFinished,
    StepEvent,
    TextEvent,
)
from eventlog.exceptions import ValueRejectedError
from eventlog.log import open_log
from eventlog.log.inbox import EVENT_BYTES, Barrier, Inbox
from eventlog.log.log_writer import BACKLOG_BYTES
from eventlog.log.writer import TURN_EVENTS
from eventlog.recorder import Recorder


class Late:
    """An event that is made on the writer's thread."""

    size = 1_000
    ready = True

    def __init__(self, event: Event | None = None) -> None:
        self.event = event

    def resolve(self) -> Event:
        """Return the event, or fail."""
        if self.event is None:
            raise OSError("the file has gone")
        return self.event


def test_a_full_inbox_drops_and_counts(book: Any) -> None:
    """Telemetry beyond the bound is dropped; run events have a reserve of their own."""
    recorder = book.open(inbox=Inbox(max_events=10, reserve=2))
    book.emit(15)
    assert book.statistics().dropped == {"inbox_full": 5}
    assert book.statistics().queued == 10
    for accepted in (True, True, False):
        assert recorder.inbox.put(RunFinished(mono=1), reserved=True) is accepted
        book.offered += 1
        book.statistics()
    book.turn()
    found = book.statistics()
    assert (found.written, found.queued, found.dropped) == (12, 0, {"inbox_full": 6})
    book.emit(3)
    book.turn()
    assert book.statistics().written == 15
    assert open_log(book.run_dir).summary().dropped == {"inbox_full": 6}


def test_large_events_fill_the_inbox_by_their_bytes(book: Any) -> None:
    """The bound is one of memory: what is large says so, and is given back once written."""
    recorder = book.open(inbox=Inbox(max_bytes=100_000))
    text = "x" * 30_000
    for round_ in range(3):
        taken = [recorder.offer(StepEvent(mono=1), {"t": text}) for _ in range(5)]
        assert taken == [True, True, True, False, False]
        book.offered += 5
        assert book.statistics().dropped == {"inbox_full": 2 * round_ + 2}
        book.turn()
    taken = [recorder.offer(TextEvent(mono=1, tag="t", text=text)) for _ in range(5)]
    assert taken == [True, True, True, False, False]
    book.offered += 5
    book.turn()
    assert book.statistics().written == 12
    assert recorder.inbox._extra == 0


def test_small_events_count_as_bytes_as_well() -> None:
    """Many small events are bounded by bytes, too."""
    inbox = Inbox(max_bytes=10 * EVENT_BYTES)
    assert sum(inbox.put(StepEvent()) for _ in range(20)) == 11


def test_deferred_events_keep_their_place(book: Any) -> None:
    """What is resolved later is written where it was emitted; what fails is counted."""
    recorder = book.open()
    for item in (StepEvent(step=0), Late(StepEvent(step=1)), Late(), StepEvent(step=2)):
        recorder.inbox.put(item)
        book.offered += 1
    late = Late(StepEvent(step=3))
    late.event = "no event"  # type: ignore[assignment]
    recorder.inbox.put(late)
    book.offered += 1
    assert book.statistics().queued == 5
    book.turn()
    assert [e.step for e in book.events()] == [0, 1, 2]
    assert book.statistics().dropped == {"unresolved": 2}


def test_an_event_that_is_not_ready_holds_up_those_after_it(book: Any) -> None:
    """The order is that of emission: the writer takes up to what is still on a device."""
    recorder = book.open()
    late = Late(StepEvent(step=1))
    late.ready = False
    for item in (StepEvent(step=0), late, StepEvent(step=2)):
        recorder.inbox.put(item)
        book.offered += 1
    book.turn()
    assert (book.statistics().written, book.statistics().queued) == (1, 2)
    late.ready = True
    book.turn()
    assert [e.step for e in book.events()] == [0, 1, 2]
    assert (book.statistics().written, book.statistics().queued) == (3, 0)


def test_barriers_are_no_events(book: Any) -> None:
    """A flush is neither counted nor refused for want of room, and is reached in order."""
    recorder = book.open(inbox=Inbox(max_events=2))
    book.emit(3)
    barrier = Barrier()
    assert recorder.inbox.put(barrier)
    assert recorder.inbox.waiting == 2
    assert book.statistics().queued == 2
    assert not barrier.wait(0)
    book.turn()
    assert barrier.wait(0)
    assert barrier.seq == 2
    recorder.inbox.refuse("closed")
    assert not recorder.inbox.put(Barrier())
    assert book.statistics().dropped == {"inbox_full": 1}


def test_after_the_end_everything_is_refused(book: Any) -> None:
    """What comes after close is counted under a reason of its own."""
    recorder = book.open()
    book.emit(3)
    recorder.stop(10)
    book.emit(2)
    found = book.statistics()
    assert (found.written, found.dropped) == (3, {"closed": 2})
    assert recorder.source.closed


def test_values_that_msgpack_cannot_hold_are_mended(book: Any) -> None:
    """A lone surrogate, 2**70 and a huge integer cost nobody their event."""
    recorder = book.open()
    given = {"text": "a\ud800b", "\udfff": 1, "big": 2**70, "huge": -(10**400), "ok": 1}
    for values in ({"n": 0}, given, {"n": 2}):
        recorder.offer(StepEvent(mono=1, step=1), values)
        book.offered += 1
    recorder.inbox.put(
        ConfigUpdated(mono=1, config={"a": [2**70, "\ud800", {"\ud800": [None, -0.5]}]})
    )
    book.offered += 1
    book.turn()
    assert book.statistics().written == 4
    events = book.events()
    mended = {"text": "a?b", "?": 1, "big": float(2**70), "huge": float("-inf"), "ok": 1}
    assert [e.values for e in events[:3]] == [{"n": 0}, mended, {"n": 2}]
    assert isinstance(events[3], ConfigUpdated)
    assert events[3].config == {"a": [float(2**70), "?", {"?": [None, -0.5]}]}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (2**63, None),
        (2**70, None),
        (-1, None),
        (1.5, None),
        ("3", None),
        (True, None),
        (3.0, 3),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_a_step_that_is_none_costs_neither_its_event_nor_others(
    book: Any, given: Any, kept: int | None
) -> None:
    """Values are recorded without a place rather than lost, and the rejection is counted."""
    recorder = book.open()
    book.emit(2)
    recorder.offer(StepEvent(mono=1, step=given, batch=given), {"n": "odd"})
    book.offered += 1
    book.emit(2)
    book.turn()
    assert book.statistics().written == 5
    event = book.events()[2]
    assert type(event) is StepEvent
    assert (event.step, event.batch, event.values) == (kept, kept, {"n": "odd"})
    assert recorder.rejections.counts == ({} if kept else {"bad_step": 1, "bad_batch": 1})


@pytest.mark.parametrize("step", [2**63, "x", 1.5, 2**80, object()])
def test_a_bad_axis_that_comes_past_every_check_is_dropped_alone(book: Any, step: Any) -> None:
    """One event that no block can describe does not take its neighbours with it."""
    recorder = book.open()
    for place in (0, 1, step, 3, 4):
        recorder.inbox.put(StepEvent(mono=1, step=place))
        book.offered += 1
    book.turn()
    found = book.statistics()
    assert found.queued == 0
    assert found.written == len(book.events()) >= 4
    book.blocks(1, 3)
    assert [e.seq for e in book.events()] == list(range(found.written + 3))


def test_a_mono_that_is_out_of_range_is_dropped_alone(book: Any) -> None:
    """The time of an event fits into a block's header, or the event is left out."""
    recorder = book.open()
    for mono in (1, 2**63, 3):
        recorder.inbox.put(StepEvent(mono=mono, step=0))
        book.offered += 1
    book.turn()
    assert book.statistics().dropped == {"unencodable": 1}
    assert [e.mono for e in book.events()] == [1, 3]


class Custom(Event, tag="test_custom", frozen=True, kw_only=True):
    """A user's own type, with whatever is put into it."""

    thing: Any = None


def test_a_field_that_cannot_be_encoded_costs_its_event_alone(book: Any) -> None:
    """A lambda in a user's event is counted; a NumPy number is mended."""
    numpy = pytest.importorskip("numpy")
    recorder = book.open()
    for thing in (1, lambda: 1, numpy.float32(0.5), [numpy.int64(3)]):
        recorder.offer(Custom(mono=1, thing=thing))
        book.offered += 1
    book.turn()
    assert book.statistics().dropped == {"unencodable": 1}
    assert [e.thing for e in book.events() if isinstance(e, Custom)] == [1, 0.5, [3]]


def test_rejected_values_are_counted_apart_from_events(book: Any) -> None:
    """An event of which no value could be recorded is dropped; others keep what is good."""
    recorder = book.open()
    assert recorder.offer(StepEvent(mono=1, step=1), {"good": 1, "bad": None})
    assert not recorder.offer(StepEvent(mono=1, step=2), {"bad": None})
    assert recorder.offer(StepEvent(mono=1, step=3), {})
    book.offered = 3
    book.turn()
    assert book.statistics().dropped == {"no_value": 1}
    assert recorder.rejections.counts == {"none": 2}
    assert [e.values for e in book.events()] == [{"good": 1}, {}]


def test_strict_mode_raises_for_what_would_be_counted(book: Any) -> None:
    """Tests of training code can insist on every value."""
    recorder = book.open(strict=True)
    with pytest.raises(ValueRejectedError, match="'bad' cannot be recorded: None is no value"):
        recorder.offer(StepEvent(mono=1), {"bad": None})


def test_a_rejection_is_named_once(book: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is bad at every step does not fill the terminal."""
    recorder = book.open()
    for _ in range(100):
        recorder.offer(StepEvent(mono=1), {"bad" * 100: None})
    assert len(caplog.records) == 1
    assert len(caplog.text) < 400
    for n in range(1_000):
        recorder.offer(StepEvent(mono=1), {f"bad{n}": None})
    assert len(caplog.records) == 100
    assert recorder.rejections.counts == {"none": 1_100}


def test_a_run_without_a_directory_keeps_count(book: Any) -> None:
    """Written means in the cache where there is no log."""
    recorder = Recorder(None, run_id="r", clock=book.clock)
    book.recorder = recorder
    book._made.append(recorder)
    book.emit(5)
    book.turn()
    found = book.statistics()
    assert (found.written, found.queued, found.degraded) == (5, 0, None)
    block = recorder.source.open_reader().read(0)
    assert block is not None
    assert [e.values["n"] for e in block.events()] == list(range(5))


# -- disks that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["write_error", "create_error"])
def test_what_a_disk_refuses_is_written_when_it_recovers(
    book: Any, code: int, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Events wait while the disk fails, then follow in order into a new segment, none twice."""
    recorder = book.open()
    book.blocks(2, 5)
    setattr(book.files, call, code)
    recorder.writer._log.leave_segment()
    for _ in range(3):
        book.blocks(2, 5)
        found = book.statistics()
        assert found.written == 10
        assert found.degraded is not None
        book.clock.advance(1.1)
    assert found.queued == 30
    assert book.numbers() == list(range(10))
    # what waits for the disk can be read by who follows live
    reader = recorder.source.open_reader()
    assert [b.first for seq in range(10, 40, 5) if (b := reader.read(seq))] == [*range(10, 40, 5)]
    setattr(book.files, call, 0)
    book.turn()
    found = book.statistics()
    assert (found.written, found.queued, found.degraded) == (40, 0, None)
    assert book.numbers() == list(range(40))
    assert len(book.segments()) == 2
    warned = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert len(warned) == 2  # that it cannot be written, and that it can


def test_a_failing_disk_is_asked_once_a_second(book: Any) -> None:
    """Retrying costs neither the disk nor the writer much."""
    recorder = book.open()
    book.files.create_error = errno.EACCES
    asked = 0
    original = book.files.create

    def create(path: Any) -> int:
        nonlocal asked
        asked += 1
        return int(original(path))

    recorder.writer._log._files = book.files
    book.files.create = create
    for _ in range(100):
        book.emit(1)
        book.clock.advance(0.02)
        book.turn()
    assert 2 <= asked <= 4
    assert book.statistics().queued == 100


@pytest.mark.parametrize("most", [1, 7, 63, 100, 4096])
def test_short_writes_are_completed(book: Any, most: int) -> None:
    """A write that takes less than it was given is gone on with."""
    book.open()
    book.files.most = most
    book.blocks(3, 20)
    assert book.numbers() == list(range(60))
    assert len(book.segments()) == 1


def test_a_write_that_takes_nothing_is_a_failure(book: Any) -> None:
    """A system call that never gets anywhere does not hang the writer."""
    book.open()
    book.blocks(1, 5)
    book.files.most = 0
    book.blocks(1, 5)
    assert book.statistics().queued == 5
    book.files.most = None
    book.clock.advance(2)
    book.turn()
    assert book.numbers() == list(range(10))


@pytest.mark.parametrize("room", range(0, 4_000, 97))
def test_a_disk_that_fills_up_in_the_middle_of_a_write(book: Any, room: int) -> None:
    """Blocks that were written whole stay; the rest is written again: none is lost or doubled."""
    recorder = book.open()
    book.blocks(1, 3)
    recorder.writer._chunk = 8
    book.files.room = room
    book.emit(40)
    recorder.writer._chunk = 8
    book.turn()
    before = book.statistics()
    assert [e.seq for e in book.events()] == list(range(before.written))
    book.files.room = None
    book.clock.advance(2)
    book.turn()
    assert book.statistics().written == 43
    events = book.events()
    assert [e.values["n"] for e in events] == list(range(43))
    firsts = [open_log(book.run_dir).summary().events, len(events)]
    assert firsts == [43, 43]


def test_the_backlog_is_bounded(book: Any) -> None:
    """An outage costs the oldest events, counted, once there are too many of them."""
    recorder = book.open()
    book.blocks(1, 1)
    book.files.write_error = errno.ENOSPC
    text = "x" * (BACKLOG_BYTES // 8)
    for n in range(12):
        recorder.inbox.put(TextEvent(mono=n, tag="t", text=text))
        book.offered += 1
        book.turn()
        book.statistics()
    lost = book.statistics().dropped["disk"]
    assert 4 <= lost <= 5
    book.files.write_error = 0
    book.clock.advance(2)
    book.turn()
    assert [e.seq for e in book.events()] == [0, *range(1 + lost, 13)]
    assert open_log(book.run_dir).summary().dropped == {"disk": lost}


def test_a_disk_that_recovers_before_the_end_gets_everything(book: Any) -> None:
    """The last turn tries again, however short ago the last failure was."""
    recorder = book.open()
    book.blocks(1, 5)
    book.files.write_error = errno.ENOSPC
    book.blocks(1, 5)
    book.files.write_error = 0
    recorder.stop(10)
    assert book.numbers() == list(range(10))
    assert book.statistics().dropped == {}


def test_a_disk_that_never_recovers_costs_what_waits_for_it(book: Any) -> None:
    """At the end the backlog is given up and counted."""
    recorder = book.open()
    book.blocks(1, 5)
    book.files.write_error = errno.EIO
    book.blocks(2, 5)
    recorder.stop(10)
    found = book.statistics()
    assert (found.written, found.queued, found.dropped) == (5, 0, {"disk": 10})


def test_a_sync_that_fails_ends_the_segment(book: Any) -> None:
    """A failed fdatasync is never retried: what it may have lost goes into a new segment."""
    recorder = book.open()
    log = recorder.writer._log
    book.blocks(1, 5)
    log.sync()
    assert recorder.source.synced == 5
    book.blocks(1, 5)
    book.files.sync_error = errno.EIO
    log.sync()
    syncs = book.files.syncs
    log.sync()
    assert book.files.syncs == syncs
    assert recorder.source.synced == 5
    assert os.strerror(errno.EIO) in str(book.statistics().degraded)
    book.files.sync_error = 0
    book.turn()
    assert book.statistics().degraded is None
    log.sync()
    assert recorder.source.synced == 10
    book.blocks(1, 5)
    log.sync()
    assert recorder.source.synced == 15
    assert book.numbers() == list(range(15))
    assert book.statistics().written == 15
    first, _second = book.segments()
    first.unlink()  # as if the disk had lost all of it but what was synced
    assert book.numbers() == list(range(5, 15))


def test_a_sync_that_fails_at_the_end_is_made_good_elsewhere(book: Any) -> None:
    """The last segment is written once more when it could not be synced."""
    recorder = book.open()
    book.blocks(1, 5)
    recorder.writer._log.sync()
    book.blocks(1, 5)
    fail = book.files.fdatasync

    def once(fd: int) -> None:
        book.files.fdatasync = fail
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    book.files.fdatasync = once
    recorder.stop(10)
    assert recorder.source.synced == 10
    assert book.statistics().degraded is None
    book.segments()[0].unlink()
    assert book.numbers() == list(range(5, 10))


def test_a_disk_that_never_syncs_is_said_at_the_end(book: Any) -> None:
    """What was written is there, and the account says that it may not stay."""
    recorder = book.open()
    book.blocks(1, 5)
    book.files.sync_error = errno.EIO
    recorder.stop(10)
    assert book.numbers() == list(range(5))
    assert recorder.source.synced == 0
    assert book.statistics().degraded is not None


def test_nothing_is_synced_while_nothing_is_written(book: Any) -> None:
    """An idle run leaves the disk in peace."""
    recorder = book.open()
    log = recorder.writer._log
    log.sync()
    book.blocks(1, 5)
    log.sync()
    syncs = book.files.syncs
    for _ in range(5):
        log.sync()
    assert book.files.syncs == syncs == 1


def test_a_directory_that_is_removed_is_made_again(
    book: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log goes on in a new directory once the sync has noticed, and is locked there."""
    recorder = book.open()
    log = recorder.writer._log
    book.blocks(1, 5)
    log.sync()
    shutil.rmtree(book.run_dir)
    log.sync()  # once a second
    book.blocks(2, 5)
    assert [e.seq for e in book.events()] == list(range(5, 15))
    assert book.statistics().written == 15
    assert "was removed" in caplog.text
    assert open_log(book.run_dir).status() == "running"
    book.turn()
    log.sync()
    assert len(book.segments()) == 1


def test_a_segment_that_is_removed_is_not_missed_for_long(book: Any) -> None:
    """Removing the file alone is noticed as well."""
    recorder = book.open()
    book.blocks(1, 5)
    book.segments()[0].unlink()
    recorder.writer._log.sync()
    book.blocks(1, 5)
    assert [e.seq for e in book.events()] == list(range(5, 10))


def test_a_fault_in_the_writer_costs_what_it_must_and_is_counted(
    book: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception of ours ends neither the log nor the account."""
    recorder = book.open()
    book.blocks(1, 5)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("eventlog.log.log_writer.pack_block", broken)
    for _ in range(4):
        book.blocks(1, 5)
        book.statistics()
        book.clock.advance(1.1)
    monkeypatch.undo()
    book.clock.advance(1.1)
    book.turn()
    book.blocks(1, 5)
    found = book.statistics()
    assert found.queued == 0
    assert found.written == len(book.events()) == 30 - found.dropped.get("disk", 0)
    monkeypatch.setattr("eventlog.log.writer.describe", broken)
    book.blocks(1, 5)
    monkeypatch.undo()
    assert book.statistics().dropped["unencodable"] == 5
    monkeypatch.setattr(type(recorder.writer), "_by_attempt", broken)
    book.blocks(1, 5)
    monkeypatch.undo()
    assert book.statistics().dropped["writer_error"] == 5
    book.blocks(1, 5)
    assert book.statistics().written == len(book.events())


def test_a_turn_takes_a_bounded_number(book: Any) -> None:
    """A flood is written in pieces, so that the writer can be asked for its account."""
    recorder = book.open()
    n = TURN_EVENTS + 10
    recorder.inbox.items.extend(StepEvent(mono=i, step=i) for i in range(n))
    book.offered = n
    assert recorder.writer.turn() == TURN_EVENTS
    assert book.statistics().queued == 10
    assert recorder.writer.turn() == 10
    assert len(book.events()) == n


def test_the_threads_write_and_end(book: Any) -> None:
    """With its threads running, stop writes everything that was emitted before it."""
    recorder = Recorder(book.run_dir, run_id="r")
    book.recorder = recorder
    book._made.append(recorder)
    recorder.start()
    book.emit(1_000)
    assert recorder.stop(10)
    assert book.statistics().written == 1_000
    assert book.numbers() == list(range(1_000))
    assert recorder.source.synced == 1_000
