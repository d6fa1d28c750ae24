"""A sink that is slow and recognises nothing: each batch becomes a line of a file."""

import json
import os
import time
from collections.abc import Sequence
from typing import Any

from eventlog import Sink
from eventlog.events import Event
from eventlog.sinks.base import RunInfo


class SlowSink(Sink):
    """Appends what it is given, with one system call for each batch.

    Args:
        pause: Seconds that a batch takes before it is there, and again until that is confirmed.
        hiccup: Every so many batches one takes ten times as long.
    """

    name = "slow"

    def __init__(self, pause: float = 0.02, hiccup: int = 10) -> None:
        self._pause = pause
        self._hiccup = hiccup
        self._lines = 0
        self._fd = -1

    def open(self, run: RunInfo) -> None:
        assert run.directory is not None
        run.directory.mkdir(exist_ok=True)
        path = run.directory / "batches.jsonl"
        self._fd = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        # ends the line that a killed process may have left half written
        self._put({"session": os.urandom(4).hex()}, before="\n")

    def write(self, batch: Sequence[Event]) -> None:
        self._lines += 1
        pause = self._pause * (10 if self._lines % self._hiccup == 0 else 1)
        time.sleep(pause)
        self._put({"batch": [[event.attempt, event.seq] for event in batch]})
        time.sleep(pause)

    def close(self, status: str) -> None:
        self._put({"status": status})
        os.close(self._fd)

    def _put(self, line: dict[str, Any], before: str = "") -> None:
        os.write(self._fd, f"{before}{json.dumps(line)}\n".encode())
