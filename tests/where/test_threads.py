"""Threads of a training program: some log, some fail, some outlive it."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventlog import Run, open_log


def test_many_threads_that_end_share_a_run(tmp_path: Path) -> None:
    """Each value is there once, whichever thread of a pool gave it."""

    def work(run: Run, name: int) -> None:
        run.log({f"t{name}": name}, step=name)
        run.text("said", str(name))

    with Run("p", dir=tmp_path) as run, ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: work(run, name), range(500)))
    assert run.dir is not None
    events = list(open_log(run.dir).events())
    values = [(e.step, e.values) for e in events if e.values]
    assert sorted(values, key=str) == sorted(((n, {f"t{n}": n}) for n in range(500)), key=str)
    texts = [getattr(e, "text", None) for e in events]
    assert {int(text) for text in texts if text is not None} == set(range(500))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_fails_is_not_the_run_s_end(tmp_path: Path) -> None:
    """What becomes of training is said by the thread that trains."""

    def fail() -> None:
        run.step(x=1)
        raise RuntimeError("a thread's own")

    with Run("p", dir=tmp_path) as run:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        run.step(x=2)
    assert run.dir is not None
    log = open_log(run.dir)
    assert log.status() == "finished"
    assert [e.values["x"] for e in log.events(types=["step"])] == [1, 2]


def test_a_run_closed_while_others_log_accounts_for_every_call(tmp_path: Path) -> None:
    """Each is in the log, or counted as too late."""
    calls = [0] * 4
    closed = threading.Event()
    begun = threading.Barrier(5)
    run = Run("p", dir=tmp_path)

    def work(name: int) -> None:
        begun.wait()
        while not closed.is_set():
            run.log({"thread": name})
            calls[name] += 1

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    report = run.close()
    closed.set()
    for thread in threads:
        thread.join()
    assert report.complete
    assert run.dir is not None
    written = sum("thread" in e.values for e in open_log(run.dir).events())
    late = run.statistics().log.dropped.get("closed", 0)
    assert written + late == sum(calls)


OUTLIVES = """
import sys, threading
import eventlog

run = eventlog.Run("p", dir=sys.argv[1], sinks="console")
begun = threading.Event()

def work():
    while True:
        run.log(thread=1)
        begun.set()

threading.Thread(target=work, daemon=True).start()
begun.wait()
run.step(main=1)
"""


def test_a_daemon_thread_that_never_stops_logging_holds_no_exit_up(tmp_path: Path) -> None:
    """The program ends with its own code, in silence, and its last step is there."""
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    (run_dir,) = (tmp_path / "p").iterdir()
    log = open_log(run_dir)
    assert log.status() == "finished"
    assert sum("main" in e.values for e in log.events()) == 1
