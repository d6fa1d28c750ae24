"""Turn results of compare.py and scale.py into the tables, plots and JSON of a page.

    python benchmarks/report.py RESULT.json ... [--page docs/performance.md]

The tables go between the page's markers, plots and `results.json` into a folder beside it that has
its name. Of several results of compare.py, the rounds of a case are put together; of several of
scale.py, a later one's measures replace those of an earlier one. Whether the figures that were
asked for were met is a table of its own. The README beside the page's folder, where it has markers
for them, gets the plot and the figures that say most.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers.figures import PARTS, summary
from reporting.headline import headline
from reporting.marks import marks
from reporting.plots import draw
from reporting.tables import blocks

BEGIN, END = "<!-- results: made by benchmarks/report.py -->", "<!-- end of results -->"


def merged(results: Sequence[dict[str, Any]], kind: str, part: str) -> dict[str, Any]:
    """Put the results of one kind together: machine and versions are the last one's."""
    found: dict[str, Any] = {}
    for result in results:
        if result["kind"] == kind:
            if found:
                check_alike(found, result)
            before = found.get("commands", [])
            later = result[part]
            if part == "cases" and found:
                later = renumbered(later, found[part])
            both = together(found.get(part, {}), {k: v for k, v in later.items() if v})
            if part == "cases":  # as they are made now, and not when they were measured
                both = {name: {**case, "summary": summary(case)} for name, case in both.items()}
            skipped = found.get("skipped", {}) | result.get("skipped", {})
            load = max(found.get("machine", result["machine"])["load"], result["machine"]["load"])
            found = {
                **found,
                **result,
                part: both,
                "commands": [*before, result["command"]],
                "skipped": {name: why for name, why in skipped.items() if name not in both},
                "left_out": [*found.get("left_out", []), *result.get("left_out", [])],
                "machine": {**result["machine"], "load": load},
            }
    return found


def check_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Refuse to put results together that are of other machines, versions or plans."""
    parts: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "machines": lambda r: {k: v for k, v in r["machine"].items() if k != "load"},
        "versions": lambda r: r["versions"],
        "plans": lambda r: {k: v for k, v in r.get("plan", {}).items() if k != "rounds"},
    }
    for what, of in parts.items():
        if of(one) != of(other):
            raise SystemExit(
                f"{one['commands'][0]!r} and {other['command']!r} are of other {what}: "
                "measure both again, or remove one of their files"
            )


def together(before: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return cases, or measures, of two results: a case that both have has the rounds of both."""
    both = before | later
    for name in before.keys() & later.keys():
        one, other = before[name], later[name]
        if isinstance(other, dict):
            rounds = {part: [*one[part], *other[part]] for part in PARTS}
            both[name] = {**other, **rounds}
    return both


def renumbered(later: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Number the rounds of another run of compare.py after those of one."""
    parts = [part for part in PARTS if part != "errors"]
    done = [x["round"] for case in before.values() for part in parts for x in case[part]]
    first = max(done, default=-1) + 1
    found = {}
    for name, case in later.items():
        moved = {part: [{**x, "round": x["round"] + first} for x in case[part]] for part in parts}
        found[name] = {**case, **moved}
    return found


def put(page: Path, text: str) -> None:
    """Put text between the markers of a page, which is made if there is none."""
    old = page.read_text() if page.exists() else f"# Performance\n\n{BEGIN}\n{END}\n"
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no markers {BEGIN!r} and {END!r}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    options = parser.parse_args(arguments)
    results = [json.loads(path.read_text()) for path in options.results]
    compare = merged(results, "compare", "cases")
    scale = merged(results, "scale", "measures")
    rows = {name: case.get("summary", {}) for name, case in compare.get("cases", {}).items()}
    cores = compare.get("machine", {}).get("cores", 0)
    found = marks(rows, scale.get("measures", {}), compare.get("plan"), cores)
    folder: Path = options.page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"compare": compare, "scale": scale, "marks": [mark._asdict() for mark in found]}
    (folder / "results.json").write_text(json.dumps(kept, indent=1) + "\n")
    for path in draw(compare, scale, folder):
        print(f"{path}, {path.stat().st_size / 1e3:.0f} kB")
    put(options.page, blocks(compare, scale, found))
    readme: Path = options.page.parent.parent / "README.md"
    if readme.exists() and BEGIN in readme.read_text():
        put(readme, headline(rows, compare.get("machine", {})))
    for mark in found:
        print(": ".join(filter(None, (mark.verdict, mark.what, mark.asked, mark.measured))))


if __name__ == "__main__":
    main()
