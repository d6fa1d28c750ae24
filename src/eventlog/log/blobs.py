"""Blobs: files named by their contents: what is too large, or too binary, for the log itself.

The name comes from an event, so from whoever wrote the log: it is a digest, or it is refused, and
what lies there is a regular file of the run, or it is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from pathlib import Path

from eventlog._paths import open_regular, own_directory
from eventlog.events import BlobRef

__all__ = ["BlobStore", "blob_file", "copy_blob"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_REDUCED = "reduced"


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
    if not (target.directory / blob.sha256).exists() and source.exists():
        target.put_file(source, blob.mime, expected=blob.sha256)


class BlobStore:
    """The ``blobs`` directory of a run.

    A blob is written under a temporary name and renamed, so that whoever finds its name finds all
    of it; the event that names it is written after that.
    """

    def __init__(self, run_dir: Path) -> None:
        self.directory = run_dir / "blobs"

    def put(self, data: bytes, mime: str) -> BlobRef:
        """Keep some bytes.

        Raises:
            OSError: They cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.directory / digest
        if not path.exists():
            with self._temporary() as (temporary, fd):
                with open(fd, "wb") as file:
                    file.write(data)
                os.replace(temporary, path)
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
        with open(opened, "rb") as file, self._temporary() as (temporary, fd):
            with open(fd, "wb") as copy:
                while chunk := file.read(_PIECE):
                    digest.update(chunk)
                    copy.write(chunk)
                size = copy.tell()
                with contextlib.suppress(OSError):
                    _take_rights(file.fileno(), copy.fileno())
            if expected is not None and digest.hexdigest() != expected:
                raise ValueError(f"the blob {expected} is not what its name says")
            path = self.directory / digest.hexdigest()
            os.replace(temporary, path)
        return BlobRef(sha256=path.name, size=size, mime=mime)

    @contextlib.contextmanager
    def _temporary(self):  # type: ignore[no-untyped-def]
        own_directory(self.directory.parent, self.directory.name)
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f".{os.getpid()}-{os.urandom(8).hex()}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            yield path, fd
        finally:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _take_rights(source: int, copy: int) -> None:
    """Give a copy the rights of its source, less those that the umask withholds."""
    granted = stat.S_IMODE(os.fstat(copy).st_mode)
    # what may be read may be run, where the source may be
    granted |= (granted & 0o444) >> 2
    os.fchmod(copy, stat.S_IMODE(os.fstat(source).st_mode) & granted & 0o777)
