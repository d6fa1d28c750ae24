"""Going on with a run: rewind, state, resume."""

from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, StepEvent, open_log
from eventlog.events import Event, Rewound, RunStarted
from eventlog.exceptions import EventlogError
from eventlog.testing import MemorySink


def curve(events: list[Event]) -> list[tuple[int, int | None, Any]]:
    return [(e.attempt, e.step, e.values["x"]) for e in events if type(e) is StepEvent]


def test_a_rewind_begins_another_attempt(tmp_path: Path) -> None:
    """What follows replaces later steps; what was logged before stays in the log."""
    sink = MemorySink()
    with Run("p", dir=tmp_path, sinks=[sink]) as run:
        for i in range(5):
            run.step(x=i)
        assert run.attempt == 1
        run.rewind(2)
        assert run.attempt == 2
        for i in range(2, 4):
            run.step(x=i * 10)
    wanted = [(1, 0, 0), (1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 4), (2, 2, 20), (2, 3, 30)]
    assert curve(sink.events) == curve(list(open_log(run.dir).events())) == wanted  # type: ignore[arg-type]
    (rewound,) = sink.of(Rewound)
    assert isinstance(rewound, Rewound)
    assert (rewound.to_step, rewound.attempt) == (2, 2)


@pytest.mark.parametrize(
    "step",
    [
        -1,
        1.5,
        "x",
        2**70,
        None,
    ],
)
def test_a_rewind_to_nowhere_is_refused(step: Any) -> None:
    """And changes nothing."""
    with Run("p", dir=None) as run:
        run.step(x=1.0)
        with pytest.raises((ValueError, TypeError)):
            run.rewind(step)
        assert run.attempt == 1
        assert run.state_dict()["step"] == 1


def test_a_state_is_loaded_back() -> None:
    """All counters; as a rewind in the same run, as they are in a new one."""
    with Run("p", dir=None) as run:
        for _ in range(3):
            run.batch(x=1.0)
            run.batch(x=1.0)
            run.step(x=1.0)
        run.epoch(x=1.0)
        state = run.state_dict()
        assert {k: state[k] for k in ("step", "batch", "epoch", "attempt")} == {
            "step": 3,
            "batch": 6,
            "epoch": 1,
            "attempt": 1,
        }
        run.step(x=1.0)
        run.load_state_dict(state)
        assert run.attempt == 2
        assert {**run.state_dict(), "attempt": 1} == state
    with Run("p", dir=None) as other:
        other.load_state_dict(state)
        assert other.attempt == 1
        assert {**other.state_dict(), "run_id": run.id} == state


@pytest.mark.parametrize("state", [{}, {"step": 3}, {"step": "3", "batch": 0, "epoch": 0}])
def test_a_state_that_is_none_is_refused(state: dict[str, Any]) -> None:
    """With what it should have been."""
    with Run("p", dir=None) as run, pytest.raises(ValueError, match=r"state must be what.* None"):
        run.load_state_dict(None)  # type: ignore[arg-type]
    with Run("p", dir=None) as run, pytest.raises(ValueError, match="state must be what"):
        run.load_state_dict(state)


@pytest.mark.parametrize("how", ["id", "must", "allow"])
def test_a_run_is_resumed_in_its_own_log(tmp_path: Path, how: str) -> None:
    """As another attempt, with the seqs going on; by its id, or the newest of its name."""
    with Run("p", "n", dir=tmp_path, config={"lr": 1}) as first:
        first.step(x=1)
        state = first.state_dict()
    resume = first.id if how == "id" else how
    sink = MemorySink()
    with Run("p", "n", dir=tmp_path, resume=resume, sinks=[sink]) as second:
        assert second.id == first.id
        second.load_state_dict(state)
        second.step(x=2)
    events = list(open_log(second.dir).events())  # type: ignore[arg-type]
    assert [e.seq for e in events] == list(range(len(events)))
    assert [(step, x) for _, step, x in curve(events)] == [(0, 1), (1, 2)]
    assert [e.attempt for e in events if isinstance(e, RunStarted)] == [1, 2]
    assert sorted({e.attempt for e in events}) == list(range(1, second.attempt + 1))
    assert (1, 2) in [(step, x) for _, step, x in curve(sink.events)]
    assert len(list(tmp_path.glob("p/*/"))) == 1


def test_a_resumed_run_that_begins_at_step_0_again_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what to do about it; whoever says where training goes on hears nothing."""
    with Run("p", dir=tmp_path) as run:
        for _ in range(3):
            run.step(x=1.0)
        state = run.state_dict()
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.step(x=1.0)
        again.step(x=1.0)
    (said,) = (r.getMessage() for r in caplog.records)
    assert "logged up to step 2" in said
    assert "run.state_dict()" in said
    assert run.id in said
    caplog.clear()
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.load_state_dict(state)
        again.step(x=1.0)
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.log(x=1.0, step=3)
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.rewind(0)
        again.step(x=1.0)
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.log(x=1.0, step=0, axis="val_step")
    assert caplog.records == []


def test_a_run_that_is_resumed_before_its_first_step_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is superseded."""
    with Run("p", dir=tmp_path) as run:
        run.text("note", "begins")
    with Run("p", dir=tmp_path, resume=run.id) as again:
        again.step(x=1.0)
        again.step(x=1.0)
    assert caplog.records == []
    assert [step for _, step, _ in curve(list(open_log(run.dir).events()))] == [0, 1]  # type: ignore[arg-type]


def test_resume_chooses_the_newest_run_of_the_name(tmp_path: Path) -> None:
    """Others are left alone."""
    with Run("p", "a", dir=tmp_path) as first:
        pass
    with Run("p", "b", dir=tmp_path):
        pass
    with Run("p", "a", dir=tmp_path, resume="must") as again:
        assert again.id == first.id
    with Run("p", "c", dir=tmp_path, resume="allow") as fresh:
        assert fresh.id != first.id
    assert len(list(tmp_path.glob("p/*/"))) == 3


@pytest.mark.parametrize(
    ("resume", "message"),
    [
        ("must", "there is no run"),
        ("20200101-000000-abcdef", "there is no run"),
        ("../..", "no run"),
    ],
)
def test_resuming_what_is_not_there_is_an_error(tmp_path: Path, resume: str, message: str) -> None:
    """With the folder where it was looked for."""
    with pytest.raises(EventlogError, match=message):
        Run("p", dir=tmp_path / "runs", resume=resume)
    assert list(tmp_path.iterdir()) == []


def test_resume_without_a_directory_is_an_error() -> None:
    """There is nothing to go on with."""
    with pytest.raises(EventlogError, match="resume needs a directory"):
        Run("p", dir=None, resume="allow")
