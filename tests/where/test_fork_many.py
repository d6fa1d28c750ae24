"""Many forks of a process whose run has a full queue."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import open_log

PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore")
import eventlog

run = eventlog.Run("p", dir=sys.argv[1])
run.flush()
held = run._recorder.writer._turn_lock
held.acquire()  # the writer stands still: the queue is full when the children are made
run._inbox._max_events = run._inbox.room = 5000
for step in range(6000):
    run.step(n=step)
assert run.statistics().log.dropped == {"inbox_full": 1000}
children = {}

def work(n):
    if n % 5 == 0:
        os._exit(3)
    if n % 5 == 1:
        run.close()
        os._exit(4)
    if n % 5 == 2:
        sys.exit(5)
    if n % 5 == 3:
        raise RuntimeError("a child's own")

for n in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        run.step(child=n)
        run.text("child", "said")
        work(n)
        break
    children[pid] = (3, 4, 5, 1, 0)[n % 5]
    if len(children) == 50:
        for pid, code in children.items():
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        children.clear()
else:
    for pid, code in children.items():
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    held.release()
    run.flush()
    run._inbox._max_events = run._inbox.room = 100_000
    for step in range(6000, 6500):
        run.step(n=step)
    run.close()
    log = run.statistics().log
    assert (log.dropped, log.queued) == ({"inbox_full": 1000}, 0), log
    print(run.dir)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    "forks",
    [30, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
)
def test_children_neither_hang_nor_write_into_the_log(tmp_path: Path, forks: int) -> None:
    """However they end: by os._exit, with close, by sys.exit, an exception, or as a program does.

    The parent goes on: what it logs afterwards is in its log.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(forks)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        timeout=500,
    )
    values = [e.values for e in open_log(Path(done.stdout.strip())).events(types=["step", "text"])]
    assert values == [{"n": n} for n in (*range(5000), *range(6000, 6500))]
