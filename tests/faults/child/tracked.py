"""A training process with an MLflow sink; told what to do by lines.

Each line of its standard input is a call in the namespace of this module; the answer is a line of
JSON. The test, on the other side, has the tracker fail.
"""

import json
import sys
import time
from typing import Any

from eventlog import Run
from eventlog.delivery import Retry

options = json.loads(sys.argv[1])
run = Run(
    options["project"],
    dir=options["dir"],
    sinks={"mlflow": options["sink"]},
    retry=Retry(first=0.2, most=1),
)
n = 0


def steps(count: int) -> int:
    """Make steps; return how many there are now."""
    global n
    for _ in range(count):
        run.step(n=n, loss=n / 7)
        n += 1
        time.sleep(0.001)
    return n


def statistics() -> dict[str, Any]:
    """Return the account."""
    found = run.statistics()
    log = found.log
    assert log.emitted == log.written + sum(log.dropped.values()) + log.queued
    assert not log.dropped
    handle = run.sink("mlflow")
    account: dict[str, Any] = {"state": handle.state, "error": handle.error, "delivered": 0}
    sink = found.sinks.get("mlflow")
    if sink is not None:
        assert sink.read == sink.delivered + sink.filtered + sink.dead + sink.in_flight
        assert not sink.dead
        assert not sink.lost
        account["delivered"] = sink.delivered
    return account


def close(timeout: float) -> dict[str, Any]:
    """End the run; return what its report says, and how long that took."""
    begun = time.monotonic()
    report = run.close(timeout=timeout)
    seconds = time.monotonic() - begun
    return {"complete": report.complete, "written": report.written, "seconds": seconds}


print(json.dumps(str(run.dir)), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)  # noqa: S307 - the test's own lines
