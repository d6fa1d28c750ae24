"""Lengths are checked before memory is taken: no log takes more than a figure to read.

Each bomb is read by a child process, whose peak of memory the operating system has measured.
"""

import resource
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from eventlog import _weight
from eventlog._weight import LIGHT, check_weight
from eventlog.codec import decode_events, encode_events
from eventlog.events import ConfigUpdated, HistogramEvent, StepEvent, TableEvent, TextEvent
from eventlog.exceptions import CodecError
from eventlog.log.layout import MAX_PAYLOAD, BlockKind, Codec, pack_block, parse_header
from eventlog.log.records import Gap, SegmentHeader, decode_record, unpack

from .hostile import bombs, write_log

MOST_MEMORY = 1536 * 2**20
"""Bytes that reading a log may take at its peak, as SECURITY.md states it; see MOST_WEIGHT."""

READER = """
import resource, sys
import eventlog
from eventlog.exceptions import EventlogError
from eventlog.cli.app import app
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
log = eventlog.open_log(sys.argv[1])
try:
    print("events", sum(1 for _ in log.events()))
except EventlogError as error:
    print("error", error)
log.summary(), log.status(), log.run_info()
print("peak", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def read_in_child(run_dir: Path) -> tuple[str, int]:
    """Return what became of reading a log in a process of its own, and its peak of memory."""
    done = subprocess.run(
        [sys.executable, "-c", READER, str(run_dir)],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    return done.stdout, int(lines["peak"])


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize("name", bombs())
def test_a_payload_that_wants_much_memory_ends_in_an_error_or_within_the_figure(
    tmp_path: Path, name: str
) -> None:
    """60 MiB of msgpack that would become up to 19 GiB of objects."""
    payload = bombs()[name]()
    count = 1 if payload[0] & 0xF0 == 0x90 else min(2**20, len(payload))
    write_log(tmp_path, [], payload=payload, block={"count": count})
    said, peak = read_in_child(tmp_path)
    assert "error" in said or "events" in said
    assert peak < MOST_MEMORY, f"{peak / 2**20:.0f} MiB: {said}"


@pytest.mark.timeout(200)
@pytest.mark.parametrize("codec", ["zlib", "zstd", "zstd of a size that is not said"])
def test_a_compressed_bomb_ends_in_an_error_within_the_figure(tmp_path: Path, codec: str) -> None:
    """A megabyte that unpacks to a gigabyte of zeros, and one that says that it does not."""
    if codec == "zlib":
        packer = zlib.compressobj(9)
        stored = b"".join(packer.compress(bytes(2**24)) for _ in range(64)) + packer.flush()
        kind = Codec.ZLIB
    else:
        zstandard = pytest.importorskip("zstandard")
        kind = Codec.ZSTD
        if codec == "zstd":
            stored = zstandard.ZstdCompressor().compress(bytes(2**30))
        else:
            stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
            stored = b"".join(stream.compress(bytes(2**24)) for _ in range(64)) + stream.flush()
    assert len(stored) < 2**21
    write_log(tmp_path, [], payload=stored, block={"codec": kind, "count": 1})
    said, peak = read_in_child(tmp_path)
    assert "error" in said or "events 0" in said
    assert peak < 400 * 2**20, f"{peak / 2**20:.0f} MiB"
    with pytest.raises(CodecError, match="larger than"):
        unpack(stored, kind, MAX_PAYLOAD)


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    """What it unpacks to counts, whatever it says."""
    zstandard = pytest.importorskip("zstandard")
    stored = bytearray(zstandard.ZstdCompressor().compress(bytes(2**20)))
    at = stored.index(struct.pack("<I", 2**20))
    stored[at : at + 4] = struct.pack("<I", 1000)
    with pytest.raises(CodecError):
        unpack(bytes(stored), Codec.ZSTD, MAX_PAYLOAD)


def test_a_declared_length_takes_no_memory() -> None:
    """Of blocks, of records, and of the containers in them."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for inner in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
                  b"\xc6\xff\xff\xff\xff"):  # fmt: skip
        with pytest.raises(CodecError):
            decode_events(inner)
        with pytest.raises(CodecError):
            decode_events(b"\x91" + inner)
        with pytest.raises(CodecError):
            decode_record(b"\x81\xa7dropped" + inner, Gap)
    header = pack_block(BlockKind.EVENTS, b"", seed=0)
    for at, size in ((8, MAX_PAYLOAD + 1), (12, 2**20 + 1)):
        data = bytearray(header)
        data[at : at + 4] = struct.pack("<I", size)
        data[60:64] = struct.pack("<I", zlib.crc32(data[:60]))
        assert parse_header(bytes(data), 0) is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


