"""What the sink writes into a repository on disk, read back with Aim's own reader."""

from __future__ import annotations

import importlib
import math
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eventlog
from eventlog.events import (
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    Rewound,
    RunFinished,
    StepEvent,
    SummaryUpdated,
)
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog.testing.shown import Shown
from eventlog_aim import AimSink, curves

Read = Callable[[Any, "str | None"], Shown]
WALL = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository that the tests share: making one takes a second."""
    return tmp_path_factory.mktemp("repo")


def opened(repo: Path, run: RunInfo | None = None, /, **options: Any) -> AimSink:
    sink = AimSink(repo=repo, **options)
    sink.open(run or RunInfo(run_id="r1", project="p", name="n"))
    return sink


def step(at: int | None, seq: int, /, **values: Any) -> Event:
    return StepEvent(step=at, values=values, wall=WALL + seq * 10**9, seq=seq)


def shown_of(sink: AimSink, read_back: Read) -> Shown:
    sink.close("finished")
    return read_back(sink.url, sink.run_id)


def test_values_steps_epochs_and_times(repo: Path, read_back: Read) -> None:
    """Each point has the value, the step, the epoch and the time that were logged."""
    sink = opened(repo)
    events = [
        StepEvent(step=s, epoch=s / 8, values={"loss": 1 / (s + 1), "n": s}, wall=WALL + s, seq=s)
        for s in range(60)
    ]
    sink.write(events[:37])
    sink.write(events[37:])
    shown = shown_of(sink, read_back)
    assert shown.scalars["loss"] == [(s, 1 / (s + 1)) for s in range(60)]
    assert shown.scalars["n"] == [(s, float(s)) for s in range(60)]
    assert shown.wall_times["loss"] == [event.wall_time for event in events]
    assert sink.unshown == {}


def test_each_axis_has_a_context(repo: Path, read_back: Read) -> None:
    """One name on several axes is several sequences; fractions of an epoch are kept apart."""
    sink = opened(repo)
    sink.write(
        [
            step(7, 0, acc=1.0),
            BatchEvent(step=7, batch=31, values={"acc": 2.0}, seq=1),
            EpochEvent(step=7, epoch=0, values={"acc": 3.0}, seq=2),
            EpochEvent(step=7, epoch=0.5, values={"acc": 4.0}, seq=3),
            EpochEvent(step=7, epoch=0.75, values={"acc": 5.0}, seq=4),
            EpochEvent(step=7, epoch=1, values={"acc": 6.0}, seq=5),
            StepEvent(step=2, axis="val_step", values={"acc": 7.0}, seq=6),
        ]
    )
    shown = shown_of(sink, read_back)
    assert shown.scalars == {
        "acc": [(7, 1.0)],
        "acc [axis=batch]": [(31, 2.0)],
        "acc [axis=epoch]": [(0, 3.0), (0.5, 4.0), (0.75, 5.0), (1, 6.0)],
        "acc [axis=val_step]": [(2, 7.0)],
    }
    assert sink.unshown == {"fractional epoch: exact by epoch, rounded down by step": 2}


def test_the_last_value_of_half_an_epoch(repo: Path) -> None:
    """What Aim lists as a curve's last value is that of the last epoch, also of a fraction."""
    sink = opened(repo)
    epochs = (0.25, 0.5, 0.75, 1.25, 1.5)
    for seq, epoch in enumerate(epochs):
        sink.write([EpochEvent(epoch=epoch, values={"acc": epoch}, seq=seq)])
    more = (1.75, 2.25, 2.5)
    sink.write([EpochEvent(epoch=e, values={"acc": e}, seq=9 + i) for i, e in enumerate(more)])
    [info] = sink.tracker._tracker.meta_run_tree.collect("traces").values()
    assert (info["acc"]["last"], info["acc"]["last_step"]) == (2.5, 2.5)
    sink.close("finished")


def test_odd_numbers(repo: Path, read_back: Read) -> None:
    """NaN and infinities are kept; integers that floats do not hold are counted."""
    sink = opened(repo)
    numbers = [math.nan, math.inf, -math.inf, 2**53 + 1, 10**400, True, 1e-300, -0.0]
    sink.write([step(i, i, v=number) for i, number in enumerate(numbers)])
    found = [value for _, value in shown_of(sink, read_back).scalars["v"]]
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 2.0**53, math.inf, 1.0, 1e-300, -0.0]
    assert sink.unshown == {
        "integer beyond 2**53: the nearest float is shown": 1,
        "integer beyond the range of floats: shown as infinite": 1,
    }


