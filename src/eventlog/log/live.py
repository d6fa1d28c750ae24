"""The source of a run that is going on: the cache, and behind it the files."""

from __future__ import annotations

from collections.abc import Callable

from eventlog.log.files import FileReader
from eventlog.log.segment_reader import list_segments
from eventlog.log.source import Block, Reader, TailCache
from eventlog.log.writer import LogWriter

__all__ = ["LiveSource"]


class LiveSource:
    """What the writer has written, newest events from memory, older ones from its files."""

    def __init__(self, cache: TailCache, log: LogWriter | None) -> None:
        self._cache = cache
        self._log = log

    @property
    def first(self) -> int:
        first = self._cache.first
        segments = [] if self._log is None else list_segments(self._log.directory)
        return min(first, segments[0][0]) if segments else first

    @property
    def end(self) -> int:
        return self._cache.end

    @property
    def synced(self) -> int:
        return self._cache.end if self._log is None else self._log.synced_end

    @property
    def closed(self) -> bool:
        return self._cache.closed

    def open_reader(self) -> Reader:
        return _LiveReader(self._cache, self._log)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._cache.listen(wake)


class _LiveReader:
    def __init__(self, cache: TailCache, log: LogWriter | None) -> None:
        self._cache = cache
        self._log = log
        self._files: FileReader | None = None

    def read(self, seq: int) -> Block | None:
        block = self._cache.find(seq)
        at_hand = seq >= self._cache.end if block is None else block.first <= seq
        if at_hand or self._log is None:
            self._files = None
            return block
        # what the disk could not take yet is not lost; asked first, because it may get there now
        waiting = self._log.waiting(seq)
        if waiting is not None and waiting.first <= seq:
            return waiting
        if self._files is None:
            self._files = FileReader(self._log.directory)
        stored = self._files.read(seq)
        if waiting is not None and (stored is None or waiting.first < stored.first):
            stored = waiting
        if block is not None and (stored is None or stored.first >= block.first):
            return block
        return stored
