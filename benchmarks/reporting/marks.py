"""What the comparison is to show, and whether it does."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from peers.figures import SEVERAL, microseconds

MET, MISSED, OPEN, UNKNOWN = "met", "**missed**", "not decided", "not measured"
FLAT = 1.2
"""Costs that are no more than this many times those of the smaller size are flat."""

ENOUGH = 20
"""Pairs below which an interval decides nothing."""

LONG = 1000.0
"""Milliseconds of a block, from which on what is put off by 0.1 s is little."""

BY_PAIRS = {"loop": 1.0, "loop, TensorBoard": 3.0, "sidecar": 3.0}
"""The marks that pairs of blocks decide, and how many per cent they are about."""

ROUNDS = 2
"""Rounds below which a ratio decides nothing."""

ROOMY = 8
"""Cores from which on one is free beside the loop and seven trackers."""

Rows = Mapping[str, Mapping[str, Any]]
Scale = Mapping[str, list[dict[str, Any]]]


class Mark(NamedTuple):
    """One of the figures that were asked for.

    Attributes:
        what: Of what.
        asked, measured: In words.
        verdict: One of the four above.
    """

    what: str
    asked: str
    measured: str
    verdict: str


def _verdict(good: bool) -> str:
    return MET if good else MISSED


def _verdict_of(good: Sequence[bool]) -> str:
    """Return what all rounds say; where they differ, or are too few, nothing is decided."""
    return _verdict(good[0]) if len(set(good)) == 1 and len(good) >= ROUNDS else OPEN


def _ratios(rows: Rows, one: str, other: str, p: str) -> list[float]:
    """Return the ratio of two cases' calls in each round that has both."""
    above, below = (rows[name]["rounds"][p] for name in (one, other))
    return [above[n] / below[n] for n in above if n in below]


def _said(ratios: Sequence[float], how: str, unit: str) -> str:
    middle = f"{statistics.median(ratios):{how}} {unit}"
    if len(ratios) < 2:
        return middle
    return f"{middle}, in {len(ratios)} rounds {min(ratios):{how}} to {max(ratios):{how}}"


def _net(rows: Rows, one: str, other: str, p: str) -> str:
    """Say the ratio less what measuring costs, which is in both."""
    if "between" not in rows.get("nothing", {}):
        return ""
    cost = rows["nothing"]["between"][p][0]
    above, below = (rows[name]["between"][p][0] - cost for name in (one, other))
    return f"; {above / below:,.{1 if above < 10 * below else 0}f} less what measuring costs"


def _enough(rows: Rows, name: str) -> bool:
    row = rows[name]
    pairs = row.get("pair_count", {}).get("1.5", 0)
    return bool(pairs >= ENOUGH and row.get("processes", 0) >= SEVERAL)


def _quick(rows: Rows, p: str, times: float) -> Mark:
    ours = rows["eventlog"]["between"][p][0]
    floor = rows["struct-deque"]["between"][p][0]
    ratios = _ratios(rows, "eventlog", "struct-deque", p)
    return Mark(
        f"`run.step` of three floats, between work, {p}",
        f"at most {times:.2f} of Struct + deque.append",
        f"{_said(ratios, '.2f', 'of it')} ({microseconds(ours)} and {microseconds(floor)} us"
        f"{_net(rows, 'eventlog', 'struct-deque', p)})",
        _verdict_of([one <= times for one in ratios]),
    )


def _cheaper(rows: Rows, peer: str, ours: str, times: float, what: str) -> Mark:
    theirs, mine = (rows[name]["between"]["p50"][0] for name in (peer, ours))
    ratios = _ratios(rows, peer, ours, "p50")
    return Mark(
        what,
        f"at least {times:,.0f} times",
        f"{_said(ratios, ',.0f', 'times')} ({microseconds(theirs)} and {microseconds(mine)} us"
        f"{_net(rows, peer, ours, 'p50')})",
        _verdict_of([one >= times for one in ratios]),
    )


def long_enough(plan: Mapping[str, Any] | None) -> bool:
    """Whether what a logger puts off is short beside a block, so that pairs can decide."""
    return plan is None or plan["block"].get("1.5", 0) * 1.5 >= LONG


def _within(rows: Rows, name: str, most: float) -> str:
    """Return what pairs and whole loops both say about a ratio of times."""
    row = rows[name]
    said = {
        MET if high <= most else MISSED if low > most else OPEN
        for _, low, high in (row["pairs"]["1.5"], row["whole_interval"])
    }
    return said.pop() if len(said) == 1 and _enough(rows, name) else OPEN


