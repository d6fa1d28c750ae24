"""The few figures that say most, for the README."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peers.figures import microseconds, paired

PLOT = "![Microseconds of a call, on a logarithmic axis](docs/performance/calls.png)"
BEHIND = {
    "summarywriter": "`SummaryWriter` alone",
    "wandb": "wandb",
    "mlflow-sqlite": "MLflow on SQLite",
    "accelerate-5": "Accelerate with five trackers",
}


def headline(rows: Mapping[str, Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    """Return the plot, and three sentences; a case that was not measured is left out."""

    def call(name: str) -> str:
        return f"{microseconds(rows[name]['between']['p50'][0])} us"

    def slower(name: str) -> str:
        return paired("1.5")(dict(rows[name]))

    def others(figure: Any) -> str:
        there = {name: what for name, what in BEHIND.items() if "between" in rows.get(name, {})}
        return ", ".join(f"{what} {figure(name)}" for name, what in there.items())

    lines = [PLOT]
    if "between" in rows.get("eventlog", {}):
        lines.append(
            f"- **{call('eventlog')}** is what `run.step` of three floats takes of the training "
            f"thread, between two steps of work (median). As their quick starts call them: "
            f"{others(call)}."
        )
    if "between" in rows.get("eventlog+tensorboard", {}):
        lines.append(
            f"- **{slower('eventlog+tensorboard')}** is what a loop of 1.5 ms steps loses with "
            f"TensorBoard behind eventlog, in the same process, with the 95 % interval. "
            f"{others(slower)}."
        )
    if "between" in rows.get("eventlog+7-sidecar", {}):
        lines.append(
            f"- **{slower('eventlog+7-sidecar')}** is what it loses with all seven trackers in "
            f"the sidecar, on {machine.get('cores', 'some')} cores. Two loops that log nothing "
            f"differ by {slower('nothing')} on that machine."
        )
    return "\n".join([lines[0], "", *lines[1:]])