def test_points_without_a_step(repo: Path, read_back: Read) -> None:
    """Aim counts them by itself, also over batches."""
    sink = opened(repo)
    sink.write([step(None, 0, v=1.0), step(None, 1, v=2.0), step(None, 2, v=3.0)])
    sink.write([step(None, 3, v=4.0)])
    shown = shown_of(sink, read_back)
    assert shown.scalars["v"] == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]
    assert sink.unshown == {"number without a step: Aim counts": 4}


def test_a_rewind_overwrites(repo: Path, read_back: Read) -> None:
    """Each step shows the latest attempt; what a user logs twice at a step is counted."""
    sink = opened(repo)
    sink.write([step(s, s, v=float(s)) for s in range(10)])
    sink.write([Rewound(to_step=5, attempt=2, seq=10)])
    sink.write([StepEvent(step=s, values={"v": -1.0}, attempt=2, seq=s + 6) for s in range(5, 8)])
    assert sink.unshown == {}
    sink.write([StepEvent(step=7, values={"v": -2.0}, attempt=2, seq=20)])
    shown = shown_of(sink, read_back)
    expected = [0, 1, 2, 3, 4, -1, -1, -2, 8, 9]
    assert shown.scalars["v"] == [(at, float(value)) for at, value in enumerate(expected)]
    assert sum(sink.unshown.values()) == 1


def test_odd_names(repo: Path, read_back: Read) -> None:
    """Every name is its own; only what has no bytes, or too many, is changed."""
    names = [
        "timing(s)/gen", "val/AR@100", "../../x", "a\\b", "CON", "\U0001f600", "foo", "foo/bar",
        "Loss", "loss", "a\x00b", "x" * 10_000, "x" * 9_999 + "y", "", "\ud800",
    ]  # fmt: skip
    sink = opened(repo)
    sink.write([step(3, 0, **{name: float(i) for i, name in enumerate(names)})])
    shown = shown_of(sink, read_back)
    found = {points[0][1]: name for name, points in shown.scalars.items()}
    assert [found[float(i)] for i in range(11)] == names[:11]
    assert sorted(found) == [float(i) for i in range(len(names))]
    assert max(map(len, shown.scalars)) == 500


def test_config_of_any_shape(repo: Path, read_back: Read) -> None:
    """Parameters stay nested, grow, and change; what Aim has no type for becomes text."""
    config = {
        "lr": 0.1,
        "net": {"layers": [1, {"a": None}], "empty": {}, "": 1, "nan": math.nan},
        "big": 2**70,
        "text": "w" * 7000,
        "broken": "\ud800",
        "many": {f"k{i}": i for i in range(300)},
    }
    sink = opened(repo, RunInfo(run_id="r1", config=config))
    sink.write([ConfigUpdated(config={"lr": 0.2, "late": True}, seq=0)])
    sink.write([SummaryUpdated(summary={"best": {"acc": 1}, "inf": math.inf}, seq=1)])
    run = sink.tracker
    found, summary = run["hparams"], run["summary"]
    assert (found["lr"], found["late"], found["big"]) == (0.2, True, str(2**70))
    assert found["net"]["layers"] == [1, {"a": None}]
    assert (found["net"]["empty"], found["net"]["(no name)"]) == ({}, 1)
    assert (found["text"], found["broken"], len(found["many"])) == ("w" * 7000, "?", 300)
    assert summary == {"best": {"acc": 1}, "inf": math.inf}
    assert sink.unshown == {"integer beyond 64 bits in config or summary: shown as text": 2}
    sink.close("finished")


def test_labels_status_and_error(repo: Path, read_back: Read) -> None:
    """Name, tags, notes, group and rank are shown; a failed run is no success to Aim."""
    info = RunInfo(
        run_id="r1", project="digits", name="first", tags=("a", "b", "a"), notes="why", group="g",
        rank=2, world_size=4,
    )  # fmt: skip
    sink = opened(repo, info)
    sink.write([step(1, 0, v=1.0), RunFinished(status="failed", error="ValueError: no", seq=1)])
    run_hash = sink.run_id
    sink.close("failed")
    shown = read_back(repo, run_hash)
    assert (shown.name, shown.notes, shown.group) == ("first (rank 2)", "why", "g")
    assert (sorted(shown.tags), shown.status) == (["a", "b"], "failed")
    assert shown.scalars == {"v [rank=2]": [(1, 1.0)]}
    marks = [p.name for p in (repo / ".aim" / "check_ins").glob(f"{run_hash}-*")]
    assert not any("-finished-" in name for name in marks)
    read = importlib.import_module("aim").Run(run_hash, repo=str(repo), read_only=True)
    assert (read["eventlog", "error"], read.experiment) == ("ValueError: no", "digits")
    assert read.end_time is not None
    [(record,)] = [list(read.get_log_records().values.values())]
    assert record.message == "ValueError: no"


