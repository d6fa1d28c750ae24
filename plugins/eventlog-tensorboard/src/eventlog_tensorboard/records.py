"""TensorBoard's event files: how records are framed, how files are named and written.

A record is its length (8 bytes), the masked CRC-32C of those 8 bytes, the data, and their masked
CRC-32C, all little-endian. A reader stops at the first record that is cut short or wrong, so
nothing may ever follow one: `EventFile.take_back` cuts off what was written in part.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import struct
import uuid
from contextlib import suppress
from pathlib import Path

import google_crc32c

__all__ = ["EventFile", "create_event_file", "frame", "replace_event_file"]

_MASK_DELTA = 0xA282EAD8
_U32 = struct.Struct("<I").pack
_U64 = struct.Struct("<Q").pack
_SECONDS = re.compile(r"events\.out\.tfevents\.(\d+)\.")


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return _U32(((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


@functools.lru_cache(maxsize=4096)
def _head(length: int) -> bytes:
    packed = _U64(length)
    return packed + _masked_crc(packed)


def frame(data: bytes) -> bytes:
    """Return a record that holds `data`, ready to be appended to an event file."""
    return _head(len(data)) + data + _masked_crc(data)


class EventFile:
    """An event file that is appended to, in whole batches or not at all."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd: int | None = fd
        self._settled = 0

    def write(self, data: bytes | bytearray) -> None:
        """Hand `data` to the operating system; it is kept once `settle` was called.

        Raises:
            OSError: The file cannot be written; call `take_back`.
        """
        if self._fd is None:
            raise OSError(f"{self.path} is closed")
        written = os.write(self._fd, data)
        while written < len(data):
            written += os.write(self._fd, data[written:])

    def settle(self) -> None:
        """Keep what was written."""
        if self._fd is not None:
            self._settled = os.fstat(self._fd).st_size

    def take_back(self) -> bool:
        """Cut off what was written since `settle`; False where the file is of no use any more."""
        if self._fd is None:
            return False
        try:
            os.ftruncate(self._fd, self._settled)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let go of the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def create_event_file(folder: Path, seconds: int, suffix: str, head: bytes) -> EventFile:
    """Create a file that sorts behind all event files of the folder, and write its first records.

    Readers take the files of a folder in the order of their names, so its time is at least a
    second above the newest one's; the rest of the name makes it unique, whoever else writes.

    Args:
        folder: Where; made if it is not there.
        seconds: The time of its first event, in seconds since 1970.
        suffix: What its name shall end with.
        head: Framed records.

    Raises:
        OSError: It cannot be made; nothing is left behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(folder):
        if match := _SECONDS.match(entry.name):
            seconds = max(seconds, int(match[1]) + 1)
    host = socket.gethostname().replace("/", "_")
    name = f"{max(seconds, 0):010d}.{host}.{os.getpid()}.{uuid.uuid4().hex}{suffix}"
    path = folder / f"events.out.tfevents.{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    file = EventFile(path, os.open(path, flags, 0o666))
    try:
        file.write(head)
        file.settle()
    except BaseException:
        file.close()
        with suppress(OSError):
            path.unlink()
        raise
    return file


def replace_event_file(path: Path, data: bytes) -> None:
    """Write a whole event file; a reader finds the old one or the new one.

    Raises:
        OSError: It cannot be written; the old one is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{uuid.uuid4().hex}.draft"  # readers want "tfevents" in a name
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
