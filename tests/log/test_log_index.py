"""Sealed segments: where their index comes from, what it spares, and what it must not cost."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import Event, Rewound
from eventlog.log import open_log
from eventlog.log.files import FileReader, last_valid_seq
from eventlog.log.index import (
    FOOTER_SIZE,
    Footer,
    IndexBuilder,
    IndexEntry,
    SegmentIndex,
    read_footer,
    read_index,
)
from eventlog.log.layout import BlockKind, header_seed
from eventlog.log.live import LiveSource
from eventlog.log.seal import retire_segments
from eventlog.log.segment_reader import Damage, Segment
from eventlog.log.source import TailCache

Read = Callable[[Path], tuple[list[Event], list[Damage]]]


def index_of(path: Path) -> list[IndexEntry] | None:
    """Return the entries of a segment's index."""
    segment = Segment(path)
    index = read_index(segment)
    segment.close()
    return None if index is None else list(index)


def headers_of(path: Path) -> list[IndexEntry]:
    """Return what the entries must be."""
    segment = Segment(path)
    found = [
        IndexEntry.of(b.offset, b.header)
        for b in segment.scan()
        if b.header.kind == BlockKind.EVENTS
    ]
    segment.close()
    return found


@pytest.fixture
def sealed(book: Any) -> Any:
    """Write a log of two segments that were ended in good order, with records among the blocks."""
    recorder = book.open()
    book.blocks(6, 7)
    recorder.inbox.drop("media")
    book.blocks(5, 3)
    recorder.inbox.put(Rewound(mono=book.clock.monotonic_ns(), to_step=4, attempt=2))
    book.offered += 1
    recorder.attempt = 2
    book.clock.advance(11)
    book.blocks(4, 5)
    book.turn()
    recorder.stop(10)
    book.recorder = None
    return book


def test_a_segment_is_sealed_by_a_rewind_and_by_the_end(sealed: Any) -> None:
    """Its index says what the headers say, and its footer adds that up."""
    paths = sealed.segments()
    assert len(paths) == 2
    for path, (base, end) in zip(paths, ((0, 57), (57, 78)), strict=True):
        entries = index_of(path)
        assert entries == headers_of(path)
        assert entries
        segment = Segment(path)
        footer = read_footer(segment)
        assert isinstance(footer, Footer)
        assert (footer.base_seq, footer.end, footer.events) == (base, end, end - base)
        assert footer.blocks == len(entries)
        assert footer.first_time == min(e.first_time for e in entries)
        assert footer.last_time == max(e.last_time for e in entries)
        kinds = [b.header.kind for b in segment.scan()]
        assert kinds[-2:] == [BlockKind.INDEX, BlockKind.FOOTER]
        assert kinds.count(BlockKind.INDEX) == 1
        segment.close()


def test_a_segment_is_sealed_when_it_is_full(book: Any) -> None:
    """The one that is being written is not."""
    book.open(segment_bytes=6_000)
    book.blocks(20, 30)
    *full, last = book.segments()
    assert len(full) > 3
    assert all(index_of(path) == headers_of(path) != [] for path in full)
    assert index_of(last) is None
    book.recorder.stop(10)
    assert index_of(last) == headers_of(last) != []


def test_a_crash_leaves_no_index(book: Any) -> None:
    """And the next process does not write one into what is not its own."""
    book.open()
    book.blocks(3, 5)
    book.crash()
    (path,) = book.segments()
    before = path.read_bytes()
    book.open()
    book.blocks(1, 5)
    assert path.read_bytes() == before
    assert index_of(path) is None


@pytest.mark.parametrize("what", ["write", "room", "sync", "record"])
def test_what_the_disk_refused_is_not_sealed(book: Any, read_all: Read, what: str) -> None:
    """After a failed write, or sync, a segment stays as it is, and the log goes on in another."""
    recorder = book.open()
    book.blocks(3, 5)
    (path,) = book.segments()
    book.clock.advance(2)
    if what == "write":
        book.files.write_error = errno.EIO
        book.blocks(1, 5)
    elif what == "room":
        book.files.room = 100
        book.blocks(1, 5)
    elif what == "record":
        recorder.inbox.drop("media")
        book.files.write_error = errno.ENOSPC
        book.turn()
    else:
        recorder.writer._log.sync()
        book.blocks(1, 5)
        book.files.sync_error = errno.EIO
        recorder.writer._log.sync()
    book.files.write_error = book.files.sync_error = 0
    book.files.room = None
    size = path.stat().st_size
    book.clock.advance(2)
    book.blocks(2, 5)
    recorder.stop(10)
    assert path.stat().st_size == size
    assert index_of(path) is None
    second = book.segments()[1]
    assert index_of(second) == headers_of(second) != []
    events, _ = read_all(book.directory)
    assert [e.seq for e in events] == list(range(book.offered))


