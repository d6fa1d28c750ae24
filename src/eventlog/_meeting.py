"""Where the ranks of a job learn which run they record: by way of the file system alone.

Rank 0 decides on the run and on the attempt. What identifies a job comes from its launcher, and
launchers give the same identity again: a default port, a rendezvous id in a script. So a run's id
cannot be made of it, and what a former job has left must not be taken for this one's. Therefore

- rank 0 removes what is there before it opens its log, and publishes a record, whole or not at
  all, once it has that log's lock;
- the others take a record only while its log is locked, and if it is the same after that look;
- rank 0 may have ended before another rank came. A record that is no older than that rank is taken
  at the end of its patience, when no better one has come; or soon, where one process had started
  both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from eventlog._paths import below, decode_file, replace_file
from eventlog._platform import lock_is_held
from eventlog._ranks import Job
from eventlog.recorder import rank_directory

__all__ = ["ASKED", "PATIENCE", "JobRecord", "Meeting", "Whereabouts"]

PATIENCE = 60.0
"""Seconds that a rank waits for rank 0 before it records a run of its own."""

ASKED = 5.0
"""Seconds that asking for a run's id or directory may take on another rank."""

RECENT = 60.0
"""Seconds by which rank 0 may have come before another rank of the same job."""

SIBLING = 2.0
"""Seconds after which a rank 0 that is gone is believed, where one process had started both."""

KEPT = 30 * 86_400.0
"""Seconds after which a record is removed: a job that is started again later has a new run."""

SLOWEST = 0.25


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 has decided.

    Attributes:
        run_id, attempt: Of the run.
        nonce: Different in each record.
        host, pid, parent: Of rank 0's process.
        published: Wall time in seconds.
    """

    run_id: str
    attempt: int
    nonce: str
    host: str = ""
    pid: int = 0
    parent: int = 0
    published: float = 0.0


class Meeting:
    """The record of one run of one job.

    Args:
        base: The project's directory, which all ranks share.
        job: See `find_job`.
        key: What tells the runs of a job apart; the n-th of the same key on one rank belongs
            together with the n-th on another.
        rank: Of this process.
    """

    def __init__(self, base: Path, job: Job, key: str, rank: int) -> None:
        self._base = base
        self._job = job
        self._folder = base / ".jobs"
        place = (str(base), job.id, key, rank)
        self._key = f"{key}|{_counts.setdefault(place, 0)}"
        _counts[place] += 1
        self._path = self._path_of(job.restart)
        self._came = time.time()

    def _path_of(self, restart: int) -> Path:
        text = "|".join((self._job.id, str(restart), self._key))
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def clear(self) -> None:
        """Remove what an earlier job has left. For rank 0, before it opens its log."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def earlier(self) -> str | None:
        """Return the run that this job recorded before it was started again."""
        for restart in range(self._job.restart - 1, -1, -1):
            record = _read(self._path_of(restart))
            if record is None:
                continue
            same = (record.host, record.parent) == (socket.gethostname(), os.getppid())
            if self._job.lasting or same:
                return record.run_id
        return None

    def publish(self, run_id: str, attempt: int) -> None:
        """Say which run it is. For rank 0, while it has its log open.

        Raises:
            OSError: The file cannot be written.
        """
        record = JobRecord(
            run_id=run_id,
            attempt=attempt,
            nonce=secrets.token_hex(8),
            host=socket.gethostname(),
            pid=os.getpid(),
            parent=os.getppid(),
            published=time.time(),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, msgspec.json.encode(record))
        self._forget_old()

    def _forget_old(self) -> None:
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < time.time() - KEPT:
                        path.unlink()

    def look(self) -> JobRecord | None:
        """Return what a living rank 0 has said by now."""
        record = _read(self._path)
        if record is None:
            return None
        if not lock_is_held(rank_directory(self._base / record.run_id, 0) / "lock"):
            return None
        # whoever has the lock removed what was there before: still the same, it is the holder's
        return record if _read(self._path) == record else None

    def look_anyway(self) -> JobRecord | None:
        """Return what a rank 0 that is gone has said, unless it is of an earlier job."""
        record = _read(self._path)
        if record is None or record.published < self._came - RECENT:
            return None
        return record

    def _look_at_sibling(self) -> JobRecord | None:
        """Return what a rank 0 has said that is gone, and that the same process had started."""
        record = self.look_anyway()
        if record is None or (record.host, record.parent) != (socket.gethostname(), os.getppid()):
            return None
        return record

    def wait(self, patience: float, enough: Callable[[], bool]) -> JobRecord | None:
        """Wait for rank 0.

        Args:
            patience: Seconds.
            enough: Asked now and then whether to stop waiting.
        """
        begun = time.monotonic()
        deadline = begun + patience
        pause = 0.005
        while (record := self.look()) is None:
            if time.monotonic() >= deadline or enough():
                return self.look_anyway()
            if time.monotonic() - begun >= SIBLING:
                record = self._look_at_sibling()
                if record is not None:
                    return record
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(SLOWEST, pause * 1.5)
        return record


_counts: dict[tuple[str, str, str, int], int] = {}


def _read(path: Path) -> JobRecord | None:
    try:
        record = decode_file(path, JobRecord)
        below(path.parent, record.run_id)  # it becomes a directory's name
    except (OSError, ValueError):
        return None
    return record


class Whereabouts:
    """A run's id and directory, which only rank 0 knows from the start.

    Args:
        base: The project's directory; None for a run that keeps nothing on disk.
        meeting: Where to look, on a rank for which nobody else looks.
    """

    def __init__(self, base: Path | None, meeting: Meeting | None = None) -> None:
        self._base = base
        self._meeting = meeting
        self._known = threading.Event()
        self._patience = ASKED
        self._id = ""

    def settle(self, run_id: str) -> None:
        """Say which run it is."""
        self._id = run_id
        self._known.set()

    @property
    def known(self) -> bool:
        """Whether it is known by now."""
        return self._known.is_set()

    @property
    def id(self) -> str:
        """The run's id; waits a while for rank 0's word, and is empty where none comes."""
        if not self._known.is_set():
            self._ask()
        return self._id

    @property
    def dir(self) -> Path | None:
        """The run's directory; likewise, and None where none comes."""
        run_id = self.id
        return self._base / run_id if self._base is not None and run_id else None

    def _ask(self) -> None:
        # who got no answer once does not wait again
        patience, self._patience = self._patience, 0.0
        if self._meeting is None:
            self._known.wait(patience)
            return
        record: Any = self._meeting.wait(patience, lambda: False)
        if record is not None:
            self.settle(record.run_id)
