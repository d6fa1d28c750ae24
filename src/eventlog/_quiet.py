"""The recorders of processes that record nothing: the same calls, hardly any cost, no thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from eventlog.events import Event
from eventlog.log.inbox import Barrier, Inbox, Item
from eventlog.recorder import Recorder

__all__ = ["AbsentRecorder", "QuietRecorder"]


class _Nothing(deque[Any]):
    """Takes everything, and is empty."""

    def append(self, item: Any, /) -> None:
        pass


class _QuietInbox(Inbox):
    """An inbox with room at all times, so that an emitting rank takes the short way."""

    def __init__(self) -> None:
        super().__init__()
        self.items = _Nothing()
        self.room = 1

    def put(self, item: Item, *, size: int = 0, reserved: bool = False) -> bool:
        if isinstance(item, Barrier):
            item.reach(0, True)
        return True

    def drop(self, reason: str) -> None:
        pass


class QuietRecorder(Recorder):
    """Records nothing, on purpose: nothing is dropped, and nothing is copied from a device."""

    quiet = True

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__(None, run_id="", inbox=_QuietInbox(), strict=strict)

    def offer(
        self, event: Event, values: Mapping[Any, Any] | None = None, *, reserved: bool = False
    ) -> bool:
        return True


class AbsentRecorder(Recorder):
    """Stands for one in another process: what is emitted here is counted, and goes nowhere."""

    absence = "pickled"

    def __init__(self) -> None:
        super().__init__(None, run_id="")
        self.pid = -1
        self.abandon()

    def abandon(self) -> None:
        super().abandon()
        self.inbox.abandon(self.absence)