def test_reopening_goes_on_and_leaves_a_users_changes(repo: Path, read_back: Read) -> None:
    """A second process goes on in the same run, and what was renamed in Aim stays so."""
    info = RunInfo(run_id="r1", name="before", tags=("t",), notes="n")
    sink = opened(repo, info)
    sink.write([step(0, 0, v=0.0), step(None, 1, free=1.0)])
    state = sink.state()
    sink.tracker.name = "renamed"
    sink.close("interrupted")
    again = RunInfo(run_id="r1", name="before", tags=("t", "u"), notes="n", state=state)
    second = opened(repo, again)
    assert second.run_id == sink.run_id
    second.write([step(0, 0, v=9.0), step(None, 1, free=9.0), step(1, 2, v=1.0)])
    second.write([step(None, 3, free=2.0)])
    shown = shown_of(second, read_back)
    assert shown.scalars == {"v": [(0, 0.0), (1, 1.0)], "free": [(0, 1.0), (1, 2.0)]}
    assert (shown.name, sorted(shown.tags), shown.status) == ("renamed", ["t", "u"], "finished")


def test_a_run_that_is_gone_is_started_anew(repo: Path) -> None:
    """An id of another repository is no reason to fail, unless the user asked for it."""
    state = {"run_id": "0" * 24, "attempt": 1, "seq": 3}
    sink = opened(repo, RunInfo(run_id="r1", state=state))
    assert sink.run_id not in (None, "0" * 24)
    sink.close("finished")
    with pytest.raises(RefusedError, match="run_hash must be a run"):
        opened(repo, RunInfo(run_id="r1"), run_hash="1" * 24)


_KILLED = """
import os, sys
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_aim import AimSink
sink = AimSink(repo=sys.argv[1])
sink.open(RunInfo(run_id="r1"))
sink.write([StepEvent(step=s, values={"v": float(s)}, seq=s) for s in range(600)])
print(sink.run_id, flush=True)
if sys.argv[2] == "wait":
    sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def killed(repo: Path, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(repo), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_run_is_taken_over(repo: Path, read_back: Read) -> None:
    """SIGKILL after write() loses nothing, and the lock that is left does not keep us out."""
    with killed(repo, "now") as process:
        printed, _ = process.communicate(timeout=50)
    assert process.returncode == -signal.SIGKILL
    run_hash = printed.strip()
    lock = repo / ".aim" / "locks" / f"{run_hash}.softlock"
    assert lock.exists()
    # as in a container, where the next process has the same number
    machine, _, at = lock.read_text().split("-")
    lock.write_text(f"{machine}-{os.getpid()}-{at}")
    state = {"run_id": run_hash, "attempt": 1, "seq": 599}
    sink = opened(repo, RunInfo(run_id="r1", state=state))
    assert sink.run_id == run_hash
    sink.write([step(600, 600, v=600.0)])
    shown = shown_of(sink, read_back)
    assert shown.scalars["v"] == [(s, float(s)) for s in range(601)]
    assert not lock.exists()


@pytest.mark.slow
def test_a_run_that_another_process_writes_to(repo: Path) -> None:
    """It is not taken away, by its id or from its state: that is for later."""
    with killed(repo, "wait") as process:
        assert process.stdout is not None
        run_hash = process.stdout.readline().strip()
        with pytest.raises(UnavailableError):
            opened(repo, RunInfo(run_id="r1"), run_hash=run_hash)
        state = {"run_id": run_hash, "attempt": 1, "seq": 5}
        with pytest.raises(UnavailableError):
            opened(repo, RunInfo(run_id="r1", state=state))
        process.communicate("go", timeout=20)


_OPENS = """
import sys
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_aim import AimSink

