"""The folders of a run: which axis goes where, and what a rewind does to them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.events import BatchEvent, EpochEvent, Event, StepEvent
from eventlog_tensorboard.folders import Folder, folder_name
from eventlog_tensorboard.info import INFO_TAGS
from eventlog_tensorboard.summaries import INT64_MAX, INT64_MIN

__all__ = ["SUMMARY", "Layout"]

ROOT, BATCH, EPOCH, SUMMARY, UNSTEPPED = "", "batch", "epoch", "summary", "unstepped"
_OURS = re.compile(r"batch|epoch|summary|unstepped|rank\d+")


def _fits(step: int) -> bool:
    return INT64_MIN <= step <= INT64_MAX


class Layout:
    """The folders below a run's, opened when their first point comes.

    Args:
        root: The run's folder.
        suffix: What file names end with.
        count: Called with the reason when something is not shown as it is.
        saved: What `state` returned, or nothing.
    """

    def __init__(
        self, root: Path, suffix: str, count: Callable[[str], None], saved: dict[str, Any]
    ) -> None:
        self._root = root
        self._suffix = suffix
        self._count = count
        self._counted: int = saved.get("count", 0)
        self._folders: dict[str, Folder] = {}
        for key, purge in saved.get("purge", {}).items():
            self.folder(key).purge = purge
        for key in saved.get("mixed", []):
            self.folder(key).mixed = True

    def folder(self, key: str) -> Folder:
        """Return the folder of that name below the run's."""
        folder = self._folders.get(key)
        if folder is None:
            taken: frozenset[str] = frozenset() if key else INFO_TAGS
            folder = Folder(self._root / key, self._suffix, self._count, taken)
            folder.next_count = self._counted
            self._folders[key] = folder
        return folder

    def place(self, event: Event) -> tuple[Folder, int | None]:
        """Return where an event is shown; its step is None where it must be counted up."""
        key, step = ROOT, event.step
        named = event.axis != "step"
        if type(event) is StepEvent and not named and step is not None and _fits(step):
            return self.folder(ROOT), step  # nearly all events
        if named:
            key = folder_name(event.axis)
            key = f"{key}~axis" if _OURS.fullmatch(key) else key
        epoch = event.epoch
        if isinstance(epoch, float):  # a fractional one has no place on an axis of integers
            epoch = int(epoch) if epoch.is_integer() else None
        axes = [(key, step), (BATCH, event.batch), (EPOCH, epoch)]
        if isinstance(event, BatchEvent):
            axes.insert(0, axes.pop(1))
        elif isinstance(event, EpochEvent):
            axes.insert(0, axes.pop(2))
        for key, at in axes:
            if at is not None:
                if _fits(at):
                    return self.folder(key), at
                self._count("step outside int64: shown elsewhere")
        return self.folder(UNSTEPPED), None

    def go_back(self, step: int, batch: int | None, epoch: float | None) -> None:
        """Have what is superseded purged when the first point of its axis comes.

        Batches and epochs are purged only where it is known at which one the run goes on. Where
        batches start anew in each epoch, that would reach into other epochs, so they stay.
        """
        for key, at in ((ROOT, step), (BATCH, batch), (EPOCH, epoch)):
            if at is None or (isinstance(at, float) and not math.isfinite(at)):
                continue
            folder = self.folder(key)
            if key and folder.mixed:
                self._count("rewind on an axis that had gone back before: nothing purged")
            else:
                folder.purge = min(max(at, INT64_MIN), INT64_MAX)

    def settle_purges(self, wall_time: float) -> None:
        """Purge what is superseded although no further point came."""
        for folder in self._folders.values():
            folder.settle_purge(wall_time)

    def commit(self) -> None:
        """Write the buffers of all folders, or none of them.

        Raises:
            OSError: One cannot be written.
        """
        waiting = [folder for folder in self._folders.values() if folder.buffer]
        try:
            for folder in waiting:
                folder.write()
        except BaseException:
            for folder in waiting:
                folder.take_back()
            raise
        for folder in waiting:
            folder.settle()

    def drop(self) -> None:
        """Forget what waits to be written."""
        for folder in self._folders.values():
            folder.drop()

    def close(self) -> None:
        """Let go of all files."""
        for folder in self._folders.values():
            folder.close()

    def state(self) -> dict[str, Any]:
        """Return what another process needs to go on."""
        folders = self._folders.items()
        return {
            "count": max((folder.last_count() for _, folder in folders), default=self._counted),
            "purge": {key: folder.purge for key, folder in folders if folder.purge is not None},
            "mixed": [key for key, folder in folders if key in (BATCH, EPOCH) and folder.mixed],
        }
