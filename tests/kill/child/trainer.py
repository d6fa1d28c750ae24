"""A training process that says in shared memory how far it is, until it is told to end or dies."""

import json
import mmap
import struct
import sys
import time

from eventlog import Run

PAIR = struct.Struct("<qq")

options = json.loads(sys.argv[1])
with open(options["progress"], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 0)
isolate = options["isolate"]
run = Run(
    "killed",
    dir=options["dir"],
    resume=options["resume"],
    close_timeout=60,
    segment_bytes=options["segment_bytes"],
    sinks=options["sinks"]
    or {
        "copy": {"sink": "log", "isolate": isolate},
        "slow": {"sink": "slow_sink:SlowSink", "isolate": isolate},
        "mean": {"sink": "log", "isolate": isolate, "every": "7 steps", "reduce": "mean"},
    },
)
n = 0
while not PAIR.unpack_from(shared, 0)[1]:  # the other side's
    run.step(n=n, k=options["number"], loss=n / 7)
    n += 1
    PAIR.pack_into(shared, 16 * n, n, time.monotonic_ns())
    struct.pack_into("<q", shared, 0, n)
    if n % 500 > 100:  # otherwise a burst
        time.sleep(0.0006)
report = run.close()
if not report.complete:
    sys.exit(f"{report}: {run.statistics()}")
