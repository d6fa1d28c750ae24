"""Logs and run directories as somebody may make them who means harm."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from eventlog.codec import encode_foreign
from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    FigureEvent,
    ImageEvent,
    RunFinished,
    RunStarted,
    StepEvent,
    TextEvent,
)
from eventlog.log.layout import BlockKind, pack_block
from eventlog.log.records import SegmentHeader
from eventlog.log.segments import SegmentWriter
from eventlog.log.source import describe

SECRET = b"the contents of a file that is none of the run's\n"
DIGEST = "ab" * 32
PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0:~\x9bU"
    b"\0\0\0\nIDATx\x9cc`\0\0\0\2\0\1H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82"
)


def names(outside: Path) -> list[str]:
    """Return names that lead elsewhere, name devices, or are none at all."""
    return [
        "../../../outside/secret",
        "../../../../outside/secret",
        str(outside / "secret"),
        f"{DIGEST}/../../../../outside/secret",
        "..",
        ".",
        "",
        "/",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/environ",
        "~/.ssh/id_rsa",
        "C:\\Windows\\system.ini",
        "\\\\host\\share\\x",
        "..\\..\\outside\\secret",
        "con",
        "NUL.txt",
        "com1 .log",
        "a\0b",
        "a\nb",
        "x" * 5000,
        "-rf",
        "$(touch outside)",
        "%2e%2e%2fsecret",
        "{run_id}",
        "rank-0",
        "\u202egnp.exe",
        DIGEST.upper(),
        DIGEST + "\n",
    ]


def write_log(
    run_dir: Path,
    events: Sequence[Event],
    *,
    run_id: str = "r",
    project: str = "p",
    rank: int = 0,
    payload: bytes | None = None,
    block: dict[str, Any] | None = None,
    header: dict[str, Any] | None = None,
) -> Path:
    """Write a log of one block whose checksums all hold, whatever is in it; return its segment."""
    known: dict[str, Any] = {
        "uuid": os.urandom(16), "run_id": run_id, "project": project, "rank": rank
    }  # fmt: skip
    writer = SegmentWriter(run_dir / f"rank-{rank}", SegmentHeader(**known | (header or {})))
    flags, steps = describe(events)
    data = encode_foreign(events) if payload is None else payload
    fields: dict[str, Any] = {
        "flags": flags, "count": len(events), "first_seq": 0, "first_time": 10**18,
        "last_time": 10**18 + 1, "steps": steps,
    }  # fmt: skip
    head = pack_block(BlockKind.EVENTS, data, seed=writer.seed, **fields | (block or {}))
    writer.append([head, data])
    writer.close()
    return writer.path


def hostile_events(outside: Path) -> list[Event]:
    """Return events that use such names wherever an event has a name."""
    events: list[Event] = [StepEvent(step=0, values={"loss": 1.0})]
    for number, name in enumerate(names(outside), start=1):
        blob = BlobRef(name, len(SECRET), "image/png")
        events += [
            RunStarted(run_id=name, project=name, name=name, group=name, config={name: name}),
            ImageEvent(step=number, tag=name, blobs=[blob]),
            FigureEvent(step=number, tag=name, blob=blob),
            ArtifactEvent(name=name, kind=name, path=name, size=len(SECRET)),
            ArtifactEvent(name=name, kind="model", path=name, size=len(SECRET), blob=blob),
            TextEvent(step=number, tag=name, text=name),
            StepEvent(step=number, values={name: 1.0}, axis=name, options={name: {name: name}}),
        ]
    return [*events, RunFinished(error=names(outside)[0])]


def tree(folder: Path, besides: Sequence[Path] = ()) -> dict[str, Any]:
    """Return what is below a folder, with contents and times, but for some folders."""
    found: dict[str, Any] = {}
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(f for f in folders if here / f not in besides)
        for name in (*folders, *files):
            path = here / name
            stat = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            found[str(path.relative_to(folder))] = (stat.st_mode, stat.st_ino, content)
    return found


def holds(folder: Path, what: bytes) -> list[Path]:
    """Return the files below a folder that have some bytes in them; links are not followed."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and what in path.read_bytes()
    ]


def bombs() -> dict[str, Callable[[], bytes]]:
    """Return payloads of EVENTS that are within 64 MiB and want far more memory than that."""
    most = 60 * 2**20

    def config(inner: bytes) -> bytes:
        return b"\x91\x82\xa4type\xaeconfig_updated\xa6config\x81\xa1a" + inner

    def array(one: bytes, n: int) -> bytes:
        return b"\xdd" + n.to_bytes(4, "big") + one * n

    return {
        "events without anything": lambda: array(b"\x80", most),
        "smallest steps": lambda: array(b"\x81\xa4type\xa4step", most // 11),
        "numbers for events": lambda: array(b"\x01", most),
        "empty lists": lambda: config(array(b"\x90", most)),
        "empty maps": lambda: config(array(b"\x80", most)),
        "maps of one": lambda: config(array(b"\x81\xa1a\xc0", most // 4)),
        "lists of one": lambda: config(array(b"\x91\x91\x91\xc0", most // 4)),
        "short texts": lambda: config(array(b"\xa1a", most // 2)),
        "wide texts": lambda: config(b"\xdb" + most.to_bytes(4, "big") + "\U0001f600".encode()
                                     + b"a" * (most - 4)),
        "many keys": lambda: config(
            b"\xdf" + (most // 6).to_bytes(4, "big")
            + b"".join(b"\xa4%04x\x01" % (n & 0xFFFF) for n in range(most // 6))
        ),
        "nested": lambda: config(b"\x91" * most + b"\xc0"),
        "a length that is not there": lambda: config(b"\xdd\xff\xff\xff\xff" * 1000),
        "a map that is not there": lambda: config(b"\xdf\xff\xff\xff\xff"),
        "a text that is not there": lambda: config(b"\xdb\xff\xff\xff\xff"),
        "an event that is not there": lambda: b"\xdd\xff\xff\xff\xff",
        "numbers": lambda: config(array(b"\xcb" + b"\x40" * 8, most // 9)),
        "large numbers": lambda: config(array(b"\xce\x7f\xff\xff\xff", most // 5)),
    }  # fmt: skip


def encoded(events: Sequence[Event]) -> bytes:
    return msgspec.msgpack.encode(events)
