"""What is fuzzed: functions of bytes that raise when something is wrong, and only then.

Each takes whatever bytes there are. A documented exception is caught here; any other one, or a
wait, is a finding. `run.py` drives them by coverage, `tests/fuzz` by hypothesis.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import eventlog
from eventlog._meeting import _read as read_record
from eventlog._settings import load_settings
from eventlog._terms import kept_terms
from eventlog.cadence import CadenceError, every
from eventlog.cli.arguments import parse_epochs, parse_options, parse_steps, parse_time
from eventlog.cli.places import places_of
from eventlog.cli.runs import find_runs, manifest
from eventlog.codec import decode_events, encode_foreign
from eventlog.events import (
    ArtifactEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    Flushed,
    ImageEvent,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    UnknownEvent,
)
from eventlog.exceptions import CodecError, EventlogError
from eventlog.log.checkpoint import (
    _HEAD,
    _MAGIC,
    SLOT,
    CheckpointFile,
    confirmed_seqs,
    list_checkpoints,
)
from eventlog.log.files import FileReader, last_valid_seq
from eventlog.log.index import _ENTRY, _FOOTER
from eventlog.log.layout import FILE_MAGIC, MAX_PAYLOAD, BlockKind, header_seed, pack_block
from eventlog.log.records import (
    ClockPair,
    Gap,
    SegmentHeader,
    decode_record,
    encode_record,
    unpack,
)
from eventlog.log.source import TailCache
from eventlog.ranks import read_order
from eventlog.sidecar import Orders, read_status
from eventlog.sinks.names import Names
from eventlog.sinks.plan import read_plan
from eventlog.sinks.select import select_sinks
from eventlog.subscription import Mark, Subscription

__all__ = ["TARGETS", "Cursor"]

UUID = bytes(range(16))


class Cursor:
    """Takes values from bytes; where these have ended, zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, n: int) -> bytes:
        part = self._data[self._at : self._at + n]
        self._at += n
        return part

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def number(self, size: int = 1, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def choose(self, *options: Any) -> Any:
        return options[self.number() % len(options)]

    def seq(self) -> int:
        """Return a seq, a step or a time: small ones mostly, but also the largest."""
        return int(self.choose(0, 1, 2, 3, 5, self.number(), self.number(2), 2**31, 2**63 - 2,
                               2**63 - 1, 2**63, 2**64 - 1))  # fmt: skip


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Make a folder to write into, on a disk of memory where there is one."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - mkdtemp below it
    path = Path(tempfile.mkdtemp(prefix="eventlog-fuzz-", dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def read_everything(run_dir: Path) -> None:
    """Read a log in every way that there is."""
    with contextlib.suppress(EventlogError):
        log = eventlog.open_log(run_dir)
        for read in (
            lambda: list(log.events()),
            lambda: list(log.events(every="2 steps", reduce="mean", latest=True)),
            lambda: log.frame(wide=True),
            log.summary,
            log.status,
            log.header,
            log.run_info,
            lambda: log.seek(step=1),
            lambda: log.seek(epoch=0.5),
            lambda: log.seek(time=1.0),
            lambda: log.standing(3),
            lambda: places_of(log),
            lambda: last_valid_seq(log.directory),
        ):
            with contextlib.suppress(EventlogError):
                read()
        reader, seq = FileReader(log.directory), 0
        while (block := reader.read(seq)) is not None:
            if block.end <= seq:
                raise AssertionError(f"a reader does not get on: {block.end} after {seq}")
            seq = block.end


def segment(data: bytes) -> None:
    """Take any bytes for a segment, also behind the beginning that a segment has."""
    with folder() as run_dir:
        rank = run_dir / "rank-0"
        rank.mkdir()
        (rank / f"{0:020d}.elog").write_bytes(data)
        (rank / f"{7:020d}.elog").write_bytes(_beginning(SegmentHeader(uuid=UUID, run_id="r"))
                                              + data)  # fmt: skip
        read_everything(run_dir)


def _beginning(header: SegmentHeader) -> bytes:
    payload = encode_record(header)
    head = pack_block(BlockKind.HEADER, payload, seed=0)
    return FILE_MAGIC + 2 * (head + payload)


def some_events(cursor: Cursor) -> list[Event]:
    """Return events, which may contradict each other."""
    made: list[Event] = []
    for _ in range(cursor.number() % 6):
        at: dict[str, Any] = {
            "mono": cursor.choose(0, cursor.seq(), 2**63 - 1),
            "step": cursor.choose(None, cursor.number(), cursor.seq(), -1),
            "epoch": cursor.choose(None, 0, 1.5, float("nan"), float("inf"), -1, 2**62),
            "attempt": cursor.choose(1, 1, 2, 0, -1, 2**62),
            "axis": cursor.choose("step", "step", "val", ""),
            "values": cursor.choose({}, {"a": 1.0}, {"a": float("nan")}, {"a": "b"}, {"": True}),
        }
        kind: Any = cursor.choose(
            StepEvent, EpochEvent, RunStarted, RunFinished, Rewound, Flushed, ModelUpdateEvent,
            ConfigUpdated, ImageEvent, ArtifactEvent, UnknownEvent,
        )  # fmt: skip
        extra: dict[Any, dict[str, Any]] = {
            RunStarted: {"run_id": "../r", "config": {"a": {"b": 1}}},
            Rewound: {"to_step": cursor.seq()},
            ConfigUpdated: {"config": {"a": 1}},
            ImageEvent: {"tag": "../i"},
            ArtifactEvent: {"name": "/a", "path": "../../x"},
            UnknownEvent: {"type_name": "new", "raw": b"\x82\xa4type\xa3new\xa4mono\xc0"},
        }
        made.append(kind(**at | extra.get(kind, {})))
    return made


def _payload(cursor: Cursor) -> bytes:
    how = cursor.number() % 8
    if how == 0:
        return cursor.take(cursor.number())
    if how == 1:
        return b"".join(
            _ENTRY.pack(cursor.seq(), cursor.seq() % 2**64, cursor.number(4), 0, 0, 0, 0, 0)
            for _ in range(cursor.number() % 4)
        )
    if how == 2:
        places = [cursor.choose(cursor.number(2), cursor.seq()) for _ in range(6)]
        return _FOOTER.pack(*places, 0, 0)
    if how == 3:
        return encode_record(Gap(dropped={"a": cursor.seq() % 2**63}))
    return encode_foreign(some_events(cursor))


def _block(cursor: Cursor, seed: int) -> bytes:
    payload = _payload(cursor)
    codec = cursor.choose(0, 0, 1, 2, 3)
    stored = zlib.compress(payload) if codec == 1 else payload
    signed = [cursor.number(8, signed=True) if cursor.number() > 200 else cursor.seq() % 2**63
              for _ in range(4)]  # fmt: skip
    head = pack_block(
        cursor.choose(1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x81, cursor.number()),
        stored, seed=seed, codec=codec, flags=cursor.number(2),
        count=cursor.choose(payload[0] & 0x0F if payload else 0, cursor.number(), 2**32 - 1),
        first_seq=cursor.seq() % 2**64, first_time=signed[0], last_time=signed[1],
        steps=(signed[2], signed[3]),
    )  # fmt: skip
    return head + (stored if cursor.number() < 250 else stored[:-1])


def write_blocks(data: bytes, run_dir: Path) -> None:
    """Make segments of blocks whose checksums hold, whatever they say."""
    cursor = Cursor(data)
    for number in range(1 + cursor.number() % 3):
        header = SegmentHeader(
            uuid=cursor.choose(UUID, b"", UUID * 9),
            run_id=cursor.choose("r", "../../x", ""),
            attempt=cursor.choose(1, 2, 0, -1, 2**63),
            rank=cursor.choose(0, -1, 2**62),
            base_seq=cursor.seq(),
            wall=cursor.choose(1, 2**63, -(2**63)),
            latched=cursor.choose(b"", b"\x91\xc0", encode_foreign(some_events(cursor))),
            sparse=cursor.choose(False, True),
        )
        seed = header_seed(header.uuid)
        blocks = [_block(cursor, seed) for _ in range(1 + cursor.number() % 5)]
        if cursor.number() > 128:  # sealed, with an index that may be wrong
            start = len(_beginning(header))
            size = start + sum(map(len, blocks))
            entry = _ENTRY.pack(start, cursor.seq() % 2**64, 1, 0, 0, 0, 0, 1)
            index = pack_block(BlockKind.INDEX, entry, seed=seed, count=1) + entry
            foot = _FOOTER.pack(size, len(index), cursor.seq() % 2**64, cursor.seq() % 2**64,
                                1, 1, 0, 0)  # fmt: skip
            blocks += [index, pack_block(BlockKind.FOOTER, foot, seed=seed), foot]
        rank = run_dir / "rank-0"
        rank.mkdir(exist_ok=True)
        path = rank / f"{min(number * cursor.seq(), 2**63 - 1):020d}.elog"
        path.write_bytes(_beginning(header) + b"".join(blocks))


def blocks(data: bytes) -> None:
    """Read blocks that contradict themselves and each other."""
    with folder() as run_dir:
        write_blocks(data, run_dir)
        read_everything(run_dir)


def replay(data: bytes) -> None:
    """Replay such a log into another log and a function."""
    with folder() as run_dir, contextlib.suppress(EventlogError):
        write_blocks(data, run_dir)
        seen: list[Event] = []
        quick = eventlog.delivery.Retry(first=0.001, most=0.001)
        sinks = {"copy": {"sink": "log"}, "seen": {"sink": seen.append, "every": "2 steps"}}
        eventlog.replay(run_dir, sinks, retry=quick)


def compact(data: bytes) -> None:
    """Compact such a log: it holds the same events afterwards."""
    from eventlog.log.seal import compact_log

    with folder() as run_dir:
        write_blocks(data, run_dir)
        before = _told(run_dir)
        with contextlib.suppress(EventlogError):
            list(compact_log(run_dir / "rank-0"))
        if _told(run_dir) != before:
            raise AssertionError("a log has other events once it is compact")


def _told(run_dir: Path) -> list[str]:
    try:
        return [repr(event) for event in eventlog.open_log(run_dir).events()]
    except EventlogError as error:
        return [type(error).__name__]


def payload(data: bytes) -> None:
    """Decode any bytes as each kind of payload, with each codec."""
    reads: list[Callable[[], Any]] = [
        lambda: decode_events(data),
        lambda: decode_record(data, SegmentHeader).latched_events(),
        lambda: decode_record(data, Gap),
        lambda: decode_record(data, ClockPair),
        *(partial(unpack, data, codec, MAX_PAYLOAD) for codec in range(4)),
    ]
    for read in reads:
        with contextlib.suppress(CodecError):
            read()


def cadence(data: bytes) -> None:
    """Parse any text; what it is written as means the same."""
    text = data.decode("utf-8", "surrogatepass" if len(data) % 2 else "replace") if _is_text(
        data) else data.decode("latin-1")  # fmt: skip
    try:
        found = every(text)
    except CadenceError as error:
        str(error)
        return
    if every(str(found)) != found:
        raise AssertionError(f"{text!r} is written as {found}, which means something else")


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def checkpoint(data: bytes) -> None:
    """Take any bytes for a checkpoint, also with checksums that hold, and go on from there."""
    with folder() as run_dir:
        (run_dir / "checkpoints").mkdir()
        path = run_dir / "checkpoints" / "a-00000000.ckpt"
        crc = zlib.crc32(data[: SLOT - _HEAD.size], 1)
        whole = _HEAD.pack(_MAGIC, min(len(data), SLOT - _HEAD.size), 1, crc) + data
        for content in (data, whole, bytes(SLOT) + whole):
            path.write_bytes(content)
            list_checkpoints(run_dir)
            confirmed_seqs(run_dir)
            file = CheckpointFile(path)
            kept = file.load()
            file.close()
            if kept is not None:
                _go_on(run_dir, Mark(kept.seq, kept.state))


def _go_on(run_dir: Path, mark: Mark) -> None:
    write_blocks(b"\x00" * 64, run_dir)
    source = eventlog.open_log(run_dir).source()
    subscription = Subscription(source, every="2 steps", reduce="mean")
    subscription.restore(mark)
    while subscription.pull() is not None:
        pass


READERS: tuple[tuple[str, Callable[[Path], object]], ...] = (
    ("manifest.json", manifest),
    ("sinks.json", read_plan),
    ("delivery.json", kept_terms),
    ("rank-0/sidecar.json", lambda run_dir: read_status(run_dir, 0)),
    ("reduced/reduction.json", read_order),
    ("names.json", lambda run_dir: Names(path=run_dir / "names.json").originals()),
    ("job.json", lambda run_dir: read_record(run_dir / "job.json")),
)


def manifests(data: bytes) -> None:
    """Take any bytes for each of the files beside a log."""
    from eventlog._run_places import choose_run

    with folder() as base:
        run_dir = base / "r"
        for name, read in READERS:
            path = run_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            with contextlib.suppress(EventlogError):
                read(run_dir)
        choose_run(base, "allow", "n")
        find_runs(base)
        with contextlib.suppress(EventlogError):
            for spec in read_plan(run_dir):
                # as `plan_ports` makes them, which takes any error for one of that sink
                with contextlib.suppress(TypeError, ValueError, LookupError, AttributeError):
                    Subscription(
                        TailCache(10, 10),
                        types=spec.types,
                        every=spec.every,
                        reduce=spec.reduce,
                        keys=spec.keys,
                    )


def orders(data: bytes) -> None:
    """Take any bytes for what a run tells its sidecar."""
    import base64

    for line in (data, base64.b64encode(data) + b"\n"):
        with contextlib.suppress(EventlogError):
            Orders.read(line)


def settings(data: bytes) -> None:
    """Take any bytes for a settings file, and what it says for sinks."""
    with folder() as base:
        (base / ".git").mkdir()
        for name in ("eventlog.toml", "pyproject.toml"):
            (base / name).write_bytes(data)
            with contextlib.suppress(EventlogError, TypeError, ValueError):
                found = load_settings(base)
                json.dumps(found.options, default=str)
                select_sinks(found.sinks, found.every, found.reduce, found)
            (base / name).unlink()


def arguments(data: bytes) -> None:
    """Take any text for what is said on the command line of a replay."""
    text = data.decode("utf-8", "replace")
    for parse in (parse_steps, parse_epochs, parse_time,
                  lambda t: parse_options(["tensorboard", "log"], t.split("\n"))):  # fmt: skip
        with contextlib.suppress(EventlogError, ValueError):
            parse(text)
    with folder() as run_dir, contextlib.suppress(EventlogError, TypeError, ValueError):
        write_blocks(b"\x01" * 40, run_dir)
        parts = text.split("\n") + [""] * 4
        log = eventlog.open_log(run_dir)
        with contextlib.suppress(ValueError):
            list(log.events(types=[parts[0]], keys=[parts[1]], every=parts[2] or None))
        log.seek(time=parts[3])


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        segment, blocks, replay, compact, payload, cadence, checkpoint, manifests, orders,
        settings, arguments,
    )
}  # fmt: skip
