"""Files whose names, or whose contents, somebody else may have chosen: a run that was handed on.

A run's directory is data. What is made of a name that was read is one component below a known
directory, or nothing; what is opened is a regular file, never through a link and never a device or
a pipe, on which opening alone can hang; and what is read whole has a limit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

__all__ = [
    "SMALL_FILE",
    "below",
    "decode_file",
    "lies_below",
    "open_regular",
    "own_directory",
    "read_json",
    "read_small",
    "replace_file",
]

SMALL_FILE = 16 * 1024 * 1024
"""Most bytes of a file that is read whole: a manifest, a list of sinks, a status."""

_SAFE_FLAGS = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
# what Windows takes for a device, whatever the ending and however many spaces come before it
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *(?:\.|$)", re.I)
_CONTROL = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')

T = TypeVar("T")


def below(directory: Path, *names: str) -> Path:
    """Return a path below a directory; each name is one component of it, on every system.

    Raises:
        ValueError: A name is none: it is empty, leads up, has a separator, a drive or a control
            character in it, or is a device's.
    """
    for name in names:
        if (
            not name.strip(". ")
            or name[-1] in ". "
            or _CONTROL.search(name)
            or _DEVICE.match(name)
            or len(name.encode("utf-8", "replace")) > 255
        ):
            raise ValueError(f"{name[:100]!r} is no name of a file in {directory}")
    return directory.joinpath(*names)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file, and return its descriptor.

    Raises:
        OSError: It cannot be opened; or it is a link, a directory, a device or a pipe.
    """
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):  # Windows
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    fd = os.open(path, flags | _SAFE_FLAGS, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return fd


def own_directory(base: Path, *names: str) -> Path:
    """Return a directory below another one, which is not a link to somewhere else.

    It need not be there. What lies above `base` is its user's own choice, and may be links.

    Raises:
        OSError: One of the names is a link.
    """
    path = base
    for name in names:
        path = path / name
        if path.is_symlink():
            raise OSError(errno.ELOOP, "a link, which may lead out of the run", str(path))
    return path


def lies_below(base: Path, path: Path) -> bool:
    """Whether a file or a folder, and all that is in it, lies below a directory, links followed."""
    try:
        inside = path.resolve().is_relative_to(base.resolve())
        return inside and not any(each.is_symlink() for each in path.rglob("*"))
    except (OSError, RuntimeError, ValueError):
        return False


def read_small(path: str | os.PathLike[str], limit: int = SMALL_FILE) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: It cannot be read, is no regular file, or is longer than `limit` bytes.
    """
    with open(open_regular(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", os.fspath(path))
    return data


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return what a JSON file holds, NaN and infinities included.

    Raises:
        OSError: It cannot be read; see `read_small`.
        ValueError: It is no JSON, or nested too deeply.
    """
    data = read_small(path)
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError(f"{os.fspath(path)} is nested too deeply") from None


def decode_file(path: str | os.PathLike[str], kind: type[T]) -> T:
    """Return what a JSON file holds, as a type.

    Raises:
        OSError: It cannot be read; see `read_small`.
        ValueError: It is something else.
    """
    data = read_small(path)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def replace_file(path: Path, data: bytes | str) -> None:
    """Put a file in its place at once, with the rights that the user's umask leaves.

    Raises:
        OSError: It cannot be written; what was there before is still there.
    """
    content = data.encode() if isinstance(data, str) else data
    # a name that nobody can guess, and none that is there: what waits there may be a link
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    fd = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with open(fd, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
