"""Train, replay the log into a second TensorBoard folder, and compare both point by point.

    make demo

Everything lies in demo-output/; each time you start it adds a run. The exit status is 1 when the
folders do not hold the same points.
"""

from __future__ import annotations

import argparse
import hashlib
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)

import eventlog

HERE = Path(__file__).parent
ABOUT_THE_RUN = -1
"""The step of what concerns the whole run (its description, config and status): no points."""


class Point(NamedTuple):
    """One point, as TensorBoard's own reader gives it."""

    folder: str
    kind: str
    tag: str
    step: int
    wall_time: float
    value: str


def read_points(root: Path) -> Counter[Point]:
    """Read all points below a folder; TensorBoard's runs are the folders with event files."""
    points: Counter[Point] = Counter()
    for folder in sorted({path.parent for path in root.rglob("*tfevents*")}):
        name = str(folder.relative_to(root))
        reader = EventAccumulator(str(folder), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE)
        reader.Reload()
        tags = reader.Tags()
        for tag in tags["scalars"]:
            for p in reader.Scalars(tag):
                points[Point(name, "scalar", tag, p.step, p.wall_time, repr(p.value))] += 1
        for tag in tags["tensors"]:
            kind = reader.SummaryMetadata(tag).plugin_data.plugin_name
            for p in reader.Tensors(tag):
                if p.step != ABOUT_THE_RUN:
                    content = p.tensor_proto.SerializeToString(deterministic=True)
                    digest = hashlib.sha256(content).hexdigest()
                    points[Point(name, kind, tag, p.step, p.wall_time, digest)] += 1
    return points


def report(live: Counter[Point], replayed: Counter[Point]) -> bool:
    """Say whether both hold the same points, by TensorBoard's folder and kind."""
    kinds = sorted({(p.folder, p.kind) for p in live | replayed})
    print(f"  {'folder':<10} {'kind':<12} {'live':>6} {'replayed':>9}")
    for folder, kind in kinds:
        counts = [
            sum(n for p, n in found.items() if (p.folder, p.kind) == (folder, kind))
            for found in (live, replayed)
        ]
        print(f"  {folder:<10} {kind:<12} {counts[0]:>6} {counts[1]:>9}")
    differences = [*(live - replayed).elements(), *(replayed - live).elements()]
    for point in sorted(differences)[:10]:
        print(f"  differs: {point}")
    if differences or not live:
        print(f"NOT the same: {len(differences)} points are in one folder only")
        return False
    print(f"the same: {live.total()} points, equal in tag, step, wall time and value")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--dir", type=Path, default=Path("demo-output"), help="where all of it lies"
    )
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    print("1. Training, with the console, TensorBoard and an async function as readers", flush=True)
    digits = runpy.run_path(str(HERE / "digits.py"))
    run: eventlog.Run = digits["train"](
        options.dir / "runs", options.epochs, seed=0, sinks=digits["readers"]()
    )
    assert run.dir is not None
    live = Path(str(run.sink("tensorboard").url))

    print("\n2. Replaying its log into a second TensorBoard folder", flush=True)
    again = options.dir / "replayed" / run.id
    outcome = eventlog.replay(run.dir, "tensorboard", dir=again)
    for alias, sink in outcome.sinks.items():
        print(f"  {alias}: {sink.delivered} of {sink.read} events delivered, {sink.state}")

    print("\n3. Reading both with TensorBoard's own reader")
    second = Path(str(outcome.urls["tensorboard"]))
    same = report(read_points(live), read_points(second)) and outcome.complete

    print("\n4. Plotting it from the log", flush=True)
    picture = options.dir / f"{run.id}.png"
    programs = Path(sys.executable).parent
    plotted = subprocess.run(
        [programs / "eventlog", "plot", run.dir, "-o", picture],
        check=False,
        stdout=subprocess.DEVNULL,
    )
    print(f"\nthe plot: {picture}" if plotted.returncode == 0 else "\nthere is no plot: see above")

    print("To look at everything:")
    here = ""
    if programs.is_relative_to(Path.cwd()):  # .venv/bin, which need not be on the path
        here = f"{programs.relative_to(Path.cwd())}/"
    everything, one = (shlex.quote(str(path)) for path in (options.dir, run.dir))
    print(f"  {here}tensorboard --logdir {everything}")
    for what in (f"info {one}", f"cat {one}", f"replay {one} --sink console", f"plot {one}"):
        print(f"  {here}eventlog {what}")
    return 0 if same and plotted.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
