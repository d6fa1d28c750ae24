"""How eventlog's costs grow: events, sinks, values, threads, images, logs, processes, replays.

    python benchmarks/scale.py [--quick] [--only MEASURE ...] [--rounds N] [--most] [--json OUT]

Each figure is the median of some processes, a round of all sizes after the other; what takes more
than a minute is measured once. `--most` adds 1e8 events, which take some minutes and 10 GB.
docs/performance.md shows the results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
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
ROUNDS = 3
LONG = 60.0
"""Seconds above which a size is measured once."""

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
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"error": f"it took longer than {DEADLINE:.0f} s"}
    if process.returncode:
        return {"error": (errors.strip().splitlines() or ["it ended without a word"])[-1][:300]}
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def middle(measure: str, size: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a size: medians, with the least and the greatest."""
    good = [one for one in found if "error" not in one]
    row: dict[str, Any] = {measure: size, "processes": len(good)}
    if len(good) < len(found):
        row["error"] = next(one["error"] for one in found if "error" in one)
    spread: dict[str, list[Any]] = {}
    for name in good[0] if good else ():
        values = [one[name] for one in good]
        row[name], spread[name] = statistics.median(values), [min(values), max(values)]
    return row | {"spread": spread}


def show(result: dict[str, Any]) -> None:
    """Print a table for each measure."""
    console = Console(width=130)
    for measure, rows in result["measures"].items():
        names = list(dict.fromkeys(name for row in rows for name in row if name != "spread"))
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
    parser.add_argument("--rounds", type=int, help=f"processes for each size, {ROUNDS} by default")
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
    small = options.quick or options.tiny
    events = 40_000 if small else 1_000_000
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for measure in options.only or sizes:
        wanted = sizes[measure][: 2 if options.tiny else None]
        wanted = [*wanted, MOST] if options.most and measure == "events" else wanted
        found[measure] = {size: [] for size in wanted if fits(measure, size)}
        left_out = [size for size in wanted if size not in found[measure]]
        result["left_out"] += [f"{measure} {size}: no room on the disk" for size in left_out]
    long: set[tuple[str, int]] = set()
    for number in range(options.rounds or (1 if small else ROUNDS)):
        for measure, size in [(m, s) for m, of in found.items() for s in of]:
            if (measure, size) in long:
                continue
            start = time.monotonic()
            found[measure][size].append(one(measure, size, events))
            spent = time.monotonic() - start
            if spent > LONG:
                long.add((measure, size))
            error = found[measure][size][-1].get("error", "ok")
            print(f"{number + 1}  {spent:6.1f} s  {measure}  {size}  {error}", flush=True)
            result["measures"] = {
                m: [middle(m, s, several) for s, several in of.items() if several]
                for m, of in found.items()
            }
            if options.json is not None:
                part = options.json.with_suffix(".part")
                part.write_text(json.dumps(result))
                part.replace(options.json)
    show(result)
    for line in result["left_out"]:
        print(f"left out: {line}")


if __name__ == "__main__":
    main()
