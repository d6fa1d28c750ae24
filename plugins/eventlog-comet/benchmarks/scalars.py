"""Microseconds for a scalar: this sink, and Comet's SDK called as its quick start does.

Run it as ``python benchmarks/scalars.py``; it ends with an error where the sink is not cheaper.
Both log into an offline experiment, in turns, several times, and the best turn of each counts.
``call`` is how long the calls take; ``all`` the processor time until the SDK's thread has written
what it was given.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.events import Scalar, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_comet import CometSink

BATCH, KEYS, EVENTS, TURNS = 512, ("train/loss", "train/acc", "lr"), 512 * 6, 5
WALL = 1_700_000_000_000_000_000

Work = Callable[[], float]


def values(step: int) -> dict[str, Scalar]:
    """Return three scalars that differ from step to step."""
    return {key: step + i / 3 for i, key in enumerate(KEYS)}


def ours(folder: str) -> Work:
    """Write batches of events, as eventlog's delivery gives them."""
    sink = CometSink(dir=folder)
    sink.open(RunInfo(run_id="bench"))
    events = [StepEvent(step=s, values=values(s), wall=WALL + s, seq=s) for s in range(EVENTS)]
    batches = [events[i : i + BATCH] for i in range(0, EVENTS, BATCH)]

    def work() -> float:
        start = time.perf_counter()
        for batch in batches:
            sink.write(batch)
        called = time.perf_counter() - start
        sink.flush()
        return called

    return work


def plainly(folder: str) -> Work:
    """Log with `log_metrics`, as scripts do, with all that collects by itself off."""
    import comet_ml

    experiment: Any = comet_ml.OfflineExperiment(
        offline_directory=folder,
        log_code=False,
        log_graph=False,
        auto_param_logging=False,
        auto_metric_logging=False,
        parse_args=False,
        auto_output_logging=False,  # type: ignore[arg-type]
        log_env_details=False,
        log_git_metadata=False,
        display_summary_level=0,
    )
    steps = [(s, values(s)) for s in range(EVENTS)]

    def work() -> float:
        start = time.perf_counter()
        for step, scalars in steps:
            experiment.log_metrics(scalars, step=step)
        called = time.perf_counter() - start
        while not experiment.streamer.messages.empty():
            time.sleep(0.001)
        return called

    return work


def main() -> None:
    """Measure, print, and check."""
    os.environ |= {
        "COMET_DISABLE_AUTO_LOGGING": "1",
        "COMET_ERROR_TRACKING_ENABLE": "false",
        "COMET_LOGGING_CONSOLE": "CRITICAL",
    }
    contestants = {"eventlog-comet": ours, "experiment.log_metrics": plainly}
    best = {name: [float("inf")] * 2 for name in contestants}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for name, prepare in contestants.items():
                work = prepare(str(Path(folder) / f"{name}-{turn}"))
                start = time.process_time()
                called = work()
                whole = time.process_time() - start
                best[name] = [min(pair) for pair in zip(best[name], (called, whole), strict=True)]
    points = EVENTS * len(KEYS)
    own = best["eventlog-comet"]
    for name, (called, whole) in best.items():
        print(
            f"{name:24} call {called / points * 1e6:6.2f} us/scalar {called / own[0]:5.1f} x"
            f"    all {whole / points * 1e6:6.2f} us/scalar {whole / own[1]:5.1f} x"
        )
    if best["experiment.log_metrics"][0] < own[0]:
        sys.exit("the sink must be cheaper than the SDK's own calls")


if __name__ == "__main__":
    main()
