"""What the log gives and takes: rates, seeks, following, bytes an event; ratios of one run.

    python benchmarks/log.py [--events 10000000] [--quick]

Bars: writing at least 0.1 x and typed reading at least 0.2 x of encoding alone, as in emit.py;
the rest is reported beside what others need for the same points.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eventlog import open_log, replay
from eventlog.codec import decode_events, encode_events
from eventlog.events import Event, StepEvent
from eventlog.log.inbox import Inbox
from eventlog.log.seal import compact_log
from eventlog.log.source import TailCache
from eventlog.log.writer import LogWriter, Writer
from eventlog.sinks.base import Sink

BATCH = 20_000


def events(first: int, n: int) -> list[Event]:
    """Return step events with three values, as a training loop makes them."""
    clock = time.monotonic_ns
    steps = range(first, first + n)
    return [
        StepEvent(clock(), i, i, 0, {"loss": 1 / (i + 1), "acc": 0.5, "lr": 1e-3}) for i in steps
    ]


def write_log(run_dir: Path, total: int) -> tuple[float, float]:
    """Write a log; return seconds an event of encoding alone and of writing."""
    inbox = Inbox()
    writer = Writer(inbox, TailCache(), LogWriter(run_dir / "rank-0", run_id="bench"))
    encoding, writing = [], []
    for first in range(0, total, BATCH):
        items = events(first, BATCH)
        start = time.perf_counter()
        encode_events(items)
        encoding.append(time.perf_counter() - start)
        inbox.items.extend(items)
        start = time.perf_counter()
        writer.turn()
        writing.append(time.perf_counter() - start)
    writer.stop(None)
    return statistics.median(encoding) / BATCH, statistics.median(writing) / BATCH


def read_log(run_dir: Path) -> tuple[float, float]:
    """Return events a second of typed reading and of decoding alone."""
    payload = encode_events(events(0, 1000))
    rounds = 200
    start = time.perf_counter()
    for _ in range(rounds):
        decode_events(payload)
    decode = 1000 * rounds / (time.perf_counter() - start)
    reader = open_log(run_dir).source().open_reader()
    count = seq = 0
    start = time.perf_counter()
    while (block := reader.read(seq)) is not None:
        count += len(block.events())
        seq = block.end
    return count / (time.perf_counter() - start), decode


def seeks(run_dir: Path, total: int, n: int = 300) -> list[float]:
    """Return the sorted seconds that it takes to get one event in the middle of the log."""
    rng = random.Random(0)
    times = []
    for _ in range(n):
        seq = rng.randrange(total)
        start = time.perf_counter()
        event = next(iter(open_log(run_dir).events(start=seq)))
        times.append(time.perf_counter() - start)
        assert event.seq == seq
    return sorted(times)


class Taker(Sink):
    """Takes everything and does nothing with it."""

    name = "taker"
    seen = 0

    def write(self, batch: Sequence[Event]) -> None:
        """Count the batch."""
        self.seen += len(batch)


def replay_rate(run_dir: Path, total: int) -> float:
    """Return events a second of a replay into a sink that takes everything."""
    sink = Taker()
    start = time.perf_counter()
    replay(run_dir, sink)
    rate = total / (time.perf_counter() - start)
    assert sink.seen >= total
    return rate


def tensorboard_rate(run_dir: Path, folder: Path, most: int) -> tuple[float, float] | None:
    """Return events a second that TensorBoard's own reader takes, and bytes an event."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return None
    replay(run_dir, "tensorboard", dir=folder, steps=(0, most))
    logs = folder / "tensorboard"
    size = sum(f.stat().st_size for f in logs.rglob("*") if f.is_file())
    accumulator = EventAccumulator(str(logs), size_guidance={"scalars": 0})
    start = time.perf_counter()
    accumulator.Reload()
    return most / (time.perf_counter() - start), size / most


def follow_latency(folder: Path, seconds: float) -> list[float]:
    """Return the sorted seconds from an event to its being read by another process."""
    code = (
        "import sys, time, anyio, eventlog\n"
        "async def main():\n"
        "    async for e in eventlog.stream(sys.argv[1], types=['step'], follow=True):\n"
        "        print(time.monotonic_ns() - e.mono, flush=True)\n"
        "anyio.run(main)\n"
    )
    import eventlog

    run = eventlog.Run("follow", dir=folder)
    run.step(x=0.0)
    run.flush()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run.dir)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()  # it has caught up
    lines: list[str] = []
    # a pipe that nobody empties would hold the reader up
    drain = threading.Thread(target=lines.extend, args=(process.stdout,))
    drain.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run.step(x=1.0)
        time.sleep(0.001)
    run.close()
    process.wait(60)
    drain.join()
    process.stdout.close()
    return sorted(int(line) / 1e9 for line in lines)


