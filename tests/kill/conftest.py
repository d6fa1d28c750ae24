"""Training processes that are killed, and the processes that they leave."""

import itertools
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("child")
PAIR = struct.Struct("<qq")
ROOM = 1 << 20
WINDOW_NS = 50_000_000
SCHEDULING_NS = 100_000_000
"""What a machine with few and busy cores adds to the window, beside the gaps that the child saw."""


def wait_for(condition: Callable[[], object], seconds: float = 20.0, what: str = "it") -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.005)


def state_of(pid: int) -> str:
    """Return a process's state letter and its parent, or nothing when it is gone."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return f"{after[0]} {after[1]}"


def is_gone(pid: int) -> bool:
    """Whether a process is no more; a dead one that only process 1 can reap counts, too."""
    return state_of(pid) in ("", "Z 1", "X 1")


class Trainer:
    """One process that trains: one attempt of a run."""

    def __init__(
        self,
        directory: Path,
        number: int,
        resume: str | None,
        isolate: bool,
        sinks: dict[str, Any] | None = None,
    ) -> None:
        progress = directory / f"progress-{number}"
        progress.write_bytes(bytes(ROOM))
        with progress.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        options = {
            "dir": str(directory),
            "number": number,
            "progress": str(progress),
            "resume": resume,
            "isolate": isolate,
            "sinks": sinks,
            "segment_bytes": 200_000,
        }
        self.number = number
        self.killed = 0
        self.errors = directory / f"errors-{number}"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD / "trainer.py"), json.dumps(options)],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=child_environment(),
            )

    def steps(self) -> int:
        """Return how many steps it has made."""
        return int(PAIR.unpack_from(self._shared, 0)[0])

    def wait_for(self, n: int) -> None:
        """Wait until it has made so many steps."""

        def there() -> bool:
            assert self.process.poll() is None, self.errors.read_text()
            return self.steps() >= n

        wait_for(there, 40, "training")

    def kill(self) -> int:
        """Kill it; return the number of steps that its log must have."""
        self.killed = time.monotonic_ns()
        self.process.kill()
        self.process.wait()
        return self.due()

    def due(self) -> int:
        """Return how many steps are older than the window, which its own stalls make longer."""
        killed, stamps = self.killed, self._stamps()
        times = [at for at in stamps if at > killed - 2_000_000_000] + [killed]
        stall = max((b - a for a, b in itertools.pairwise(times)), default=0)
        oldest = killed - WINDOW_NS - SCHEDULING_NS - stall
        return sum(at <= oldest for at in stamps)

    def age_of_what_is_lost(self, kept: int) -> float:
        """Return how old, in seconds, the oldest step was that is not among those kept."""
        lost = self._stamps()[kept:]
        return max(0.0, (self.killed - lost[0]) / 1e9) if lost and self.killed else 0.0

    def _stamps(self) -> list[int]:
        return [PAIR.unpack_from(self._shared, 16 * n)[1] for n in range(1, self.steps() + 1)]

    def end(self) -> int:
        """Let it end by itself; return its exit code."""
        struct.pack_into("<q", self._shared, 8, 1)
        return self.process.wait(90)


def child_environment() -> dict[str, str]:
    """Return an environment in which the helper modules can be imported."""
    paths = [str(CHILD), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def sidecars_of(run_dir: Path) -> list[int]:
    """Return the delivering processes of a run that live."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"eventlog.sidecar" in command and os.fsencode(run_dir) in command:
            found.append(int(entry))
    return found


class Processes:
    """Starts trainers, and at the end sees to it that nothing of them is left."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trainers: list[Trainer] = []
        self.seen: set[int] = set()

    def start(self, *, isolate: bool, sinks: dict[str, Any] | None = None) -> Trainer:
        """Start the next attempt, with the sinks of ``child/trainer.py`` or with others."""
        number = len(self.trainers)
        resume = self.run_dir.name if self.has_run else None
        trainer = Trainer(self.directory, number, resume, isolate, sinks)
        self.trainers.append(trainer)
        return trainer

    @property
    def has_run(self) -> bool:
        """Whether there is a run to go on with."""
        return any(self.directory.glob("killed/*/manifest.json"))

    @property
    def run_dir(self) -> Path:
        """The run's directory."""
        (found,) = self.directory.glob("killed/*")
        return found

    def sidecars(self) -> list[int]:
        """Return the delivering processes, and remember them."""
        found = sidecars_of(self.run_dir)
        self.seen.update(found)
        return found

    def wait_until_gone(self, seconds: float) -> None:
        """Wait until no delivering process is left, not even a dead one that nobody reaps."""
        wait_for(lambda: not self.sidecars(), seconds, "the end of the sidecars")
        wait_for(lambda: all(map(is_gone, self.seen)), 5, "the end of the zombies")

    def clear(self) -> None:
        """End what a failed test has left."""
        for trainer in self.trainers:
            if trainer.process.poll() is None:
                trainer.kill()
        if any(self.directory.glob("killed/*")):
            for pid in self.sidecars():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Trainers in a directory."""
    made = Processes(tmp_path)
    yield made
    made.clear()


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the helper modules, importable also in this process."""
    monkeypatch.syspath_prepend(str(CHILD))
    return CHILD


@pytest.fixture
def environment() -> dict[str, Any]:
    """An environment in which children can import the helper modules."""
    return child_environment()