sink = AimSink(repo=sys.argv[1])
sink.open(RunInfo(run_id="r", project="together"))
sink.write([StepEvent(step=0, values={"v": 1.0}, wall=1, seq=0)])
sink.close("finished")
print(sink.run_id)
"""


@pytest.mark.slow
def test_processes_that_open_a_new_repository_at_once(tmp_path: Path, read_back: Read) -> None:
    """Several processes share a new repository, and no run is lost."""
    command = [sys.executable, "-W", "ignore", "-c", _OPENS, str(tmp_path / "new")]
    several = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    done = [(process.communicate(timeout=50), process.returncode) for process in several]
    assert [code for _, code in done] == [0, 0, 0], done
    runs = {printed.strip() for (printed, _), _ in done}
    assert len(runs) == 3
    for run_hash in runs:
        assert read_back(tmp_path / "new", run_hash).scalars["v"] == [(0, 1.0)]


def test_aliases_that_open_a_new_repository_at_once(tmp_path: Path, read_back: Read) -> None:
    """Two sinks of one run share a new repository, each with a run of its own."""
    one = {"sink": "aim", "repo": str(tmp_path / "new"), "isolate": False}
    sinks = {"one": one, "other": one}
    with eventlog.Run("together", dir=tmp_path / "runs", sinks=sinks) as run:
        for _ in range(5):
            run.step(v=1.0)
    handles = [run.sink(alias) for alias in sinks]
    assert [handle.state for handle in handles] == ["closed", "closed"], handles
    assert len({handle.run_id for handle in handles}) == 2
    for handle in handles:
        shown = read_back(handle.url, handle.run_id)
        assert shown.scalars["v"] == [(at, 1.0) for at in range(5)]


_DIES_MIDWAY = """
import os, signal, sys
from aim.storage.structured.db import DB
from eventlog.sinks.base import RunInfo
from eventlog_aim import AimSink

