"""Compaction: other blocks, the same events; and nobody who reads or writes is disturbed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventlog import _platform
from eventlog.events import Event, StepEvent, TextEvent
from eventlog.exceptions import LogError
from eventlog.log import open_log, seal
from eventlog.log.attempts import Attempts
from eventlog.log.files import FileReader, last_valid_seq
from eventlog.log.follow import FollowSource
from eventlog.log.index import IndexEntry, read_index
from eventlog.log.layout import HEADER_SIZE, BlockKind, Codec
from eventlog.log.seal import Compacted, compact_log, compact_segment
from eventlog.log.segment_reader import Segment, has_remains, latched_events
from eventlog.log.source import describe

from .conftest import Book
from .logs import Act, Doer, exactly, some_acts, stored_blocks, stored_events

RECORDS = (BlockKind.CLOCK, BlockKind.GAP, BlockKind.SCHEMA)


def check_headers(directory: Path) -> None:
    """Check that each block's header, and the index, say what is in the block."""
    reader = FileReader(directory)
    seq = 0
    while (block := reader.read(seq)) is not None:
        events = block.events()
        assert (block.flags, block.steps) == describe(events)
        assert block.first_time == events[0].wall
        seq = block.end
    for path in sorted(directory.glob("*.elog")):
        segment = Segment(path)
        scanned = [b for b in segment.scan() if b.header.kind == BlockKind.EVENTS]
        index = read_index(segment)
        if any(b.header.codec != Codec.NONE for b in scanned):
            assert index is not None
        if index is not None:
            assert list(index) == [IndexEntry.of(b.offset, b.header) for b in scanned]
        for one in scanned:
            stored = FileReader(directory).read(one.header.first_seq)
            assert stored is not None
            assert one.header.last_time == max(e.wall for e in stored.events())
        segment.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    acts=some_acts(),
    codec=st.sampled_from(["zlib", "zstd"]),
    segment_bytes=st.sampled_from([1, 4_000, 10**8]),
    merged=st.sampled_from([200, 2_000, 256 * 1024]),
    ends=st.booleans(),
)
def test_compaction_keeps_every_event_as_it_is(
    acts: list[Act], codec: str, segment_bytes: int, merged: int, ends: bool
) -> None:
    """All fields, places and times; attempts, gaps and clocks; and the headers say what is true."""
    merged_bytes, seal._MERGED_BYTES = seal._MERGED_BYTES, merged
    with tempfile.TemporaryDirectory() as name:
        book = Book(Path(name) / "run")
        doer = Doer(book, segment_bytes=segment_bytes)
        for act in acts:
            doer.do(act)
        doer.turn()
        if ends:
            doer.book.recorder.stop(10)
        else:
            book.crash()
        book.recorder = None
        directory = book.directory
        before = exactly(stored_events(directory))
        records = stored_blocks(directory, *RECORDS)
        summary = open_log(book.run_dir).summary() if before else None
        spans = Attempts.scan(directory).spans
        check_headers(directory)
        done = list(compact_log(directory, codec))
        seal._MERGED_BYTES = merged_bytes
        assert exactly(stored_events(directory)) == before
        assert stored_blocks(directory, *RECORDS) == records
        assert Attempts.scan(directory).spans == spans
        assert last_valid_seq(directory) == len(before)
        check_headers(directory)
        for path in directory.glob("*.elog"):
            assert read_segment_codecs(path) <= {Codec.NONE, Codec[codec.upper()]}
        if summary is not None:
            after = open_log(book.run_dir).summary()
            assert after.blocks <= summary.blocks
            for name in ("events", "steps", "attempts", "dropped", "damage", "status", "last_time"):
                assert getattr(after, name) == getattr(summary, name)
        # once is enough
        sizes = [(p, p.stat().st_size) for p, *_ in done]
        assert all(again.before == again.after for again in compact_log(directory, codec))
        assert [(p, p.stat().st_size) for p, _ in sizes] == sizes
        assert not list(directory.glob(".*"))
        book.close()


def read_segment_codecs(path: Path) -> set[int]:
    segment = Segment(path)
    found = {b.header.codec for b in segment.scan() if b.header.kind == BlockKind.EVENTS}
    segment.close()
    return found


