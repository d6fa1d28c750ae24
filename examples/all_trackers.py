"""Train the digits network into seven trackers at once, offline, and say where each one is.

    python examples/all_trackers.py --dir runs --epochs 3

Six of them run in a process of their own (the sidecar), which is why training goes on at once
while their SDKs, some seconds each, are still being imported. A tracker that is not installed is
left out. Nothing here uses the network.
"""

from __future__ import annotations

import argparse
import runpy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import eventlog

HERE = Path(__file__).parent

OFFLINE: dict[str, dict[str, Any]] = {
    "tensorboard": {},
    "wandb": {"mode": "offline"},
    "comet": {"online": False},
    "aim": {},
    "mlflow": {},
    "clearml": {"offline": True},
    "dvclive": {},
}
"""Options with which each one writes into the run's directory."""

OPEN = {
    "tensorboard": "tensorboard --logdir {url}",
    "wandb": "wandb sync {url}",
    "comet": "comet upload {url}",
    "aim": "aim up --repo {url}",
    "mlflow": "mlflow ui --backend-store-uri sqlite:///{directory}/mlflow.db",
    "clearml": "python -c \"from clearml import Task; Task.import_offline_session('{url}.zip')\"",
    "dvclive": "dvc plots show {url}/plots/metrics",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"), help="where runs lie")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args(arguments)
    installed = eventlog.available_sinks()
    sinks = {name: mine for name, mine in OFFLINE.items() if name in installed}
    for name in OFFLINE.keys() - sinks.keys():
        print(f"{name} is not installed: pip install eventlog-{name}")

    start = time.monotonic()
    run: eventlog.Run = runpy.run_path(str(HERE / "digits.py"))["train"](
        options.dir, options.epochs, 0, sinks
    )
    print(f"trained and delivered in {time.monotonic() - start:.1f} s; the log: {run.dir}")
    statistics = run.statistics()
    for name in sinks:
        sink, counts = run.sink(name), statistics.sinks[name]
        command = OPEN[name].format(url=sink.url, directory=f"{run.dir}/{name}")
        print(f"\n{name}: {sink.state}, {counts.delivered} of {counts.read} events")
        print(f"  at    {sink.url}")
        print(f"  open  {command}")
        for reason, n in sorted(counts.unshown.items()):
            print(f"  {n} x {reason}")
        if sink.error is not None:
            print(f"  error {sink.error}")
    report = run.close()
    print("\ncomplete" if report.complete else f"\nnot complete: {report}")


if __name__ == "__main__":
    main()
