"""The reduced log of a run: from the ranks' files, by a process of its own, with ranks that die."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, _reduction, open_log
from eventlog.cli.pending import deliver_pending
from eventlog.events import (
    Event,
    RunFinished,
    RunStarted,
    StepEvent,
    TextEvent,
)
from eventlog.exceptions import EventlogError, NotALogError
from eventlog.ranks import REDUCED, write_order
from eventlog.ranks.__main__ import main
from eventlog.ranks._producer import reduce_run
from eventlog.recorder import Recorder


class Job:
    """Some ranks that write their logs in this process."""

    def __init__(self, run_dir: Path, world_size: int, reduce: Any = "mean") -> None:
        self.run_dir = run_dir
        self.ranks: dict[int, Recorder] = {}
        (run_dir / REDUCED).mkdir(parents=True)
        write_order(run_dir, reduce, world_size)

    def open(self, *ranks: int, attempt: int = 1) -> None:
        for rank in ranks:
            recorder = Recorder(self.run_dir, run_id="r", rank=rank, attempt=attempt)
            recorder.inbox.put(RunStarted(run_id="r", mono=1, step=0, attempt=attempt))
            self.ranks[rank] = recorder

    def step(self, rank: int, at: int, attempt: int = 1) -> None:
        event = StepEvent(step=at, values={"loss": float(rank)}, mono=2 + at, attempt=attempt)
        self.ranks[rank].inbox.put(event)
        self.ranks[rank].writer.turn()

    def close(self, *ranks: int, killed: bool = False) -> None:
        for rank in ranks:
            recorder = self.ranks.pop(rank)
            if not killed:
                recorder.inbox.put(RunFinished(mono=10**6, attempt=recorder.attempt))
            assert recorder.stop(10.0)

    def reduced(self) -> list[Event]:
        try:
            return list(open_log(self.run_dir / REDUCED).events())
        except NotALogError:
            return []


class Background(threading.Thread):
    """`reduce_run` on a thread."""

    def __init__(self, run_dir: Path, **options: Any) -> None:
        super().__init__(daemon=True)
        self.run_dir, self.options = run_dir, options
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        self.totals = reduce_run(self.run_dir, stop=self.stopping.is_set, **self.options)

    def end(self) -> None:
        self.join(20.0)
        assert not self.is_alive()


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def losses(events: list[Event]) -> list[tuple[int | None, Any, Any]]:
    return [(e.step, e.values["loss"], e.values["ranks/n"]) for e in events if e.values]


def notes(events: list[Event]) -> list[str]:
    return [e.text for e in events if isinstance(e, TextEvent)]


def test_what_ranks_have_written_is_reduced_into_a_log_like_any_other(tmp_path: Path) -> None:
    """With what rank 0 says of the run, and its end."""
    job = Job(tmp_path, 3)
    job.open(0, 1, 2)
    for at in range(5):
        for rank in range(3):
            job.step(rank, at)
    job.close(0, 1, 2)
    totals = reduce_run(tmp_path)
    events = job.reduced()
    assert losses(events) == [(at, 1.0, 3) for at in range(5)]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert len(events) == totals.events == 7
    assert [e.seq for e in events] == list(range(7))
    log = open_log(tmp_path / REDUCED)
    assert log.status() == "finished"
    assert log.summary().damage == []
    raw = next(iter(open_log(tmp_path).events(types=[StepEvent])))
    assert next(iter(log.events(types=[StepEvent]))).wall == raw.wall


def test_a_rank_that_dies_is_left_out_from_then_on(tmp_path: Path) -> None:
    """The log says so, and how many ranks each value holds."""
    job = Job(tmp_path, 3)
    job.open(0, 1, 2)
    producer = Background(tmp_path, patience=60.0)
    for at in range(10):
        for rank in job.ranks:
            job.step(rank, at)
        if at == 4:
            job.close(2, killed=True)
    job.close(0, 1)
    producer.end()
    events = job.reduced()
    assert losses(events) == [(at, 1.0, 3) for at in range(5)] + [
        (at, 0.5, 2) for at in range(5, 10)
    ]
    assert notes(events) == ["rank 2 died; values go on with 2 of 3 ranks"]
    assert open_log(tmp_path / REDUCED).status() == "finished"


def test_when_rank_0_dies_the_others_go_on(tmp_path: Path) -> None:
    """The reduced run was killed, as the run was."""
    job = Job(tmp_path, 2)
    job.open(0, 1)
    producer = Background(tmp_path, patience=60.0)
    for at in range(10):
        for rank in job.ranks:
            job.step(rank, at)
        if at == 4:
            job.close(0, killed=True)
    job.close(1)
    producer.end()
    assert losses(job.reduced())[-1] == (9, 1.0, 1)
    assert open_log(tmp_path / REDUCED).status() == "killed"


def test_a_rank_that_comes_late_is_part_of_it_from_then_on(tmp_path: Path) -> None:
    """And one that does not come holds nobody up for longer than the patience."""
    job = Job(tmp_path, 2)
    job.open(0)
    producer = Background(tmp_path, patience=0.2)
    job.step(0, 0)
    until(lambda: losses(job.reduced()))
    assert losses(job.reduced()) == [(0, 0.0, 1)]
    job.open(1)
    until(lambda: "rank 1 is here" in notes(job.reduced()))
    job.step(1, 1)
    job.step(0, 1)
    job.close(0, 1)
    producer.end()
    assert losses(job.reduced()) == [(0, 0.0, 1), (1, 0.5, 2)]
    assert notes(job.reduced())[0] == "rank 1 has not come; values go on with 1 of 2 ranks"


def test_what_comes_too_late_is_counted_and_said(tmp_path: Path) -> None:
    """Not lost in silence: it is in the rank's own log."""
    job = Job(tmp_path, 2)
    job.open(0, 1)
    producer = Background(tmp_path, patience=0.05)
    job.step(0, 0)
    until(lambda: losses(job.reduced()))
    job.step(1, 0)
    job.close(0, 1)
    producer.end()
    assert producer.totals.late == {1: 1}
    assert notes(job.reduced()) == [
        "rank 1 is more than 0.05 s behind; not waited for",
        "1 events of rank 1 came too late to be reduced",
    ]