@pytest.fixture
def ended(book: Any) -> Any:
    """Write a log of several segments that were ended in good order."""
    book.open(segment_bytes=20_000)
    book.blocks(60, 10)
    book.recorder.stop(10)
    book.recorder = None
    return book


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_compaction_makes_a_log_smaller(ended: Any, codec: str) -> None:
    """It says by how much, and leaves alone what is compact already."""
    before = ended.events()
    done = list(compact_log(ended.directory, codec))
    assert [c.path for c in done] == ended.segments()
    assert all(c.after < c.before and c.skipped is None for c in done)
    assert [c.after for c in done] == [p.stat().st_size for p in ended.segments()]
    assert ended.events() == before
    for other in ("zlib", "zstd"):
        again = list(compact_log(ended.directory, other))
        assert {c.skipped for c in again} == {"it is compact already"}
        assert [c.after for c in again] == [c.after for c in done]


def test_blocks_that_no_codec_makes_smaller_stay_as_they_are(book: Any) -> None:
    """A reader is spared unpacking what gained nothing."""
    recorder = book.open()
    recorder.inbox.put(TextEvent(mono=1, tag="t", text=os.urandom(30).hex()))
    book.turn()
    recorder.stop(10)
    (path,) = book.segments()
    before = book.events()
    for _ in range(2):
        compact_segment(path)
        assert read_segment_codecs(path) == {Codec.NONE}
        assert book.events() == before
    book.recorder = None


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_who_reads_the_old_files_goes_on(ended: Any, codec: str) -> None:
    """Readers and followers at any place in a log do not notice that it was compacted."""
    whole = ended.events()
    readers = []
    for start in range(0, 600, 37):
        reader = FileReader(ended.directory)
        block = reader.read(start)
        assert block is not None
        readers.append((reader, start, block.end))
    follower = FollowSource(ended.directory, writer_lives=lambda: True)
    follower.look()
    followed = follower.open_reader()
    half = followed.read(300)
    assert half is not None
    list(compact_log(ended.directory, codec))
    for reader, _, seq in readers:
        events: list[Event] = []
        at = seq
        while (block := reader.read(at)) is not None:
            events += [e for e in block.events() if e.seq >= at]
            at = block.end
        assert events == whole[seq:]
        assert reader.damage == []
    assert not follower.look()
    block = followed.read(half.end)
    assert block is not None
    assert block.first == half.end
    # and back to where they come from, in the new files
    for reader, start, _ in readers:
        block = reader.read(start)
        assert block is not None
        assert block.events()[start - block.first] == whole[start]


def test_a_follower_at_the_end_goes_on_after_the_last_segment_was_compacted(ended: Any) -> None:
    """The next attempt's events reach it, once."""
    whole = ended.events()
    reader = FileReader(ended.directory)
    seq = 0
    while (block := reader.read(seq)) is not None:
        seq = block.end
    list(compact_log(ended.directory))
    assert reader.read(seq) is None
    ended.open()
    ended.blocks(3, 10)
    seen: list[Event] = []
    while (block := reader.read(seq)) is not None:
        assert block.first == seq
        seen += block.events()
        seq = block.end
    assert whole + seen == ended.events()
    assert reader.damage == []


def test_the_segment_that_is_written_is_left_alone(book: Any) -> None:
    """All others are compacted; once the writer has died, the last one is as well."""
    book.open(segment_bytes=10_000)
    book.blocks(20, 20)
    *others, last = book.segments()
    assert others
    before = last.read_bytes()
    *done, skipped = compact_log(book.directory)
    assert all(c.skipped is None and c.after < c.before for c in done)
    assert skipped == Compacted(last, len(before), len(before), "it is being written")
    assert last.read_bytes() == before
    book.blocks(2, 20)
    whole = book.events()
    assert [e.seq for e in whole] == list(range(book.offered))
    book.crash()
    *_, last_done = compact_log(book.directory)
    assert last_done.skipped is None
    assert book.events() == whole
    # and a new writer goes on where the old one was
    book.open()
    book.blocks(1, 5)
    assert [e.seq for e in book.events()] == list(range(book.offered))


@pytest.mark.parametrize("what", ["header", "block", "payload", "tail", "copy", "seal"])
def test_a_damaged_segment_is_left_alone(ended: Any, what: str) -> None:
    """What could be read of it by other means must not go; the others are compacted."""
    path = ended.segments()[1]
    segment = Segment(path)
    blocks = list(segment.scan())
    events = [b for b in blocks if b.header.kind == BlockKind.EVENTS]
    at = {
        "header": 20,
        "copy": segment.start - 10,
        "block": events[3].offset + 10,
        "payload": events[3].offset + HEADER_SIZE + 5,
        "tail": 0,
        "seal": blocks[-1].offset + 3,
    }[what]
    segment.close()
    data = bytearray(path.read_bytes())
    if what == "tail":
        data += b"torn"
    else:
        data[at] ^= 8
    path.write_bytes(data)
    readable = exactly(stored_events(ended.directory))
    done = list(compact_log(ended.directory))
    if what == "copy":
        # the copy is no more than a spare
        assert done[1].skipped in (None, "it is damaged")
    else:
        assert done[1] == Compacted(path, len(data), len(data), "it is damaged")
        assert path.read_bytes() == data
    assert all(c.skipped is None for c in (done[0], *done[2:]))
    assert exactly(stored_events(ended.directory)) == readable


