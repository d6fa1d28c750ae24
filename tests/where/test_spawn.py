"""A run that is copied, or pickled for a process that is spawned."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, current_run, open_log

PROGRAM = """
import concurrent.futures, json, multiprocessing, os, sys
import eventlog


class Task:
    '''As a data set, a callback or a model that holds its run.'''

    def __init__(self, run):
        self.run = run

    def __call__(self, n):
        run = self.run
        with run:
            for i in run.steps(range(3)):
                run.step(child=i)
            run.log({"child": n}, step=3, durable=True)
            run.text("child", "said")
            run.config["child"] = 1
        closed = run.close()
        own = eventlog.Run("own", dir=sys.argv[1])
        own.step(x=n)
        own.close()
        return run, {
            "where": [run.id, str(run.dir), run.project, run.name, run.rank, run.world_size],
            "lr": run.config["lr"],
            "best": run.summary["best"],
            "current": eventlog.current_run() is not None,
            "pid": os.getpid(),
            "closed": list(closed[:3]),
            "statistics": run.statistics().log._asdict(),
        }


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    with eventlog.Run("p", "a name", dir=sys.argv[1], config={"lr": 0.5}) as run:
        run.summary["best"] = 2.0
        run.step(parent=1)
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            found = [pool.submit(Task(run), n).result() for n in range(2)]
        assert all(back is run for back, _ in found)
        run.step(parent=2)
    print(json.dumps([str(run.dir), os.getpid(), *(said for _, said in found)]))
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_spawned_worker_has_a_handle_that_takes_nothing(tmp_path: Path, method: str) -> None:
    """It knows its run, all calls work and are counted; it comes back as the run itself."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), method],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    run_dir, pid, *said = json.loads(done.stdout)
    for one in said:
        assert one["where"] == [Path(run_dir).name, run_dir, "p", "a name", 0, 1]
        assert (one["lr"], one["best"], one["current"]) == (0.5, 2.0, False)
        assert one["pid"] != pid
        assert one["closed"] == [False, False, {}]
        assert one["statistics"]["emitted"] == 6
        assert one["statistics"]["dropped"] == {"pickled": 6}
    # once for each copy, on the standard error
    assert done.stderr.count("is counted, and not recorded; make a Run in this process") == 2
    events = list(open_log(run_dir).events())
    assert [e.values["parent"] for e in events if "parent" in e.values] == [1, 2]
    assert not [e for e in events if "child" in e.values]
    assert open_log(run_dir).status() == "finished"
    assert len(list((tmp_path / "own").iterdir())) == 2


def test_copies_in_its_process_are_the_run_itself(tmp_path: Path) -> None:
    """Who copies a model or a callback that holds a run goes on with the same one."""
    with Run("p", dir=tmp_path) as run:
        held = {"run": run, "other": [1]}
        assert copy.copy(run) is run
        assert copy.deepcopy(held)["run"] is run
        assert pickle.loads(pickle.dumps(held))["run"] is run  # noqa: S301 - our own bytes
        assert current_run() is run


def elsewhere(run: Run) -> Any:
    """Return what another process says of a run, and of what it logs there."""
    code = (
        "import json, pickle, sys\n"
        "run = pickle.loads(sys.stdin.buffer.read())\n"
        "run.step(x=1)\n"
        "again = pickle.loads(pickle.dumps(run))\n"
        "dropped = run.statistics().log.dropped\n"
        "print(json.dumps([run.id, run.rank, run.world_size, run.attempt, dropped,\n"
        "    again.state_dict()]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(run), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_handle_knows_its_rank_and_where_training_is(tmp_path: Path) -> None:
    """Also that of a rank which records nothing itself: there, nothing is missing."""
    with Run("p", dir=tmp_path, rank=0, world_size=4) as main:
        for _ in range(5):
            main.step(x=0.0)
        main.rewind(3)
        found = elsewhere(main)
        state = main.state_dict()
        assert found == [main.id, 0, 4, 2, {"pickled": 1}, state]
        assert (state["step"], state["attempt"]) == (3, 2)
    with Run("p", dir=None, rank=2, world_size=4) as other:
        assert elsewhere(other)[1:5] == [2, 4, 1, {}]


def test_a_handle_needs_no_directory_and_carries_no_secret(tmp_path: Path) -> None:
    """Its configuration is the recorded one."""
    with Run("p", dir=None, config={"api_key": "hunter2", "lr": 1}) as run:
        pickled = pickle.dumps(run)
        assert elsewhere(run)[4] == {"pickled": 1}
    assert b"hunter2" not in pickled
    assert len(pickled) < 2_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_run_pickled_before_a_fork_is_the_child_s_harmless_copy(tmp_path: Path) -> None:
    """It is found there, and takes nothing."""
    with Run("p", dir=tmp_path) as run:
        pickled = pickle.dumps(run)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                found = pickle.loads(pickled)  # noqa: S301 - our own bytes
                found.step(child=1)
                code = 0 if found.statistics().log.dropped == {"forked": 1} else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert run.dir is not None
    assert not [e for e in open_log(run.dir).events() if "child" in e.values]
