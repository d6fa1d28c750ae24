"""What differs between systems: locks on files, what "synced" takes, who gives way to whom."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from pathlib import Path

from eventlog._paths import open_regular

__all__ = ["FileLock", "fdatasync", "give_way", "lock_is_held", "sync_directory"]

try:
    import fcntl
except ImportError:  # Windows: no advisory locks; liveness falls back to the log's heartbeat
    fcntl = None  # type: ignore[assignment]

_F_FULLFSYNC = 51

_FLOCK = {"linux": ("hhqqi4x", (0, 1, 2, 3, 4)), "darwin": ("qqihh", (2, 3, 4, 0, 1))}
"""C's struct flock on 64 bits: its layout, and the order of type, whence, start, length, pid."""

_held: dict[tuple[int, int], int] = {}
"""Locks that a process has, by device and inode: the process's id."""


def fdatasync(fd: int) -> None:
    """Return once what was written to `fd` survives a loss of power, as far as the disk is honest.

    Raises:
        OSError: What was written may be lost; a second call would not tell.
    """
    if sys.platform == "darwin":
        # fsync alone leaves the data in the drive's cache there
        assert fcntl is not None  # noqa: S101 - for the type checker
        fcntl.fcntl(fd, _F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def give_way(nice: int) -> None:
    """Have this process, and what it starts, take the processor after those that have none of this.

    Args:
        nice: 0 to 19; of two that want all of a core, one with 10 more gets a tenth of it.
    """
    if not hasattr(os, "nice"):
        return
    with contextlib.suppress(OSError):
        os.nice(nice)
    # where Linux shares the processor out by sessions first, it is the session's that counts
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write(str(nice))


def sync_directory(path: Path) -> None:
    """Bring the names in a directory to the disk, where that can be done."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:  # Windows, or the directory was removed
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


class FileLock:
    """A lock on a file of its own, for one holder in one process.

    A POSIX record lock (lockf) is not inherited by a forked child, so it ends with the process
    that took it even when DataLoader workers live on. It has two traps that the table of held
    locks covers: a process never conflicts with itself, and closing *any* descriptor of the file
    lets go of the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._key = (0, 0)

    def acquire(self) -> bool:
        """Take the lock; False when somebody has it.

        Raises:
            OSError: The file cannot be made.
        """
        if _held_here(self.path):
            return False
        fd = open_regular(self.path, os.O_RDWR | os.O_CREAT)
        if fcntl is not None:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return False
        stat = os.fstat(fd)
        self._fd, self._key = fd, (stat.st_dev, stat.st_ino)
        _held[self._key] = os.getpid()
        return True

    @property
    def gone(self) -> bool:
        """Whether the file was removed or replaced: others can take a lock of that name."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return True
        return (stat.st_dev, stat.st_ino) != self._key

    def release(self) -> None:
        """Let go of it; may be called twice."""
        if self._fd >= 0:
            _held.pop(self._key, None)
            fd, self._fd = self._fd, -1
            os.close(fd)


def _held_here(path: str | os.PathLike[str]) -> bool:
    try:
        stat = os.stat(path)
    except OSError:
        return False
    return _held.get((stat.st_dev, stat.st_ino)) == os.getpid()


def lock_is_held(path: str | os.PathLike[str]) -> bool:
    """Whether a living process has the lock on the file at `path`; this one counts, too."""
    if _held_here(path):
        return True
    if fcntl is None:
        return False
    shape = _FLOCK.get(sys.platform) if sys.maxsize > 2**32 else None
    try:
        fd = open_regular(path, os.O_RDWR if shape is None else os.O_RDONLY)
    except OSError:
        return False
    try:
        if shape is not None:
            return _asked(fd, *shape)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _asked(fd: int, layout: str, order: tuple[int, ...]) -> bool:
    """Ask whether a file is locked; taking the lock to see would refuse a writer meanwhile."""
    assert fcntl is not None  # noqa: S101 - for the type checker
    fields = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    question = struct.pack(layout, *(fields[at] for at in order))
    answer = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return bool(answer[order.index(0)] != fcntl.F_UNLCK)
