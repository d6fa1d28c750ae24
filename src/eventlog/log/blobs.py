"""Blobs: files named by their contents: what is too large, or too binary, for the log itself.

The name comes from an event, so from whoever wrote the log: it is a digest, or it is refused, and
what lies there is a regular file of the run, or it is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from eventlog._paths import open_regular, own_directory
from eventlog.events import BlobRef
from eventlog.log.disk import OS_FILES, Files, write_all

__all__ = ["BlobStore", "blob_file", "copy_blob"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_REDUCED = "reduced"
_REMEMBERED = 10_000


def blob_file(run_dir: Path, sha256: str) -> Path:
    """Return where the blob with that digest lies, whether it is there or not.

    Raises:
        ValueError: `sha256` is no digest; or something lies there that is not a file of the run:
            a link, a directory, a device or a pipe.
    """
    if not _DIGEST.fullmatch(sha256):
        raise ValueError(f"sha256 must be 64 hexadecimal digits, not {sha256[:100]!r}")
    folder = run_dir / "blobs"
    if run_dir.name == _REDUCED and _links_to_run(folder):
        folder = run_dir.parent / "blobs"
    try:
        path = own_directory(folder.parent, folder.name) / sha256
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError(f"{path} is not a regular file")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ValueError(f"the blob {sha256} is not in the run: {error}") from None
    return path


def _links_to_run(folder: Path) -> bool:
    """Whether it is the link by which what is reduced over ranks has the blobs of its run."""
    try:
        return os.readlink(folder) == os.path.join("..", "blobs")
    except OSError:
        return False


def copy_blob(run_dir: Path, blob: BlobRef, target: BlobStore) -> None:
    """Copy a blob of a run into another one's store; nothing where it is there, or is missing.

    Raises:
        ValueError: It is no file of the run's, or not what its name says.
        OSError: It cannot be read or written.
    """
    source = blob_file(run_dir, blob.sha256)
    if not target.wrote(blob.sha256) and source.exists():
        target.put_file(source, blob.mime, expected=blob.sha256)


class BlobStore:
    """The ``blobs`` directory of a run.

    A blob is written under a temporary name and renamed, so that whoever finds its name finds all
    of it, unless the machine stopped meanwhile; the event that names it is written after that, and
    synced after `sync`.

    Args:
        run_dir: The run's directory.
        files: The system calls.
    """

    def __init__(self, run_dir: Path, files: Files = OS_FILES) -> None:
        self.directory = run_dir / "blobs"
        self._files = files
        self._unsynced: deque[Path] = deque()
        self._doubtful: set[Path] = set()
        self._wrote: set[str] = set()

    def put(self, data: bytes, mime: str) -> BlobRef:
        """Keep some bytes.

        Raises:
            OSError: They cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.directory / digest
        if not self.wrote(digest):
            with self._temporary() as (temporary, fd):
                write_all(self._files, fd, data)
                self._name(temporary, fd, path)
        return BlobRef(sha256=digest, size=len(data), mime=mime)

    def put_file(self, source: Path, mime: str, expected: str | None = None) -> BlobRef:
        """Keep a copy of a file, read in pieces; it gets no rights that the umask would not give.

        Args:
            source: The file.
            mime: Of what kind it is.
            expected: The digest that it must have; a link is not followed then.

        Raises:
            OSError: It cannot be read, or the copy not be written.
            ValueError: It has another digest than it must have.
        """
        digest = hashlib.sha256()
        opened = source if expected is None else open_regular(source)
        size = 0
        with open(opened, "rb") as file, self._temporary() as (temporary, fd):
            while chunk := file.read(_PIECE):
                digest.update(chunk)
                write_all(self._files, fd, chunk)
                size += len(chunk)
            if expected is not None and digest.hexdigest() != expected:
                raise ValueError(f"the blob {expected} is not what its name says")
            with contextlib.suppress(OSError):
                _take_rights(file.fileno(), fd)
            path = self.directory / digest.hexdigest()
            if not self.wrote(path.name):
                self._name(temporary, fd, path)
        return BlobRef(sha256=path.name, size=size, mime=mime)

    def wrote(self, digest: str) -> bool:
        """Whether this store wrote a blob, and it is still there.

        One that another process left may never have been synced, or only its name may be left of
        it after a loss of power: it is written again.
        """
        return digest in self._wrote and (self.directory / digest).exists()

    def sync(self) -> None:
        """Bring what was kept so far to the disk.

        What a sync may have lost is written again, from what can still be read.

        Raises:
            OSError: Some of it may not be there; the next call tries these again.
        """
        waiting = [self._unsynced.popleft() for _ in range(len(self._unsynced))]
        failed: OSError | None = None
        for at, path in enumerate(waiting):
            try:
                self._sync(path)
            except FileNotFoundError:  # removed, with the run's directory or by hand
                continue
            except OSError as error:
                failed = error
                self._unsynced.extend(waiting[at:])
                break
        if waiting:
            self._files.sync_directory(self.directory)
        if failed is not None:
            raise failed

    def _sync(self, path: Path) -> None:
        if path not in self._doubtful:
            try:
                self._files.sync_file(path)
                return
            except FileNotFoundError:
                raise
            except OSError:
                # the kernel has forgotten which pages it could not write: asked again it says yes
                self._doubtful.add(path)
        with path.open("rb") as file, self._temporary() as (temporary, copy):
            while chunk := file.read(_PIECE):
                write_all(self._files, copy, chunk)
            self._files.fdatasync(copy)
            with contextlib.suppress(OSError):
                shutil.copymode(path, temporary)
            self._files.replace(temporary, path)
        self._doubtful.discard(path)

    def _name(self, temporary: Path, fd: int, path: Path) -> None:
        if path.exists():
            # an event on the disk may name it: never less than whole in its place
            self._files.fdatasync(fd)
        self._files.replace(temporary, path)
        self._unsynced.append(path)
        if len(self._wrote) >= _REMEMBERED:
            self._wrote.clear()
        self._wrote.add(path.name)

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[tuple[Path, int]]:
        own_directory(self.directory.parent, self.directory.name)
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f".{os.getpid()}-{os.urandom(8).hex()}"
        fd = self._files.create(path)
        try:
            yield path, fd
        finally:
            self._files.close(fd)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _take_rights(source: int, copy: int) -> None:
    """Give a copy the rights of its source, less those that the umask withholds."""
    granted = stat.S_IMODE(os.fstat(copy).st_mode)
    # what may be read may be run, where the source may be
    granted |= (granted & 0o444) >> 2
    os.fchmod(copy, stat.S_IMODE(os.fstat(source).st_mode) & granted & 0o777)
