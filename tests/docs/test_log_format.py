"""docs/log-format.md is enough to read a log: here is a reader written from that page alone.

The first part of this module is the reader. It imports nothing of eventlog.
"""

from __future__ import annotations

import json
import math
import re
import runpy
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

LIMIT = 67_108_864
EVENTS, HEADER, INDEX, FOOTER, GAP = 1, 2, 4, 5, 6
ABOUT_THE_RUN = {"run_started", "run_finished", "config_updated", "summary_updated", "rewound",
                 "flushed"}  # fmt: skip


def unpack(payload: bytes, codec: int) -> bytes | None:
    """Undo a codec."""
    if codec == 0:
        return payload
    if codec == 1:
        inflate = zlib.decompressobj()
        data = inflate.decompress(payload, LIMIT)
        return data if inflate.eof else None
    return None


def block_at(data: bytes, at: int, uuid: bytes) -> tuple[Any, ...] | None:
    """Return (kind, codec, flags, length, ..., crc of the payload) of the header at `at`."""
    head = data[at : at + 60]
    if head[:4] != b"ELB1" or len(data) < at + 64:
        return None
    if struct.unpack_from("<I", data, at + 60)[0] != zlib.crc32(uuid + head):
        return None
    fields = struct.unpack("<4sBBHIIQqqqqI", head)[1:]
    return fields if fields[3] <= LIMIT else None


def payload_at(data: bytes, at: int, block: tuple[Any, ...]) -> bytes | None:
    """Return the payload of the block at `at`, or None where it is damaged."""
    stored = data[at + 64 : at + 64 + block[3]]
    if len(stored) < block[3] or zlib.crc32(stored) != block[10]:
        return None
    return unpack(stored, block[1])


def header_of(data: bytes) -> tuple[dict[str, Any], int] | None:
    """Return the HEADER of a segment, from either copy, and where the blocks begin."""
    places = [8]
    while (hit := data.find(b"ELB1", places[-1] + 1)) >= 0:
        places.append(hit)
    for at in places:
        block = block_at(data, at, b"")
        if block is None or block[0] != HEADER or at not in (8, 72 + block[3]):
            continue
        payload = payload_at(data, at, block)
        if payload is not None:
            return msgspec.msgpack.decode(payload), 8 + 2 * (64 + block[3])
    return None


def blocks_of(data: bytes) -> Iterator[tuple[dict[str, Any], tuple[Any, ...], Any]]:
    """Yield (the segment's HEADER, block, payload) of a segment."""
    found = header_of(data)
    if found is None:
        return
    header, at = found
    while at + 64 <= len(data):
        block = block_at(data, at, header["uuid"])
        if block is None:
            at = data.find(b"ELB1", at + 1)
            if at < 0:
                return
            continue
        payload = payload_at(data, at, block)
        if payload is not None and block[0] in (EVENTS, GAP):
            yield header, block, msgspec.msgpack.decode(payload)
        at += 64 + block[3]


def index_of(data: bytes) -> list[tuple[int, ...]] | None:
    """Return the index at the end of a segment: offset, and what the block's header says."""
    found = header_of(data)
    at = len(data) - 128
    if found is None or at < 0:
        return None
    uuid = found[0]["uuid"]
    footer = block_at(data, at, uuid)
    payload = None if footer is None else payload_at(data, at, footer)
    if footer is None or footer[0] != FOOTER or payload is None:
        return None
    offset, length, base, end, events, blocks, _, _ = struct.unpack("<QQQQQQqq", payload)
    assert (base, end) == (found[0]["base_seq"], footer[5])
    assert offset + length == at
    index = block_at(data, offset, uuid)
    stored = None if index is None else payload_at(data, offset, index)
    if index is None or index[0] != INDEX or stored is None:
        return None
    entries = list(struct.iter_unpack("<QQIqqqqH", stored))
    assert (len(entries), sum(entry[2] for entry in entries)) == (blocks, events)
    return entries


