"""A disk that does not take the log: full, gone, read-only, or with a limit on files.

The live sink writes elsewhere. What is stated in docs/promises.md is tested here.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog.events import Event, RunFinished
from eventlog.log.checkpoint import list_checkpoints

MOST = 2 * 1024 * 1024


class Child:
    """The training process of ``child/tiny_disk.py``."""

    def __init__(
        self, disk: Path, elsewhere: Path, environment: dict[str, str], script: Path, **options: Any
    ) -> None:
        self.elsewhere = elsewhere
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(disk), str(elsewhere), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.run_dir = Path(self._answer()["dir"])

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the training process died: " + self.process.communicate()[1]
        return json.loads(line)

    def ask(self, call: str) -> Any:
        """Have a call made; return its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(call + "\n")
        self.process.stdin.flush()
        return self._answer()

    def until(self, condition: Callable[[Any], object], seconds: float = 20.0) -> Any:
        """Wait for the statistics to be like that; return them."""
        deadline = time.monotonic() + seconds
        while not condition(found := self.ask("statistics()")):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def until_live(self, n: int) -> Any:
        """Wait until the live sink has n events; return the statistics."""
        return self.until(lambda s: s["live"] == n)

    def end(self) -> str:
        """Let the process end; return what it wrote to its standard error."""
        _, errors = self.process.communicate(timeout=40)
        assert self.process.returncode == 0, errors
        return errors

    def live(self) -> list[Event]:
        """Return what the live sink has."""
        return list(eventlog.open_log(self.elsewhere).events())

    def log(self) -> list[Event]:
        """Return what the log has."""
        return list(eventlog.open_log(self.run_dir).events())


@pytest.fixture
def start(
    tmp_path: Path, environment: dict[str, str], children: Path
) -> Iterator[Callable[..., Child]]:
    """Start a training process whose log lies on a disk, and whose live sink writes elsewhere."""
    made: list[Child] = []

    def start(disk: Path, **options: Any) -> Child:
        elsewhere = tmp_path / "elsewhere"
        made.append(Child(disk, elsewhere, environment, children / "tiny_disk.py", **options))
        return made[-1]

    yield start
    for child in made:
        if child.process.poll() is None:
            child.process.kill()
            child.process.communicate()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount a file system; skip where that is not allowed."""
    mounts: list[Path] = []

    def mount(*arguments: str) -> Path:
        place = tmp_path / f"disk{len(mounts)}"
        place.mkdir()
        command = ["mount", *arguments, str(place)]
        if os.geteuid() != 0 or shutil.which("mount") is None:
            pytest.skip("mounting a small file system takes root")
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
        mounts.append(place)
        return place

    yield mount
    for place in mounts:
        subprocess.run([shutil.which("umount") or "umount", "-l", str(place)], check=False)


def fill(disk: Path) -> Path:
    """Take all room that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


def check_replay(child: Child, into: Path) -> None:
    """Check that a replay gives exactly what is in the log."""
    report = eventlog.replay(child.run_dir, {"log": {"dir": into}}, latest=False)
    events = child.log()
    missing = events[-1].seq + 1 - events[0].seq - len(events)
    sink = report.sinks["log"]
    assert (report.complete, sink.state, sink.lost) == (not missing, "closed", missing)
    assert list(eventlog.open_log(into).events()) == events