@pytest.mark.parametrize("stop_at", [0, 3, 7])
def test_a_producer_goes_on_where_another_stopped(tmp_path: Path, stop_at: int) -> None:
    """Nothing comes twice, and nothing is missing."""
    job = Job(tmp_path, 2)
    job.open(0, 1)
    for attempt, steps in ((1, range(5)), (2, range(3, 8))):
        for at in steps:
            for rank in range(2):
                job.step(rank, at, attempt)
            if at == stop_at:
                former = Background(tmp_path)
                until(lambda at=at: losses(job.reduced())[-1:] == [(at, 0.5, 2)])
                former.stopping.set()
                former.end()
    job.close(0, 1)
    reduce_run(tmp_path)
    events = job.reduced()
    assert losses(events) == [(at, 0.5, 2) for at in (*range(5), *range(3, 8))]
    assert [e.attempt for e in events if e.values] == [1] * 5 + [2] * 5
    assert sum(isinstance(e, RunStarted) for e in events) == 1
    n = len(events)
    # once more, when all is done
    assert reduce_run(tmp_path).late == {}
    assert len(job.reduced()) == n


def test_two_producers_do_not_write_one_log(tmp_path: Path) -> None:
    """The second one waits, and has nothing to do when the first one is through."""
    job = Job(tmp_path, 2)
    job.open(0, 1)
    first = Background(tmp_path)
    until(lambda: (tmp_path / REDUCED / "rank-0" / "lock").exists())
    second = Background(tmp_path)
    for at in range(20):
        for rank in range(2):
            job.step(rank, at)
    job.close(0, 1)
    first.end()
    second.end()
    assert losses(job.reduced()) == [(at, 0.5, 2) for at in range(20)]


def test_nothing_to_reduce_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of a mistake."""
    with pytest.raises(EventlogError, match="nothing to reduce"):
        reduce_run(tmp_path)
    assert main([str(tmp_path)]) == 2
    assert "nothing to reduce" in capsys.readouterr().err


# -- a run's own producer ----------------------------------------------------------------------


def two_ranks(tmp_path: Path, sinks: Any) -> list[Run]:
    """Return the runs of two ranks, both in this process."""
    return [
        Run("p", run_id="r", dir=tmp_path, ranks="all", reduce_ranks="mean", sinks=sinks,
            rank=rank, world_size=2)
        for rank in (0, 1)
    ]  # fmt: skip


def test_a_producer_that_dies_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on where it was; the ranks notice nothing."""
    monkeypatch.setattr(_reduction, "PAUSE", 0.01)
    main, other = two_ranks(tmp_path, [])
    log = tmp_path / "p" / "r" / REDUCED

    def reduced() -> list[Event]:
        return list(open_log(log).events(types=[StepEvent]))

    for _ in range(10):
        main.step(loss=0.0)
        other.step(loss=1.0)
    until(lambda: list((log / "rank-0").glob("*.elog")) and len(reduced()) == 10)
    producer = main._reduced
    assert producer is not None
    assert producer.pid is not None
    os.kill(producer.pid, signal.SIGKILL)
    for _ in range(10):
        main.step(loss=0.0)
        other.step(loss=1.0)
    assert other.close().complete
    assert main.close().complete
    assert [(e.step, e.values["loss"]) for e in reduced()] == [(at, 0.5) for at in range(20)]


