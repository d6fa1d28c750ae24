"""Make the golden log of format 1, which every later version must still read.

python tests/golden/make_golden.py

Do not run it to make a test pass: what lies in elog1 stands for the logs that people have. For
what comes later (an event type, a codec, another format) make another one beside it.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from eventlog.events import (
    ArtifactEvent,
    BatchEvent,
    BlobRef,
    ConfigUpdated,
    EpochEvent,
    Event,
    FigureEvent,
    Flushed,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    SummaryUpdated,
    TableEvent,
    TextEvent,
    UnknownEvent,
    Window,
    event_tag,
)
from eventlog.log import open_log
from eventlog.log.layout import BlockKind
from eventlog.log.records import ClockPair, Gap, decode_record
from eventlog.log.seal import compact_segment
from eventlog.log.segment_reader import Segment, latched_events, list_segments
from eventlog.log.stored import StoredSource
from eventlog.recorder import Recorder
from eventlog.testing import FakeClock

FOLDER = Path(__file__).with_name("elog1")
BLOB = BlobRef("0123456789abcdef" * 4, 67, "image/png")


def first_attempt() -> Iterator[list[Event]]:
    """Yield all types of events, and all kinds of values."""
    yield [
        RunStarted(
            run_id="golden-1", project="golden", name="first", config={"lr": 0.1, "a": [1, None]},
            tags=["t"], group="g", notes="n", provenance={"git": {"commit": "abc"}}, world_size=2,
        ),
        ConfigUpdated(config={"batch": 32}),
    ]  # fmt: skip
    for step in range(6):
        yield [
            BatchEvent(step=step, batch=2 * step, values={"loss": 1 / (step + 1)}),
            BatchEvent(step=step, batch=2 * step + 1, values={"loss": step / 7, "ok": True}),
            StepEvent(step=step, batch=2 * step + 1, epoch=step / 6, values={"loss": 0.5**step}),
        ]
    yield [
        StepEvent(step=2**62, values={"nan": math.nan, "inf": math.inf, "low": -math.inf}),
        StepEvent(values={"zero": -0.0, "most": 2**63 - 1, "least": -(2**63), "text": "ä\n"}),
        StepEvent(step=3, axis="val_step", values={"val/acc": 1}),
        StepEvent(step=5, values={"loss": 0.25}, window=Window(first=1, last=5.5, n=5, nans=1)),
        StepEvent(step=5, rank=1),
        EpochEvent(step=6, epoch=1, values={"acc": 0.75}),
        ModelUpdateEvent(step=6, kind="pruned", summary={"sparsity": 0.5, "layers": ["a"]}),
        Flushed(step=6),
    ]
    yield [
        ImageEvent(step=6, tag="i", blobs=[BLOB, BLOB], width=4, height=3, caption="c"),
        FigureEvent(step=6, tag="f", blob=BLOB, width=640, height=480),
        HistogramEvent(
            step=6, tag="h", edges=[-1.0, 0.0, 1.0], counts=[2, 3], n=6, min=-1.0, max=1.0,
            sum=0.5, sum_squares=2.5, nonfinite=1,
        ),
        TextEvent(step=6, tag="t", text="ELB1 is no block here"),
        TableEvent(step=6, tag="b", columns=["a", "b"], rows=[[1, None], ["x", 2.5]]),
        ArtifactEvent(
            name="weights", kind="checkpoint", path="/w.pt", blob=BLOB, size=67, metadata={"k": 1},
        ),
        SummaryUpdated(summary={"best": 0.75}),
    ]  # fmt: skip


def second_attempt() -> Iterator[list[Event]]:
    """Yield what follows a rewind, with an event of a later version."""
    yield [Rewound(to_step=4, attempt=2)]
    for step in range(4, 8):
        yield [StepEvent(step=step, attempt=2, values={"loss": -float(step)})]
    future = {
        "type": "from_the_future",
        "mono": 7,
        "attempt": 2,
        "step": 8,
        "what": [1, {"a": None}],
    }
    raw = msgspec.msgpack.encode(future)
    yield [UnknownEvent(mono=7, step=8, attempt=2, type_name="from_the_future", raw=raw)]


def third_attempt() -> Iterator[list[Event]]:
    """Yield what a process wrote that went on after a crash, and died as well."""
    yield [RunStarted(run_id="golden-1", project="golden", config={"lr": 0.2}, attempt=3)]
    yield [StepEvent(step=8, attempt=3, values={"loss": 0.125})]
    yield [RunFinished(step=9, attempt=3, status="failed", error="E", summary={"best": 0.75})]
    yield [StepEvent(step=9, attempt=3, values={"loss": 1.0})]


def make(folder: Path) -> None:
    """Write the log: a segment as it was written, one that is compacted, and one that is torn."""
    numbers = itertools.count(1)
    clock = FakeClock()
    with (
        mock.patch(
            "os.urandom", lambda n: bytes(itertools.islice(itertools.cycle([next(numbers)]), n))
        ),
        mock.patch("socket.gethostname", return_value="host"),
        mock.patch("os.getpid", return_value=42),
    ):
        recorder = Recorder(folder, run_id="golden-1", project="golden", clock=clock)
        write(recorder, clock, first_attempt())
        recorder.inbox.drop("media")
        clock.step_wall(3600)
        write(recorder, clock, second_attempt())
        clock.advance(11)
        recorder.writer.turn()
        recorder.stop(None)
        recorder = Recorder(folder, run_id="golden-1", project="golden", clock=clock)
        recorder.inbox.drop("inbox_full")
        write(recorder, clock, third_attempt())
        recorder.writer._log.leave_segment()  # type: ignore[union-attr]
        recorder._held.release()  # type: ignore[union-attr]
        *_, compact, torn = [path for _, path in list_segments(folder / "rank-0")]
        compact_segment(compact)
    os.truncate(torn, torn.stat().st_size - 3)
    (folder / "rank-0" / "lock").unlink()


def write(recorder: Recorder, clock: FakeClock, turns: Iterator[list[Event]]) -> None:
    """Write events, those of a turn into one block, each 125 ms after the one before."""
    for events in turns:
        for event in events:
            clock.advance(0.125)
            if not isinstance(event, UnknownEvent):
                event = msgspec.structs.replace(event, mono=clock.monotonic_ns())
            recorder.inbox.put(event)
        recorder.writer.turn()


def found_in(folder: Path) -> dict[str, Any]:
    """Return all that is read of a log, as plain JSON."""
    directory = folder / "rank-0"
    log = open_log(folder)
    source = StoredSource(directory)
    reader = source.open_reader()
    events: list[Event] = []
    seq = 0
    while (block := reader.read(seq)) is not None:
        events += block.events()
        seq = block.end
    summary = log.summary()
    kept = {
        *(e.seq for e in log.events(latest=True)),
        *(e.seq for e in log.events(types=["flushed"])),
    }
    return {
        "events": [as_json(event) for event in events],
        "superseded": [e.seq for e in events if e.seq not in kept],
        "segments": [segment_as_json(path) for _, path in list_segments(directory)],
        "status": summary.status,
        "steps": summary.steps,
        "dropped": summary.dropped,
        "config": log.run_info().config,
        "damage": [[d.path.name, d.offset, d.length, d.reason] for d in source.damage],
    }


def segment_as_json(path: Path) -> dict[str, Any]:
    """Return what a segment says of itself, and how its blocks are stored."""
    segment = Segment(path)
    header = segment.header
    assert header is not None
    blocks = list(segment.scan())
    found = {
        "header": {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in msgspec.structs.asdict(header).items()
            if value is not msgspec.UNSET
            if name not in ("latched", "writer")
        },
        "latched": [as_json(event) for event in latched_events(segment)],
        "blocks": [
            [BlockKind(h.kind).name, h.codec, h.flags, h.events, h.first_seq, *h[6:10]]
            for h in (b.header for b in blocks)
        ],
        "gaps": [
            decode_record(segment.payload(b), Gap).dropped
            for b in blocks
            if b.header.kind == BlockKind.GAP
        ],
        "clocks": [
            msgspec.structs.astuple(decode_record(segment.payload(b), ClockPair))
            for b in blocks
            if b.header.kind == BlockKind.CLOCK
        ],
    }
    segment.close()
    return found


def as_json(event: Event) -> dict[str, Any]:
    """Return the fields of an event that are not at their default; what JSON has not, as text."""
    found: dict[str, Any] = {"type": event_tag(type(event))}
    for field in msgspec.structs.fields(event):
        value = getattr(event, field.name)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if type(value) is not type(default) or value != default:
            found[field.name] = plain(value)
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def dump(found: dict[str, Any]) -> str:
    """Return the text of an expectation, an event to a line."""
    parts = []
    for name, value in found.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = ",\n".join(f"    {json.dumps(item)}" for item in value)
            parts.append(f'  "{name}": [\n{lines}\n  ]')
        else:
            parts.append(f'  "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    make(FOLDER)
    (FOLDER / "expected.json").write_text(dump(found_in(FOLDER)))
