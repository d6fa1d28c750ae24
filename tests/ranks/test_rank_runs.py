"""A run on several ranks: who records, where, and how the ranks find each other."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, _meeting, _run_joining, current_run, open_log
from eventlog.events import ArtifactEvent, Rewound, RunStarted, StepEvent
from eventlog.exceptions import EventlogError
from eventlog.testing import MemorySink

Become = Callable[..., None]


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    """Have the runs that follow made as by another process: a rank of a job."""

    def become(rank: int, world_size: int = 2, **more: str) -> None:
        names = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
        names |= {"MASTER_ADDR": "node", "MASTER_PORT": "1"} | more
        for name, value in names.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(_meeting, "_counts", {})

    return become


def everything(run: Run) -> None:
    """Call everything that a run has."""
    run.step(loss=1.0)
    run.log({"a": {"b": 1}}, step=3, durable=True)
    run.log(x=object())
    run.batch(loss=1.0)
    run.epoch(loss=1.0)
    run.emit(StepEvent(step=1, values={"x": 1.0}))
    run.model_updated("pruned", sparsity=0.5)
    run.text("t", "text")
    run.config.update(lr=0.1)
    run.summary["best"] = 1
    run.rewind(2)
    run.load_state_dict(run.state_dict())


# -- a rank that does not record ---------------------------------------------------------------


def test_a_rank_that_does_not_record_has_all_methods_and_leaves_nothing(
    tmp_path: Path, become: Become
) -> None:
    """No directory, no thread, no sink, nothing dropped; what it counts, it counts."""
    become(1)
    before = threading.active_count()
    sink = MemorySink()
    with Run("p", "n", dir=tmp_path, sinks=[sink], run_id="r") as run:
        everything(run)
        assert current_run() is run
        assert run.config["lr"] == 0.1
        assert threading.active_count() == before
        assert run.flush().complete
        assert run.sync()
        assert run.sink("memory").state == "skipped"
        statistics = run.statistics()
    assert run.close().complete
    assert statistics.log.emitted == 0
    assert statistics.log.dropped == {}
    assert sink.runs == []
    assert list(tmp_path.iterdir()) == []
    assert (run.id, run.dir, run.rank, run.world_size) == ("r", tmp_path / "p" / "r", 1, 2)
    assert current_run() is None


def test_a_rank_that_does_not_record_makes_nothing_that_is_dear(
    tmp_path: Path, become: Become
) -> None:
    """Neither functions for values are called, nor arrays copied."""
    become(1)

    def dear() -> Any:
        raise AssertionError("called")

    class Array:
        def __array__(self, *_: Any) -> Any:
            raise AssertionError("copied")

        __cuda_array_interface__ = property(__array__)

    with Run("p", dir=tmp_path, sinks=[], strict=True, run_id="r") as run:
        run.log(x=dear, y=Array())
        run.image("i", dear)
        run.histogram("h", Array())
        run.table("t", dear)
        run.artifact("not there")


def test_what_is_due_is_due_on_all_ranks(tmp_path: Path, become: Become) -> None:
    """A value that takes a collective call is computed by all or by none."""
    due = []
    for rank in (0, 1):
        become(rank)
        with Run("p", dir=tmp_path, sinks=[]) as run:
            mine = []
            for _ in range(20):
                run.text("t", "x", every="3 steps")
                mine.append(run.due("3 steps or 1 epoch"))
                run.step(loss=1.0)
            due.append(mine)
    assert due[0] == due[1]
    assert any(due[0])


def test_a_rank_that_does_not_record_knows_the_run_of_rank_0(
    tmp_path: Path, become: Become
) -> None:
    """Its id and its directory, as soon as rank 0 has said them."""
    become(0)
    with Run("p", dir=tmp_path, sinks=[]) as main:
        become(1)
        run = Run("p", dir=tmp_path, sinks=[])
        assert (run.id, run.dir) == (main.id, main.dir)
        assert run.url == str(main.dir)
        run.close()


def test_without_a_word_of_rank_0_asking_ends(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty id and no directory, after a while, and at once from then on."""
    monkeypatch.setattr(_meeting, "ASKED", 0.05)
    become(1)
    with Run("p", dir=tmp_path, sinks=[]) as run:
        assert (run.id, run.dir, run.url) == ("", None, None)
    monkeypatch.delenv("MASTER_ADDR")
    with Run("p", dir=tmp_path, sinks=[]) as run:
        assert run.id == ""