def test_the_end_of_rank_0_does_not_wait_for_ever_for_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer goes on by itself; what its sinks lack then can be brought later."""
    main, other = two_ranks(tmp_path, {"copy": {"sink": "log", "ranks": "reduced"}})
    main.step(loss=0.0)
    report = main.close(timeout=2.0)
    assert "other ranks go on" in caplog.text
    assert report.written
    other.step(loss=1.0)
    assert other.close().complete
    producer = main._reduced
    assert producer is not None
    assert producer.end(time.monotonic() + 20.0)
    deliver_pending(tmp_path, None, [], 5.0)
    copy = open_log(tmp_path / "p" / "r" / REDUCED / "copy")
    assert [e.values["loss"] for e in copy.events(types=[StepEvent])] == [0.5]


# -- real processes ----------------------------------------------------------------------------

TRAINER = textwrap.dedent(
    """
    import os, signal, sys
    import torch
    import torch.distributed as dist
    import eventlog

    directory, kill_at = sys.argv[1], int(sys.argv[2])
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    # what a run does without a group, and does not need one for
    run = eventlog.Run(
        "p", dir=directory, ranks="all", reduce_ranks={"loss": "mean", "worst": "max"},
        sinks={"copy": {"sink": "log", "ranks": "reduced"}},
    )
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    together = True
    for step in range(60):
        if rank == 2 and step == kill_at:
            run.sync()
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.full((8, 4), float(rank))
        loss = ((model(x) - 1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if together:
            try:
                for p in model.parameters():
                    dist.all_reduce(p.grad)
            except RuntimeError:
                together = False  # a rank is gone
        optimizer.step()
        run.step(loss=float(rank), worst=float(step * rank))
    report = run.close()
    assert report.complete, report
    print(run.dir, flush=True)
    os._exit(0)  # the group may be broken
    """
)


def launch(tmp_path: Path, kill_at: int) -> tuple[Path, list[int | None]]:
    """Train on four ranks; return the run's directory and how the processes ended."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(tmp_path), str(kill_at)],
            stdout=subprocess.PIPE,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(4)
    ]
    try:
        out = [process.communicate(timeout=100)[0].decode().split() for process in processes]
    finally:
        for process in processes:
            process.kill()
    (run_dir,) = {line for lines in out for line in lines[-1:]}
    return Path(run_dir), [process.returncode for process in processes]


def test_four_ranks_of_a_real_group_are_reduced(tmp_path: Path) -> None:
    """Each rank's values are in its log, and the reduced log and its sink have them of all four."""
    run_dir, codes = launch(tmp_path, kill_at=-1)
    assert codes == [0] * 4
    for rank in range(4):
        mine = list(open_log(run_dir, rank).events(types=[StepEvent]))
        assert [e.values for e in mine] == [
            {"loss": float(rank), "worst": float(step * rank)} for step in range(60)
        ]
    for place in (run_dir / REDUCED, run_dir / REDUCED / "copy"):
        reduced = list(open_log(place).events(types=[StepEvent]))
        assert [e.values for e in reduced] == [
            {"loss": 1.5, "worst": float(step * 3), "ranks/n": 4} for step in range(60)
        ]
        assert [e.window and e.window.n for e in reduced] == [4] * 60
    assert open_log(run_dir / REDUCED).status() == "finished"


def test_one_of_four_ranks_is_killed(tmp_path: Path) -> None:
    """The others' values arrive, and the reduction says how many ranks it holds."""
    run_dir, codes = launch(tmp_path, kill_at=30)
    assert codes == [0, 0, -signal.SIGKILL, 0]
    for rank in (0, 1, 3):
        assert open_log(run_dir, rank).status() == "finished"
        assert len(list(open_log(run_dir, rank).events(types=[StepEvent]))) == 60
    assert open_log(run_dir, 2).status() == "killed"
    assert len(list(open_log(run_dir, 2).events(types=[StepEvent]))) == 30
    reduced = list(open_log(run_dir / REDUCED).events(types=[StepEvent]))
    assert [(e.step, e.values["ranks/n"], e.values["worst"]) for e in reduced] == [
        (step, 4 if step < 30 else 3, float(step * 3)) for step in range(60)
    ]
    texts = [
        e.text
        for e in open_log(run_dir / REDUCED).events(types=[TextEvent])
        if isinstance(e, TextEvent)
    ]
    assert texts == ["rank 2 died; values go on with 3 of 4 ranks"]
