"""The table of what each tracker shows, made of what the conformance tests found.

::

    python -m eventlog.testing.outcomes plugins/*/tests/outcomes.json
    python -m eventlog.testing.outcomes --into docs/trackers.md plugins/*/tests/outcomes.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["compare_outcomes", "main", "outcomes_table", "with_table"]

WRITE = "EVENTLOG_WRITE_OUTCOMES"
_BEGIN, _END = "<!-- table -->", "<!-- end of table -->"
_MARKS = {"shown": "yes", "converted": "converted", "impossible": "no"}


def compare_outcomes(path: Path, found: Mapping[str, str], *, keep: bool) -> None:
    """Compare what was found with what is kept, or keep it where the environment says so.

    Args:
        path: The file.
        found: By cell: shown, converted or impossible, with a reason.
        keep: Whether these are the ones to keep.

    Raises:
        AssertionError: They differ, or there is nothing to compare with.
    """
    wrong = {cell: outcome for cell, outcome in found.items() if outcome.startswith("wrong")}
    if wrong:
        raise AssertionError("\n".join(f"{cell}: {outcome}" for cell, outcome in wrong.items()))
    writing = os.environ.get(WRITE) == "1"
    if writing and keep:
        text = json.dumps(dict(found), indent=1, ensure_ascii=False, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")
    if not path.exists():
        raise AssertionError(f"{path} is not there; run the tests with {WRITE}=1 to write it")
    kept = json.loads(path.read_text(encoding="utf-8"))
    differ = {
        cell: f"{outcome!r}, kept is {kept.get(cell)!r}"
        for cell, outcome in found.items()
        if kept.get(cell) != outcome
    }
    if differ:
        text = "\n".join(f"{cell}: {what}" for cell, what in differ.items())
        raise AssertionError(f"{path} says otherwise ({WRITE}=1 writes it anew):\n{text}")


def outcomes_table(paths: Iterable[Path]) -> str:
    """Return a Markdown table: a row for each kind of thing, a column for each tracker."""
    found: dict[str, dict[str, Any]] = {
        _tracker(path): json.loads(path.read_text(encoding="utf-8")) for path in sorted(paths)
    }
    cells = list(dict.fromkeys(cell for outcomes in found.values() for cell in outcomes))
    cells.sort(key=_rank)
    lines = [["", *found], ["---"] * (1 + len(found))]
    lines += [
        [cell, *(_mark(outcomes.get(cell, "")) for outcomes in found.values())] for cell in cells
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _tracker(path: Path) -> str:
    """Return the tracker's name: that of the package, or else of the file."""
    packages = [p for p in path.absolute().parts if p.startswith("eventlog-")]
    return packages[-1].removeprefix("eventlog-") if packages else path.stem


def _mark(outcome: str) -> str:
    word = outcome.partition(":")[0]
    return _MARKS.get(word, word or "?")


def _rank(cell: str) -> tuple[int, str]:
    return (_ORDER.index(cell), "") if cell in _ORDER else (len(_ORDER), cell)


_ORDER = (
    "float", "int", "bool", "str", "np.float16", "np.float32", "np.float64", "np.int64", "np.bool_",
    "torch float32", "torch bfloat16", "0-d array", "nested mapping", "NaN", "infinity",
    "big integer", "tiny", "odd names", "step axis", "batch axis", "epoch axis", "named axis",
    "text", "image", "figure", "histogram", "table", "artifact", "model update", "custom event",
    "config", "summary", "labels", "rewind", "resume", "status",
)  # fmt: skip


def with_table(page: str, table: str) -> str:
    """Return a page with the table between its two marks.

    Raises:
        ValueError: It does not have them.
    """
    before, first, rest = page.partition(_BEGIN)
    _, last, after = rest.partition(_END)
    if not first or not last:
        raise ValueError(f"the page must have the lines {_BEGIN!r} and {_END!r}")
    return f"{before}{_BEGIN}\n\n{table}\n\n{_END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Print the table of the files that are named, or put it into a page."""
    parser = argparse.ArgumentParser(prog="python -m eventlog.testing.outcomes")
    parser.add_argument("files", nargs="+", type=Path, help="outcomes.json of each tracker")
    parser.add_argument("--into", type=Path, help=f"a page that has {_BEGIN} and {_END}")
    options = parser.parse_args(arguments)
    table = outcomes_table(options.files)
    if options.into is None:
        print(table)
    else:
        page = options.into.read_text(encoding="utf-8")
        options.into.write_text(with_table(page, table), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
