"""Whatever happens to its bytes, what is whole in a log is read, and nothing else."""

import os
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from eventlog.codec import encode_events
from eventlog.events import Event, StepEvent, TextEvent
from eventlog.exceptions import NotALogError
from eventlog.log import open_log
from eventlog.log.files import FileReader
from eventlog.log.layout import FILE_MAGIC, HEADER_SIZE, BlockKind, Codec, Content, pack_block
from eventlog.log.segment_reader import Damage, Segment, list_segments, segment_path

Read = Callable[[Path], tuple[list[Event], list[Damage]]]


class Attached(Event, tag="test_attached", frozen=True, kw_only=True):
    """Bytes that a user keeps in the log."""

    data: bytes = b""


@pytest.fixture
def two_segments(book: Any) -> Any:
    """Write a few hundred events in some blocks of two segments."""
    book.open()
    book.blocks(6, 20)
    book.crash()
    book.open()
    book.blocks(5, 20)
    book.recorder.writer._log.leave_segment()
    book.crash()
    return book


def layout(path: Path) -> list[tuple[int, int, int, int, int]]:
    """Return (kind, start, end, first seq, seq after the last) of each block of a segment."""
    segment = Segment(path)
    found = [
        (
            b.header.kind,
            b.offset,
            b.end,
            b.header.first_seq,
            b.header.first_seq + b.header.events,
        )
        for b in segment.scan()
    ]
    segment.close()
    return found


def test_truncation_at_every_byte_costs_only_what_is_cut(two_segments: Any, read_all: Read) -> None:
    """At any length, all events of whole blocks are read, and no others."""
    book = two_segments
    whole, damage = read_all(book.directory)
    assert not damage
    assert len(whole) == 220
    first, second = book.segments()
    for path, before in ((second, 120), (first, 0)):
        ends = [(end, seq) for kind, _, end, _, seq in layout(path) if kind == BlockKind.EVENTS]
        for size in range(path.stat().st_size, -1, -1):
            os.truncate(path, size)
            readable = max([seq for end, seq in ends if end <= size], default=before)
            # one reader as a live follower has it, without the summary's second look
            reader, found, seq = FileReader(book.directory), 0, 0
            while (block := reader.read(seq)) is not None:
                assert block.first == seq
                found += block.end - block.first
                seq = block.end
                last = block
            assert found == readable
            if found:
                assert last.events() == whole[last.first : last.end]
        path.unlink()


def test_a_truncated_log_is_counted_and_its_tail_reported(
    two_segments: Any, read_all: Read
) -> None:
    """The summary agrees with what can be read, and says how many bytes are left over."""
    book = two_segments
    path = book.segments()[-1]
    *_, before, last = [b for b in layout(path) if b[0] == BlockKind.EVENTS]
    os.truncate(path, last[2] - 1)
    tail = Damage(path, last[1], last[2] - 1 - last[1], "a tail that is no block")
    events, damage = read_all(book.directory)
    assert len(events) == before[4]
    assert damage == [tail]
    summary = open_log(book.run_dir).summary()
    assert summary.events == before[4]
    assert summary.damage == [tail]


