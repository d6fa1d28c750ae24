"""A training process on a disk that does not always take what it writes; told what to do by lines.

Each line of its standard input is a call in the namespace of this module; the answer is a line of
JSON. The test, on the other side, fills the disk, empties it, or takes it away.
"""

import json
import resource
import sys
import time
from typing import Any

import eventlog
from eventlog import Run

directory, elsewhere, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
options.setdefault("sinks", {"live": {"sink": "log", "dir": elsewhere}})
run = Run("disk", dir=directory, close_timeout=20, **options)
n = 0


def steps(count: int, text: str = "") -> int:
    """Make steps, with a text in each that takes room."""
    global n
    for _ in range(count):
        run.step({"n": n, "text": text} if text else {"n": n})
        n += 1
        time.sleep(0.0002)
    return n


def statistics() -> dict[str, Any]:
    """Return the account."""
    log = run.statistics().log
    live = run.statistics().sinks["live"]
    assert log.emitted == log.written + sum(log.dropped.values()) + log.queued
    assert live.read == live.delivered + live.filtered + live.dead + live.in_flight
    return {**log._asdict(), "live": live.delivered, "lost": live.lost, "state": live.state}


def limit(size: int) -> None:
    """Let no file of this process grow beyond a size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def flush() -> list[Any]:
    """Bring everything where it can be brought."""
    return list(run.flush(20))


def close() -> list[Any]:
    """End the run."""
    return list(run.close())


print(json.dumps({"dir": str(run.dir), "version": eventlog.__version__}), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)  # noqa: S307 - the test's own lines
