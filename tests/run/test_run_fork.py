"""A run in a process that forks or spawns others."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, current_run, open_log
from eventlog.testing import MemorySink

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def use_in_child(run: Run) -> None:
    """Do with an inherited run all that a worker might."""
    assert current_run() is None
    for i in range(10):
        run.step(child=float(i))
    run.log({"child": None, "more": 1.0}, step=3)
    run.text("t", "child")
    run.config["child"] = 1
    run.flush(5)
    run.close()


def worker(run: Run, queue: Any) -> None:
    use_in_child(run)
    queue.put(run.statistics().log.dropped)


def wait_for(pid: int, seconds: float) -> int | None:
    """Return a child's exit status; kill it and return None when it takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def fork_and_use(run: Run) -> int | None:
    pid = os.fork()
    if pid == 0:
        try:
            use_in_child(run)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return wait_for(pid, 10)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fifty_forks_with_a_busy_run_neither_hang_nor_write_into_its_log(tmp_path: Path) -> None:
    """While threads log; the parent loses nothing of its own."""
    stop = threading.Event()
    logged = [0, 0]
    with Run("p", dir=tmp_path, sinks=[MemorySink()]) as run:

        def work(name: int) -> None:
            while not stop.is_set():
                run.log({"parent": name})
                logged[name] += 1
                if logged[name] % 50 == 0:
                    time.sleep(0.001)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
        for thread in threads:
            thread.start()
        ends = [fork_and_use(run) for _ in range(50)]
        stop.set()
        for thread in threads:
            thread.join()
    assert ends == [0] * 50
    events = list(open_log(run.dir).events())  # type: ignore[arg-type]
    assert not [e for e in events if "child" in e.values or "more" in e.values]
    for name in range(2):
        assert sum(e.values.get("parent") == name for e in events) == logged[name]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_with_a_full_inbox_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child starts with none of what waits in the parent."""
    with Run("p", dir=tmp_path) as run:
        run.flush()
        with run._recorder.writer._turn_lock:  # the writer stands still
            monkeypatch.setattr(run._inbox, "_max_events", 1_000)
            run._inbox.room = 1_000
            for i in range(2_000):
                run.log(parent=float(i))
            assert run._inbox.waiting == 1_000
            assert [fork_and_use(run) for _ in range(5)] == [0] * 5
    assert run.statistics().log.dropped["inbox_full"] >= 1_000
    events = list(open_log(run.dir).events())  # type: ignore[arg-type]
    parent = [e.values["parent"] for e in events if "parent" in e.values]
    assert parent == [float(i) for i in range(1_000)]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_amid_rejections_does_not_hang(tmp_path: Path) -> None:
    """A lock that another thread holds at the fork is no concern of the child's."""
    with Run("p", dir=tmp_path) as run:
        lock = run._recorder.rejections._lock
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with lock:
                held.set()
                release.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        end = None
        pid = os.fork()
        if pid == 0:
            try:
                run.step({"child": 1.0}, step=-1)
            finally:
                os._exit(0)
        end = wait_for(pid, 1)
        release.set()
        thread.join()
    assert end == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_that_no_hook_saw_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that C code makes: what is logged there is counted, not kept for ever."""
    with Run("p", dir=tmp_path) as run:
        run.flush()
        real = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: real + 1)
        run.log({"x": 1.0}, step=3)
        foreign = run.statistics().log
        monkeypatch.undo()
    assert foreign.dropped == {"forked": 1}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_multiprocessing_worker_is_no_part_of_the_run(tmp_path: Path) -> None:
    """Its calls are counted there, and change nothing here."""
    context: Any = multiprocessing.get_context("fork")
    with Run("p", dir=tmp_path) as run:
        run.step(parent=1.0)
        queue = context.Queue()
        process = context.Process(target=worker, args=(run, queue))
        process.start()
        counted = queue.get(timeout=20)
        process.join(20)
        run.step(parent=2.0)
    assert process.exitcode == 0
    assert counted["forked"] >= 13
    events = list(open_log(run.dir).events())  # type: ignore[arg-type]
    assert [e.values["parent"] for e in events if "parent" in e.values] == [1.0, 2.0]
    assert len(events) == 4


def test_a_spawned_worker_has_no_run(tmp_path: Path) -> None:
    """Unless it is given one, and then that is a handle: see tests/where/test_spawn.py."""
    context: Any = multiprocessing.get_context("spawn")
    with Run("p", dir=tmp_path):
        code = "import eventlog; assert eventlog.current_run() is None"
        process = context.Process(target=exec, args=(code,))
        process.start()
        process.join(30)
    assert process.exitcode == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_may_have_a_run_of_its_own(tmp_path: Path) -> None:
    """With its own log, and an end of its own."""
    with Run("p", dir=tmp_path):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with Run("child", dir=tmp_path, sinks=[MemorySink()]) as own:
                    assert current_run() is own
                    own.step(x=1.0)
                code = 0
            finally:
                os._exit(code)
        assert wait_for(pid, 20) == 0
    (child,) = (tmp_path / "child").iterdir()
    assert len(list(open_log(child).events())) == 3


def test_a_fork_while_a_sink_imports_leaves_a_child_that_can_import(tmp_path: Path) -> None:
    """DataLoader workers are forked right after the run begins, while a tracker is imported."""
    (tmp_path / "slow_tracker.py").write_text("import time\ntime.sleep(0.5)\n")
    (tmp_path / "slow_sink.py").write_text(
        "import eventlog\n"
        "class SlowSink(eventlog.Sink):\n"
        "    name = 'slow'\n"
        "    def open(self, run):\n"
        "        import slow_tracker\n"
        "    def write(self, batch): pass\n"
    )
    code = (
        "import os, sys, eventlog\n"
        "run = eventlog.Run('p', dir=sys.argv[1], sinks='slow_sink:SlowSink')\n"
        "if not (pid := os.fork()):\n"
        "    import slow_tracker, asyncio\n"
        "    os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=tmp_path,
        timeout=40,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "3\n", done.stderr
