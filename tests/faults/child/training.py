"""A training process with a broken sink: it says what it computed, and what became of its events.

Its results are lines of JSON on standard output; it ends as it is told to.
"""

import hashlib
import json
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

STEPS = 1200
PATIENCE = 60.0
ENDLESS = 100_000


def compute(log: Callable[[int, float], object]) -> str:
    """Train; return the digest of all that was computed."""
    random.seed(7)
    digest = hashlib.sha256()
    x = 0.4
    for step in range(STEPS):
        x = 3.7 * x * (1 - x) + random.random() * 1e-9
        digest.update(struct.pack("<d", x))
        log(step, x)
    return digest.hexdigest()


def say(what: str, value: Any) -> None:
    """Say something in a line that is whole, also where the process dies next."""
    os.write(1, (json.dumps({what: value}) + "\n").encode())


def account(run: Any) -> dict[str, Any]:
    """Return what became of all events, as the run says."""
    statistics = run.statistics()
    return {
        "dir": str(run.dir),
        "log": statistics.log._asdict(),
        "sinks": {alias: asdict(one) for alias, one in statistics.sinks.items()},
    }


def go_on(run: Any, struck: Path, seconds: float) -> None:
    """Train on until somebody ends this; say so once the fault has happened, or will not."""
    deadline = time.monotonic() + seconds
    while not struck.exists() and time.monotonic() < deadline:
        run.step(more=1.0)
        time.sleep(0.005)
    run.sync()
    say("ready", account(run))
    for _ in range(ENDLESS):
        run.step(more=1.0)
        time.sleep(0.005)


def main(options: dict[str, Any]) -> None:
    """Train, with sinks."""
    import eventlog
    from eventlog.delivery import Deadlines, Retry

    end = options["end"]
    # a shell has its background jobs ignore it, and so what they start
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runs: list[Any] = []
    if end == "sigterm, asked for":

        def last_words(number: int, frame: object) -> None:
            say("end", account(runs[0]))
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(signal.SIGTERM, last_words)
        eventlog.close_on_sigterm()
    run = eventlog.Run(
        "faults",
        dir=options["dir"],
        run_id=options["run_id"],
        sinks=options["sinks"],
        deadlines=Deadlines(**options["deadlines"]),
        retry=Retry(first=0.05, most=0.2),
        close_timeout=options["close_timeout"],
    )
    runs.append(run)
    say("begun", str(run.dir))
    try:
        with run:
            say("result", compute(lambda step, x: run.step(step=step, x=x)))
            if end == "exception":
                raise RuntimeError("diverged")
            if end == "sys.exit(3)":
                sys.exit(3)
            if end != "return":
                go_on(run, Path(options["struck"]), options["strikes_within"])
    finally:
        say("end", account(run))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
