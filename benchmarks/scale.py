"""How eventlog's costs grow: events, sinks, values, threads, images, logs, processes, replays.

    python benchmarks/scale.py [--quick] [--only MEASURE ...] [--most] [--json OUT]

Each figure comes from a process of its own. `--most` adds 1e8 events, which take some minutes and
10 GB. docs/performance.md shows the results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from compare import command, machine, versions
from peers.offline import environment

SIZES: dict[str, list[int]] = {
    "events": [10**3, 10**4, 10**5, 10**6, 10**7],
    "subscriptions": [1, 4, 16, 64, 256, 1000],
    "keys": [1, 10, 100, 1000, 10_000],
    "threads": [1, 2, 4, 8, 16],
    "images": [16, 64, 256, 1024, 2048],
    "log_mb": [10, 100, 1000, 10_000],
    "ranks": [1, 2, 4, 8, 16],
    "replay_sinks": [1, 2, 4, 8, 16],
}
QUICK: dict[str, list[int]] = {
    "events": [10**3, 10**4, 10**5],
    "subscriptions": [1, 16, 256],
    "keys": [1, 100, 10_000],
    "threads": [1, 4, 16],
    "images": [64, 512],
    "log_mb": [10, 50],
    "ranks": [1, 4],
    "replay_sinks": [1, 4, 16],
}
MOST = 10**8
DEADLINE = 900.0
ROOM = 0.25
"""The part of the free disk that a log may take."""


def fits(measure: str, size: int) -> bool:
    """Whether the disk has room for it."""
    needed = {"events": size * 110, "log_mb": size * 10**6 * 1.1}.get(measure, 0)
    return needed <= shutil.disk_usage(tempfile.gettempdir()).free * ROOM


def one(measure: str, size: int, events: int) -> dict[str, Any]:
    """Measure one size in a process of its own; a failure is told as `error`."""
    with tempfile.TemporaryDirectory(prefix="scale-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command = [sys.executable, "-m", "scaling.child", measure, str(size), str(events)]
        process = subprocess.Popen(
            [*command, str(folder / "work")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(folder),
            text=True,
        )
        try:
            out, errors = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"error": f"it took longer than {DEADLINE:.0f} s"}
    if process.returncode:
        return {"error": (errors.strip().splitlines() or ["it ended without a word"])[-1][:300]}
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def show(result: dict[str, Any]) -> None:
    """Print a table for each measure."""
    console = Console(width=130)
    for measure, rows in result["measures"].items():
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = Table(*names, title=measure)
        for row in rows:
            table.add_row(*(_cell(row.get(name, "")) for name in names))
        console.print(table)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if value < 100 else f"{value:,.0f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes")
    parser.add_argument("--tiny", action="store_true", help="as little as shows that it works")
    parser.add_argument("--most", action="store_true", help="1e8 events, too")
    parser.add_argument("--only", nargs="+", choices=list(SIZES), metavar="MEASURE")
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick or options.tiny else SIZES
    result: dict[str, Any] = {
        "kind": "scale",
        "command": command("scale.py"),
        "machine": machine(),
        "versions": versions(),
        "cores": os.cpu_count(),
        "measures": {},
        "left_out": [],
    }
    events = 40_000 if options.quick or options.tiny else 1_000_000
    for measure in options.only or sizes:
        wanted = sizes[measure][: 2 if options.tiny else None]
        wanted = [*wanted, MOST] if options.most and measure == "events" else wanted
        rows = result["measures"][measure] = []
        for size in wanted:
            if not fits(measure, size):
                result["left_out"].append(f"{measure} {size}: no room on the disk")
                continue
            start = time.monotonic()
            rows.append({measure: size, **one(measure, size, events)})
            error = rows[-1].get("error", "ok")
            print(f"{time.monotonic() - start:6.1f} s  {measure}  {size}  {error}", flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(result))
    show(result)
    for line in result["left_out"]:
        print(f"left out: {line}")


if __name__ == "__main__":
    main()
