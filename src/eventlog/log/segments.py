"""Writing segments: blocks into files that are only ever appended to."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections import deque
from itertools import islice
from pathlib import Path

import msgspec

from eventlog.codec import json_schema
from eventlog.log.disk import OS_FILES, Files
from eventlog.log.layout import FILE_MAGIC, BlockKind, Codec, header_seed, pack_block
from eventlog.log.records import SegmentHeader, encode_record
from eventlog.log.segment_reader import has_remains, segment_path

__all__ = ["SegmentWriter"]

_IOV_MAX = 512


class SegmentWriter:
    """One segment that is being written.

    Attributes:
        seed: For the headers of the blocks to be appended.
        size: Bytes in it.
    """

    def __init__(
        self,
        directory: Path,
        header: SegmentHeader,
        files: Files = OS_FILES,
        *,
        keep_old: bool = False,
    ) -> None:
        """Create the segment's file and write what every segment starts with.

        Args:
            directory: Made where it is not there.
            header: Written twice: without the one in it nothing of a segment can be read.
            files: The system calls.
            keep_old: Keep what is in a file of that name, under another name, when that is not
                just the beginning of a segment.

        Raises:
            OSError: That failed; nothing that a reader would take for events is left behind.
        """
        self._files = files
        self._keep_old = keep_old
        self._named = False
        self.seed = header_seed(header.uuid)
        self.path = segment_path(directory, header.base_seq)
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = self._create(directory)
        self.size = 0
        payload = encode_record(header)
        head = pack_block(BlockKind.HEADER, payload, seed=0)
        try:
            self.append([FILE_MAGIC, head, payload, head, payload, *self._schema()])
        except OSError:
            self.close()
            raise

    def _schema(self) -> tuple[bytes, bytes] | tuple[()]:
        try:
            schema = zlib.compress(msgspec.json.encode(json_schema()))
        except Exception:
            # two types with one tag, say: who reads the log is told; the log can do without
            return ()
        return pack_block(BlockKind.SCHEMA, schema, seed=self.seed, codec=Codec.ZLIB), schema

    def _create(self, directory: Path) -> int:
        try:
            return self._files.create(self.path)
        except FileExistsError:
            # left by a process that died before its first event; a reader that has it open
            # notices the other inode
            temporary = directory / f".{self.path.name}.{os.getpid()}-{os.urandom(4).hex()}"
            fd = self._files.create(temporary)
            if self._keep_old and has_remains(self.path):
                with contextlib.suppress(OSError):
                    os.link(
                        self.path, self.path.with_name(f"{self.path.name}.{temporary.name[-8:]}")
                    )
            self._files.replace(temporary, self.path)
            return fd

    def append(self, buffers: list[bytes]) -> None:
        """Write the buffers, all of them.

        Raises:
            OSError: Some may have been written, the last one in part; the segment must be left.
        """
        queue = deque(buffers)
        while queue:
            written = self._files.writev(self._fd, list(islice(queue, _IOV_MAX)))
            if written <= 0:
                raise OSError(errno.EIO, "nothing was written")
            self.size += written
            while queue and written >= len(queue[0]):
                written -= len(queue.popleft())
            if written:
                queue[0] = queue[0][written:]

    def sync(self) -> None:
        """Wait until everything that was appended is on the disk.

        Raises:
            OSError: It may not be, and a second try would not tell.
        """
        self._files.fdatasync(self._fd)
        if not self._named:
            # a file that was synced can still be lost with its name
            self._named = True
            self._files.sync_directory(self.path.parent)

    @property
    def linked(self) -> bool:
        """Whether the file still has a name."""
        try:
            return self._files.linked(self._fd)
        except OSError:
            return False

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)