def _loop(rows: Rows, name: str, most: float, what: str) -> Mark:
    middle, low, high = ((x - 1) * 100 for x in rows[name]["pairs"]["1.5"])
    verdict = _within(rows, name, 1 + most / 100)
    return Mark(
        what,
        f"at most {most:.0f} % slower than nothing",
        f"{middle:.1f} % (95 % interval {low:.1f} to {high:.1f})",
        verdict,
    )


def _rate(rows: Rows) -> Mark:
    # by pairs; the highest ratio of times is the lowest rate
    middle, low, high = (100 / x for x in rows["eventlog+7-sidecar"]["pairs"]["1.5"])
    verdict = _within(rows, "eventlog+7-sidecar", 100 / 97)
    return Mark(
        "loop with all seven trackers in the sidecar",
        "at least 97 % of nothing, with a core free",
        f"{middle:.1f} % (95 % interval {high:.1f} to {low:.1f})",
        verdict,
    )


def _flat(scale: Scale, figure: str, what: str, unit: float, name: str) -> Mark:
    rows = [row for row in scale["events"] if "error" not in row]
    last = rows[-1]
    base = next(row for row in rows if row["events"] * 10 >= last["events"])
    ratio = last[figure] / max(base[figure], 1e-9)
    return Mark(
        f"{what} at {last['events']:,} events",
        f"as at {base['events']:,}: at most {FLAT} times",
        f"{last[figure] / unit:,.0f} {name}, {ratio:.2f} times",
        UNKNOWN if last["events"] < 10**7 else _verdict(ratio <= FLAT),
    )


def _replay(scale: Scale) -> Mark:
    row = next(row for row in scale["replay_sinks"] if "times_tensorboard" in row)
    return Mark(
        "replay beside TensorBoard's own reader, the same points",
        "at least 100 times its events/s",
        f"{row['times_tensorboard']:.0f} times ({row['events_s']:,.0f} and "
        f"{row['tensorboard_events_s']:,.0f} events/s)",
        _verdict(row["times_tensorboard"] >= 100),
    )


def noise(rows: Rows) -> float:
    """Return by how many per cent two loops may differ that both log nothing."""
    pairs = rows.get("nothing", {}).get("pairs", {}).get("1.5")
    return 0.0 if pairs is None else max(abs(one - 1) * 100 for one in pairs[1:])


def marks(
    rows: Rows, scale: Scale, plan: Mapping[str, Any] | None = None, cores: int = 0
) -> list[Mark]:
    """Return all marks; what the results lack is not measured."""
    wanted: dict[str, Callable[[], Mark]] = {
        "call, p50": lambda: _quick(rows, "p50", 2 / 1.6),
        "call, p99": lambda: _quick(rows, "p99", 30 / 26),
        "beside Trackio": lambda: _cheaper(
            rows, "trackio", "eventlog", 20, "a call, cheaper than Trackio's"
        ),
        "beside wandb": lambda: _cheaper(
            rows, "wandb", "eventlog", 150, "a call, cheaper than wandb's"
        ),
        "five trackers": lambda: _cheaper(
            rows, "accelerate-5", "eventlog+5-sidecar", 5000,
            "five trackers, a call on the training thread, cheaper than through Accelerate",
        ),
        "loop": lambda: _loop(rows, "eventlog", 1, "loop with the log alone"),
        "loop, TensorBoard": lambda: _loop(
            rows, "eventlog+tensorboard", 3, "loop with TensorBoard in the process"
        ),
        "cost": lambda: _flat(scale, "cpu_ns", "processor time of an event", 1, "ns"),
        "memory": lambda: _flat(scale, "more_memory", "memory", 1e6, "MB"),
        "sidecar": lambda: _rate(rows),
        "replay": lambda: _replay(scale),
    }  # fmt: skip
    found = []
    for name, make in wanted.items():
        try:
            mark = make()
            if name in BY_PAIRS and not (long_enough(plan) and noise(rows) <= BY_PAIRS[name]):
                mark = mark._replace(verdict=OPEN)
            if name == "sidecar" and cores < ROOMY:
                none = f"{mark.measured}, on {cores} cores, none of which is free"
                mark = mark._replace(measured=none, verdict=OPEN)
            found.append(mark)
        except (KeyError, StopIteration, IndexError, statistics.StatisticsError):
            found.append(Mark(name, "", "", UNKNOWN))
    return found
