"""A disk that fails in any order, and a machine that stops: what was said to be safe is there.

The machine writes a log, blobs, a checkpoint and dead letters through one faulty disk. Whatever
comes before, nothing that was reported as synced is missing after a loss of power, nothing that was
reported as written after a kill; the account adds up; reading never raises; and it all goes on.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import eventlog
from eventlog.events import Event, FigureEvent, StepEvent
from eventlog.keeping import DeadLetters
from eventlog.log.blobs import BlobStore
from eventlog.log.checkpoint import Checkpoint, CheckpointFile, checkpoint_path
from eventlog.log.copy import LogCopy
from eventlog.log.inbox import Barrier
from eventlog.log.log_writer import LogWriter
from eventlog.log.stored import StoredSource
from eventlog.recorder import Recorder
from eventlog.testing import FakeClock

from .disk import Choose, Disk

FAULTS = {
    "full": {"room": 0},
    "nearly full": {"room": 5_000},
    "write fails": {"write_error": errno.EIO},
    "short writes": {"most": 97},
    "sync fails": {"sync_error": errno.EIO},
    "cannot create": {"create_error": errno.ENOSPC},
}


def read_all(directory: Path) -> list[Event]:
    """Read whatever is there."""
    reader = StoredSource(directory).open_reader()
    events: list[Event] = []
    seq = 0
    while (block := reader.read(seq)) is not None:
        events += [event for event in block.events() if event.seq >= seq]
        seq = block.end
    return events


class DiskMachine(RuleBasedStateMachine):
    """A run's files, and what was said of them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.run_dir = self.folder / "run"
        self.directory = self.run_dir / "rank-0"
        self.disk = Disk()
        self.clock = FakeClock()
        self.n = self.generation = self.dead_seq = 0
        self.emitted: dict[int, set[Any]] = {}
        self.safe: dict[int, Any] = {}
        self.kept: list[int] = []
        self.kept_is_safe = False
        self.set_aside: list[int] = []
        self.set_aside_here: list[int] = []
        self.safe_dead: list[int] = []
        self.recorder: Recorder | None = None
        self.open()

    # -- opening and ending --

    def open(self) -> None:
        self.disk.heal()
        there = read_all(self.directory) if self.directory.exists() else []
        self.recorder = Recorder(
            self.run_dir, run_id="r", clock=self.clock, files=self.disk, segment_bytes=20_000
        )
        self.first = self.recorder.source.end
        self.given: list[Any] = []
        assert self.first > max((event.seq for event in there), default=-1)
        path = checkpoint_path(self.directory, "a", "")
        self.checkpoint = CheckpointFile(path, self.disk)
        found = self.checkpoint.load()
        self.check_checkpoint(None if found is None else found.state["g"])
        if found is not None:
            assert self.first >= found.passed
        self.letters = DeadLetters(self.run_dir, "a", run_id="r", files=self.disk)
        self.set_aside_here = []
        self.check_log(there)

    @property
    def log(self) -> LogWriter:
        assert self.recorder is not None
        log = self.recorder.writer._log
        assert log is not None
        return log

    def die(self) -> None:
        """End the process without another word."""
        recorder = self.recorder
        assert recorder is not None
        assert recorder._held is not None
        self.log.leave_segment(sync=False)
        recorder._held.release()
        self.checkpoint.close()
        copy = self.letters._copy
        if copy is not None:
            copy._log.leave_segment(sync=False)
            copy._lock.release()
        self.recorder = None

    # -- what is done --

    @rule(fault=st.sampled_from(list(FAULTS)))
    def fail(self, fault: str) -> None:
        self.disk.heal()
        for name, value in FAULTS[fault].items():
            setattr(self.disk, name, value)

    @rule()
    def heal(self) -> None:
        self.disk.heal()

    @rule(n=st.integers(1, 30), size=st.sampled_from([0, 0, 3_000]))
    def emit(self, n: int, size: int) -> None:
        for _ in range(n):
            self.offer(StepEvent(step=self.n), {"n": self.n, "text": "x" * size}, self.n)
        self.turn()

    @rule(size=st.sampled_from([10, 10_000]), again=st.booleans())
    def show(self, size: int, again: bool) -> None:
        """Log what lies in a file, whose contents come again at times."""
        assert self.recorder is not None
        assert self.recorder.blobs is not None
        data = (b"same" if again else str(self.n).encode()) * size
        try:
            blob = self.recorder.blobs.put(data, "image/png")
        except OSError:
            return
        self.offer(FigureEvent(tag="f", blob=blob), {"n": self.n}, self.n)
        self.turn()

    def offer(self, event: Event, values: dict[str, Any], number: int) -> None:
        assert self.recorder is not None
        assert self.recorder.offer(event, values)
        seq = self.first + len(self.given)
        self.given.append(number)
        self.emitted.setdefault(seq, set()).add(number)
        self.n += 1
        self.clock.advance(0.001)

    def turn(self) -> None:
        assert self.recorder is not None
        self.recorder.writer.turn()

    @rule()
    def wait(self) -> None:
        """Let the time pass after which the disk is tried again."""
        self.clock.advance(1.1)
        self.turn()

    @rule()
    def sync(self) -> None:
        self.log.sync()
        self.note_safe(self.log.synced_end)

    @rule()
    def ask_for_durable(self) -> None:
        """As a call with durable=True does."""
        assert self.recorder is not None
        barrier = Barrier(durable=True)
        self.recorder.inbox.put(barrier, reserved=True)
        self.turn()
        assert barrier.wait(0)
        if barrier.synced:
            self.note_safe(self.first + len(self.given))

    @rule()
    def sync_fails_once(self) -> None:
        """Nothing tells later that it did: the kernel forgets what it could not write."""
        self.disk.heal()
        self.disk.sync_error = errno.EIO
        self.sync()
        self.disk.heal()

    def note_safe(self, end: int) -> None:
        for seq in range(self.first, min(end, self.first + len(self.given))):
            self.safe[seq] = self.given[seq - self.first]

    @rule(sync=st.booleans(), size=st.sampled_from([10, 9_000]))
    def keep_position(self, sync: bool, size: int) -> None:
        self.generation += 1
        end = self.first + len(self.given)
        checkpoint = Checkpoint(
            alias="a", seq=end, passed=end, state={"g": self.generation, "pad": "x" * size}
        )
        try:
            self.checkpoint.save(checkpoint, sync=sync)
        except OSError:
            self.kept.append(self.generation)  # it may be there, or the one before it
            return
        self.kept = [*self.kept, self.generation]
        if sync:
            self.kept = [self.generation]
            self.kept_is_safe = True

    @rule(n=st.integers(1, 5))
    def refuse(self, n: int) -> None:
        """Have a sink refuse events for good."""
        seqs = [self.dead_seq + 2 * i for i in range(n)]
        events = [StepEvent(step=seq, seq=seq, wall=1 + seq, mono=1, attempt=1) for seq in seqs]
        try:
            self.letters.add(events)
        except (OSError, eventlog.EventlogError):
            pass
        else:
            self.set_aside += seqs
            self.set_aside_here += seqs
        self.dead_seq = seqs[-1] + 2

    @rule()
    def sync_refused(self) -> None:
        try:
            self.letters.sync()
        except OSError:
            return
        self.safe_dead += self.set_aside_here

    # -- what happens --

    @rule()
    def crash(self) -> None:
        """Kill the process: what was written is with the system."""
        written = self.log.written_end
        self.turn_is_accounted()
        self.die()
        known = dict(self.safe)
        self.note_safe(written)
        self.open()
        self.safe = known
        dead = read_all(self.letters.directory / "rank-0")
        assert set(self.set_aside) <= {event.seq for event in dead}

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Stop the machine: what was synced is there, and perhaps more."""
        self.stop_the_machine(lambda n: data.draw(st.integers(0, n - 1)))

    def stop_the_machine(self, choose: Choose) -> None:
        self.die()
        self.disk.lose_power(choose)
        self.open()
        self.kept = [] if self.found is None else [self.found]
        self.kept_is_safe = self.found is not None
        self.set_aside = list(self.safe_dead)
        found = {event.seq: event.values["n"] for event in read_all(self.directory)}
        self.emitted = {seq: {n} for seq, n in found.items()}

    @rule()
    def end(self) -> None:
        """End the run, as a process does, and go on with another."""
        assert self.recorder is not None
        self.recorder.stop(10)
        self.turn_is_accounted()
        self.checkpoint.close()
        try:
            self.letters.close()
        except OSError:
            pass
        else:
            self.safe_dead += self.set_aside_here
        self.note_safe(self.log.synced_end)
        self.open()

    # -- what must hold --

    def check_log(self, events: list[Event]) -> None:
        seqs = [event.seq for event in events]
        assert seqs == sorted(set(seqs))
        for event in events:
            assert event.values["n"] in self.emitted[event.seq]
        found = {event.seq: event for event in events}
        for seq, n in self.safe.items():
            assert seq in found, f"event {seq} was said to be safe"
            assert found[seq].values["n"] == n
            event = found[seq]
            if isinstance(event, FigureEvent):
                data = (self.run_dir / "blobs" / event.blob.sha256).read_bytes()
                assert hashlib.sha256(data).hexdigest() == event.blob.sha256
        dead = read_all(self.run_dir / "dead" / "a" / "rank-0")
        assert set(self.safe_dead) <= {event.seq for event in dead}

    def check_checkpoint(self, found: int | None) -> None:
        if found is None:
            assert not self.kept_is_safe
        else:
            assert found in self.kept
        self.found = found

    @invariant()
    def turn_is_accounted(self) -> None:
        assert self.recorder is not None
        account = self.recorder.writer.statistics()
        assert account.emitted == len(self.given)
        assert account.emitted == (account.written + sum(account.dropped.values()) + account.queued)

    @rule()
    def read(self) -> None:
        """Who reads while the run goes on has what was written, and no error."""
        events = read_all(self.directory)
        seqs = [event.seq for event in events]
        assert seqs == sorted(set(seqs))
        if events:
            assert eventlog.open_log(self.run_dir).summary().events == len(events)

    def teardown(self) -> None:
        try:
            if self.recorder is not None:
                self.disk.heal()
                self.ask_for_durable()
                self.stop_the_machine(lambda n: 0)
                self.emit(3, 0)
                self.end()
        finally:
            if self.recorder is not None:
                self.die()
            shutil.rmtree(self.folder)


def machine(examples: int, steps: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        DiskMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=[HealthCheck.too_slow],
            report_multiple_bugs=False,
            phases=[Phase.reuse, Phase.generate],  # shrinking would take minutes
        ),
    )


@pytest.mark.timeout(240)
def test_nothing_that_was_said_to_be_safe_is_lost() -> None:
    """Over any sequence of faults, kills and losses of power."""
    machine(30, 30)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_that_was_said_to_be_safe_is_lost_for_longer() -> None:
    """The same, for longer."""
    machine(1_500, 60)


def test_a_copy_relies_on_nothing_that_was_never_synced(tmp_path: Path) -> None:
    """What a killed process wrote is not written again: so it is synced by its successor."""
    disk = Disk()
    batch = [StepEvent(step=n, seq=n, wall=1 + n, mono=1, attempt=1) for n in range(50)]
    first = LogCopy(tmp_path / "rank-0", run_id="r", files=disk)
    first.write(batch)
    first._lock.release()  # killed
    second = LogCopy(tmp_path / "rank-0", run_id="r", files=disk)
    second.write(batch)
    second.sync()
    second._lock.release()
    disk.lose_power(lambda n: 0)
    assert [event.seq for event in read_all(tmp_path / "rank-0")] == list(range(50))


def test_a_blob_that_a_loss_of_power_emptied_is_written_again(tmp_path: Path) -> None:
    """Its name alone does not make it a blob."""
    store = BlobStore(tmp_path)
    blob = store.put(b"image", "image/png")
    path = store.directory / blob.sha256
    path.write_bytes(b"")
    assert BlobStore(tmp_path).put(b"image", "image/png") == blob
    assert path.read_bytes() == b"image"


def test_a_blob_whose_sync_fails_is_written_again(tmp_path: Path) -> None:
    """Its event counts as synced only then; a file that may not be written to is no obstacle."""
    disk = Disk()
    store = BlobStore(tmp_path, disk)
    source = tmp_path / "weights"
    source.write_bytes(b"weights" * 1_000)
    source.chmod(0o444)
    blob = store.put_file(source, "application/octet-stream")
    disk.sync_error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        store.sync()
    disk.heal()
    store.sync()
    disk.lose_power(lambda n: 0)
    path = store.directory / blob.sha256
    assert path.read_bytes() == source.read_bytes()
    assert list(store.directory.iterdir()) == [path]