def test_a_segment_of_which_a_payload_is_no_list_of_events_is_left_alone(
    ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksums hold, but what they hold is not understood."""
    before = [p.read_bytes() for p in ended.segments()]
    monkeypatch.setattr("eventlog.log.seal.decode_events", lambda _: [])
    done = list(compact_log(ended.directory))
    assert all(c.skipped is not None and c.skipped.startswith("it is damaged: ") for c in done)
    assert [p.read_bytes() for p in ended.segments()] == before
    assert not list(ended.directory.glob(".*"))


def test_a_segment_without_events_is_left_alone(book: Any) -> None:
    """There is nothing to be gained."""
    book.open()
    book.blocks(1, 1)
    book.crash()
    (path,) = book.segments()
    segment = Segment(path)
    os.truncate(path, segment.start)
    segment.close()
    assert not has_remains(path)
    (done,) = compact_log(book.directory)
    assert done.skipped == "it holds no events"


def test_a_compaction_that_was_killed_leaves_a_log_that_can_be_read(ended: Any) -> None:
    """What it had not finished is no part of the log, and the next compaction removes it."""
    whole = ended.events()
    paths = ended.segments()
    sizes = [p.stat().st_size for p in paths]

    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", killed)
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KilledError):
            list(compact_log(ended.directory))
    (left,) = ended.directory.glob(".*")
    assert left.stat().st_size > 0
    assert ended.events() == whole
    assert ended.segments() == paths
    assert [p.stat().st_size for p in paths] == sizes
    assert open_log(ended.run_dir).summary().damage == []
    ended.open()
    ended.blocks(1, 5)
    done = list(compact_log(ended.directory))
    assert not list(ended.directory.glob(".*"))
    assert sum(c.skipped is None for c in done) == len(paths)
    assert ended.events()[: len(whole)] == whole


def test_a_disk_that_is_full_leaves_the_old_file(
    ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the caller's, the log as it was, and nothing is left over."""
    before = [p.read_bytes() for p in ended.segments()]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        list(compact_log(ended.directory))
    assert [p.read_bytes() for p in ended.segments()] == before
    assert not list(ended.directory.glob(".*"))


def test_two_compactions_at_once(ended: Any) -> None:
    """The second one is told, and the first one's files are left alone."""
    first = iter(compact_log(ended.directory))
    next(first)
    with pytest.raises(LogError, match="is being compacted by another process"):
        next(compact_log(ended.directory))
    del first
    assert not _platform.lock_is_held(ended.directory / "compact.lock")
    assert next(iter(compact_log(ended.directory))).skipped == "it is compact already"


def test_segments_that_are_retired_meanwhile(ended: Any) -> None:
    """They need not be compacted any more."""
    compaction = compact_log(ended.directory)
    next(compaction)
    paths = ended.segments()
    paths[1].unlink()
    assert [c.path for c in compaction] == paths[2:]


def test_the_codec_must_be_known(ended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And installed; nothing is touched otherwise."""
    with pytest.raises(ValueError, match="codec must be zlib or zstd, not 'lz4'"):
        list(compact_log(ended.directory, "lz4"))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(LogError, match="pip install zstandard"):
        list(compact_log(ended.directory, "zstd"))
    assert all(read_segment_codecs(p) == {Codec.NONE} for p in ended.segments())


def test_what_a_segment_starts_with_is_kept(book: Any) -> None:
    """Its uuid, what is latched in it and both copies of its header."""
    recorder = book.open()
    recorder.inbox.put(StepEvent(mono=1))
    book.blocks(3, 30)
    book.crash()
    (path,) = book.segments()
    segment = Segment(path)
    before, prefix, latched = segment.header, segment.prefix(), latched_events(segment)
    segment.close()
    compact_segment(path)
    segment = Segment(path)
    assert (segment.header, segment.prefix(), latched_events(segment)) == (before, prefix, latched)
    assert segment.damage is None
    segment.close()