def seqs(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


def test_a_disk_that_fills_up_and_empties_again_costs_nothing(
    start: Callable[..., Child], mounted: Callable[..., Path], tmp_path: Path
) -> None:
    """Training and the live sink go on from memory; the log follows when there is room again."""
    disk = mounted("-t", "tmpfs", "-o", f"size={MOST}", "tmpfs")
    child = start(disk)
    child.ask("steps(500)")
    child.until(lambda s: s["written"] == 501 == s["live"])
    for cycle in range(1, 4):
        ballast = fill(disk)
        child.ask("steps(500, 'x' * 300)")
        full = child.until_live(501 + 1000 * cycle - 500)
        assert "No space left" in full["degraded"]
        assert full["queued"] > 0
        ballast.unlink()
        child.ask("steps(500)")
        well = child.until(lambda s: s["degraded"] is None and s["queued"] == 0)
        assert well["dropped"] == {}
        assert well["written"] == well["emitted"] == 501 + 1000 * cycle
    complete, written, left, *_ = child.ask("close()")
    assert (complete, written, left) == (True, True, {})
    errors = child.end()
    assert errors.count("cannot be written") == errors.count("is being written again") == 3
    log = child.log()
    assert seqs(log) == list(range(3502))
    assert [e.values["n"] for e in log[1:-1]] == list(range(3500))
    assert child.live() == log
    assert eventlog.open_log(child.run_dir).status() == "finished"
    (checkpoint,) = list_checkpoints(child.run_dir / "rank-0")
    assert (checkpoint.seq, checkpoint.done) == (3502, True)
    check_replay(child, tmp_path / "again")


def test_a_disk_that_stays_full_costs_what_is_beyond_memory_and_says_how_much(
    start: Callable[..., Child], mounted: Callable[..., Path], tmp_path: Path
) -> None:
    """64 MiB wait for the disk; the rest is counted, and the live sink has all of it."""
    disk = mounted("-t", "tmpfs", "-o", f"size={MOST}", "tmpfs")
    child = start(disk)
    child.ask("steps(100)")
    child.until(lambda s: s["written"] == 101 == s["live"])
    ballast = fill(disk)
    emitted = 101
    while True:
        child.ask("steps(20, 'x' * 500_000)")
        emitted += 20
        found = child.until_live(emitted)
        if found["dropped"]:
            break
    assert found["queued"] * 500_000 < 64 * 1024 * 1024
    ballast.unlink()
    # 64 MiB do not fit on it: it fills up again at once, and takes what it can
    found = child.until(lambda s: s["written"] > 101)
    complete, written, left, *_ = child.ask("close()")
    assert (complete, written, left) == (False, False, {})
    child.end()
    found = child.live()
    assert seqs(found) == list(range(emitted + 1))
    log = child.log()
    assert 101 < len(log) < len(found)
    assert [e for e in found if e.seq in set(seqs(log))] == log
    check_replay(child, tmp_path / "again")


def test_drops_are_in_the_log_once_it_can_be_written(
    start: Callable[..., Child], mounted: Callable[..., Path], tmp_path: Path
) -> None:
    """A log that goes on after it lost events says how many these were."""
    disk = mounted("-t", "tmpfs", "-o", "size=200m", "tmpfs")
    child = start(disk)
    child.ask("steps(100)")
    child.until(lambda s: s["written"] == 101 == s["live"])
    ballast = fill(disk)
    emitted, lost = 101, 0
    while not lost:
        child.ask("steps(20, 'x' * 500_000)")
        emitted += 20
        lost = child.until_live(emitted)["dropped"].get("disk", 0)
    ballast.unlink()
    found = child.until(lambda s: s["degraded"] is None and s["queued"] == 0)
    assert found["written"] == emitted - lost
    assert found["dropped"] == {"disk": lost}
    complete, written, left, *_ = child.ask("close()")
    assert (complete, written, left) == (False, False, {})
    child.end()
    log = child.log()
    summary = eventlog.open_log(child.run_dir).summary()
    assert summary.dropped == {"disk": lost}
    assert summary.events == len(log) == emitted + 1 - lost
    assert seqs(log) == [*range(101), *range(101 + lost, emitted + 1)]
    assert seqs(child.live()) == list(range(emitted + 1))
    check_replay(child, tmp_path / "again")


def test_a_run_that_dies_on_a_full_disk_is_gone_on_with(
    start: Callable[..., Child], mounted: Callable[..., Path]
) -> None:
    """The sink's position is kept on a full disk as well: no seq is given twice."""
    disk = mounted("-t", "tmpfs", "-o", f"size={MOST}", "tmpfs")
    child = start(disk)
    child.ask("steps(500)")
    child.until(lambda s: s["written"] == 501 == s["live"])
    ballast = fill(disk)
    child.ask("steps(500, 'x' * 300)")
    child.until(lambda s: s["live"] == 1001)
    child.ask("flush()")
    child.process.kill()
    child.process.communicate()
    ballast.unlink()
    second = start(disk, resume="must")
    second.ask("steps(100)")
    assert second.ask("close()") == [True, True, {}, {}, {}, {}]
    second.end()
    live = second.live()
    places = [(e.attempt, e.seq) for e in live]
    assert len({seq for _, seq in places}) == len(places)
    assert [e.values["n"] for e in live if e.attempt == 2 and "n" in e.values] == list(range(100))
    assert [e.values["n"] for e in second.log() if e.attempt == 2 and "n" in e.values] == list(
        range(100)
    )
    assert isinstance(live[-1], RunFinished)


def test_a_run_whose_directory_is_removed_goes_on_in_a_new_one(
    start: Callable[..., Child], tmp_path: Path
) -> None:
    """What was in it is gone; the log goes on there within seconds, the live sink at once."""
    child = start(tmp_path / "disk")
    child.ask("steps(500)")
    child.until(lambda s: s["written"] == 501 == s["live"])
    shutil.rmtree(child.run_dir)
    deadline = time.monotonic() + 20
    while not child.run_dir.exists():
        child.ask("steps(100)")
        assert time.monotonic() < deadline
    child.ask("steps(500)")
    found = child.until(lambda s: s["queued"] == 0 and s["live"] == s["emitted"])
    assert found["dropped"] == {}
    assert found["degraded"] is None
    assert child.ask("close()") == [True, True, {}, {}, {}, {}]
    errors = child.end()
    assert "was removed" in errors
    live, log = child.live(), child.log()
    assert seqs(live) == list(range(found["emitted"] + 1))
    assert log[0].seq > 0
    assert log == live[log[0].seq :]
    # it is a run that can be gone on with, and nothing is delivered twice
    (checkpoint,) = list_checkpoints(child.run_dir / "rank-0")
    assert (checkpoint.seq, checkpoint.done) == (len(live), True)
    second = start(tmp_path / "disk", resume="must")
    second.ask("steps(50)")
    assert second.ask("close()") == [True, True, {}, {}, {}, {}]
    second.end()
    assert seqs(second.live()) == list(range(len(live) + 52))
    check_replay(second, tmp_path / "again")


def test_an_isolated_sink_outlives_its_runs_directory(
    start: Callable[..., Child], tmp_path: Path
) -> None:
    """The sidecar waits for the log that its writer makes again, and ends with the run."""
    live = {"live": {"sink": "log", "dir": str(tmp_path / "elsewhere"), "isolate": True}}
    child = start(tmp_path / "disk", sinks=live)
    child.ask("steps(500)")
    assert child.ask("flush()")[0]
    shutil.rmtree(child.run_dir)
    time.sleep(0.5)
    deadline = time.monotonic() + 20
    while not child.run_dir.exists():
        child.ask("steps(100)")
        assert time.monotonic() < deadline
    child.ask("steps(500)")
    assert child.ask("close()") == [True, True, {}, {}, {}, {}]
    child.end()
    assert seqs(child.live())[-1] == child.log()[-1].seq
    assert isinstance(child.live()[-1], RunFinished)


def test_a_disk_that_becomes_read_only(
    start: Callable[..., Child], mounted: Callable[..., Path], tmp_path: Path
) -> None:
    """A file system that its kernel makes read-only is one more that does not take the log."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    make = shutil.which("mkfs.ext4")
    if make is None:
        pytest.skip("mkfs.ext4 is not there")
    subprocess.run([make, "-q", "-F", str(image)], check=True)
    disk = mounted("-o", "loop,errors=remount-ro", str(image))
    child = start(disk)
    child.ask("steps(500)")
    child.until(lambda s: s["written"] == 501 == s["live"])
    abort = ["mount", "-o", "remount,abort", str(disk)]
    subprocess.run(abort, check=False, capture_output=True)
    child.ask("steps(500)")
    found = child.until(lambda s: s["live"] == 1001)
    if found["degraded"] is None and found["queued"] == 0:
        pytest.skip("this kernel does not make a file system read-only on demand")
    assert found["degraded"] is not None
    complete, written, left, *_ = child.ask("close()")
    assert (complete, written, left) == (False, False, {})
    child.end()
    assert seqs(child.live()) == list(range(1002))
    log = child.log()
    assert log == child.live()[: len(log)]


@pytest.mark.parametrize("size", [40_000, 100_000, 300_000])
def test_a_limit_on_the_size_of_files(
    start: Callable[..., Child], tmp_path: Path, size: int
) -> None:
    """The log goes on in another file each time: nothing is lost."""
    child = start(tmp_path / "disk")
    child.ask("steps(100)")
    child.until(lambda s: s["written"] == 101 == s["live"])
    child.ask(f"limit({size})")
    child.ask("steps(3000)")
    found = child.until(lambda s: s["queued"] == 0 and s["live"] == 3101)
    assert found["dropped"] == {}
    assert child.ask("close()") == [True, True, {}, {}, {}, {}]
    child.end()
    log = child.log()
    assert seqs(log) == list(range(3102))
    assert max(p.stat().st_size for p in (child.run_dir / "rank-0").glob("*.elog")) <= size
    check_replay(child, tmp_path / "again")
