"""A disk that fails as it is told to, and forgets what was not synced when the power goes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eventlog.log.disk import OsFiles

__all__ = ["PAGE", "Choose", "Disk"]

PAGE = 4096

Choose = Callable[[int], int]
"""Returns a number from 0 up to, and without, the one that it is given."""


@dataclass
class _File:
    """What of a file is on the disk for certain."""

    durable: bytes = b""
    forgotten: bytes | None = None
    """What it held when a sync failed: the kernel takes those pages for clean from then on."""


class Disk(OsFiles):
    """The system's calls, with a record of what was synced.

    Attributes:
        write_error, sync_error, create_error: The errno of what fails; 0 for nothing.
        room: Bytes that can still be written; None for as many as you like.
        most: The most bytes that one write takes; None for all.
    """

    def __init__(self) -> None:
        self.write_error = self.sync_error = self.create_error = 0
        self.room: int | None = None
        self.most: int | None = None
        self._now: dict[Path, _File] = {}
        self._durable: dict[Path, _File] = {}
        self._by_fd: dict[int, _File] = {}

    def heal(self) -> None:
        """Work as a disk should, from now on."""
        self.write_error = self.sync_error = self.create_error = 0
        self.room = self.most = None

    def create(self, path: Path) -> int:
        _fail(self.create_error)
        fd = super().create(path)
        self._by_fd[fd] = self._now[path] = _File()
        return fd

    def open(self, path: Path) -> int:
        _fail(self.create_error)
        fd = super().open(path)
        self._by_fd[fd] = self._now.setdefault(path, _File())
        return fd

    def writev(self, fd: int, buffers: Sequence[bytes]) -> int:
        return os.write(fd, self._taken(b"".join(buffers)))

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, self._taken(data), offset)

    def _taken(self, data: bytes) -> bytes:
        _fail(self.write_error)
        if self.most is not None:
            data = data[: self.most]
        if self.room is not None:
            if not self.room:
                _fail(errno.ENOSPC)
            data = data[: self.room]
            self.room -= len(data)
        return data

    def fdatasync(self, fd: int) -> None:
        self._sync(self._by_fd[fd])

    def sync_file(self, path: Path) -> None:
        os.stat(path)
        self._sync(self._now[path])

    def _sync(self, file: _File) -> None:
        (path,) = (path for path, one in self._now.items() if one is file)
        data = path.read_bytes()
        if self.sync_error:
            file.forgotten = data
            _fail(self.sync_error)
        if file.forgotten is not None:
            data = _page_by_page(file.durable, data, _differs_from(file.forgotten))
        file.durable = data

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self._now[target] = self._now.pop(source)

    def sync_directory(self, path: Path) -> None:
        if self.sync_error:
            return  # as the real one, which cannot say so
        for known in (self._now, self._durable):
            for name in [name for name in known if name.parent == path]:
                if name.exists() and name in self._now:
                    self._durable[name] = self._now[name]
                else:
                    self._durable.pop(name, None)

    def close(self, fd: int) -> None:
        self._by_fd.pop(fd, None)
        super().close(fd)

    def lose_power(self, choose: Choose) -> None:
        """Leave what was synced, and of the rest whatever had happened to reach the disk."""
        written = {id(file): path.read_bytes() for path, file in self._now.items() if path.exists()}
        left: dict[Path, _File] = {}
        for path in sorted({*self._now, *self._durable}):
            now = self._now.get(path) if path.exists() else None
            before = self._durable.get(path)
            file = now if now is before or choose(2) else before
            path.unlink(missing_ok=True)
            if file is not None:
                data = _torn(file.durable, written.get(id(file), file.durable), choose)
                path.write_bytes(data)
                left[path] = _File(data)
        self._now, self._durable, self._by_fd = left, dict(left), {}


def _fail(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


def _torn(durable: bytes, written: bytes, choose: Choose) -> bytes:
    """Return what is left of a file: each page is the one before or the one after."""
    how = choose(3)
    if how < 2:
        return (durable, written)[how]
    size = len(durable) + choose(max(0, len(written) - len(durable)) + 1)
    return _page_by_page(durable, written[:size], lambda at, page: bool(choose(2)))


def _differs_from(other: bytes) -> Callable[[int, bytes], bool]:
    return lambda at, page: page != other[at : at + PAGE]


def _page_by_page(old: bytes, new: bytes, takes: Callable[[int, bytes], bool]) -> bytes:
    """Return the new contents, but for the pages that are not taken: these are as they were."""
    pages = []
    for at in range(0, len(new), PAGE):
        page, before = new[at : at + PAGE], old[at : at + PAGE]
        taken = page == before or takes(at, page)
        pages.append(page if taken else before + bytes(len(page) - len(before)))
    return b"".join(pages)
