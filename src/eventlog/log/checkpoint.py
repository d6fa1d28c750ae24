"""Where each sink is: kept in a file of two slots, written by turns.

A checkpoint belongs to an alias and to what its sink writes to; another target starts afresh. One
process at a time may hold it. A slot is whole when its checksum holds; the newer whole slot counts,
so that a crash in the middle of a write costs at most that write. A new file takes its room at
once: a disk that is full later takes what is written over it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from eventlog import _platform
from eventlog._names import safe_name
from eventlog._paths import open_regular, own_directory
from eventlog.log.disk import OS_FILES, Files

__all__ = [
    "Checkpoint",
    "CheckpointFile",
    "checkpoint_path",
    "confirmed_seqs",
    "highest_seq",
    "list_checkpoints",
]

_MAGIC = b"ECP1"
_HEAD = struct.Struct("<4sIQI")  # magic, length, generation, crc32 of generation and payload
SLOT = 64 * 1024
"""Bytes between the slots; the file is sparse, and a slot takes what it holds."""

_ROOM = 4096
"""Bytes that each slot of a new file takes at once."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A sink's position.

    Attributes:
        alias: Of the sink.
        fingerprint: Of what it writes to.
        seq: The next event to read.
        passed: The seq after the last event that was read for it; nothing before it that passed
            comes again, but for open windows.
        state: The subscription's state at `seq`; see `Mark`.
        sink: What the sink needs to go on with the same tracker run.
        done: Whether the sink was closed after everything was delivered.
    """

    alias: str
    fingerprint: str = ""
    seq: int = 0
    passed: int = 0
    state: dict[str, Any] = {}
    sink: dict[str, Any] = {}
    done: bool = False


def checkpoint_path(directory: Path, alias: str, target: str) -> Path:
    """Return where the checkpoint of a sink lies, in the directory of a rank's log."""
    fingerprint = hashlib.sha256(target.encode("utf-8", "replace")).hexdigest()[:8]
    return directory / "checkpoints" / f"{safe_name(alias)}-{fingerprint}.ckpt"


class CheckpointFile:
    """A checkpoint on disk, held by this process.

    Args:
        path: Of the file; made if need be.
        files: The system calls.

    Raises:
        BlockingIOError: Somebody else holds it.
        OSError: It cannot be opened or made.
    """

    def __init__(self, path: Path, files: Files = OS_FILES) -> None:
        self.path = path
        self._files = files
        self._fd = -1
        self._named = False
        self._open()
        self._generation, self._current = _newest(self._fd)

    def _open(self) -> None:
        own_directory(self.path.parent.parent, self.path.parent.name)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # on a file of its own: whoever looks at the checkpoint would let go of the lock with it
        lock = _platform.FileLock(self.path.with_suffix(".lock"))
        if not lock.acquire():
            raise BlockingIOError(f"{self.path} is held by another delivery")
        try:
            self._fd = self._files.open(self.path)
        except OSError:
            lock.release()
            raise
        self._lock = lock
        self._named = False
        if not os.fstat(self._fd).st_size:
            with contextlib.suppress(OSError):
                for slot in (1, 0):
                    self._files.pwrite(self._fd, bytes(_ROOM), SLOT * slot)

    def _open_again(self) -> None:
        """Open the file that takes the place of one that was removed."""
        self.close()
        self._open()
        self._generation = max(self._generation, _newest(self._fd)[0])

    def load(self) -> Checkpoint | None:
        """Return the newest checkpoint that is whole; None when there is none."""
        return self._current

    def save(self, checkpoint: Checkpoint, *, sync: bool) -> None:
        """Write a checkpoint; with `sync` it survives a loss of power.

        Raises:
            ValueError: It does not fit into a slot.
            BlockingIOError: The file was removed, and somebody else has made it anew.
            OSError: It cannot be written; the one before still counts.
        """
        payload = msgspec.msgpack.encode(checkpoint)
        if len(payload) + _HEAD.size > SLOT:
            raise ValueError(f"a checkpoint must fit into {SLOT} bytes, not {len(payload)}")
        if self._fd < 0 or not self._files.linked(self._fd):
            self._open_again()
        generation = self._generation + 1
        crc = zlib.crc32(payload, generation & 0xFFFFFFFF)
        data = _HEAD.pack(_MAGIC, len(payload), generation, crc) + payload
        # a slot that is written in part is void: the same one is written next time, not the other
        if self._files.pwrite(self._fd, data, SLOT * (generation % 2)) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        if sync:
            self.sync()
        self._generation = generation
        self._current = checkpoint

    def sync(self) -> None:
        """Bring what was saved to the disk.

        Raises:
            OSError: It may not be there.
        """
        self._files.fdatasync(self._fd)
        if not self._named:
            # a file that was synced can still be lost with its name
            self._named = True
            self._files.sync_directory(self.path.parent)

    def close(self) -> None:
        """Let another process have it."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)
        self._lock.release()


def _newest(fd: int) -> tuple[int, Checkpoint | None]:
    best: tuple[int, Checkpoint | None] = (0, None)
    for slot in (0, 1):
        data = os.pread(fd, SLOT, SLOT * slot)
        if len(data) < _HEAD.size:
            continue
        magic, length, generation, crc = _HEAD.unpack_from(data)
        payload = data[_HEAD.size : _HEAD.size + length]
        if magic != _MAGIC or len(payload) != length:
            continue
        if zlib.crc32(payload, generation & 0xFFFFFFFF) != crc or generation <= best[0]:
            continue
        try:
            best = (generation, msgspec.msgpack.decode(payload, type=Checkpoint))
        except (msgspec.MsgspecError, RecursionError):
            continue
    return best


def list_checkpoints(directory: Path) -> list[Checkpoint]:
    """Return the checkpoints of a rank's log, without holding them; damaged ones are left out."""
    return [checkpoint for _, checkpoint in _read_all(directory)]


def _read_all(directory: Path) -> Iterator[tuple[Path, Checkpoint]]:
    for path in sorted((directory / "checkpoints").glob("*.ckpt")):
        try:
            fd = open_regular(path)
        except OSError:
            continue
        try:
            checkpoint = _newest(fd)[1]
        finally:
            os.close(fd)
        if checkpoint is not None:
            yield path, checkpoint


def confirmed_seqs(directory: Path) -> dict[str, int]:
    """Return what each alias has confirmed: the event before which it needs nothing any more.

    An alias whose target has changed has several checkpoints. The one that is held counts, as its
    sink is being delivered to; where none is, the one that needs most.
    """
    found: dict[str, list[tuple[bool, int]]] = {}
    for path, checkpoint in _read_all(directory):
        held = _platform.lock_is_held(path.with_suffix(".lock"))
        found.setdefault(checkpoint.alias, []).append((not held, checkpoint.seq))
    return {alias: min(seqs)[1] for alias, seqs in found.items()}


def highest_seq(directory: Path) -> int:
    """Return the seq after the last event that any sink was given: a log must not go below it."""
    return max((c.passed for c in list_checkpoints(directory)), default=0)
