"""Checkpoints: two slots, of which the newer whole one counts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventlog
from eventlog.delivery import Retry
from eventlog.keeping import Keeper
from eventlog.log.checkpoint import (
    SLOT,
    Checkpoint,
    CheckpointFile,
    checkpoint_path,
    highest_seq,
    list_checkpoints,
)
from eventlog.subscription import Mark
from eventlog.testing import MemorySink


def keep(path: Path, *seqs: int) -> None:
    file = CheckpointFile(path)
    for seq in seqs:
        file.save(Checkpoint(alias="a", seq=seq, passed=seq, state={"x": [seq]}), sync=False)
    file.close()


def kept(path: Path) -> int | None:
    file = CheckpointFile(path)
    found = file.load()
    file.close()
    return None if found is None else found.seq


def test_the_last_one_saved_is_found_again(tmp_path: Path) -> None:
    """What was saved last is loaded by the next process, with its state."""
    path = tmp_path / "a.ckpt"
    keep(path, 1, 2, 3)
    file = CheckpointFile(path)
    found = file.load()
    file.close()
    assert found is not None
    assert (found.seq, found.state) == (3, {"x": [3]})


def test_a_new_file_has_none(tmp_path: Path) -> None:
    """A sink that was never confirmed has no checkpoint."""
    assert kept(tmp_path / "new" / "a.ckpt") is None


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 200), flip=st.integers(0, 7))
def test_a_torn_write_costs_only_that_write(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int
) -> None:
    """Whatever happens to the slot that was written last, the one before it counts."""
    path = tmp_path_factory.mktemp("torn") / "a.ckpt"
    keep(path, 10, 20, 30)
    newest = SLOT * (3 % 2)
    data = bytearray(path.read_bytes())
    at = min(len(data) - 1, newest + cut)
    data[at] ^= 1 << flip
    path.write_bytes(bytes(data))
    assert kept(path) in (20, 30)
    path.write_bytes(bytes(data[:newest]) + bytes(min(cut, 12)))
    assert kept(path) == 20


def test_one_at_a_time(tmp_path: Path) -> None:
    """A checkpoint that is held cannot be opened by another delivery, also not in this process."""
    path = tmp_path / "a.ckpt"
    file = CheckpointFile(path)
    with pytest.raises(BlockingIOError, match="held by another"):
        CheckpointFile(path)
    file.close()
    CheckpointFile(path).close()


def test_looking_does_not_let_go(tmp_path: Path) -> None:
    """Listing the checkpoints of a log leaves the lock of who holds one as it is."""
    path = checkpoint_path(tmp_path, "a", "")
    file = CheckpointFile(path)
    file.save(Checkpoint(alias="a", seq=7, passed=9), sync=True)
    assert [c.seq for c in list_checkpoints(tmp_path)] == [7]
    assert highest_seq(tmp_path) == 9
    pid = os.fork()
    if pid == 0:
        try:
            CheckpointFile(path)
        except BlockingIOError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    file.close()


def test_too_large_a_state_is_refused_and_the_last_one_stays(tmp_path: Path) -> None:
    """A checkpoint that does not fit is an error, and what was kept still counts."""
    path = tmp_path / "a.ckpt"
    file = CheckpointFile(path)
    file.save(Checkpoint(alias="a", seq=1), sync=False)
    with pytest.raises(ValueError, match="must fit"):
        file.save(Checkpoint(alias="a", seq=2, state={"x": "y" * SLOT}), sync=False)
    file.close()
    assert kept(path) == 1


def test_another_target_is_another_checkpoint(tmp_path: Path) -> None:
    """A sink that now writes elsewhere starts at the beginning."""
    assert checkpoint_path(tmp_path, "a", "x") != checkpoint_path(tmp_path, "a", "y")
    assert checkpoint_path(tmp_path, "../../a", "x").parent == tmp_path / "checkpoints"


def test_a_write_that_is_cut_costs_neither_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that takes only part of it, again and again, the position before still counts."""
    path = tmp_path / "a.ckpt"
    file = CheckpointFile(path)
    for seq in (1, 2):
        file.save(Checkpoint(alias="a", seq=seq), sync=False)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:30], at))
    for seq in (3, 4, 5):
        with pytest.raises(OSError, match="No space"):
            file.save(Checkpoint(alias="a", seq=seq), sync=False)
    monkeypatch.undo()
    file.close()
    assert kept(path) == 2
    keep(path, 6)
    assert kept(path) == 6


