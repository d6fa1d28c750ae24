"""The files of an offline experiment before they are an archive, and what a killed process left.

Comet's SDK appends one line of JSON to ``messages.json`` for each thing that is logged, from a
thread of its own, and makes an archive of the folder when the experiment ends. Before that, what
``comet upload`` takes does not exist; but the folder is enough to make it. So the folder lies
beside the archives, in ``unfinished``, and gets the other file that an archive needs.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eventlog.exceptions import UnavailableError

__all__ = ["UNFINISHED", "Spool", "archive"]

UNFINISHED = "unfinished"

_EMPTY_ZIP = 22  # bytes of an archive without any file
_TAIL = 1 << 16
_SETTLED = 0.5  # seconds


class Spool:
    """The folder of one experiment, from its start until it is archived.

    Args:
        home: Where archives go.
        key: The experiment's.
        rank: The process's; each rank has a place of its own.
        owned: Whether `home` is this sink's alone, so that other folders there are rubbish.

    Attributes:
        folder: Where the SDK is to make its own folder.
    """

    def __init__(self, home: Path, key: str, rank: int = 0, *, owned: bool = False) -> None:
        self._home, self._key, self._owned = home, key, owned
        self.folder = home / (f"{UNFINISHED}-rank{rank}" if rank else UNFINISHED)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._experiment: Any = None
        self._path: Path | None = None
        self._name = ""
        self._size: int | None = None

    def recover(self, state: Mapping[str, Any]) -> bool:
        """Archive what an earlier process left, up to what is known to be confirmed.

        Args:
            state: What `state` returned when it was confirmed.

        Returns:
            False when files that should be there are gone.

        Raises:
            OSError: Files cannot be read or written.
        """
        name = state.get("spool")
        if not name:
            return True
        spool = self.folder / Path(name).name
        if spool.is_dir():
            archive(spool, self._home, state.get("size"))
            return True
        done = (archive_name(self._key, spool), str(state.get("archive")))
        return any((self._home / name).is_file() for name in done)

    def adopt(self, experiment: Any) -> Path:
        """Take over the folder that the SDK made; return where the archive will be."""
        if self._owned:
            for path in self.folder.glob("*/messages.json"):
                if path.parent != Path(experiment.tmpdir):
                    shutil.rmtree(path.parent, ignore_errors=True)
        self._experiment = experiment
        self._path = Path(experiment.tmpdir)
        # the SDK makes an empty archive to see that it can
        for path in self._home.glob(f"{self._key}-*.zip"):
            if path.stat().st_size <= _EMPTY_ZIP:
                self._name = path.name
                path.unlink()
        _describe(self._path, experiment)
        # its thread looks up once in this time, and ending it waits for that
        experiment.streamer.queue_timeout = 0.1
        return self._home / self._name

    def flush(self, patience: float) -> str | None:
        """Wait until all messages are with the operating system.

        Returns:
            What went wrong with messages that could not be written.

        Raises:
            UnavailableError: `patience` seconds were not enough.
            OSError: A file cannot be written.
        """
        if self._path is None:
            return None
        size = _drain(self._path, self._experiment, patience)
        if size is None:
            raise UnavailableError("Comet's SDK did not write everything in time")
        _describe(self._path, self._experiment)
        self._size = size
        lost: str | None = None
        if self._experiment.customer_error_reported:
            lost = str(self._experiment.customer_error_message)
            self._experiment.customer_error_reported = False
            self._experiment.customer_error_message = None
        return lost

    def finish(self) -> Path:
        """Forget the folder, once the SDK has archived it; return where the archive is.

        Raises:
            OSError: There is no archive.
        """
        path = Path(self._experiment.offline_directory) / self._name
        if not zipfile.is_zipfile(path) or path.stat().st_size <= _EMPTY_ZIP:
            raise OSError(f"Comet's SDK made no archive; what it would hold is in {self._path}")
        self._path = None
        with suppress(OSError):
            self.folder.rmdir()
        return path

    def state(self) -> dict[str, Any]:
        """Return what `recover` needs."""
        if self._path is None:
            return {}
        return {"spool": self._path.name, "size": self._size, "archive": self._name}


def archive_name(key: str, spool: Path) -> str:
    """Return what the archive of a folder that was left unfinished is called."""
    return f"{key}-{spool.name}.zip"


def archive(spool: Path, directory: Path, size: int | None = None) -> Path:
    """Make the archive that the SDK did not come to make, remove the folder, return the archive.

    Args:
        spool: The folder.
        directory: Where the archive goes.
        size: Bytes of the messages that count; by default all whole lines.

    Raises:
        OSError: Files cannot be read or written; the folder is still there.
        ValueError: The folder is not one of Comet's.
    """
    key = json.loads((spool / "experiment.json").read_bytes())["offline_id"]
    _truncate(spool / "messages.json", size)
    target = directory / archive_name(key, spool)
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w", allowZip64=True) as file:
        for path in sorted(spool.iterdir()):
            if path.is_file():
                file.write(path, path.name)
    os.replace(part, target)
    shutil.rmtree(spool)
    return target


def _describe(spool: Path, experiment: Any) -> None:
    """Write what an archive needs beside the messages.

    Raises:
        OSError: It cannot be written.
    """
    facts = {
        "offline_id": experiment.id,
        "project_name": experiment.project_name,
        "workspace": experiment.workspace,
        "start_time": experiment.start_time,
        "stop_time": int(time.time() * 1000),
        "tags": sorted(experiment.get_tags()),
        "resume_strategy": "get_or_create",
        "customer_error_reported": False,
        "customer_error_message": None,
        "user_provided_experiment_key": True,
        "comet_start_sourced": True,
    }
    part = spool / ".experiment.json"
    part.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(part, spool / "experiment.json")


def _drain(spool: Path, experiment: Any, deadline: float) -> int | None:
    """Wait until all messages are with the operating system; return how many bytes they are.

    Args:
        spool: Where ``messages.json`` lies.
        experiment: The SDK's, whose thread writes them.
        deadline: Seconds to wait at most.

    Returns:
        None when the deadline passed, or the thread has ended.
    """
    path = spool / "messages.json"
    streamer = experiment.streamer
    last = streamer._counter
    now = idle_since = time.monotonic()
    end = now + deadline
    pause = 0.0005
    while True:
        if not streamer.messages.empty():
            idle_since = now
        elif _last_id(path) >= last:
            break
        elif experiment.customer_error_reported and now - idle_since > _SETTLED:
            break  # the last message is one of those that could not be written
        if now > end or not streamer.is_alive():
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.01)
        now = time.monotonic()
    return path.stat().st_size


def _last_id(path: Path) -> int:
    """Return the number of the last message that is there whole."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        size = _TAIL
        while True:
            start = max(0, end - size)
            file.seek(start)
            lines = file.read(end - start).split(b"\n")
            # the last part is empty, or a line that is still being written
            if len(lines) > 2 or (start == 0 and len(lines) == 2):
                payload = json.loads(lines[-2])["payload"]
                return int(payload.get("message_id") or 0)
            if start == 0:
                return 0
            size *= 4


def _truncate(path: Path, size: int | None) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        if size is None:
            size = end
        size = min(size, end)
        while size:
            start = max(0, size - _TAIL)
            file.seek(start)
            cut = file.read(size - start).rfind(b"\n")
            if cut >= 0:
                size = start + cut + 1
                break
            size = start
        file.truncate(size)
