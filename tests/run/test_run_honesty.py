"""What a run says of itself is so, whatever happens around it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, open_log
from eventlog._platform import FileLock
from eventlog.events import StepEvent
from eventlog.exceptions import LogError, UnavailableError
from eventlog.log.seal import COMPACT_LOCK, retire_segments
from eventlog.sinks.plan import read_plan
from eventlog.testing import Fault, FaultySink, MemorySink


def steps(run_dir: Path | None) -> list[int | None]:
    assert run_dir is not None
    return [e.step for e in open_log(run_dir).events() if isinstance(e, StepEvent)]


def test_a_program_may_change_its_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log, copy and positions stay where they were when the run began, through rewinds, too."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sinks = {"copy": {"sink": "log"}, "other": {"sink": "log", "dir": "other"}}
    with Run("p", sinks=sinks) as run:
        run.step(loss=1.0)
        run.flush(10)
        os.chdir("elsewhere")
        run.step(loss=1.0)
        run.rewind(1)
        run.step(loss=2.0)
    assert list(Path.cwd().iterdir()) == []
    assert run.dir is not None
    assert run.dir.is_absolute()
    assert steps(run.dir) == steps(run.dir / "copy") == steps(tmp_path / "other") == [0, 1, 1]
    assert open_log(run.dir).summary().status == "finished"


def test_a_removed_directory_is_locked_and_described_again(tmp_path: Path) -> None:
    """Also where a sink's position made the directory first: a second writer is kept out."""
    sink = MemorySink()
    run = Run("p", dir=tmp_path, sinks={"m": sink, "c": {"sink": "log", "dir": tmp_path / "c"}})
    assert run.dir is not None
    run.step(loss=1.0)
    assert run.flush(10).complete
    shutil.rmtree(run.dir)
    assert run.sync() is False or not run.dir.exists()  # notices that the file has no name
    for _ in range(200):
        run.step(loss=1.0)
        run.flush(10)
        run.sync()
        if (run.dir / "manifest.json").exists() and (run.dir / "sinks.json").exists():
            break
    else:
        pytest.fail("the directory was not described again")
    with pytest.raises(LogError, match="is being written by another process"):
        Run("p", dir=tmp_path, resume=run.id)
    run.close()
    assert open_log(run.dir).summary().status == "finished"


def test_record_begins_anew_after_a_rewind(tmp_path: Path) -> None:
    """What is thinned out of a later attempt is what was thinned out of the first."""
    with Run("p", dir=tmp_path, record="10 steps") as run:
        for _ in range(30):
            run.step(loss=1.0)
        run.rewind(0)
        for _ in range(30):
            run.step(loss=2.0)
    assert steps(run.dir) == [0, 10, 20, 0, 10, 20]


def test_a_sink_that_could_not_be_had_is_left_over(tmp_path: Path) -> None:
    """It took nothing, and the report says so."""
    with Run("p", dir=tmp_path, sinks={"bad": {"sink": "no_such_module:Sink"}}) as run:
        run.step(loss=1.0)
        report = run.flush(10)
        assert (report.complete, report.written, list(report.left)) == (False, True, ["bad"])
        assert run.statistics().sinks["bad"].state == "failed"
    report = run.close()
    assert (report.complete, report.left) == (False, {"bad": 4})


def test_refused_events_are_not_delivered_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are counted for their sink, and the way to them is said."""
    sink = FaultySink(refuse=lambda event: event.step == 1 and bool(event.values))
    with Run("p", dir=tmp_path, sinks={"picky": sink}) as run:
        for _ in range(3):
            run.step(loss=1.0)
    report = run.close()
    assert (report.complete, report.written, report.left) == (False, True, {})
    assert report.dead == {"picky": 1}
    assert f"they are in {run.dir / 'dead' / 'picky' if run.dir else ''}" in caplog.text


def test_a_sink_that_did_not_close_is_named(tmp_path: Path) -> None:
    """It has everything, but its tracker may not know that the run is over."""
    sink = FaultySink(close=Fault(ValueError("no"), times=None))
    with Run("p", dir=tmp_path, sinks={"odd": sink}) as run:
        run.step(loss=1.0)
    report = run.close()
    assert not report.complete
    assert "odd" in {**report.failed, **report.left}


def test_what_a_full_disk_took_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that lacks events is not complete, though the disk came back."""
    monkeypatch.setattr("eventlog.log.log_writer.BACKLOG_BYTES", 1000)
    with Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)
        assert run.flush(10).complete
        log = run._recorder._log
        assert log is not None
        real = log._files.writev

        def full(fd: int, buffers: list[bytes]) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(type(log._files), "writev", staticmethod(full))
        for _ in range(200):
            run.step(loss=1.0)
        assert not run.flush(10).written
        monkeypatch.setattr(type(log._files), "writev", staticmethod(real))
    report = run.close()
    assert run.statistics().log.degraded is None
    assert (report.complete, report.written) == (False, False)


