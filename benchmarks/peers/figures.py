"""From what the processes measured to the figures of a table: medians, spreads, intervals."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

DRAWS = 2000
SEVERAL = 5
"""Processes below which an interval says less than it seems to."""

SEEN = 0.95
"""The part of what was logged that a reader must have seen for its delays to stand alone."""


PARTS = ("loops", "kills", "follows", "errors")
"""What the processes of a case gave, each a list."""


def interval(processes: Sequence[Sequence[float]], seed: int = 0) -> tuple[float, float, float]:
    """Return the median of all values, and its 95 % interval by the bootstrap.

    Args:
        processes: The values of each process. Those of one process have more in common than those
            of two, so that processes are drawn first, and then values of each.
        seed: Of what is drawn.
    """
    rng = random.Random(seed)
    groups = [list(values) for values in processes if values]

    def draw() -> float:
        drawn = rng.choices(groups, k=len(groups))
        return statistics.median([v for one in drawn for v in rng.choices(one, k=len(one))])

    medians = sorted(draw() for _ in range(DRAWS))
    low, high = medians[int(DRAWS * 0.025)], medians[int(DRAWS * 0.975)]
    return statistics.median([v for one in groups for v in one]), low, high


def spread(values: Sequence[float]) -> list[float]:
    """Return the median, the least and the greatest."""
    return [statistics.median(values), min(values), max(values)]


def summary(case: dict[str, Any]) -> dict[str, Any]:
    """Make one row of what a case's processes gave."""
    loops, kills = case["loops"], case["kills"]
    found: dict[str, Any] = {}
    if loops:
        for kind in ("between", "burst"):
            found[kind] = {p: spread([x[kind][p] for x in loops]) for p in ("p50", "p99", "max")}
        found["pairs"] = {ms: interval([x["pairs"][ms] for x in loops]) for ms in loops[0]["pairs"]}
        found["by_process"] = {
            ms: spread([statistics.median(x["pairs"][ms]) for x in loops]) for ms in found["pairs"]
        }
        ended = [(x["given"], x["arrived"]) for x in loops if x.get("arrived") is not None]
        if ended:
            found["missing"] = spread([given - arrived for given, arrived in ended])
            found["given"] = statistics.median(given for given, _ in ended)
        found["whole_interval"] = interval([[x["whole"]] for x in loops])
        for name in (
            "whole",
            "closed",
            "closing",
            "opening",
            "starting",
            "cpu_us",
            "memory",
            "step_ms",
        ):
            found[name] = spread([x[name] for x in loops])
        found["pair_count"] = {ms: sum(len(x["pairs"][ms]) for x in loops) for ms in found["pairs"]}
        found["processes"] = len(loops)
        found["settled"] = all(x["settled"] for x in loops)
        found["rounds"] = by_round(loops)
    found["hosts"] = sorted({host for x in [*loops, *kills] for host in x["hosts"]})
    if kills:
        found |= read_back(kills)
    if case["follows"]:
        found["follow"] = read_back(case["follows"])
    return found


