"""The system calls that bring a run to the disk, in one object: tests have them fail."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from eventlog import _platform
from eventlog._paths import open_regular

__all__ = ["OS_FILES", "Files", "OsFiles", "write_all"]

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class Files(Protocol):
    """What segments, checkpoints and blobs are written with; see `OsFiles`."""

    def create(self, path: Path) -> int: ...
    def open(self, path: Path) -> int: ...
    def linked(self, fd: int) -> bool: ...
    def writev(self, fd: int, buffers: Sequence[bytes]) -> int: ...
    def pwrite(self, fd: int, data: bytes, offset: int) -> int: ...
    def fdatasync(self, fd: int) -> None: ...
    def sync_file(self, path: Path) -> None: ...
    def replace(self, source: Path, target: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def close(self, fd: int) -> None: ...


class OsFiles:
    """The system's own."""

    def create(self, path: Path) -> int:
        """Create a file that must not exist, to append to.

        Raises:
            OSError: It exists, or cannot be made.
        """
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | _CLOEXEC
        return os.open(path, flags, 0o666)

    def open(self, path: Path) -> int:
        """Open a file to read it and to write in it; made where there is none.

        Raises:
            OSError: That is not possible; or it is a link, a device or a pipe.
        """
        return open_regular(path, os.O_RDWR | os.O_CREAT)

    def linked(self, fd: int) -> bool:
        """Whether the file still has a name: False after its directory was removed."""
        return os.fstat(fd).st_nlink > 0

    def writev(self, fd: int, buffers: Sequence[bytes]) -> int:
        """Append; returns how many bytes were taken."""
        return os.writev(fd, buffers)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at a place in the file; returns how many bytes were taken."""
        return os.pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """Wait until what was written is on the disk."""
        _platform.fdatasync(fd)

    def sync_file(self, path: Path) -> None:
        """Wait until what somebody wrote to a file is on the disk; it need not be writable."""
        fd = open_regular(path)
        try:
            self.fdatasync(fd)
        finally:
            os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of the file that has it."""
        os.replace(source, target)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk, where that can be done."""
        _platform.sync_directory(path)

    def close(self, fd: int) -> None:
        """Let go of a file."""
        os.close(fd)


OS_FILES = OsFiles()


def write_all(files: Files, fd: int, data: bytes) -> None:
    """Append data, all of it.

    Raises:
        OSError: Some may have been written.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[files.writev(fd, [bytes(rest)]) :]