def test_an_index_that_does_not_fit_on_the_disk_costs_nothing_else(
    book: Any, read_all: Read
) -> None:
    """A disk that becomes full at the very end: the segment is read without an index."""
    recorder = book.open()
    book.blocks(3, 5)
    book.files.room = 70
    recorder.stop(10)
    (path,) = book.segments()
    assert index_of(path) is None
    events, (tail,) = read_all(book.directory)
    assert len(events) == 15
    assert (tail.length, tail.reason) == (70, "a tail that is no block")
    assert last_valid_seq(book.directory) == 15


def check(directory: Path, whole: list[Event], read_all: Read) -> list[Damage]:
    events, damage = read_all(directory)
    assert events == whole
    assert last_valid_seq(directory) == len(whole)
    for seq in (0, 1, 20, 40, 56, 57, 58, 76, 77):
        block = FileReader(directory).read(seq)
        assert block is not None
        assert block.first <= seq < block.end
        assert block.events() == whole[block.first : block.end]
    assert FileReader(directory).read(78) is None
    return damage


def test_a_sealed_end_that_is_cut_costs_no_event(sealed: Any, read_all: Read) -> None:
    """At every byte, in the last segment and in the one before it."""
    whole, damage = read_all(sealed.directory)
    assert not damage
    for path in reversed(sealed.segments()):
        data = path.read_bytes()
        segment = Segment(path)
        index = read_index(segment)
        segment.close()
        assert index is not None
        for size in range(len(data) - 1, index.offset - 1, -1):
            os.truncate(path, size)
            assert index_of(path) is None
            damage = check(sealed.directory, whole, read_all)
            # an index without its footer is a block that is whole
            whole_to = max(end for end in (index.offset, len(data) - FOOTER_SIZE) if end <= size)
            expected = Damage(path, whole_to, size - whole_to, "a tail that is no block")
            assert damage == ([expected] if expected.length else [])
        path.write_bytes(data)
    assert check(sealed.directory, whole, read_all) == []


