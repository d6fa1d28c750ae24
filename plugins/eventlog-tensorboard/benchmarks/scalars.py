"""Microseconds for a scalar: this sink, TensorBoard's EventFileWriter, and torch's SummaryWriter.

Run it as ``python benchmarks/scalars.py``; it ends with an error where the sink is not five times
cheaper than SummaryWriter. All three write in turns, several times, and the best turn of each
counts, so that what else the machine does falls on all.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event as TensorBoardEvent
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from eventlog.events import Scalar, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_tensorboard import TensorBoardSink

BATCH, KEYS, EVENTS, TURNS = 512, ("train/loss", "train/acc", "lr"), 512 * 20, 5
WALL = 1_700_000_000_000_000_000


def values(step: int) -> dict[str, Scalar]:
    """Return three scalars that differ from step to step."""
    return {key: step + i / 3 for i, key in enumerate(KEYS)}


def ours(folder: str) -> Callable[[], None]:
    """Write batches of events, as eventlog's delivery gives them."""
    sink = TensorBoardSink(dir=folder)
    sink.open(RunInfo(run_id="bench"))
    events = [StepEvent(step=s, values=values(s), wall=WALL + s, seq=s) for s in range(EVENTS)]
    batches = [events[i : i + BATCH] for i in range(0, EVENTS, BATCH)]

    def work() -> None:
        for batch in batches:
            sink.write(batch)
        sink.flush()
        sink.close("finished")

    return work


def event_file_writer(folder: str) -> Callable[[], None]:
    """Write with what TensorBoard brings along."""
    writer = EventFileWriter(folder)
    steps = [(s, values(s)) for s in range(EVENTS)]

    def work() -> None:
        for step, scalars in steps:
            for tag, value in scalars.items():
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=float(value))])
                event = TensorBoardEvent(wall_time=WALL / 1e9, step=step, summary=summary)
                writer.add_event(event)
        writer.close()

    return work


def summary_writer(folder: str) -> Callable[[], None]:
    """Write as most training scripts do."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    steps = [(s, values(s)) for s in range(EVENTS)]

    def work() -> None:
        for step, scalars in steps:
            for tag, value in scalars.items():
                writer.add_scalar(tag, value, step)
        writer.close()

    return work


def main() -> None:
    """Measure, print, and check."""
    contestants = {
        "eventlog-tensorboard": ours,
        "EventFileWriter": event_file_writer,
        "SummaryWriter.add_scalar": summary_writer,
    }
    best = dict.fromkeys(contestants, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for name, prepare in contestants.items():
                work = prepare(str(Path(folder) / f"{name}-{turn}"))
                start = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - start)
    own = best["eventlog-tensorboard"]
    for name, seconds in best.items():
        each = seconds / EVENTS / len(KEYS) * 1e6
        print(f"{name:26} {each:7.2f} us/scalar {seconds / own:7.1f} x")
    if best["SummaryWriter.add_scalar"] < 5 * own:
        sys.exit("the sink must be five times cheaper than SummaryWriter")


if __name__ == "__main__":
    main()