@pytest.mark.parametrize("first", [2**63 - 1, 2**64 - 1])
def test_a_seq_beyond_what_a_writer_reaches_is_no_header(first: int) -> None:
    """It would be the seq of the next attempt's first event."""
    assert (
        parse_header(pack_block(BlockKind.EVENTS, b"", seed=0, count=1, first_seq=first), 0) is None
    )


def test_what_can_be_logged_can_be_read() -> None:
    """The largest things that people log are far from the limit, and are told as what they are."""
    rows: list[list[Any]] = [[n, n / 3, f"row {n}", None, True] for n in range(100_000)]
    large = [
        TextEvent(tag="t", text="Größe " * 4_000_000),
        TableEvent(tag="t", columns=list("abcde"), rows=rows),
        HistogramEvent(tag="h", edges=[n / 7 for n in range(1_000_001)], counts=[5] * 1_000_000),
        ConfigUpdated(config={f"key {n}": {"a": [n, str(n)]} for n in range(100_000)}),
        StepEvent(values={f"layer.{n}.weight": n / 3 for n in range(200_000)}),
    ]
    for event in large:
        payload = encode_events([event])
        assert LIGHT < len(payload) < MAX_PAYLOAD
        assert decode_events(payload) == [event]
    with pytest.raises(CodecError, match="memory"):
        check_weight(encode_events([large[1]]), 1_000_000)


def test_the_weight_is_about_what_python_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never much less: then a bomb would pass."""
    monkeypatch.setattr(_weight, "LIGHT", 0)
    value: Any
    for value in ([[]] * 5_000, [{"a": None}] * 5_000, [[[1]]] * 5_000, ["ab"] * 5_000,
                  {f"{n:06}": n for n in range(5_000)}, [n / 3 for n in range(5_000)]):  # fmt: skip
        payload = encode_events([ConfigUpdated(config={"a": value})])
        decode_events(payload)
        tracemalloc.start()
        decoded = decode_events(payload)
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert decoded
        with pytest.raises(CodecError, match="memory"):
            check_weight(payload, int(taken * 0.6))


def test_more_events_than_a_block_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And as many as it may have are not."""
    monkeypatch.setattr(_weight, "LIGHT", 0)
    monkeypatch.setattr(_weight, "MOST_ITEMS", 70_000)
    one = b"\x81\xa4type\xa7flushed"
    assert len(decode_events(b"\xdd" + (70_000).to_bytes(4, "big") + one * 70_000)) == 70_000
    with pytest.raises(CodecError, match="more than"):
        decode_events(b"\xdd" + (70_001).to_bytes(4, "big") + one * 70_001)


def test_a_segments_header_is_bounded_like_any_payload() -> None:
    """Its `latched` events, too."""
    payload = b"\x81\xa7dropped\xdf\x00\x80\x00\x00" + b"\xa4abcd\x01" * 2**23
    with pytest.raises(CodecError, match="memory"):
        decode_record(payload, Gap)
    latched = b"\xdd\x00\xf0\x00\x00" + b"\x80" * 0xF00000
    header = SegmentHeader(uuid=bytes(16), run_id="r", latched=latched)
    with pytest.raises(CodecError):
        header.latched_events()
