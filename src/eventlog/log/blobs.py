"""Files named by their contents: what is too large, or too binary, for the log itself."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from eventlog.events import BlobRef

__all__ = ["BlobStore"]


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

    def put_file(self, source: Path, mime: str) -> BlobRef:
        """Keep a copy of a file, read in pieces.

        Raises:
            OSError: It cannot be read, or the copy not be written.
        """
        digest = hashlib.sha256()
        with source.open("rb") as file, self._temporary() as (temporary, fd):
            with open(fd, "wb") as copy:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
                    copy.write(chunk)
                size = copy.tell()
            path = self.directory / digest.hexdigest()
            os.replace(temporary, path)
        with contextlib.suppress(OSError):
            shutil.copymode(source, path)
        return BlobRef(sha256=path.name, size=size, mime=mime)

    @contextlib.contextmanager
    def _temporary(self):  # type: ignore[no-untyped-def]
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f".{os.getpid()}-{os.urandom(8).hex()}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            yield path, fd
        finally:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