def test_flush_after_a_close_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what the sinks lack, and not that nothing is left."""
    sink = FaultySink(write=Fault(UnavailableError("down")))
    run = Run("p", dir=tmp_path, sinks={"down": sink})
    run.step(loss=1.0)
    with monkeypatch.context() as patch:

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(run._delivered, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.close()
    report = run.flush(0.1)
    assert not report.complete
    assert list(report.left) == ["down"]
    run.close(timeout=0.1)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "3", True])
def test_a_rate_that_is_none_is_refused(tmp_path: Path, rate: Any) -> None:
    """Before anything is made."""
    with pytest.raises(ValueError, match="rate must be a number of calls a second above 0"):
        Run("p", dir=tmp_path, sinks={"console": {"rate": rate}})
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_could_not_start_lets_go_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who mends the mistake can resume it in the same process."""
    with Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_port", fail)
        with pytest.raises(RuntimeError, match="no"):
            Run("p", dir=tmp_path, resume=run.id, sinks=MemorySink())
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.step(loss=1.0)
    assert again.dir == run.dir


def test_a_resumed_run_is_still_called_what_it_was(tmp_path: Path) -> None:
    """Name, tags, group, notes and hyperparameters hold unless they are given anew."""
    given: dict[str, Any] = {"tags": ["t"], "group": "g", "notes": "n"}
    with Run("p", name="baseline", dir=tmp_path, config={"lr": 1, "seed": 2}, **given) as run:
        run.step(loss=1.0)
    with Run("p", dir=tmp_path, resume=run.id, config={"lr": 3}, group="h") as again:
        again.step(loss=1.0)
        assert again.name == "baseline"
    assert run.dir is not None
    info = open_log(run.dir).run_info()
    assert (info.name, info.tags, info.group, info.notes) == ("baseline", ("t",), "h", "n")
    assert info.config == {"lr": 3, "seed": 2}


def test_sinks_of_an_earlier_attempt_can_still_have_what_they_lack(tmp_path: Path) -> None:
    """They stay in the plan, and nothing goes from the log that they did not confirm."""
    with Run("p", dir=tmp_path, sinks={"a": {"sink": "log", "dir": tmp_path / "a"}}) as run:
        run.step(loss=1.0)
    assert run.dir is not None
    with Run("p", dir=tmp_path, resume=run.id, sinks={"b": {"sink": "log"}}) as again:
        again.step(loss=1.0)
        assert set(again._aliases()) == {"a", "b"}
    assert {spec.alias for spec in read_plan(run.dir)} == {"a", "b"}


def test_delivered_events_are_of_some_sink(tmp_path: Path) -> None:
    """Without one, all of the log would be removed."""
    with pytest.raises(ValueError, match="needs a sink"):
        Run("p", dir=tmp_path, retain="delivered")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_removed_while_it_is_compacted(tmp_path: Path) -> None:
    """A compaction puts a file back under the name of the one that it read."""
    with Run("p", dir=tmp_path, segment_bytes=2000) as run:
        for _ in range(5):
            run.step(loss=1.0)
            run.sync()
            run.rewind(0)
    assert run.dir is not None
    directory = run.dir / "rank-0"
    lock = FileLock(directory / COMPACT_LOCK)
    assert lock.acquire()
    assert retire_segments(directory, 2**62) == []
    lock.release()
    assert len(retire_segments(directory, 2**62)) >= 4


def test_what_a_resumed_run_says_before_it_knows_where_it_is_voids_nothing(tmp_path: Path) -> None:
    """A text at "step 0" would stand for all steps of the first attempt."""
    with Run("p", dir=tmp_path) as run:
        for _ in range(5):
            run.step(loss=1.0)
        state = run.state_dict()
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.text("note", "resumed")
        again.load_state_dict(state)
        again.text("note", "placed")
        again.step(loss=2.0)
    assert run.dir is not None
    log = open_log(run.dir)
    latest = [e.step for e in log.events(latest=True) if isinstance(e, StepEvent)]
    assert latest == [0, 1, 2, 3, 4, 5]
    assert [e.step for e in log.events(types=["text"])] == [None, 5]


def test_a_run_can_be_closed_with_what_ended_it(tmp_path: Path) -> None:
    """Its status is what the exception makes of it."""
    run = Run("p", dir=tmp_path)
    run.close(error=RuntimeError("diverged"))
    assert run.dir is not None
    summary = open_log(run.dir).summary()
    assert summary.status == "failed"
    (end,) = open_log(run.dir).events(types=["run_finished"])
    assert end.error == "RuntimeError: diverged"  # type: ignore[attr-defined]