def read(segments: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the events of a log with their seq and wall time."""
    expected = 0
    for data in segments:
        for header, block, events in blocks_of(data):
            if block[0] != EVENTS:
                continue
            offset = block[6] - events[0].get("mono", 0)
            assert len(events) == block[4]
            for index, event in enumerate(events):
                seq = block[5] + index
                assert event.get("attempt", 1) == header["attempt"]
                if seq >= expected:
                    expected = seq + 1
                    yield event | {"seq": seq, "wall": event.get("mono", 0) + offset}


def superseded(events: list[dict[str, Any]]) -> set[int]:
    """Return the seqs of the events that a later attempt took the place of."""
    spans: dict[tuple[int, str], list[int]] = {}
    for event in events:
        if event["type"] == "rewound":
            step, last = event["to_step"], 2**63
        elif event["type"] in ABOUT_THE_RUN or event.get("step") is None:
            continue
        else:
            step = last = event["step"]
        span = spans.setdefault((event.get("attempt", 1), event.get("axis", "step")), [step, last])
        span[:] = [min(span[0], step), max(span[1], last)]
    return {
        event["seq"]
        for event in events
        if event["type"] not in ABOUT_THE_RUN
        and event.get("step") is not None
        and any(
            attempt > event.get("attempt", 1)
            and axis == event.get("axis", "step")
            and first <= event["step"] <= last
            for (attempt, axis), (first, last) in spans.items()
        )
    }


# -- the tests ------------------------------------------------------------------------------------

OTHERS = {"step", "batch", "epoch", "model_update", "image", "histogram", "text", "table"}
PAGE = Path(__file__).parents[2] / "docs" / "log-format.md"
TINY = Path(__file__).with_name("tiny.elog")


def segments_in(run_dir: Path) -> list[bytes]:
    """Return the segments of a run's first rank, in order."""
    names = sorted(
        p for p in (run_dir / "rank-0").iterdir() if re.fullmatch(r"\d{20}\.elog", p.name)
    )
    return [path.read_bytes() for path in names]


def as_read(run_dir: Path, *, latest: bool = False) -> list[dict[str, Any]]:
    """Return what eventlog reads of a run, with the defaults left out as in the log."""
    from eventlog import open_log

    # flushed events are handed out to those only who ask for them
    types = [*ABOUT_THE_RUN, *OTHERS]
    log = open_log(run_dir)
    return [msgspec.to_builtins(event) for event in log.events(types=types, latest=latest)]


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal, a NaN to a NaN."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def small_run(folder: Path) -> Path:
    """Record a run with all that the page speaks of: media, rewind, named axis, two processes."""
    import numpy as np

    from eventlog import Run

    with Run("page", dir=folder, config={"lr": 0.1}, tags=["a"]) as run:
        for step in range(40):
            run.batch(loss=step / 2)
            run.step(loss=step / 3, nan=math.nan, count=step, name="x", ok=True)
            run.log({"val": {"loss": 0.25}}, step=step // 2, axis="val_step")
        run.epoch(accuracy=0.5)
        run.model_updated("prune", sparsity=0.5)
        run.histogram("weights", np.arange(10.0))
        run.image("digit", np.zeros((4, 4)))
        run.text("note", "hello")
        run.table("table", [[1, None, "x"]], columns=["a", "b", "c"])
        run.flush()
        run.rewind(25)
        for _ in range(30):
            run.step(loss=1.0)
        run.config.update(more=2)
        run.summary.update(best=1.0)
    with Run("page", dir=folder, resume=run.id) as again:
        again.log(loss=2.0, step=60)
    assert run.dir is not None
    return run.dir


def test_the_reader_finds_what_eventlog_finds(tmp_path: Path) -> None:
    """Every field of every event, its seq and its wall time; over attempts and processes."""
    run_dir = small_run(tmp_path)
    segments = segments_in(run_dir)
    assert len(segments) == 3
    events = list(read(segments))
    expected = as_read(run_dir)
    assert [event["type"] for event in events] == [event["type"] for event in expected]
    assert same(events, expected)
    assert {event["attempt"] for event in events if event["seq"] > 140} >= {2, 3}


def test_the_reader_knows_what_is_superseded(tmp_path: Path) -> None:
    """The rule for attempts on the page is the one that a replay follows."""
    run_dir = small_run(tmp_path)
    events = list(read(segments_in(run_dir)))
    gone = superseded(events)
    assert gone
    kept = [event for event in events if event["seq"] not in gone]
    assert same(kept, as_read(run_dir, latest=True))


def test_the_reader_gets_past_damage_as_eventlog_does(tmp_path: Path) -> None:
    """A damaged beginning, a damaged header and a damaged payload cost what the page says."""
    run_dir = small_run(tmp_path)
    path = sorted((run_dir / "rank-0").glob("*.elog"))[0]
    whole = path.read_bytes()
    places = [m.start() for m in re.finditer(b"ELB1", whole)]
    for at in (0, 20, 90, places[-1] + 10, places[-1] + 70, len(whole) - 1):
        data = bytearray(whole)
        data[at] ^= 0xFF
        path.write_bytes(data)
        assert same(list(read(segments_in(run_dir))), as_read(run_dir)), at
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert same(list(read(segments_in(run_dir))), as_read(run_dir)), length


def test_the_index_says_what_the_headers_say(tmp_path: Path) -> None:
    """Each segment of a run that was closed ends with an index of its blocks."""
    for data in segments_in(small_run(tmp_path)):
        entries = index_of(data)
        assert entries
        blocks = [block for _, block, _ in blocks_of(data) if block[0] == EVENTS]
        assert [entry[1:] for entry in entries] == [(*b[5:6], b[4], *b[6:10], b[2]) for b in blocks]
        uuid = header_of(data)[0]["uuid"]  # type: ignore[index]
        assert [block_at(data, entry[0], uuid) for entry in entries] == blocks


def test_a_compacted_log_reads_the_same(tmp_path: Path) -> None:
    """Merged and compressed, the blocks hold the same events, with the same times."""
    from eventlog.log.seal import compact_log

    run_dir = small_run(tmp_path)
    before = list(read(segments_in(run_dir)))
    assert any(done.after < done.before for done in compact_log(run_dir / "rank-0"))
    after = segments_in(run_dir)
    assert same(list(read(after)), before)
    assert all(index_of(data) for data in after)


def test_gaps_add_up_to_what_was_dropped(tmp_path: Path) -> None:
    """The GAP blocks hold what statistics() says was dropped."""
    from eventlog import Run

    with Run("gap", dir=tmp_path) as run:
        for step in range(3):
            run.step({"nothing": None})
            run.step(loss=float(step))
            run.flush()
    assert run.dir is not None
    total: dict[str, int] = {}
    for data in segments_in(run.dir):
        for _, block, payload in blocks_of(data):
            if block[0] == GAP:
                for reason, n in payload["dropped"].items():
                    total[reason] = total.get(reason, 0) + n
    assert total == run.statistics().log.dropped == {"no_value": 3}


def test_the_dump_on_the_page_is_the_tiny_log() -> None:
    """Each line of the dump shows what is in the file."""
    lines = runpy.run_path(str(TINY.with_name("tiny_log.py")))["dump_lines"]
    dump = "\n".join(lines(TINY.read_bytes()))
    assert f"```text\n{dump}\n```" in PAGE.read_text(), "see tests/docs/tiny_log.py --dump"


def test_the_tiny_log_holds_what_the_page_says() -> None:
    """The reader finds the page's events in the page's log."""
    shown = re.findall(r'^{"type": .*}$', PAGE.read_text(), flags=re.MULTILINE)
    found = list(read([TINY.read_bytes()]))
    assert same(found, [json.loads(line) for line in shown])


def test_the_writer_still_writes_the_tiny_log(tmp_path: Path) -> None:
    """Made again, it differs in the schema, which knows all types there are, and in offsets."""
    make = runpy.run_path(str(TINY.with_name("tiny_log.py")))["make"]
    stored = list(blocks_of(TINY.read_bytes()))
    again = make(tmp_path)
    made = list(blocks_of(again))
    assert same([msgspec.to_builtins(b) for b in made], [msgspec.to_builtins(b) for b in stored])
    assert made[0][1][10] == stored[0][1][10]
    kinds = [re.findall(rb"ELB1(.)", data, re.DOTALL) for data in (TINY.read_bytes(), again)]
    assert kinds[0] == kinds[1]


def test_the_table_of_events_is_complete() -> None:
    """Every type and field is on the page, with its default."""
    from eventlog import events

    types = PAGE.read_text().partition("What the types add")[2].partition("## ")[0]
    common = {field.name for field in msgspec.structs.fields(events.Event)}
    for name in events.__all__:
        kind = getattr(events, name)
        if not (isinstance(kind, type) and issubclass(kind, events.Event)):
            continue
        if kind in (events.Event, events.UnknownEvent):
            continue
        tag = events.event_tag(kind)
        (row,) = re.findall(rf"^\| [^|]*`{tag}`[^|]* \|.*$", types, flags=re.MULTILINE)
        for field in msgspec.structs.fields(kind):
            if field.name in common:
                continue
            default: Any = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            shown = f"`{field.name}`"
            if default is not msgspec.NODEFAULT:
                text = "nil" if default is None else json.dumps(default)
                shown += f"={text}"
            assert re.search(re.escape(shown) + r"(, | \|)", row), f"{tag}: {shown}"
