"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peers.figures import CALLS, LOOPS, Column, delay, lost, settled
from reporting.marks import Mark, long_enough, noise

GROUPS = {
    "floor": "What measuring costs, and the floor",
    "ours": "eventlog",
    "trackers": "Trackers, called as their quick starts have it",
    "frameworks": "Through a framework",
    "plain": "Loggers of text, and dispatchers",
}
STEADY = 1.3
"""The ratio of the longest to the shortest of the same steps, above which a machine is unsteady."""

BUSY = 0.75
"""The load, of each core, above which a machine is said to have been busy."""

WIDE = 0.25
"""The part of a median by which processes must differ for a table to say so."""

UNITS = {
    "_ns": (1e3, "us"), "_ns_each": (1, "ns"), "more_memory": (1e6, "MB"), "_ms": (1, "ms"),
    "_s": (1, "/s"), "copy_bytes": (1e3, "kB"),
}  # fmt: skip
SCALES = {
    "events": "Events of three floats",
    "subscriptions": "Sinks that are not due",
    "keys": "Values in an event",
    "threads": "Threads that emit at once, with no pause",
    "images": "Images of noise, by side in pixels",
    "log_mb": "The log's size in MB",
    "ranks": "Processes of one run, each with a log",
    "replay_sinks": "Sinks of a replay",
}
LABELS = {
    "emit_ns": "a call", "emit_last_tenth_ns": "a call, the last tenth",
    "written_ns": "a call, and until it is written", "cpu_ns": "processor time an event",
    "cpu_ns_each": "an event and sink", "more_memory": "more memory", "bytes": "bytes",
    "emit_ns_each": "a value", "all_ns_each": "a value, and until it is written",
    "bytes_each": "bytes a value", "events_s": "events/s", "thread_ns": "an event",
    "write_events_s": "written, events/s", "read_events_s": "read, events/s",
    "seek_p50_ms": "a seek, p50", "seek_p99_ms": "p99", "copy_bytes": "the array",
    "open_all_s": "to open them all, s", "close_all_s": "to close, s",
    "tensorboard_events_s": "TensorBoard's reader, events/s", "times_tensorboard": "times as fast",
}  # fmt: skip


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def _cells(case: Mapping[str, Any], columns: Sequence[Column]) -> list[str]:
    row = case.get("summary", {})
    if "between" not in row:
        return ["failed" if case["errors"] else "not measured", *[""] * (len(columns) - 1)]
    return [_cell(cell, row) for _, cell in columns]


def _cell(cell: Callable[[dict[str, Any]], str], row: dict[str, Any]) -> str:
    try:
        return cell(row)
    except KeyError:  # a run that was cut short has a part of the figures
        return ""


def by_group(result: Mapping[str, Any], columns: Sequence[Column]) -> str:
    """Return a table of all cases, with a line for each group."""
    rows = []
    for group, title in GROUPS.items():
        cases = [c for c in result["cases"].values() if c["group"] == group]
        if cases:
            rows.append([f"**{title}**", *[""] * len(columns)])
        rows += [[case["call"], *_cells(case, columns)] for case in cases]
    return markdown(["", *(name for name, _ in columns)], rows)


def missing(row: dict[str, Any]) -> str:
    """Return how many steps a logger's reader does not find once it is closed."""
    if row["missing"][0] > row["given"]:
        return "not known: its reader failed"
    return f"{row['missing'][0]:,.0f} of {row['given']:,.0f}"


def side(result: Mapping[str, Any]) -> str:
    """Return the table of what is no time of the training thread."""
    nothing = result["cases"].get("nothing", {}).get("summary", {})
    base = nothing["memory"][0] if "memory" in nothing else 0.0
    noise = max(map(abs, nothing.get("cpu_us", [0.0])))

    def processor(row: dict[str, Any]) -> str:
        middle, low, high = row["cpu_us"]
        return f"{middle:,.0f}" if low > 0 and middle > noise else f"below {max(noise, high):,.0f}"

    columns: list[Column] = [
        ("readable after", delay),
        ("of which one reading", lambda r: f"{r['reading_ms']:,.1f} ms"),
        ("CPU, all processes, us a step", settled(processor)),
        ("memory over nothing, MB", lambda r: f"{(r['memory'][0] - base) / 1e6:,.0f}"),
        ("start, s", lambda r: f"{r['opening'][0]:.1f}"),
        ("until all is quiet, s", lambda r: f"{r['starting'][0]:.1f}"),
        ("lost by kill -9, steps", lost),
    ]
    if any("missing" in case.get("summary", {}) for case in result["cases"].values()):
        columns.append(("missing after an orderly end", missing))
    return by_group(result, columns)


def followed(result: Mapping[str, Any]) -> str:
    """Return the table of how soon a tracker behind eventlog has a point."""
    rows = []
    for case in result["cases"].values():
        row = case.get("summary", {}).get("follow")
        if row:
            one = f"{row['reading_ms']:,.0f} ms" if "reading_ms" in row else ""
            rows.append([case["call"], delay(row), one, lost(row)])
    head = ["", "readable in TensorBoard after", "of which one reading", "not there after kill -9"]
    return markdown(head, rows)


def _figure(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    per, unit = next((u for end, u in UNITS.items() if name.endswith(end)), (1, ""))
    value = value / per
    text = f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.2g}"
    return f"{text} {unit}" if unit and unit != "/s" else text


