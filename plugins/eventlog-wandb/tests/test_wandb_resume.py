"""Resume, rewind, batches that come again, and what survives a killed process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog.events import Event, Rewound, RunFinished, StepEvent, TextEvent
from eventlog.exceptions import UnavailableError
from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.reading import read_offline
from eventlog_wandb.wandb_file import Mark, last_mark, records

WALL = 1_700_000_000_000_000_000


def steps(values: range, seq: int = 0, attempt: int = 1) -> list[Event]:
    return [
        StepEvent(step=s, values={"v": float(s)}, wall=WALL, attempt=attempt, seq=seq + i)
        for i, s in enumerate(values)
    ]


def opened(where: Path, **run: Any) -> WandbSink:
    sink = WandbSink(mode="offline", dir=where)
    sink.open(RunInfo(run_id="r1", project="p", **run))
    return sink


def points(where: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["v"]) for row in read_offline(where, "r1").rows if "v" in row]


def test_a_later_process_goes_on(tmp_path: Path) -> None:
    """A lower step stays, what came is left out, and a rewind and a resume append to the run."""
    sink = opened(tmp_path)
    sink.write(steps(range(10)))
    sink.write(steps(range(5, 12), seq=5))
    sink.write([Rewound(to_step=4, step=4, attempt=2, wall=WALL, seq=12)])
    sink.write(steps(range(4, 6), seq=13, attempt=2))
    sink.flush()
    kept = sink.state()
    sink.close("failed")
    first = [(s, float(s)) for s in [*range(10), 10, 11, 4, 5]]
    assert points(tmp_path) == first

    again = opened(tmp_path, attempt=3, state=kept)
    assert again.run_id == sink.run_id == kept["run_id"]
    again.write(steps(range(4, 6), seq=13, attempt=2))
    again.write(steps(range(5, 8), seq=15, attempt=3))
    again.close("finished")
    assert points(tmp_path) == [*first, (5, 5.0), (6, 6.0), (7, 7.0)]
    run = read_offline(tmp_path, "r1")
    assert [row["_step"] for row in run.rows] == list(range(len(run.rows)))
    assert {row.get("attempt") for row in run.rows} == {None, 2, 3}
    assert run.exit_code == 0
    assert len(run.folders) == 2


def test_a_run_that_ends_well_has_no_error(tmp_path: Path) -> None:
    """What went wrong in a former attempt is not said of the run that has finished."""
    sink = opened(tmp_path)
    sink.write([RunFinished(status="failed", error="ValueError: no", seq=0)])
    sink.close("failed")
    assert read_offline(tmp_path, "r1").summary["eventlog/error"] == "ValueError: no"
    again = opened(tmp_path, attempt=2, state=sink.state())
    again.write(steps(range(2), seq=1, attempt=2))
    again.close("finished")
    summary = read_offline(tmp_path, "r1").summary
    assert "eventlog/error" not in summary
    assert summary["eventlog/status"] == "finished"


def test_a_failed_batch_that_comes_again_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of a batch was taken before the failure is not taken twice."""
    sink = opened(tmp_path)
    log, calls = sink.tracker.log, []

    def fails_once(*args: Any, **options: Any) -> None:
        calls.append(args)
        if len(calls) == 3:
            raise ConnectionError("as the test wants")
        log(*args, **options)

    # the SDK's run takes no new attributes
    monkeypatch.setattr(type(sink.tracker), "log", lambda self, *a, **k: fails_once(*a, **k))
    with pytest.raises(ConnectionError):
        sink.write(steps(range(5)))
    sink.write(steps(range(5)))
    monkeypatch.undo()
    sink.close("finished")
    assert points(tmp_path) == [(s, float(s)) for s in range(5)]


def killed(where: Path, code: str) -> dict[str, Any]:
    """Run code in a process that kills itself and wandb-core; return the state that it printed."""
    script = f"""
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.session import _core_process
sink = WandbSink(mode="offline", dir={str(where)!r})
sink.open(RunInfo(run_id="r1", project="p"))
def steps(first, last):
    return [StepEvent(step=s, values={{"v": float(s)}}, wall={WALL}, seq=s)
            for s in range(first, last)]
{code}
print(json.dumps(sink.state()), flush=True)
_core_process().kill()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    state: dict[str, Any] = json.loads(done.stdout)
    return state


def test_what_was_flushed_survives_the_kill_of_both_processes(tmp_path: Path) -> None:
    """After flush, neither SIGKILL of the process nor of wandb-core loses a row; all comes once."""
    state = killed(
        tmp_path,
        "sink.write(steps(0, 300)); sink.flush(); done = sink.state()\nsink.write(steps(300, 400))",
    )
    kept = points(tmp_path)
    assert kept[:300] == [(s, float(s)) for s in range(300)]
    # confirmed was what was flushed: the rest comes again, and is written once
    assert state["seq"] == 399
    again = opened(tmp_path, state={"run_id": "r1", "attempt": 1, "seq": 299, "rows": 300})
    again.write(steps(range(300, 450), seq=300))
    again.close("finished")
    assert points(tmp_path) == [(s, float(s)) for s in range(450)]
    run = read_offline(tmp_path, "r1")
    assert [row["_step"] for row in run.rows] == list(range(450))


def test_rows_are_found_at_the_end_of_a_torn_file(tmp_path: Path) -> None:
    """However a file is torn, the last whole row is known, also from its end alone."""
    sink = opened(tmp_path)
    sink.write(steps(range(2000)))
    sink.write([TextEvent(tag="t", text="x", step=1, wall=WALL, seq=2000)])
    sink.write([StepEvent(step=3, values={"long": "y" * 90_000}, wall=WALL, seq=2001)])
    sink.close("finished")
    file = next(tmp_path.glob("wandb/*/run-r1.wandb"))
    assert last_mark(file) == Mark(1, 2001, 2001)
    data = file.read_bytes()
    torn = tmp_path / "torn"
    for size in (len(data) - 5, len(data) - 60_000, len(data) // 2, 40_000, 1000, 8, 3, 0):
        torn.write_bytes(data[:size])
        whole = list(records(torn))
        assert whole == list(records(file))[: len(whole)]
        found = last_mark(torn)
        assert found is None or data[:size].count(f"1:{found.seq}".encode())
    torn.write_bytes(data[:100_000])
    before = last_mark(torn)
    torn.write_bytes(data[:99_000] + bytes(1000) + data[100_000:])
    damaged = last_mark(torn)
    assert before is not None
    assert damaged is not None


def test_a_dead_helper_process_is_an_outage(tmp_path: Path) -> None:
    """When wandb-core has died, nothing is taken or confirmed, and close ends."""
    from eventlog_wandb.session import _core_process

    sink = opened(tmp_path)
    sink.write(steps(range(3)))
    core = _core_process()
    core.kill()
    core.wait()
    with pytest.raises(UnavailableError, match="wandb-core has ended"):
        sink.write(steps(range(3, 6), seq=3))
    with pytest.raises(UnavailableError, match="wandb-core has ended"):
        sink.flush()
    with pytest.raises(UnavailableError):
        sink.close("finished")
    assert _core_process() is None
    assert "WANDB_SERVICE" not in os.environ
