"""What a logging choice costs a training run: ours and everybody else's, side by side.

    python benchmarks/compare.py [--quick] [--cases NAME ...] [--only GROUP ...] [--json OUT]

Each case logs {loss, accuracy, lr} on each step of a real torch loop, in a process of its own; the
rounds go through all cases in turn, each in another order, so that a slow spell of the machine
meets all of them. docs/performance.md says how each figure is made, and benchmarks/report.py makes
that page's tables and plots of the JSON file. Peers that are not installed are skipped and named; a
case that fails is named with its error. Nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import random
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from peers.base import Case
from peers.cases import CASES, GROUPS
from peers.figures import PARTS, summary, table
from peers.parent import FailedError, ask, place, run_kill, run_loop
from peers.plan import PLANS

PACKAGES = ("eventlog-bus", "torch", "tensorboard", "wandb", "comet-ml", "aim", "mlflow", "clearml",
            "dvclive", "trackio", "swanlab", "neptune-scale", "accelerate", "lightning",
            "transformers", "loguru", "structlog", "blinker", "opentelemetry-sdk", "msgspec",
            "anyio")  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of what is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def command(script: str) -> str:
    """Return how this was started, less where the results go."""
    arguments = sys.argv[1:]
    if "--json" in arguments:
        at = arguments.index("--json")
        del arguments[at : at + 2]
    return " ".join(["python", f"benchmarks/{script}", *arguments])


def machine() -> dict[str, Any]:
    """Say where this was measured."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def chosen(names: Sequence[str], groups: Sequence[str]) -> tuple[list[Case], dict[str, str]]:
    """Return the cases to run, and why others are skipped."""
    wanted = [c for c in CASES.values() if not groups or c.group in groups or c.group == "floor"]
    if names:
        wanted = [CASES[name] for name in names]
    skipped = {}
    for case in wanted:
        missing = case.missing()
        if missing:
            skipped[case.name] = f"not installed: {', '.join(missing)}"
    return [case for case in wanted if case.name not in skipped], skipped


SIZES = {"0.2": [0, 8], "1.5": [192, 64], "10.0": [512, 512]}
"""Hidden units and batch where it does not matter how long a step is."""


class Comparison:
    """The rounds, and what they gave.

    Attributes:
        result: What is written to the JSON file, which is complete after each process.
    """

    def __init__(self, cases: list[Case], skipped: dict[str, str], plan: str, out: Path | None):
        self.cases, self.plan, self._out = cases, PLANS[plan], out
        self.result: dict[str, Any] = {
            "kind": "compare",
            "command": command("compare.py"),
            "plan": {"name": plan, **msgspec.to_builtins(self.plan)},
            "machine": machine(),
            "versions": versions(),
            "skipped": skipped,
            "cases": {
                c.name: {"group": c.group, "call": c.call} | {part: [] for part in PARTS}
                for c in cases
            },
        }

    def run(self, rounds: int | None = None) -> None:
        """Go through all rounds."""
        self.result["plan"]["rounds"] = rounds or self.plan.rounds
        with place(None) as shared:
            template = self._template(shared)
            self.sizes = ask("calibrate", shared) if self.plan.calibrated else SIZES
            self.result["sizes"] = self.sizes
            for number, turn in enumerate(self._turns(rounds or self.plan.rounds)):
                for kind, case in turn:
                    self._one(number, kind, case, template)

    def _turns(self, rounds: int) -> list[list[tuple[str, Case]]]:
        """Return rounds of (kind, case), in an order that changes and can be had again."""
        rng = random.Random(0)
        turns = []
        for turn in range(rounds):
            order = [("loop", c) for c in self.cases for _ in range(c.weight if rounds > 1 else 1)]
            # what a kill leaves behind differs little from round to round
            if turn < 3:
                order += [("kill", c) for c in self.cases if c.group != "floor"]
                order += [("follow", c) for c in self.cases if c.follow is not None]
            rng.shuffle(order)
            turns.append(order)
        return turns

    def _template(self, shared: Path) -> Path | None:
        if any("mlflow" in case.needs for case in self.cases):
            ask("template", shared)
            return shared / "mlflow.db"
        return None

    def _one(self, number: int, kind: str, case: Case, template: Path | None) -> None:
        """Run one process; a failure is this case's own."""
        start, mine = time.monotonic(), self.result["cases"][case.name]
        word = "ok"
        with place(template) as folder:
            try:
                if kind == "loop":
                    found = run_loop(case, self.plan, self.sizes, folder)
                else:
                    found = run_kill(case, self.plan, folder, follow=kind == "follow")
                mine[f"{kind}s"].append({"round": number, **found})
            except Exception as error:
                said = str(error).replace(str(folder), ".")
                if not isinstance(error, FailedError):
                    said = f"{type(error).__name__}: {said}"
                    traceback.print_exc()
                mine["errors"].append(f"{kind}: {said}")
                word = f"FAILED: {said}"
        print(f"{time.monotonic() - start:6.1f} s  {kind}  {case.name}  {word}", flush=True)
        mine["summary"] = summary(mine)
        if self._out is not None:
            part = self._out.with_suffix(".part")
            part.write_text(json.dumps(self.result))
            part.replace(self._out)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, one round")
    parser.add_argument("--tiny", action="store_true", help="as little as shows that it works")
    parser.add_argument("--cases", nargs="+", default=[], choices=list(CASES), metavar="NAME")
    parser.add_argument("--only", nargs="+", default=[], choices=GROUPS, metavar="GROUP")
    parser.add_argument("--rounds", type=int, help="more or fewer than the plan has")
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--list", action="store_true", help="list the cases")
    options = parser.parse_args(arguments)
    if options.list:
        for case in CASES.values():
            print(f"{case.name:24} {case.group:11} {case.call}")
        return
    cases, skipped = chosen(options.cases, options.only)
    for name, why in skipped.items():
        print(f"skipped: {name}, {why}")
    plan = "tiny" if options.tiny else "quick" if options.quick else "default"
    comparison = Comparison(cases, skipped, plan, options.json)
    comparison.run(options.rounds)
    Console(width=150).print(table(comparison.result))
    for name, found in comparison.result["cases"].items():
        for error in found["errors"]:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