def by_round(loops: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return p50 and p99 of a call between work in each round, the median of its processes."""
    numbers = sorted({x["round"] for x in loops})
    return {
        p: {
            str(n): statistics.median(x["between"][p] for x in loops if x["round"] == n)
            for n in numbers
        }
        for p in ("p50", "p99")
    }


def read_back(kills: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Say how soon what was logged could be read, and what of it a kill cost."""
    read = [x for x in kills if "lost" in x]
    if not read:
        return {"unread": kills[0].get("unread", "")}
    delays = [x["delay_ms"] for x in read if x["delay_ms"] is not None]
    return {
        "lost": spread([x["lost"] for x in read]),
        "logged": statistics.median(x["logged"] for x in read),
        "delay_ms": spread(delays) if delays else None,
        "reading_ms": statistics.median(x["reading_ms"] for x in read),
        "seen": sum(x["seen_live"] for x in read),
        "ticks": sum(x["ticks"] for x in read),
        "reader_error": next((x["reader_error"] for x in read if x["reader_error"]), ""),
    }


def microseconds(value: float) -> str:
    """Return a figure with as many digits as it is worth."""
    if value < 10:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def percent(ratio: float) -> str:
    """Return by how much a ratio is above one."""
    more = (ratio - 1) * 100
    return f"{more:.1f} %" if abs(more) < 10 else f"{more:,.0f} %"


def percents(ratios: Sequence[float]) -> str:
    """Return by how much a median ratio is above one, with the least and greatest."""
    middle, low, high = (round((one - 1) * 100) for one in ratios)
    return f"{middle:,} %" if low == high else f"{middle:,} %, from {low:,} to {high:,}"


def delay(row: dict[str, Any]) -> str:
    """Return the time until a point can be read, or why there is none."""
    if "lost" not in row:
        return f"not measured: {row['unread']}" if row.get("unread") else ""
    if row["delay_ms"] is None:
        return "not while it ran"
    middle = row["delay_ms"][0]
    text = f"{middle:,.0f} ms" if middle < 1000 else f"{middle / 1e3:,.1f} s"
    few = row["seen"] < SEEN * row["ticks"]
    return f"{text}, of {row['seen']} in {row['ticks']} seen" if few else text


def lost(row: dict[str, Any]) -> str:
    """Return how many of the points a kill cost."""
    if "lost" not in row:
        return ""
    text = f"{row['lost'][0]:,.0f} of {row['logged']:,.0f}"
    return f"{text}; its reader: {row['reader_error'][:60]}" if row["reader_error"] else text


def ranged(values: Sequence[float]) -> str:
    """Return a median in us, with the least and the greatest where these tell more."""
    middle, low, high = map(microseconds, values)
    return middle if low == high else f"{middle} ({low} to {high})"


AT_WORK = "still at work"
"""Said of what was measured while a logger was busy with what it had been given before."""


def settled(cell: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], str]:
    """Return a column that has no figure where a logger had a backlog of earlier phases."""
    return lambda row: cell(row) if row["settled"] else AT_WORK


def noted(row: dict[str, Any]) -> str:
    """Return p50 of a call, with what there is to say about it."""
    text = ranged(row["between"]["p50"])
    return text if row["settled"] else f"{text}, {AT_WORK}"


Column = tuple[str, Callable[[dict[str, Any]], str]]

CALLS: list[Column] = [
    ("between work: p50", noted),
    ("p99", lambda r: microseconds(r["between"]["p99"][0])),
    ("max", lambda r: microseconds(r["between"]["max"][2])),
    ("back to back: p50", lambda r: microseconds(r["burst"]["p50"][0])),
    ("p99", lambda r: microseconds(r["burst"]["p99"][0])),
    ("max", lambda r: microseconds(r["burst"]["max"][2])),
]


def paired(ms: str) -> Callable[[dict[str, Any]], str]:
    """Return a column: how much slower the loop is, with its interval."""

    def cell(row: dict[str, Any]) -> str:
        if ms not in row["pairs"]:
            return ""
        n = row["processes"]
        figures = row["pairs"][ms] if n >= SEVERAL else row["by_process"][ms]
        middle, low, high = ((one - 1) * 100 for one in figures)
        digits = 1 if abs(middle) < 10 else 0
        text, least, most = (f"{round(x, digits) + 0.0:,.{digits}f}" for x in (middle, low, high))
        if n == 1:
            return f"{text} %"
        span = f"{least} to {most}"
        return f"{text} % ({span})" if n >= SEVERAL else f"{text} %, from {span}"

    return cell


LOOPS: list[Column] = [
    ("0.2 ms steps", paired("0.2")),
    ("1.5 ms steps", paired("1.5")),
    ("10 ms steps", paired("10.0")),
    ("whole loop", settled(lambda r: percents(r["whole"]))),
    ("and close, s", settled(lambda r: f"{r['closing'][0]:.2f}")),
    ("processes", lambda r: str(r["processes"])),
]


def table(result: dict[str, Any]) -> Table:
    """Return what is printed at the end."""
    found = Table("case", "between p50/p99 us", "burst p50/p99 us", "loop, paired", "with close",
                  "readable", "CPU us", "MB", "lost")  # fmt: skip
    for name, case in result["cases"].items():
        row = case.get("summary", {})
        if "between" not in row:
            found.add_row(name, "failed")
            continue
        found.add_row(
            name,
            *(" / ".join(microseconds(row[k][p][0]) for p in ("p50", "p99"))
              for k in ("between", "burst")),
            paired("1.5")(row),
            percent(row["closed"][0]),
            delay(row).partition(":")[0],
            f"{row['cpu_us'][0]:,.0f}",
            f"{row['memory'][0] / 1e6:,.0f}",
            lost(row),
        )  # fmt: skip
    return found