# -- ranks that record -------------------------------------------------------------------------


def test_each_rank_has_a_log_in_one_run(tmp_path: Path, become: Become) -> None:
    """Each event says whose it is, and a run how many ranks it has."""
    for rank in (0, 1):
        become(rank)
        run = Run("p", dir=tmp_path, sinks=[], ranks="all", config={"lr": 1})
        run.step(loss=float(rank))
        run.text("t", "x" * 5000)
        if rank == 0:
            main = run
    run.close()
    main.close()
    assert run.dir == main.dir
    for rank in (0, 1):
        events = list(open_log(run.dir or "", rank).events())
        assert {e.rank for e in events} == {rank}
        assert isinstance(events[0], RunStarted)
        assert (events[0].world_size, events[0].run_id, events[0].config) == (2, run.id, {"lr": 1})
        assert events[1].values == {"loss": float(rank)}
    assert open_log(run.dir or "").ranks == [0, 1]
    assert json.loads((run.dir or tmp_path).joinpath("manifest.json").read_text()) == {
        "run_id": run.id,
        "project": "p",
        "name": run.id,
        "world_size": 2,
    }


def test_a_rank_that_comes_first_does_not_wait(tmp_path: Path, become: Become) -> None:
    """What it says meanwhile is kept, behind the start of its run, and nothing is lost."""
    become(1)
    early = Run("p", dir=tmp_path, sinks=[], ranks="all")
    for i in range(100):
        early.step(loss=float(i))
    early.text("t", "x" * 5000)
    early.artifact(__file__, copy=True)
    assert early.statistics().log.queued >= 101
    become(0)
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as main:
        early.step(loss=100.0)
        report = early.close()
    assert report.complete
    assert early.dir == main.dir
    events = list(open_log(main.dir or "", 1).events())
    assert isinstance(events[0], RunStarted)
    losses = [e.values["loss"] for e in events if type(e) is StepEvent]
    assert losses == [float(i) for i in range(101)]
    (artifact,) = open_log(main.dir or "", 1).events(types=[ArtifactEvent])
    assert isinstance(artifact, ArtifactEvent)
    assert artifact.blob is not None
    assert (main.dir or tmp_path).joinpath("blobs", artifact.blob.sha256).exists()


def test_a_rank_that_rewinds_early_is_in_the_attempt_of_rank_0(
    tmp_path: Path, become: Become
) -> None:
    """A run that was resumed: what the rank said before it knew belongs to the new attempts."""
    for _ in range(2):
        become(0, EVENTLOG_RUN_ID="r")
        with Run("p", dir=tmp_path, sinks=[], ranks="all") as run:
            run.step(loss=1.0)
    assert run.attempt == 2
    become(1)
    early = Run("p", dir=tmp_path, sinks=[], ranks="all")
    early.step(loss=1.0)
    early.rewind(0)
    early.step(loss=2.0)
    become(0)
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as main:
        assert early.dir == main.dir
        early.close()
    events = list(open_log(main.dir or "", 1).events())
    assert main.attempt == 3
    found = [(type(e), e.attempt) for e in events]
    assert found[:4] == [(RunStarted, 3), (StepEvent, 3), (Rewound, 4), (StepEvent, 4)]
    assert early.attempt == 4


def test_the_attempt_is_after_those_of_all_ranks(tmp_path: Path, become: Become) -> None:
    """A rank that has rewound more often than rank 0 does not mix up the two."""
    become(0, EVENTLOG_RUN_ID="r")
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as main:
        become(1)
        with Run("p", dir=tmp_path, sinks=[], ranks="all") as other:
            other.rewind(0)
            other.rewind(0)
            other.step(loss=1.0)
    become(0)
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as main:
        assert main.attempt == 4