def test_a_sealed_end_with_a_wrong_byte_costs_no_event(sealed: Any, read_all: Read) -> None:
    """Each byte of it in turn; it is said where that is."""
    whole, _ = read_all(sealed.directory)
    path = sealed.segments()[0]
    data = path.read_bytes()
    segment = Segment(path)
    index = read_index(segment)
    segment.close()
    assert index is not None
    for at in range(index.offset, len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        assert index_of(path) is None
        (one,) = check(sealed.directory, whole, read_all)
        assert one.offset <= at < one.offset + one.length
        assert [d.offset for d in open_log(sealed.run_dir).summary().damage] == [one.offset]


@pytest.mark.parametrize("shift", [-1, 64, 10**6, -(10**3)])
def test_an_index_that_lies_is_not_believed(
    sealed: Any, read_all: Read, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksums hold, and yet it points elsewhere: the headers are gone through then."""
    whole, _ = read_all(sealed.directory)
    for path in sealed.segments():
        segment = Segment(path)
        index = read_index(segment)
        assert index is not None
        assert segment.header is not None
        builder = IndexBuilder(segment.header.base_seq)
        for entry in index:
            builder.add(entry._replace(offset=max(0, entry.offset + shift)))
        data = path.read_bytes()[: index.offset]
        seal = builder.seal(len(data), header_seed(segment.header.uuid))
        segment.close()
        path.write_bytes(data + b"".join(seal))
        assert index_of(path) != headers_of(path)
    assert check(sealed.directory, whole, read_all) == []


def test_damage_before_the_place_that_is_sought_costs_no_event_behind_it(
    sealed: Any, read_all: Read
) -> None:
    """The index leads past it; without the index, the next header that holds is searched."""
    whole, _ = read_all(sealed.directory)
    path = sealed.segments()[0]
    data = bytearray(path.read_bytes())
    entries = headers_of(path)
    data[entries[1].offset + 9] ^= 1
    for end in (len(data), len(data) - 1):
        path.write_bytes(data[:end])
        for seq in range(entries[2].first_seq, 57):
            block = FileReader(sealed.directory).read(seq)
            assert block is not None
            assert block.events() == whole[block.first : block.end]
        lost = set(range(entries[1].first_seq, entries[2].first_seq))
        assert {e.seq for e in whole} - {e.seq for e in read_all(sealed.directory)[0]} == lost


def test_a_seek_goes_through_no_headers(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sealed segment a reader opens at a seq: it looks at a handful of headers."""
    book.open()
    book.blocks(400, 2)
    book.recorder.stop(10)
    looked = 0
    block_at = Segment.block_at

    def counted(segment: Segment, offset: int) -> Any:
        nonlocal looked
        looked += 1
        return block_at(segment, offset)

    monkeypatch.setattr(Segment, "block_at", counted)
    for seq in (1, 400, 799):
        looked = 0
        block = FileReader(book.directory).read(seq)
        assert block is not None
        assert block.first <= seq < block.end
        assert looked <= 5
    looked = 0
    assert last_valid_seq(book.directory) == 800
    assert looked == 1
    assert FileReader(book.directory).read(800) is None
    (path,) = book.segments()
    os.truncate(path, path.stat().st_size - 1)
    looked = 0
    assert FileReader(book.directory).read(799) is not None
    assert looked > 400


def test_finding_in_an_index() -> None:
    """The first block that ends after a seq, also where events are missing between blocks."""
    assert SegmentIndex(b"", 0).find(0) is None
    builder = IndexBuilder(5)
    for offset, (first, n) in enumerate([(5, 3), (8, 1), (20, 10)]):
        builder.add(IndexEntry(offset, first, n, 7 - first, 0, 0, 0, 0))
    index = SegmentIndex(builder.seal(0, 0)[1], 0)
    found = [None if (e := index.find(seq)) is None else e.offset for seq in (0, 5, 7, 8, 9, 29)]
    assert found == [0, 0, 0, 1, 2, 2]
    assert index.find(30) is None
    assert [e.first_seq for e in index] == [5, 8, 20]
    assert index[2].events == 10
    for number in (-1, 3):
        with pytest.raises(IndexError):
            index[number]


def test_a_segment_ends_before_its_index_is_too_large(
    book: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small its blocks are, and whatever size it may have."""
    monkeypatch.setattr("eventlog.log.index.MAX_PAYLOAD", 10 * 54)
    book.open()
    book.blocks(35, 1)
    book.recorder.stop(10)
    assert [len(index_of(path) or ()) for path in book.segments()] == [10, 10, 10, 5]
    builder = IndexBuilder(0)
    for _ in range(11):
        assert builder.full == (len(builder.seal(0, 0)[1]) >= 540)
        builder.add(IndexEntry(0, 0, 1, 0, 0, 0, 0, 0))
    assert builder.seal(0, 0) == []


def test_segments_that_go_while_they_are_read_are_passed_by(book: Any) -> None:
    """Retention takes the oldest ones: who was about to open them goes on with what is left."""
    book.open(segment_bytes=1_500)
    book.blocks(12, 8)
    book.recorder.stop(10)
    reader = FileReader(book.directory)
    first = reader.read(0)
    assert first is not None
    gone = retire_segments(book.directory, 50)
    assert len(gone) >= 2
    seen = [first.first]
    seq = first.end
    while (block := reader.read(seq)) is not None:
        seen.append(block.first)
        seq = block.end
    assert seq == 96
    assert all(earlier < later for earlier, later in itertools.pairwise(seen))
    kept = int(book.segments()[0].name[:20])
    # the open one is read to its end, those that had gone are missing
    assert kept in seen
    assert not [s for s in seen if first.end + 8 <= s < kept]
    assert last_valid_seq(book.directory) == 96


def test_a_backlog_that_gets_to_the_disk_meanwhile_is_not_missed(
    book: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader looks at what waits for the disk and at the files: it is in one of them."""
    recorder = book.open(cache=TailCache(max_events=5))
    book.blocks(1, 5)
    book.files.write_error = errno.ENOSPC
    book.blocks(4, 5)
    log = recorder.writer._log
    waiting = log.waiting

    def recovered(seq: int) -> Any:
        book.files.write_error = 0
        book.clock.advance(2)
        book.turn()
        return waiting(seq)

    assert isinstance(recorder.source, LiveSource)
    reader = recorder.source.open_reader()
    block = reader.read(5)
    assert block is not None
    assert block.first == 5
    monkeypatch.setattr(log, "waiting", recovered)
    block = reader.read(10)
    assert block is not None
    assert block.first == 10
