"""What emitting costs, and what the log costs behind it: medians, as ratios of one run.

    python benchmarks/emit.py

Bars (the floor is building such a Struct, reading the clock and appending to a deque):
run.step of three floats at most 3 x the floor and at most 1/50 of three SummaryWriter.add_scalar;
FrequencyManager.log_ready at most 1.8 x a Struct with a dict of three; writing at least 0.1 x and
typed reading at least 0.2 x of what encoding alone does; the same at event 1e6 as at 1e3, and with
1, 8 and 64 subscriptions that are not due.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import eventlog
from eventlog import FrequencyManager
from eventlog.codec import encode_events
from eventlog.events import StepEvent
from eventlog.log.files import FileReader
from eventlog.log.inbox import Inbox
from eventlog.log.source import TailCache
from eventlog.log.writer import LogWriter, Writer

N = 20_000
ROUNDS = 15


class Row(msgspec.Struct, gc=False):
    """A Struct with a dict of three values, to compare `log_ready` with."""

    mono: int
    step: int
    values: dict[str, float]


def per_call(function: Callable[[int], None], before: Callable[[], object] | None = None) -> float:
    """Return the median, over rounds, of the nanoseconds a call takes."""
    return statistics.median(one_round(function, before) for _ in range(ROUNDS))


def one_round(function: Callable[[int], None], before: Callable[[], object] | None) -> float:
    """Return the nanoseconds a call takes in one round."""
    if before is not None:
        before()
    start = time.perf_counter_ns()
    function(N)
    return (time.perf_counter_ns() - start) / N


def floor(n: int) -> None:
    """Build such a Struct as `run.step` does, read the clock, append to a deque; n times."""
    queue: deque[StepEvent] = deque()
    clock = time.monotonic_ns
    for i in range(n):
        queue.append(StepEvent(clock(), i, 0, 0, {"loss": 0.5, "accuracy": 0.9, "lr": 0.1}, 1))


def struct_with_dict() -> float:
    """Time the Struct and the clock alone."""
    clock = time.time_ns

    def loop(n: int) -> None:
        for i in range(n):
            Row(clock(), i, {"loss": 0.5, "accuracy": 0.9, "lr": 0.1})

    return per_call(loop)


def run_step(folder: Path, subscriptions: int = 0, warm: int = 0) -> tuple[float, float, float]:
    """Time `run.step` of three floats, back to back, in turn with the floor.

    Returns:
        ns a call, ns of the floor, and the median of their ratios, round by round.
    """
    sinks = {
        f"idle{i}": {"sink": _ignore, "every": "1000000000 steps"} for i in range(subscriptions)
    }
    run = eventlog.Run("bench", dir=folder, sinks=sinks)

    def loop(n: int) -> None:
        step = run.step
        for _ in range(n):
            step(loss=0.5, accuracy=0.9, lr=0.1)

    done = 0
    while done < warm:
        loop(N)
        done += N
        run.flush(60)
    pairs = [
        (one_round(loop, lambda: run.flush(60)), one_round(floor, lambda: run.flush(60)))
        for _ in range(ROUNDS)
    ]
    run.close()
    ratios = [ours / base for ours, base in pairs]
    ours, base = zip(*pairs, strict=True)
    return statistics.median(ours), statistics.median(base), statistics.median(ratios)


def _ignore(event: eventlog.Event) -> None:
    """Take an event."""


def summary_writer(folder: Path) -> float | None:
    """Time three `SummaryWriter.add_scalar`, as its users call it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer = SummaryWriter(str(folder / "peer"))

    def loop(n: int) -> None:
        for i in range(n // 20):
            writer.add_scalar("loss", 0.5, i)
            writer.add_scalar("accuracy", 0.9, i)
            writer.add_scalar("lr", 0.1, i)

    result = per_call(loop) * 20
    writer.close()
    return result


def log_ready(mode: str) -> float:
    """Time `FrequencyManager.log_ready`."""
    manager = FrequencyManager(10, mode=mode, frequency_type="step")  # type: ignore[arg-type]
    manager.log_written(0)
    manager.model_updated(1)

    def loop(n: int) -> None:
        ready = manager.log_ready
        for i in range(n):
            ready(i)

    return per_call(loop)


def log_rates(folder: Path, events: int) -> tuple[float, float, float]:
    """Return ns an event of encoding alone, of writing the log, and of reading it typed."""
    batch = 20_000
    encode, write = [], []
    inbox, cache = Inbox(), TailCache()
    writer = Writer(inbox, cache, LogWriter(folder, run_id="bench"))
    made = 0
    while made < events:
        items = [
            StepEvent(time.monotonic_ns(), made + i, 0, 0, {"loss": 0.5, "acc": 0.9, "lr": 0.1})
            for i in range(batch)
        ]
        start = time.perf_counter_ns()
        encode_events(items)
        encode.append((time.perf_counter_ns() - start) / batch)
        inbox.items.extend(items)
        start = time.perf_counter_ns()
        writer.turn()
        write.append((time.perf_counter_ns() - start) / batch)
        made += batch
    writer.stop(None)
    read = []
    reader, seq = FileReader(folder), 0
    start, count = time.perf_counter_ns(), 0
    while (block := reader.read(seq)) is not None:
        count += len(block.events())
        seq = block.end
        if count >= batch:
            read.append((time.perf_counter_ns() - start) / count)
            start, count = time.perf_counter_ns(), 0
    return statistics.median(encode), statistics.median(write), statistics.median(read)


def main() -> None:
    """Measure and print."""
    table = Table("what", "ns a call", "ratio", "to", "bar")

    def row(what: str, ns: float, base: float, to: str, bar: str = "") -> None:
        table.add_row(what, f"{ns:,.0f}", f"{ns / base:.3g}", to, bar)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        struct = struct_with_dict()
        step, base, ratio = run_step(folder)
        row("floor: Struct + clock + deque.append", base, base, "floor")
        table.add_row("run.step, three floats", f"{step:,.0f}", f"{ratio:.3g}", "floor", "<= 3")
        for what, case in {
            "after 1e6 events": run_step(folder, warm=1_000_000),
            "1 subscription not due": run_step(folder, subscriptions=1),
            "8 subscriptions not due": run_step(folder, subscriptions=8),
            "64 subscriptions not due": run_step(folder, subscriptions=64),
        }.items():
            table.add_row(
                f"the same, {what}", f"{case[0]:,.0f}", f"{case[2]:.3g}", "floor", "as above"
            )
        peer = summary_writer(folder)
        if peer is not None:
            row("run.step", step, peer, "3 x SummaryWriter.add_scalar", "<= 0.02")
        row("Struct + dict + clock", struct, struct, "struct")
        row("log_ready, exact", log_ready("exact"), struct, "struct", "<= 1.8")
        row("log_ready, on_change", log_ready("on_change"), struct, "struct", "<= 1.8")
        for events in (20_000, 1_000_000):
            encode, write, read = log_rates(folder / f"log{events}", events)
            row(f"encoding alone, {events:,} events", encode, encode, "encode")
            row("log writing", write, encode, "encode", "<= 10")
            row("typed reading", read, encode, "encode", "<= 5")
    Console(width=110, file=sys.stdout).print(table)


if __name__ == "__main__":
    main()