DB.run_upgrades = lambda self: os.kill(os.getpid(), signal.SIGKILL)
AimSink(repo=sys.argv[1]).open(RunInfo(run_id="r", project="p"))
"""


def test_a_process_that_is_killed_while_it_makes_the_repository(tmp_path: Path) -> None:
    """What it left is no repository, and the next process makes one."""
    command = [sys.executable, "-W", "ignore", "-c", _DIES_MIDWAY, str(tmp_path)]
    died = subprocess.run(command, capture_output=True, timeout=50, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    sink = opened(tmp_path)
    sink.close("finished")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".aim", ".eventlog.lock"]


@pytest.mark.parametrize("version", [None, ""])
def test_a_repository_that_others_make(tmp_path: Path, version: str | None) -> None:
    """One that is not ready yet, or not up to date, is an outage that says so."""
    (tmp_path / ".aim").mkdir()
    if version is not None:
        (tmp_path / ".aim" / "VERSION").write_text(version)
    with pytest.raises(UnavailableError, match="not up to date"):
        opened(tmp_path)


def test_an_error_of_aim_without_a_text_has_a_name(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Aim raises with no text is told by its class."""

    def refuse(*args: Any, **given: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("aim.Run", refuse)
    with pytest.raises(UnavailableError, match=r"RuntimeError\(\)"):
        opened(repo)


def test_context_of_a_log_call(repo: Path, read_back: Read) -> None:
    """``options={"aim": {"context": ...}}`` is Aim's context of that call; others are counted."""
    sink = opened(repo)
    for seq, own in enumerate(({"subset": "val"}, "no mapping", {"axis": "mine", "": 2**70})):
        options = {"aim": {"context": own, "commit": False}}
        sink.write([StepEvent(step=1, values={"v": float(seq)}, seq=seq, options=options)])
    shown = shown_of(sink, read_back)
    assert shown.scalars == {
        "v [subset=val]": [(1, 0.0)],
        "v": [(1, 1.0)],
        f"v [(no name)={2**70}, axis=mine]": [(1, 2.0)],
    }
    assert sink.unshown["option 'commit' of a log call"] == 3
    assert sink.unshown["option 'context' of a log call that is no mapping"] == 1


@pytest.mark.parametrize("layout", ["no tracker", "no columns"])
def test_an_aim_with_other_insides(
    repo: Path, read_back: Read, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Where the quick way is not there, each point goes through `Run.track`."""
    if layout == "no columns":
        monkeypatch.setattr(curves, "_COLUMNS", ("some_view",))
    sink = opened(repo)
    if layout == "no tracker":
        sink._curves._tracker = None
    sink.write([step(s, s, v=float(s), w=1.0) for s in range(5)])
    shown = shown_of(sink, read_back)
    assert shown.scalars["v"] == [(s, float(s)) for s in range(5)]
    assert len(shown.scalars["w"]) == 5
    assert sink.unshown == (
        {"time of a point: Aim's own clock": 10} if layout == "no tracker" else {}
    )


def test_what_aim_knows_of_a_curve(repo: Path, read_back: Read) -> None:
    """First, last, least and greatest are those of all points, as `Run.track` has them."""
    values = [3.0, math.nan, -5.0, 9.0, 2.0, math.nan]
    sink = opened(repo)
    sink.write([step(s, s, v=value) for s, value in enumerate(values)])
    plain = sink.tracker
    for at, value in enumerate(values):
        plain.track(value, name="plain", step=at)
    [traces] = plain.meta_run_tree.collect("traces").values()
    assert repr(traces["v"]) == repr(traces["plain"])
    sink.close("finished")


def test_two_sinks_in_one_repository(repo: Path, read_back: Read) -> None:
    """Two runs that are open at once in one process do not mix."""
    one, two = opened(repo), opened(repo)
    one.write([step(0, 0, v=1.0)])
    two.write([step(0, 0, v=2.0)])
    assert shown_of(one, read_back).scalars == {"v": [(0, 1.0)]}
    pool = two.tracker.repo.container_pool
    assert two.run_id in {config.sub for config in pool}
    assert shown_of(two, read_back).scalars == {"v": [(0, 2.0)]}
    # another process could write to them now, though the sinks are still there
    assert not {one.run_id, two.run_id} & {c.sub for c in pool if not c.read_only}


def test_a_batch_that_fails_leaves_nothing(
    repo: Path, read_back: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle of a batch drops all of it; it comes again whole."""
    sink = opened(repo)
    batch = [step(0, 0, v=0.0), step(1, 1, v=1.0), EpochEvent(epoch=0, values={"e": 1.0}, seq=2)]
    with monkeypatch.context() as patched:
        patched.setattr(sink._curves, "track", _fail)
        with pytest.raises(OSError, match="full"):
            sink.write(batch)
    assert sink.state()["seq"] == -1
    sink.write(batch)
    assert shown_of(sink, read_back).scalars == {
        "v": [(0, 0.0), (1, 1.0)],
        "e [axis=epoch]": [(0, 1.0)],
    }


def _fail(*_: object) -> None:
    raise OSError("the disk is full")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_disk_that_is_full_for_aims_own_thread(
    repo: Path, read_back: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aim's thread for marks of progress ends then, and nothing waits for it."""
    manager = importlib.import_module("aim.sdk.reporter.file_manager").LocalFileManager
    sink = opened(repo)
    reporter = sink.tracker._checkins
    with monkeypatch.context() as patched:
        patched.setattr(manager, "touch", _fail)
        reporter.check_in(flag_name="some")
        reporter.thread.join(20)
    sink.write([step(0, 0, v=1.0), RunFinished(error="no space", seq=1)])
    run_hash = sink.run_id
    sink.close("finished")
    shown = read_back(repo, run_hash)
    assert (shown.status, shown.scalars) == ("finished", {"v": [(0, 1.0)]})
    assert not (repo / ".aim" / "locks" / f"{run_hash}.softlock").exists()


def test_places(tmp_path: Path) -> None:
    """A repository lies where the option says, or in the run's directory."""
    info = RunInfo(run_id="r/1", project="..", name="n")
    sink = AimSink(dir=tmp_path / "{project}-{run_id}")
    target = sink.target()
    sink.open(info)
    assert sink.url == str(tmp_path / "_..-r_1")
    assert (tmp_path / "_..-r_1" / ".aim").is_dir()
    assert sink.target() == target
    sink.close("finished")


def test_aims_own_extras(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are off, and each can be switched on by Aim's own name for it."""
    # Aim lists packages by a module that newer versions of setuptools do not have any more
    listing = types.SimpleNamespace(working_set=[])
    monkeypatch.setitem(sys.modules, "pkg_resources", listing)
    plain = opened(repo)
    assert plain.tracker._system_resource_tracker is None
    assert plain.tracker.get("__system_params") is None
    plain.close("finished")
    more = {"log_system_params": True, "system_tracking_interval": 30}
    sink = opened(repo, sdk_options=more)
    assert sink.tracker._system_resource_tracker is not None
    assert sink.tracker["__system_params", "executable"] == sys.executable
    sink.close("finished")


_AT_EXIT = """
import sys
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_aim import AimSink
assert "aim" not in sys.modules and "numpy" not in sys.modules
sink = AimSink(repo=sys.argv[1])
sink.open(RunInfo(run_id="r1"))
sink.write([StepEvent(step=0, values={"v": 1.0}, seq=0)])
print(sink.run_id)
"""


def test_a_process_that_ends_without_closing(repo: Path) -> None:
    """Aim's own clean-up at exit does not mark a run as ended that nobody has closed."""
    done = subprocess.run(
        [sys.executable, "-c", _AT_EXIT, str(repo)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    run = importlib.import_module("aim").Run(done.stdout.strip(), repo=str(repo), read_only=True)
    assert run.meta_run_tree.get("end_time") is None
