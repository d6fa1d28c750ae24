"""Another process follows a log that is written: no lock, no help, and nothing twice or missing."""

from __future__ import annotations

import stat
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog._platform import FileLock
from eventlog.events import RunFinished, RunStarted, StepEvent
from eventlog.log.seal import compact_log
from eventlog.log.segment_reader import list_segments
from eventlog.recorder import Recorder

FOLLOWER = """
import sys, time
from pathlib import Path
import anyio
from eventlog._stream import EventStream
from eventlog.log.follow import FollowSource
from eventlog.subscription import Subscription

async def main():
    source = FollowSource(Path(sys.argv[1]))
    async with anyio.create_task_group() as group:
        group.start_soon(source.watch)
        stream = EventStream(source, Subscription(source))
        async for e in stream:
            late = time.monotonic_ns() - e.mono
            print(e.seq, e.attempt, e.values.get("n", -1), late, flush=True)
        assert stream.subscription.lost == 0
    print("end", source.finished, source.killed, flush=True)

anyio.run(main)
"""


class Followed:
    """A log that is written here and followed there."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.directory = run_dir / "rank-0"
        self.recorder = self.open()
        self.n = 0
        self.emit(RunStarted(run_id="test"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, str(self.directory)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self._lines = iter(self.process.stdout)
        self.seqs: list[int] = []
        self.attempts: list[int] = []
        self.numbers: list[int] = []
        self.latencies: list[float] = []

    def open(self) -> Recorder:
        """Open the log, as the process does that writes it."""
        self.recorder = Recorder(self.run_dir, run_id="test", segment_bytes=6_000)
        self.attempt = self.recorder.attempt
        return self.recorder

    def emit(self, event: RunStarted | RunFinished) -> None:
        """Write an event about the run."""
        from msgspec.structs import replace

        self.recorder.inbox.put(replace(event, mono=time.monotonic_ns(), attempt=self.attempt))
        self.recorder.writer.turn()

    def steps(self, turns: int, each: int = 5) -> None:
        """Write steps, some in each turn."""
        for _ in range(turns):
            for _ in range(each):
                self.recorder.inbox.put(
                    StepEvent(
                        mono=time.monotonic_ns(),
                        step=self.n,
                        attempt=self.attempt,
                        values={"n": self.n},
                    )
                )
                self.n += 1
            self.recorder.writer.turn()

    def wait(self) -> None:
        """Wait until the follower has told of everything that was written by now."""
        while len(self.seqs) < self.recorder.source.end:
            seq, attempt, n, late = map(int, next(self._lines).split())
            self.seqs.append(seq)
            self.attempts.append(attempt)
            if n >= 0:
                self.numbers.append(n)
                self.latencies.append(late / 1e9)

    def end(self) -> str:
        """Wait for the follower's end and return its last word."""
        self.wait()
        (last,) = self._lines
        assert self.process.wait(30) == 0
        assert self.seqs == list(range(len(self.seqs)))
        assert self.numbers == list(range(self.n))
        return last.strip()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    """A log that is followed from its beginning on."""
    made = Followed(tmp_path / "run")
    yield made
    made.process.kill()
    made.process.communicate()
    made.recorder.stop(10)


def test_a_log_is_followed_through_all_that_happens_to_it(
    followed: Followed, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rotation, rewinds and compaction; every event once, in order, and then how it ended."""
    followed.steps(3)
    followed.wait()
    followed.steps(60)
    assert len(list_segments(followed.directory)) > 3
    followed.wait()
    assert any(c.skipped is None for c in compact_log(followed.directory, "zlib"))
    followed.steps(10)
    followed.wait()
    followed.attempt += 1
    followed.steps(40)
    assert any(c.skipped is None for c in compact_log(followed.directory, "zstd"))
    followed.steps(20)
    followed.wait()
    assert sorted(set(followed.attempts)) == [1, 2]
    followed.emit(RunFinished())
    followed.recorder.stop(10)
    assert followed.end() == "end True False"
    late = sorted(followed.latencies)
    with capsys.disabled():
        print(
            f" [follow latency of {len(late)} events: p50 {statistics.median(late) * 1e3:.0f} ms, "
            f"p99 {late[len(late) * 99 // 100] * 1e3:.0f} ms]",
            end="",
        )


def test_the_last_event_is_seen_without_a_successor(followed: Followed) -> None:
    """No block waits for the next one to be believed."""
    for _ in range(5):
        followed.steps(1, 1)
        followed.wait()
    followed.recorder.stop(10)
    # without a word
    assert followed.end() == "end False True"


def test_a_writer_that_dies_is_noticed(followed: Followed) -> None:
    """By its lock; what it had written before is told first."""
    followed.steps(20)
    held = followed.recorder._held
    assert held is not None
    held.release()
    assert followed.end() == "end False True"


def test_a_follower_writes_nothing(followed: Followed) -> None:
    """It reads a log that it could not write to, and leaves nothing there."""
    followed.steps(5)
    followed.wait()
    names = sorted(p.name for p in followed.directory.iterdir())
    assert names == ["00000000000000000000.elog", "lock"]
    followed.directory.chmod(stat.S_IRUSR | stat.S_IXUSR)
    followed.steps(2)
    followed.wait()
    followed.directory.chmod(stat.S_IRWXU)
    followed.emit(RunFinished())
    followed.recorder.stop(10)
    assert followed.end() == "end True False"


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[Callable[[], bool]]:
    """A process that asks all the time whether the lock is held; returns whether it still does."""
    script = (
        "import sys\n"
        "from eventlog._platform import lock_is_held\n"
        "print(lock_is_held(sys.argv[1]), flush=True)\n"
        "while True:\n"
        "    lock_is_held(sys.argv[1])\n"
    )
    (tmp_path / "lock").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "False\n"
    yield lambda: process.poll() is None
    process.kill()
    process.communicate()


def test_who_asks_whether_a_log_is_written_does_not_lock_it(
    asker: Callable[[], bool], tmp_path: Path
) -> None:
    """A follower that looks at the lock never has a writer refused."""
    for _ in range(5_000):
        lock = FileLock(tmp_path / "lock")
        assert lock.acquire()
        lock.release()
    assert asker()
