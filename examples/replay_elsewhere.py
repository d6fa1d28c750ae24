"""Record a run for no tracker at all, and bring it to two of them afterwards.

python examples/replay_elsewhere.py --dir runs
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import eventlog
from eventlog.sinks.console import ConsoleSink


def record(directory: Path) -> Path:
    """Train for 200 steps, fall back to step 150 on the way, and return where the log lies."""
    with eventlog.Run("elsewhere", dir=directory, config={"lr": 0.1}) as run:
        for step in range(180):
            run.step(loss=math.exp(-step / 60))
        run.rewind(150)  # the loss exploded, say: go on from a checkpoint, as attempt 2
        for step in range(150, 200):
            run.step(loss=math.exp(-step / 60) * 0.9)
    assert run.dir is not None
    return run.dir


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    run_dir = record(parser.parse_args().dir)

    log = eventlog.open_log(run_dir)
    summary = log.summary()
    print(f"{summary.events} events, {summary.attempts} attempts, {summary.status}")

    # plain Python: every event is there, also what a later attempt superseded
    events = [e for e in log.events(types=["step"]) if e.step == 160]
    for event in events:
        print(f"  attempt {event.attempt}: step {event.step}  loss {event.values['loss']:.4f}")

    print("to the console, each 50 steps, what the latest attempt says:")
    console = ConsoleSink(sys.stdout)
    eventlog.replay(run_dir, {"console": {"sink": console, "every": "50 steps"}}, types=["step"])

    report = eventlog.replay(run_dir, "tensorboard")
    counts = report.sinks["tensorboard"]
    print(f"to TensorBoard: {counts.delivered} events, {counts.filtered} of them superseded")
    print(f"  complete: {report.complete}, in {report.urls['tensorboard']}")


if __name__ == "__main__":
    main()