def test_what_an_earlier_job_left_is_not_joined(tmp_path: Path, become: Become) -> None:
    """A port that is used again, say: the rank waits for its own rank 0."""
    become(0)
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as former:
        former.step(loss=1.0)
    become(1)
    early = Run("p", dir=tmp_path, sinks=[], ranks="all")
    early.step(loss=2.0)
    become(0)
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as main:
        assert early.dir == main.dir
        early.close()
    assert main.dir != former.dir
    assert open_log(former.dir or "").ranks == [0]


def test_a_rank_0_that_is_gone_already_is_joined(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run: it had ended before the other rank looked."""
    monkeypatch.setattr(_meeting, "SIBLING", 0.05)
    become(0)
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as main:
        main.step(loss=1.0)
    become(1)
    with Run("p", dir=tmp_path, sinks=[], ranks="all") as run:
        run.step(loss=2.0)
    assert run.dir == main.dir
    assert run.close().complete


def test_a_rank_without_a_rank_0_keeps_what_it_has(
    tmp_path: Path,
    become: Become,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a run of its own, with a warning; the end of the run waits no longer than it may."""
    monkeypatch.setattr(_run_joining, "PATIENCE", 0.05)
    become(1)
    with Run("p", dir=tmp_path, sinks=[], ranks="all", close_timeout=2.0) as run:
        run.step(loss=2.0)
    assert run.close().complete
    assert open_log(run.dir or "", 1).status() == "finished"
    assert "rank 0 has no run that this one could join" in caplog.text


def test_the_end_does_not_wait_for_ever_for_rank_0(tmp_path: Path, become: Become) -> None:
    """Half of the time that it has."""
    become(1)
    run = Run("p", dir=tmp_path, sinks=[], ranks="all")
    run.step(loss=2.0)
    assert run.close(timeout=4.0).written
    assert open_log(run.dir or "", 1).summary().events == 3


def test_a_job_that_is_started_again_goes_on_with_its_run(tmp_path: Path, become: Become) -> None:
    """As another attempt, without resume=; a new job has a new run."""
    elastic = {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0"}
    runs = []
    for restart in ("0", "1", "2", "0"):
        become(0, **elastic | {"TORCHELASTIC_RESTART_COUNT": restart})
        with Run("p", dir=tmp_path, sinks=[]) as run:
            run.step(loss=1.0)
        runs.append((run.id, run.attempt))
    first = runs[0][0]
    assert runs[1:3] == [(first, 2), (first, 3)]
    assert runs[3][0] != first
    assert runs[3][1] == 1


def test_two_runs_of_one_process_are_two_for_all_ranks(
    tmp_path: Path, become: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of a rank belongs to the second of rank 0."""
    dirs: list[list[Path | None]] = []
    become(0)
    mains = [Run("p", dir=tmp_path, sinks=[], ranks="all") for _ in range(2)]
    dirs.append([run.dir for run in mains])
    become(1)
    others = [Run("p", dir=tmp_path, sinks=[], ranks="all") for _ in range(2)]
    dirs.append([run.dir for run in others])
    assert dirs[0] == dirs[1]
    assert dirs[0][0] != dirs[0][1]
    for run in (*others, *mains):
        run.close()


def test_a_sink_runs_on_the_main_rank_unless_it_says_otherwise(
    tmp_path: Path, become: Become
) -> None:
    """One that follows each rank is told which one it has, and has a place of its own."""
    become(0)
    sinks = {r: (MemorySink(), MemorySink()) for r in (0, 1)}

    def options(rank: int) -> dict[str, Any]:
        one, each = sinks[rank]
        return {"one": one, "each": {"sink": each, "ranks": "all"}}

    main = Run("p", dir=tmp_path, sinks=options(0), ranks="all")
    become(1)
    other = Run("p", dir=tmp_path, sinks=options(1), ranks="all")
    other.step(loss=1.0)
    assert other.close().complete
    assert main.close().complete
    assert sinks[1][0].runs == []
    assert other.sink("one") == ("one", "skipped", None, None, None, "it runs on rank 0 only")
    (info,) = sinks[1][1].runs
    assert (info.rank, info.world_size, info.run_id) == (1, 2, main.id)
    assert info.directory == (main.dir or tmp_path) / "each" / "rank-1"
    assert sinks[0][1].runs[0].directory == (main.dir or tmp_path) / "each"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"ranks": "some"}, ValueError, "ranks must be"),
        ({"reduce_ranks": "mean"}, ValueError, "needs ranks='all'"),
        (
            {"ranks": "all", "reduce_ranks": "median"},
            ValueError,
            "reduce_ranks must be mean.*median",
        ),
        ({"ranks": "all", "reduce_ranks": {"x": "avg"}}, ValueError, "reduce_ranks must be .*avg"),
        ({"ranks": "all", "reduce_ranks": ["mean"]}, TypeError, "reduce_ranks must be"),
        ({"ranks": "all", "reduce_ranks": "last"}, ValueError, "not 'last'"),
        ({"ranks": "all", "reduce_ranks": "mean", "dir": None}, ValueError, "directory"),
        ({"ranks": "all", "reduce_ranks": "mean", "retain": 10**6}, ValueError, "retain='all'"),
        ({"sinks": {"log": {"ranks": "reduced"}}}, ValueError, "needs Run"),
        (
            {
                "ranks": "all",
                "reduce_ranks": "mean",
                "sinks": {"x": {"sink": print, "ranks": "reduced"}},
            },
            ValueError,
            "given by name",
        ),
        ({"rank": 1}, ValueError, "together"),
        ({"run_id": "r", "resume": "must"}, ValueError, "together"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Before anything is made."""
    with pytest.raises(error, match=text):
        Run("p", **{"dir": tmp_path, "sinks": [], **arguments})
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_have_nothing_in_common_are_refused(tmp_path: Path) -> None:
    """With what can be done, on each of them alike."""
    for rank in (0, 1):
        with pytest.raises(EventlogError, match="EVENTLOG_RUN_ID"):
            Run("p", dir=tmp_path, sinks=[], ranks="all", rank=rank, world_size=2)


def test_a_rank_that_is_not_known_for_certain_does_not_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes would have one log."""
    for name, value in {"LOCAL_RANK": "0", "NODE_RANK": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EventlogError, match="further nodes"):
        Run("p", dir=tmp_path, sinks=[], ranks="all", run_id="r")


SIXTEEN = textwrap.dedent(
    """
    import os, sys, time
    import eventlog
    eventlog.Run  # imported, so that all are at it at the same moment
    print("ready", flush=True)
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.001)
    run = eventlog.Run("p", dir=sys.argv[1], sinks=[], ranks="all")
    for i in range(50):
        run.step(loss=float(i))
    report = run.close()
    assert report.complete, report
    print(run.id)
    """
)


def start_ranks(tmp_path: Path, go: Path, n: int) -> list[str]:
    """Have ranks of a job of sixteen open a run at once; return its id as each knows it."""
    environ = {"WORLD_SIZE": "16", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SIXTEEN, str(tmp_path), str(go)],
            stdout=subprocess.PIPE,
            env=os.environ | environ | {"RANK": str(rank)},
            text=True,
        )
        for rank in reversed(range(n))
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        go.touch()
        ids = [process.communicate(timeout=60)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * n
    return ids


def test_sixteen_processes_open_one_run_at_once(tmp_path: Path) -> None:
    """They end up in one directory, each with its log, although a former job left its traces."""
    (former,) = start_ranks(tmp_path, tmp_path / "go 1", 1)
    (run_id,) = set(start_ranks(tmp_path, tmp_path / "go 2", 16))
    assert run_id != former
    run_dir = tmp_path / "p" / run_id
    assert open_log(run_dir).ranks == list(range(16))
    for rank in range(16):
        events = list(open_log(run_dir, rank).events(types=[StepEvent]))
        assert [e.values["loss"] for e in events] == [float(i) for i in range(50)]
        assert {e.rank for e in events} == {rank}
