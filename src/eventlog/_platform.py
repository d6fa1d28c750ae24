"""What differs between operating systems: locks on files and what "synced" takes."""

from __future__ import annotations

import os
import sys

__all__ = ["fdatasync", "lock_file", "lock_is_held"]

try:
    import fcntl
except ImportError:  # Windows: no advisory locks; liveness falls back to the log's heartbeat
    fcntl = None  # type: ignore[assignment]

_F_FULLFSYNC = 51


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


def lock_file(fd: int) -> bool:
    """Take the lock on an open file, for this process only; False when another one has it.

    A POSIX record lock (lockf) is not inherited by a forked child, so it ends with the process
    that took it even when DataLoader workers live on.
    """
    if fcntl is None:
        return True
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def lock_is_held(path: str | os.PathLike[str]) -> bool:
    """Whether a living process, other than this one, holds the lock on the file at `path`."""
    if fcntl is None:
        return False
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)
