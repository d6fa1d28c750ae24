"""The page's plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

OURS, FLOOR, THEIRS = "#c2410c", "#6b7280", "#1d4ed8"
DPI = 90


def _measured(result: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """Return each case's name, figures and colour."""
    colours = {"ours": OURS, "floor": FLOOR}
    return [
        (name, case["summary"], colours.get(case["group"], THEIRS))
        for name, case in result["cases"].items()
        if "between" in case.get("summary", {})
    ]


def _save(path: Path) -> Path:
    plt.tight_layout()
    plt.savefig(path, dpi=DPI)
    plt.close()
    return path


def _names(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def calls(result: Mapping[str, Any], folder: Path) -> Path:
    """Draw p50 to p99 of a call between work, on a logarithmic axis."""
    rows = sorted(_measured(result), key=lambda row: -row[1]["between"]["p50"][0])
    _, axes = plt.subplots(figsize=(8, 0.8 + 0.24 * len(rows)))
    for y, (_, row, colour) in enumerate(rows):
        p50, p99 = (row["between"][p][0] for p in ("p50", "p99"))
        axes.plot([p50, p99], [y, y], color=colour, lw=1.5, alpha=0.5)
        axes.plot(p50, y, "o", color=colour, ms=6)
        axes.plot(p99, y, "|", color=colour, ms=8)
    axes.set_xscale("log")
    _names(axes, [name for name, *_ in rows])
    axes.set_xlabel("us on the training thread, between work: p50 (dot) to p99 (bar)")
    return _save(folder / "calls.png")


def loop(result: Mapping[str, Any], folder: Path) -> Path:
    """Draw the loop's rate, by pairs, with its interval."""
    rows = [row for row in _measured(result) if "1.5" in row[1]["pairs"]]
    rows.sort(key=lambda row: -row[1]["pairs"]["1.5"][0])
    _, axes = plt.subplots(figsize=(8, 0.8 + 0.24 * len(rows)))
    for y, (_, row, colour) in enumerate(rows):
        rate, high, low = (100 / x for x in row["pairs"]["1.5"])
        axes.barh(y, rate, color=colour, alpha=0.7)
        axes.plot([low, high], [y, y], color="black", lw=1)
    axes.set_xlim(0, 125)  # beyond it there is only noise
    axes.axvline(100, color="black", lw=0.8, ls=":")
    _names(axes, [name for name, *_ in rows])
    axes.set_xlabel("steps/s in % of nothing, steps of 1.5 ms (line: 95 % interval)")
    return _save(folder / "loop.png")


def events(result: Mapping[str, Any], folder: Path) -> Path:
    """Draw cost and memory against events."""
    rows = [row for row in result["measures"].get("events", []) if "error" not in row]
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    x = [row["events"] for row in rows]
    left.plot(x, [row["emit_ns"] / 1e3 for row in rows], "o-", color=OURS, label="a call")
    left.plot(
        x, [row["cpu_ns"] / 1e3 for row in rows], "s-", color=THEIRS, label="processor time, all"
    )
    left.set_ylabel("us an event")
    left.legend(frameon=False)
    right.plot(x, [row["more_memory"] / 1e6 for row in rows], "o-", color=OURS)
    right.set_ylabel("memory, MB more than before")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("events")
        axes.grid(alpha=0.3)
    return _save(folder / "events.png")


def draw(compare: Mapping[str, Any], scale: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what there are results for; return the files."""
    found = []
    if compare and _measured(compare):
        found += [calls(compare, folder), loop(compare, folder)]
    if scale and scale["measures"].get("events"):
        found.append(events(scale, folder))
    return found
