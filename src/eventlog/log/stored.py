"""The source of a log on disk that this process does not write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eventlog.log.files import FileReader, last_valid_seq
from eventlog.log.segment_reader import Damage, is_sparse, list_segments
from eventlog.log.source import Reader

__all__ = ["StoredSource"]


class StoredSource:
    """The events that a log holds now: a source that has ended.

    Attributes:
        readers: The places that were opened in it; each knows the damage that it met.
        sparse: Whether seqs are left out of it on purpose.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.readers: list[FileReader] = []
        segments = list_segments(directory)
        self._first = segments[0][0] if segments else 0
        self.sparse = is_sparse(directory)
        self._end = last_valid_seq(directory)

    @property
    def first(self) -> int:
        return self._first

    @property
    def end(self) -> int:
        return self._end

    @property
    def synced(self) -> int:
        return self._end

    @property
    def closed(self) -> bool:
        return True

    @property
    def damage(self) -> list[Damage]:
        """What the readers could not read; at the end of the log, what lies behind it as well."""
        found = [damage for reader in self.readers for damage in reader.damage]
        for reader in self.readers:
            tail = reader.tail() if reader.at_end else None
            if tail is not None:
                found.append(tail)
        return list(dict.fromkeys(found))

    def open_reader(self) -> Reader:
        reader = FileReader(self.directory)
        self.readers.append(reader)
        return reader

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        return lambda: None