def _size(size: int, processes: int, most: int) -> str:
    return f"{size:,}" if processes == most else f"{size:,} (of {processes})"


def _spread(name: str, row: Mapping[str, Any]) -> str:
    """Return a median, with the least and greatest of the processes where they differ much."""
    value = row.get(name, "")
    low, high = row.get("spread", {}).get(name, (value, value))
    if isinstance(value, str) or high - low <= WIDE * abs(value):
        return _figure(name, value)
    least = _figure(name, low).partition(" ")[0]
    return f"{_figure(name, value)} ({least} to {_figure(name, high).partition(' ')[0]})"


def scaling(result: Mapping[str, Any]) -> str:
    """Return a table for each measure."""
    parts = []
    for measure, rows in result["measures"].items():
        names = list(dict.fromkeys(name for row in rows for name in row))
        names = [n for n in names if n not in (measure, "processes", "spread")]
        head = [SCALES[measure], *(LABELS.get(n, n) for n in names)]
        most = max(row.get("processes", 1) for row in rows)
        cells = [
            [_size(row[measure], row.get("processes", 1), most), *(_spread(n, row) for n in names)]
            for row in rows
        ]
        parts.append(markdown(head, cells))
    return "\n\n".join(parts)


def verdicts(found: Sequence[Mark]) -> str:
    """Return the table of what was asked."""
    return markdown(["", "asked", "measured", ""], [list(mark) for mark in found])


def about(result: Mapping[str, Any]) -> str:
    """Say where, with what and how these results were made."""
    machine, versions = result["machine"], result["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    commands = ", then ".join(f"`{command}`" for command in result["commands"])
    lines = [
        f"{commands}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gb']:.0f} GB, {machine['system']}, Python {machine['python']}; "
        f"load {machine['load']} when it began.",
        f"Versions: {listed}.",
    ]
    for name, why in result.get("skipped", {}).items():
        lines.append(f"Skipped: {name}, {why}.")
    for name, case in result.get("cases", {}).items():
        lines += [f"Failed: {name}, {error}." for error in case["errors"]]
        hosts = case.get("summary", {}).get("hosts")
        if hosts:
            lines.append(f"{name} wanted to look up, and was refused: {', '.join(hosts)}.")
    lines += [f"Left out: {line}." for line in result.get("left_out", [])]
    return "\n\n".join(lines)


def _of_rounds(result: Mapping[str, Any]) -> list[str]:
    rounds = {len({x["round"] for x in c["loops"]}) for c in result["cases"].values()}
    return ["**Some cases have more rounds than others.**"] if len(rounds) > 1 else []


def _of_noise(result: Mapping[str, Any]) -> list[str]:
    """Say what the same thing, measured twice, differs by."""
    rows = {name: case.get("summary", {}) for name, case in result["cases"].items()}
    lengths = [x["step_ms"] for c in result["cases"].values() for x in c["loops"]]
    found = []
    if noise(rows):
        _, low, high = ((x - 1) * 100 for x in rows["nothing"]["pairs"]["1.5"])
        found.append(
            f"Two loops that both log nothing differ by {low:.1f} to {high:.1f} % here, in steps "
            "of 1.5 ms: what is closer to nothing than that is not told from it."
        )
    if lengths and max(lengths) > STEADY * min(lengths):
        found.append(
            f"**The machine was not steady: the same step took {min(lengths):.2f} to "
            f"{max(lengths):.2f} ms, from one process to another.**"
        )
    return found


def doubts(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say why figures are to be taken with care."""
    found = []
    if any(r["machine"]["load"] > BUSY * r["machine"]["cores"] for r in results):
        found.append("**The machine was busy with other work: these figures show little.**")
    for result in results:
        if result["kind"] == "compare":
            found += _of_rounds(result) + _of_noise(result)
    cases = [c for r in results for c in r.get("cases", {}).values() if c.get("summary")]
    single = sum(c["summary"].get("processes") == 1 for c in cases)
    if single:
        found.append(
            f"**{single} of {len(cases)} cases were one process each: their figures have no "
            "spread, and what differs by less than a half differs by nothing.**"
        )
    if any(r["kind"] == "compare" and not long_enough(r.get("plan")) for r in results):
        found.append(
            "**The blocks of a pair were short: what a logger puts off by 0.1 s falls into the "
            "block without it. Read *whole loop* beside *1.5 ms steps*.**"
        )
    return found


def blocks(compare: Mapping[str, Any], scale: Mapping[str, Any], found: Sequence[Mark]) -> str:
    """Return all that stands between the page's markers."""
    parts = doubts([result for result in (compare, scale) if result])
    parts += ["### What was asked, and what there is", verdicts(found)]
    if compare:
        parts += [
            "### A call on the training thread, in us",
            by_group(compare, CALLS),
            "![Microseconds of a call, on a logarithmic axis](performance/calls.png)",
            "### The loop, slower by",
            by_group(compare, LOOPS),
            "![The loop's rate with each logger, in per cent of nothing](performance/loop.png)",
            "### Beside the training thread",
            side(compare),
            "How soon a point is in TensorBoard's files behind eventlog, and how many steps are "
            "not there after the kill: they are in the log, and a replay brings them.",
            followed(compare),
            about(compare),
        ]
    if scale:
        parts += [
            "### How ours grows",
            "![An event's cost, and memory, against the number of events](performance/events.png)",
            scaling(scale),
            about(scale),
        ]
    return "\n\n".join(parts)