def test_a_new_file_has_its_room_already(tmp_path: Path) -> None:
    """What is saved later is written over what is there: a full disk takes it."""
    path = tmp_path / "a.ckpt"
    file = CheckpointFile(path)
    size = path.stat().st_size
    blocks = path.stat().st_blocks
    for seq in range(1, 9):
        file.save(Checkpoint(alias="a", seq=seq, state={"x": "y" * 3000}), sync=False)
    assert path.stat().st_size == size
    assert path.stat().st_blocks == blocks
    file.close()


def test_a_file_that_is_removed_is_made_again(tmp_path: Path) -> None:
    """With the run's directory gone the position goes on in a new file, and is held there."""
    path = checkpoint_path(tmp_path / "rank-0", "a", "")
    file = CheckpointFile(path)
    for seq in (1, 2, 3):
        file.save(Checkpoint(alias="a", seq=seq), sync=False)
    shutil.rmtree(tmp_path / "rank-0")
    file.save(Checkpoint(alias="a", seq=4), sync=False)
    with pytest.raises(BlockingIOError, match="held by another"):
        CheckpointFile(path)
    file.save(Checkpoint(alias="a", seq=5), sync=True)
    file.close()
    assert kept(path) == 5


def test_a_file_that_cannot_be_made_again_is_an_error_each_time(tmp_path: Path) -> None:
    """And once it can be, the position is kept again."""
    directory = tmp_path / "rank-0"
    path = checkpoint_path(directory, "a", "")
    file = CheckpointFile(path)
    shutil.rmtree(directory)
    directory.write_text("in the way")
    for seq in (1, 2):
        with pytest.raises(OSError, match=r"Not a directory|File exists"):
            file.save(Checkpoint(alias="a", seq=seq), sync=False)
    directory.unlink()
    file.save(Checkpoint(alias="a", seq=3), sync=False)
    file.close()
    assert kept(path) == 3


class Odd(MemorySink):
    """Returns a state that may be anything, or raises."""

    kept: Any = None

    def state(self) -> Any:
        if isinstance(self.kept, Exception):
            raise self.kept
        return self.kept


ODD = [object(), {1: 2}, {"x": {1, object()}}, None, "text", ["x"], ZeroDivisionError("no"),
       {"x": "y" * 100_000}, {"x": 2**70}]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_a_state_that_cannot_be_kept_costs_neither_the_position_nor_the_one_before(
    tmp_path: Path, odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A sink goes on at the same tracker run; it is said once, and counted."""
    sink = Odd()
    keeper = Keeper(tmp_path, "a", sink)
    sink.kept = {"run_id": "r1"}
    keeper.save(Mark(5), sink.state)
    sink.kept = odd
    keeper.save(Mark(6), sink.state)
    keeper.save(Mark(7), sink.state, done=True)
    keeper.close()
    found = Keeper(tmp_path, "a", sink).load()
    assert found is not None
    assert (found.seq, found.sink, found.done) == (7, {"run_id": "r1"}, True)
    assert keeper.failures == 2
    assert caplog.text.count("the state of sink 'a' cannot be kept") == 1


def test_whatever_keeps_a_position_from_being_kept_is_survived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once and counted, and the next one may be kept again."""
    keeper = Keeper(tmp_path, "a", MemorySink())
    with monkeypatch.context() as patch:

        def broken(*args: object, **options: object) -> None:
            raise ZeroDivisionError("ours")

        patch.setattr(CheckpointFile, "save", broken)
        keeper.save(Mark(5), dict)
        keeper.save(Mark(6), dict)
    keeper.save(Mark(7), dict)
    assert keeper.failures == 2
    assert caplog.text.count("the position of sink 'a' cannot be kept") == 1
    keeper.close()
    assert kept(checkpoint_path(tmp_path, "a", "")) == 7


@pytest.mark.parametrize("odd", [object(), ZeroDivisionError("no")])
def test_an_odd_state_does_not_end_delivery(tmp_path: Path, odd: Any) -> None:
    """The sink has everything, and is closed; the statistics say what was not kept."""
    sink = Odd()
    sink.kept = odd
    with eventlog.Run("p", dir=tmp_path, sinks=sink, retry=Retry(first=0.01)) as run:
        run.step(x=1)
    assert len(sink.events) == 3
    statistics = run.statistics().sinks["memory"]
    assert statistics.state == "closed"
    assert statistics.unkept > 0
