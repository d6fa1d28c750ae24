"""``eventlog verify``: whether everything that a run has written can still be read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

from eventlog._names import safe_name
from eventlog._paths import open_regular
from eventlog.cli.arguments import JsonOption, RankOption, RunArgument
from eventlog.cli.outcome import FOUND_WRONG, reported, say
from eventlog.cli.output import quantity, write_json
from eventlog.cli.runs import choose_run, ranks_of
from eventlog.codec import decode_events
from eventlog.events import BlobRef, Event
from eventlog.exceptions import CodecError
from eventlog.log.archive import Log
from eventlog.log.blobs import blob_file
from eventlog.log.layout import BlockKind, Content
from eventlog.log.segment_reader import Damage, Scanned, Segment, block_fault, list_segments

__all__ = ["Verified", "verify", "verify_log"]


class Verified(NamedTuple):
    """What a log turned out to be.

    Attributes:
        events: How many can be read.
        bytes: Of all segments.
        blobs: How many files were compared with their digests.
        damage: What cannot be read: parts of segments, and blobs.
        missing: Ranges of events that are not there: the first seq, and the one after the last.
        growing: Bytes at the end that the run is about to complete, where it still goes on.
    """

    events: int
    bytes: int
    blobs: int
    damage: list[Damage]
    missing: list[tuple[int, int]]
    growing: int


@reported
def verify(run: RunArgument, rank: RankOption = None, json: JsonOption = False) -> None:
    """Read a log whole and say what is damaged."""
    found = {log: verify_log(log) for log in ranks_of(choose_run(run), rank)}
    if json:
        write_json([_document(log, result) for log, result in found.items()])
    else:
        for log, result in found.items():
            _say(log, result)
    if any(result.damage or result.missing for result in found.values()):
        raise typer.Exit(FOUND_WRONG)


def verify_log(log: Log) -> Verified:
    """Read every block of a log, and every blob that its events name."""
    reading = _Reading(running=log.status() == "running")
    segments = list_segments(log.directory)
    for i, (base, path) in enumerate(segments):
        reading.segment(base, path, last=i + 1 == len(segments))
    for blob in reading.blobs.values():
        reading.blob(log.run_dir, blob)
    return Verified(
        reading.events,
        reading.bytes,
        len(reading.blobs),
        reading.damage,
        reading.missing,
        reading.growing,
    )


class _Reading:
    def __init__(self, *, running: bool) -> None:
        self.running = running
        self.events = self.bytes = self.growing = 0
        self.damage: list[Damage] = []
        self.missing: list[tuple[int, int]] = []
        self.blobs: dict[str, BlobRef] = {}
        self._next = -1
        self._sparse = False

    def segment(self, base: int, path: Path, *, last: bool) -> None:
        if self._next < 0:
            self._next = base  # older segments may have been removed on purpose
        segment = Segment(path)
        self._sparse = segment.header is not None and segment.header.sparse is True
        try:
            size = segment.size
            at = segment.start
            self.bytes += size
            for block in segment.scan(damaged=self.damage.append):
                at = block.end
                self._block(segment, block)
        finally:
            segment.close()
        if size <= at:
            return
        if last and self.running:
            self.growing = size - at
        else:
            reason = "a tail that is no block" if segment.header else "no header can be read"
            self.damage.append(Damage(path, at, size - at, reason))

    def _block(self, segment: Segment, block: Scanned) -> None:
        header = block.header
        if header.kind != BlockKind.EVENTS:
            if (fault := block_fault(segment, block)) is not None:
                self._damaged(segment, block, fault)
            return
        try:
            events = decode_events(segment.payload(block))
            if len(events) != header.events:
                raise CodecError(f"{len(events)} events in a block of {header.events}")
        except CodecError as error:
            # the header has a checksum of its own: it still says which events these were
            self._damaged(segment, block, str(error))
            self._go_on(header.first_seq + header.events)
            return
        self._go_on(header.first_seq)
        end = header.first_seq + header.events
        self.events += max(0, end - max(self._next, header.first_seq))
        self._next = max(self._next, end)
        if header.flags & (Content.MEDIA | Content.OTHER):
            for event in events:
                for blob in _blobs(event):
                    self.blobs[blob.sha256] = blob

    def _go_on(self, seq: int) -> None:
        """Note the events before `seq` that did not come, but for a log that is a part of one."""
        if seq > self._next:
            if not self._sparse:
                self.missing.append((self._next, seq))
            self._next = seq

    def _damaged(self, segment: Segment, block: Scanned, reason: str) -> None:
        length = block.end - block.offset
        self.damage.append(Damage(segment.path, block.offset, length, reason))

    def blob(self, run_dir: Path, blob: BlobRef) -> None:
        try:
            path = blob_file(run_dir, blob.sha256)
        except ValueError as error:
            named = run_dir / "blobs" / safe_name(blob.sha256)
            self.damage.append(Damage(named, 0, blob.size, f"no blob of this run: {error}"))
            return
        try:
            with open(open_regular(path), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                self.bytes += os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            self.damage.append(Damage(path, 0, blob.size, "a blob that is not there"))
            return
        except OSError as error:
            self.damage.append(Damage(path, 0, blob.size, f"a blob that cannot be read: {error}"))
            return
        if digest != blob.sha256:
            self.damage.append(Damage(path, 0, blob.size, "a blob that is not what was kept"))


def _blobs(event: Event) -> Iterator[BlobRef]:
    for name in event.__struct_fields__:
        value = getattr(event, name)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, BlobRef):
                yield each


def _say(log: Log, result: Verified) -> None:
    say(
        f"{log.directory}: {result.events:,} events, {quantity(result.bytes)}"
        + (f", {result.blobs} blobs" if result.blobs else "")
        + (" read, all is well" if not (result.damage or result.missing) else " read")
    )
    for damage in result.damage:
        say(
            f"  damaged: {damage.path.name}, {damage.length:,} bytes from {damage.offset:,} on: "
            f"{damage.reason}"
        )
    for first, end in result.missing:
        say(f"  missing: {end - first:,} events, seq {first} to {end - 1}")
    if result.growing:
        say(f"  being written: {result.growing:,} bytes at the end; the run goes on")


def _document(log: Log, result: Verified) -> dict[str, Any]:
    return {
        "path": str(log.directory),
        "rank": log.rank,
        "events": result.events,
        "bytes": result.bytes,
        "blobs": result.blobs,
        "damage": [d._asdict() | {"path": str(d.path)} for d in result.damage],
        "missing": msgspec.to_builtins(result.missing),
        "growing": result.growing,
    }