def flip(fd: int, position: int) -> None:
    (byte,) = os.pread(fd, 1, position // 8)
    os.pwrite(fd, bytes([byte ^ 1 << position % 8]), position // 8)


def check_flips(book: Any, read_all: Read, positions: list[int]) -> None:
    whole, _ = read_all(book.directory)
    path = book.segments()[0]
    blocks = [b for b in layout(path) if b[0] == BlockKind.EVENTS]
    fd = os.open(path, os.O_RDWR)
    for position in positions:
        flip(fd, position)
        events, damage = read_all(book.directory)
        flip(fd, position)
        at = position // 8
        lost = {e.seq for e in whole} - {e.seq for e in events}
        hit = [set(range(b[3], b[4])) for b in blocks if b[1] <= at < b[2]]
        assert lost == (hit[0] if hit else set()), at
        assert all(event == whole[event.seq] for event in events)
        (one,) = damage
        assert one.path == path
        assert one.offset <= at < one.offset + one.length, (at, one)
    os.close(fd)
    assert read_all(book.directory) == (whole, [])


def test_a_flipped_bit_costs_at_most_its_block(two_segments: Any, read_all: Read) -> None:
    """No wrong event is accepted, one block is lost at most, and the damage is reported."""
    size = two_segments.segments()[0].stat().st_size
    rng = random.Random(7)
    check_flips(two_segments, read_all, [rng.randrange(size * 8) for _ in range(1_500)])


def test_a_flipped_bit_in_what_a_segment_starts_with_costs_nothing(
    two_segments: Any, read_all: Read
) -> None:
    """Magic, header and schema: each bit of a byte in turn, and every event is still read."""
    first_block = next(b for b in layout(two_segments.segments()[0]) if b[0] == BlockKind.EVENTS)
    positions = [byte * 8 + byte % 8 for byte in range(0, first_block[1], 3)]
    check_flips(two_segments, read_all, positions)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_thousand_flipped_bits(two_segments: Any, read_all: Read) -> None:
    """The same, for longer."""
    size = two_segments.segments()[0].stat().st_size
    rng = random.Random(11)
    check_flips(two_segments, read_all, [rng.randrange(size * 8) for _ in range(20_000)])


def test_pages_of_zeros_cost_the_blocks_that_they_hit(book: Any, read_all: Read) -> None:
    """What a file system leaves after a crash is passed over, wherever it lies."""
    book.open()
    book.blocks(8, 60)
    book.recorder.writer._log.leave_segment()
    book.crash()
    whole, _ = read_all(book.directory)
    (path,) = book.segments()
    data = path.read_bytes()
    blocks = [b for b in layout(path) if b[0] == BlockKind.EVENTS]
    for page in range(1, len(data) // 4096 + 1):
        start, end = page * 4096, min(len(data), page * 4096 + 4096)
        path.write_bytes(data[:start] + bytes(end - start) + data[end:])
        events, damage = read_all(book.directory)
        hit = [b for b in blocks if b[1] < end and start < b[2]]
        expected = [e for e in whole if not any(b[3] <= e.seq < b[4] for b in hit)]
        assert events == expected
        assert sum(d.length for d in damage) >= (end - start if hit else 1)


@pytest.mark.parametrize("where", ["before the blocks", "in their middle", "at the end"])
def test_zeros_that_were_put_in_are_passed_over(
    two_segments: Any, read_all: Read, where: str
) -> None:
    """Bytes between blocks that belong to none cost no event at all."""
    path = two_segments.segments()[0]
    blocks = layout(path)
    at = {"before the blocks": blocks[0][1], "in their middle": blocks[4][1]}.get(
        where, blocks[-1][2]
    )
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes(4096) + data[at:])
    events, damage = read_all(two_segments.directory)
    assert [e.seq for e in events] == list(range(220))
    assert [(d.offset, d.length) for d in damage] == [(at, 4096)]


@pytest.mark.parametrize("kind", ["bytes", "text", "the log itself"])
def test_an_embedded_log_is_never_taken_for_real(
    book: Any, tmp_path: Path, read_all: Read, kind: str
) -> None:
    """When the block around a copy of a log is damaged, the search finds none of the copy's."""
    book.open()
    book.blocks(3, 10)
    if kind == "the log itself":
        inner = book.segments()[0].read_bytes()
    else:
        other = type(book)(tmp_path / "other")
        other.open()
        other.emit(50, values={"secret": 1})
        other.turn()
        inner = other.segments()[0].read_bytes()
        other.close()
    event: Event = Attached(mono=1, data=inner)
    if kind == "text":
        event = TextEvent(mono=1, tag="t", text=inner.decode("latin-1"))
    book.recorder.inbox.put(event)
    book.turn()
    book.blocks(2, 10)
    whole, _ = read_all(book.directory)
    (path,) = book.segments()
    _, start, end, seq, _ = next(b for b in layout(path) if b[3] == 30 and b[4] == 31)
    fd = os.open(path, os.O_RDWR)
    for at in range(start * 8, (start + HEADER_SIZE) * 8, 5):
        flip(fd, at)
        events, damage = read_all(book.directory)
        flip(fd, at)
        assert events == [e for e in whole if e.seq != seq]
        if kind != "the log itself":
            assert [(d.offset, d.length) for d in damage] == [(start, end - start)]
    os.close(fd)


def test_an_embedded_log_does_not_stand_in_for_a_damaged_beginning(
    book: Any, tmp_path: Path, read_all: Read
) -> None:
    """A header that lies in somebody's data is not the second copy of the segment's own."""
    other = type(book)(tmp_path / "other")
    other.open()
    other.blocks(1, 30)
    inner = other.segments()[0].read_bytes()
    other.close()
    book.open()
    book.recorder.inbox.put(Attached(mono=1, data=inner))
    book.turn()
    (path,) = book.segments()
    first = layout(path)[0][1]
    data = path.read_bytes()
    path.write_bytes(bytes(first) + data[first:])  # both copies and the magic are gone
    events, damage = read_all(book.directory)
    assert not events
    assert [(d.offset, d.length) for d in damage] == [(0, len(data))]


def test_both_copies_of_the_header_are_equal(book: Any) -> None:
    """A segment starts with the magic and its header, twice."""
    book.open()
    book.blocks(1, 1)
    (path,) = book.segments()
    data = path.read_bytes()
    assert data.startswith(FILE_MAGIC)
    start = layout(path)[0][1]
    half = (start - len(FILE_MAGIC)) // 2
    one = data[len(FILE_MAGIC) : len(FILE_MAGIC) + half]
    assert one == data[len(FILE_MAGIC) + half : start]


def test_a_segment_with_one_header_is_read(book: Any, read_all: Read) -> None:
    """The second copy may be missing: it is for repair."""
    book.open()
    book.blocks(1, 5)
    (path,) = book.segments()
    data = path.read_bytes()
    start = layout(path)[0][1]
    path.write_bytes(data[: len(FILE_MAGIC) + (start - len(FILE_MAGIC)) // 2] + data[start:])
    events, damage = read_all(book.directory)
    assert (len(events), damage) == (5, [])


@pytest.mark.parametrize(
    "data", [b"", b"\x89", FILE_MAGIC, os.urandom(5_000), b"ELB1" * 2_000, bytes(8192)]
)
def test_a_file_that_is_no_log_is_damage_and_nothing_else(
    book: Any, read_all: Read, data: bytes
) -> None:
    """An empty file, garbage, the beginning of a magic: no event, no exception, all reported."""
    book.open()
    book.blocks(1, 5)
    book.crash()
    garbage = segment_path(book.directory, 5)
    garbage.write_bytes(data)
    events, damage = read_all(book.directory)
    assert len(events) == 5
    assert sum(d.length for d in damage) == len(data)
    summary = open_log(book.run_dir).summary()
    assert (summary.events, sum(d.length for d in summary.damage)) == (5, len(data))
    # and the next writer goes on behind it, without losing what it cannot read
    book.open()
    book.blocks(1, 5)
    assert [e.seq for e in book.events()] == list(range(10))
    kept = [p for p in book.directory.iterdir() if p.name.startswith(garbage.name + ".")]
    assert [p.read_bytes() for p in kept] == ([data] if data else [])


def test_files_with_other_names_are_none_of_the_log_s(book: Any) -> None:
    """Only twenty digits within the range of a seq make a segment."""
    book.open()
    book.blocks(1, 5)
    for name in ("1.elog", "9" * 20 + ".elog", f"{0:020d}.elog.tmp", "x.elog", "٣" * 20 + ".elog"):
        (book.directory / name).write_bytes(b"")
    assert [base for base, _ in list_segments(book.directory)] == [0]
    assert list_segments(book.directory / "nothing here") == []


def append_block(path: Path, kind: int, payload: bytes, **fields: Any) -> int:
    """Append a block as another version of eventlog might; returns where it starts."""
    segment = Segment(path)
    seed = segment.seed
    segment.close()
    start = path.stat().st_size
    with path.open("ab") as file:
        file.write(pack_block(kind, payload, seed=seed, **fields) + payload)
    return start


def test_blocks_of_unknown_kinds_are_skipped_or_reported(book: Any, read_all: Read) -> None:
    """Bit 7 says that a reader may pass a kind by; without it, the reader says what it left out."""
    book.open()
    book.blocks(1, 5)
    (path,) = book.segments()
    append_block(path, 0x80 | 9, b"for readers of the future")
    start = append_block(path, 9, b"not to be missed", first_seq=5)
    events, damage = read_all(book.directory)
    assert len(events) == 5
    assert [(d.offset, d.length) for d in damage] == [(start, HEADER_SIZE + 16)]
    assert "unknown kind 9" in damage[0].reason
    assert open_log(book.run_dir).summary().damage == damage
    book.blocks(1, 5)
    assert [e.seq for e in book.events()] == list(range(10))


@pytest.mark.parametrize("codec", [Codec.ZLIB, Codec.ZSTD, "zstd, size unknown"])
def test_packed_payloads_are_read(book: Any, codec: Any) -> None:
    """Blocks that a compaction has packed read like others."""
    book.open()
    book.blocks(1, 5)
    (path,) = book.segments()
    events = [StepEvent(mono=n, step=n, values={"n": n}) for n in range(100)]
    payload = encode_events(events)
    packed = {
        Codec.ZLIB: lambda: zlib.compress(payload),
        Codec.ZSTD: lambda: zstandard.compress(payload),
    }.get(codec, lambda: zstandard.ZstdCompressor(write_content_size=False).compress(payload))()
    append_block(
        path,
        BlockKind.EVENTS,
        packed,
        codec=codec if codec in (1, 2) else Codec.ZSTD,
        flags=int(Content.STEP | Content.SORTED),
        count=100,
        first_seq=5,
        first_time=1_000,
        steps=(0, 99),
    )
    read = book.events()[5:]
    assert [e.seq for e in read] == list(range(5, 105))
    assert [(e.values, e.wall) for e in read] == [({"n": n}, 1_000 + n) for n in range(100)]


@pytest.mark.parametrize(
    ("codec", "payload", "reason"),
    [
        (7, b"x", "unknown codec 7"),
        (Codec.ZLIB, b"no zlib", "damaged zlib payload"),
        (Codec.ZLIB, zlib.compress(b"\x90")[:-3], "cut"),
        (Codec.ZLIB, zlib.compress(b"\x90") + b"more", "something behind it"),
        (Codec.ZLIB, zlib.compress(bytes(65 * 1024 * 1024)), "larger than"),
        (Codec.ZSTD, b"no zstd", "damaged zstd payload"),
        (Codec.ZSTD, zstandard.compress(b"\x90" * 1000)[:-3], "cut"),
        (Codec.ZSTD, zstandard.compress(bytes(65 * 1024 * 1024)), "larger than"),
    ],
)
def test_payloads_that_cannot_be_unpacked_are_reported(
    book: Any, read_all: Read, codec: int, payload: bytes, reason: str
) -> None:
    """An unknown codec, a damaged stream or a bomb costs its block and is named."""
    book.open()
    book.blocks(1, 5)
    (path,) = book.segments()
    start = append_block(
        path, BlockKind.EVENTS, payload, codec=codec, count=1, first_seq=5, flags=1
    )
    append_block(
        path, BlockKind.EVENTS, encode_events([StepEvent(mono=3)]), count=1, first_seq=6, flags=1
    )
    events, damage = read_all(book.directory)
    assert [e.seq for e in events] == [0, 1, 2, 3, 4, 6]
    assert [d.offset for d in damage] == [start]
    assert reason in damage[0].reason


def test_a_damaged_gap_does_not_spoil_the_summary(book: Any) -> None:
    """A summary is made from whatever holds."""
    book.open()
    book.blocks(1, 5)
    (path,) = book.segments()
    append_block(path, BlockKind.GAP, msgspec.msgpack.encode("no map"))
    start = append_block(path, BlockKind.GAP, b"\x80" * 50)
    with path.open("r+b") as file:
        file.seek(start + HEADER_SIZE + 3)
        file.write(b"\0")
    summary = open_log(book.run_dir).summary()
    assert (summary.events, summary.dropped) == (5, {})
    assert [d.reason for d in summary.damage] == ["damaged payload"]


def test_paths_that_hold_no_log_say_what_they_hold(tmp_path: Path, book: Any) -> None:
    """Opening the wrong path is an error that helps."""
    book.open()
    book.blocks(1, 1)
    for path, text in (
        (tmp_path / "no", "does not exist"),
        (book.segments()[0], "is a file"),
        (tmp_path, "it holds runs: run"),
        (book.directory / "..", ""),
    ):
        if text:
            with pytest.raises(NotALogError, match=text):
                open_log(path)
        else:
            assert open_log(path).rank == 0
    with pytest.raises(NotALogError, match="no log of rank 7; it has: 0"):
        open_log(book.run_dir, rank=7)
    shutil.rmtree(book.directory)
    with pytest.raises(NotALogError, match="holds no event log"):
        open_log(book.run_dir)


def test_a_growing_log_is_followed_block_by_block(two_segments: Any, tmp_path: Path) -> None:
    """A reader that is kept sees each block once it is whole, in whatever pieces it arrives."""
    book = two_segments
    whole = book.events()
    copy = tmp_path / "copy"
    copy.mkdir()
    reader = FileReader(copy)
    assert reader.read(0) is None
    rng = random.Random(3)
    seen: list[Event] = []
    for path in book.segments():
        data = path.read_bytes()
        ends = [(end, last) for kind, _, end, _, last in layout(path) if kind == BlockKind.EVENTS]
        at = 0
        target = copy / path.name
        while at < len(data):
            piece = data[at : at + rng.choice([1, 7, 63, 64, 65, 500, 3000])]
            with target.open("ab") as file:
                file.write(piece)
            at += len(piece)
            while (block := reader.read(len(seen))) is not None:
                assert block.first == len(seen)
                seen += block.events()
            readable = max([last for end, last in ends if end <= at], default=len(seen))
            assert len(seen) == readable
    assert seen == whole
    assert reader.damage == []


def test_a_reader_follows_a_log_whose_beginning_is_replaced(book: Any) -> None:
    """A writer that starts again where its predecessor died early is noticed."""
    book.open()
    segment_path(book.directory, 0).write_bytes(FILE_MAGIC + b"EL")
    reader = FileReader(book.directory)
    assert reader.read(0) is None
    book.blocks(2, 5)
    blocks = [reader.read(0), reader.read(5)]
    assert [(b.first, b.end) for b in blocks if b is not None] == [(0, 5), (5, 10)]
    assert reader.read(10) is None


def test_a_reader_can_go_back(two_segments: Any) -> None:
    """A place in a log may be moved anywhere."""
    reader = FileReader(two_segments.directory)
    for seq in (219, 0, 130, 119, 120, 19, 20, 218):
        block = reader.read(seq)
        assert block is not None
        assert block.first <= seq < block.end
        assert block.events()[seq - block.first].values["n"] == seq
    assert reader.read(220) is None
    assert reader.read(10**6) is None


def test_a_reader_goes_back_to_a_beginning_that_was_replaced(book: Any) -> None:
    """Also when the new writer is in its next segment by the time that the reader looks again."""
    book.directory.mkdir(parents=True)
    path = segment_path(book.directory, 0)
    for torn in (b"", FILE_MAGIC + b"EL"):
        path.write_bytes(torn)
        reader = FileReader(book.directory)
        assert reader.read(0) is None
        book.open(segment_bytes=1)
        book.offered = 0
        book.blocks(3, 5)
        assert len(book.segments()) == 3
        blocks = [reader.read(seq) for seq in (0, 5, 10)]
        assert [(b.first, b.end) for b in blocks if b is not None] == [(0, 5), (5, 10), (10, 15)]
        assert reader.damage == []
        book.crash()
        for segment in book.segments():
            segment.unlink()