def json_lines(some: Iterable[Event], path: Path) -> int:
    """Write JSON lines; return their bytes."""
    with path.open("w") as file:
        for e in some:
            row = {"type": "step", "seq": e.seq, "wall": e.wall, "step": e.step, **e.values}
            file.write(json.dumps(row) + "\n")
    return path.stat().st_size


def sqlite_rows(some: Iterable[Event], path: Path) -> int:
    """Write a row a value into SQLite; return its bytes."""
    with sqlite3.connect(path) as db:
        db.execute("create table v (seq integer, step integer, wall integer, key text, value real)")
        db.executemany(
            "insert into v values (?, ?, ?, ?, ?)",
            ((e.seq, e.step, e.wall, k, v) for e in some for k, v in e.values.items()),
        )
    db.close()
    return path.stat().st_size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help="200,000 events")
    options = parser.parse_args()
    total = 200_000 if options.quick else options.events
    table = Table("what", "figure", "beside", "ratio")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_dir = folder / "run"
        encode, write = write_log(run_dir, total)
        table.add_row(
            "writing", f"{1 / write / 1e6:.2f} M events/s",
            f"encoding alone {1 / encode / 1e6:.1f} M/s", f"{encode / write:.2f} (bar 0.1)",
        )  # fmt: skip
        read, decode = read_log(run_dir)
        table.add_row(
            "typed reading", f"{read / 1e6:.2f} M events/s",
            f"encoding alone {1 / encode / 1e6:.1f} M/s", f"{read * encode:.2f} (bar 0.2)",
        )  # fmt: skip
        times = seeks(run_dir, total)
        size = sum(f.stat().st_size for f in (run_dir / "rank-0").glob("*.elog"))
        table.add_row(
            f"seek in {size / 1e6:,.0f} MB, p50 / p99",
            f"{times[len(times) // 2] * 1e3:.2f} / {times[int(len(times) * 0.99)] * 1e3:.2f} ms",
            "", "",
        )  # fmt: skip
        rate = replay_rate(run_dir, total)
        table.add_row(
            f"replay of {total:,} events", f"{rate / 1e6:.2f} M events/s",
            f"the decoder alone {decode / 1e6:.2f} M/s", f"{rate / decode:.2f}",
        )  # fmt: skip
        some = min(total, 200_000)
        peer = tensorboard_rate(run_dir, folder / "tb", some)
        if peer is not None:
            table.add_row(
                "replay", f"{rate / 1e6:.2f} M events/s",
                f"TensorBoard's reader {peer[0] / 1e6:.4f} M/s", f"{rate / peer[0]:.0f}",
            )  # fmt: skip
        latencies = follow_latency(folder, 2.0 if options.quick else 10.0)
        table.add_row(
            "following from another process, p50 / p99",
            f"{statistics.median(latencies) * 1e3:.0f} / "
            f"{latencies[int(len(latencies) * 0.99)] * 1e3:.0f} ms", "", "",
        )  # fmt: skip
        raw = size / total
        table.add_row("bytes an event, raw", f"{raw:.0f}", "", "")
        for codec in ("zlib", "zstd"):
            try:
                after = sum(c.after for c in compact_log(run_dir / "rank-0", codec))
            except Exception as error:
                table.add_row(f"compacted with {codec}", str(error), "", "")
                continue
            packed = after / total
            table.add_row(f"compacted with {codec}", f"{packed:.1f}", "raw", f"{packed / raw:.2f}")
            break
        sample = list(open_log(run_dir).events(stop=some))
        lines = json_lines(sample, folder / "x.jsonl") / some
        table.add_row("JSON lines", f"{lines:.0f}", "raw", f"{lines / raw:.2f}")
        if peer is not None:
            table.add_row("TensorBoard files", f"{peer[1]:.0f}", "raw", f"{peer[1] / raw:.2f}")
        rows = sqlite_rows(sample, folder / "x.db") / some
        table.add_row("SQLite, a row a value", f"{rows:.0f}", "raw", f"{rows / raw:.2f}")
    Console(width=130).print(table)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
