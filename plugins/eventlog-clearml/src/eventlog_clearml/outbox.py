"""The events of a batch, on their way to ClearML in one request, or to a folder in one write."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from eventlog.exceptions import RefusedError
from eventlog_clearml.session import calls

__all__ = ["Outbox"]


class Outbox:
    """Gathers events of ClearML's API, and sends them.

    Args:
        task: The SDK's task.
        session: What sends.
    """

    def __init__(self, task: Any, session: Any) -> None:
        self._session = session
        self._task_id = str(task.id)
        self._worker = str(session.worker)
        self._events: list[dict[str, Any]] = []
        self._texts: list[dict[str, Any]] = []
        folder = task.get_offline_mode_folder()
        self._folder = None if folder is None else Path(folder)
        requests: Any = importlib.import_module("clearml.backend_api.services").events
        self._request = requests.AddBatchRequest
        if self._folder is not None:
            for name in ("metrics.jsonl", "log.jsonl"):
                _mend(self._folder / name)

    def scalar(self, stamp: int, title: str, series: str, place: int, value: float) -> None:
        """Add a point to a curve; `stamp` in ms since 1970."""
        self._events.append(
            {
                "timestamp": stamp or _now(),
                "type": "training_stats_scalar",
                "task": self._task_id,
                "iter": place,
                "metric": title,
                "variant": series,
                "value": value,
            }
        )

    def plot(self, stamp: int, title: str, series: str, place: int, plot: str) -> None:
        """Add a plot, as JSON for Plotly."""
        event = self._event("plot", stamp, title, series, place)
        self._events.append(event | {"plot_str": plot})

    def image(self, stamp: int, title: str, series: str, place: int, url: str, key: str) -> None:
        """Add an image, which is where `url` says."""
        event = self._event("training_debug_image", stamp, title, series, place)
        self._events.append(event | {"url": url, "key": key})

    def text(self, stamp: int, level: str, text: str) -> None:
        """Add lines to the console."""
        self._texts.append(
            {
                "timestamp": stamp or _now(),
                "type": "log",
                "task": self._task_id,
                "level": level.upper(),
                "worker": self._worker,
                "msg": text,
            }
        )

    def send(self, count: Callable[[str, int], None]) -> None:
        """Send all.

        Args:
            count: Told what the server did not take, and how much.
        """
        if self._folder is not None:
            _append(self._folder / "metrics.jsonl", self._events)
            _append(self._folder / "log.jsonl", self._texts)
        elif self._events or self._texts:
            self._post(self._events + self._texts, count)
        self.clear()

    def clear(self) -> None:
        """Forget what was not sent."""
        self._events, self._texts = [], []

    def _event(self, kind: str, stamp: int, title: str, series: str, place: int) -> dict[str, Any]:
        return {
            "timestamp": stamp or _now(),
            "type": kind,
            "task": self._task_id,
            "iter": place,
            "metric": title,
            "variant": series,
        }

    def _post(self, events: list[dict[str, Any]], count: Callable[[str, int], None]) -> None:
        with calls(self._session):
            result = self._session.send(self._request(requests=events))
        if not result.ok():
            raise RefusedError(f"ClearML refuses {len(events)} events: {result.meta}")
        refused = getattr(result.response, "errors", None) or 0
        count("event that the server refused", int(refused))


def _now() -> int:
    return int(time.time() * 1000)


def _append(path: Path, events: list[dict[str, Any]]) -> None:
    """Add one line, whole or not at all."""
    if not events:
        return
    line = msgspec.json.encode(events) + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        before = os.fstat(file).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(file, line[written:])
        except OSError:
            os.ftruncate(file, before)
            raise
    finally:
        os.close(file)


def _mend(path: Path) -> None:
    """Take away half a line, which a process that was killed left at the end."""
    try:
        with path.open("r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole != len(content):
                file.truncate(whole)
    except FileNotFoundError:
        return
