"""The console passes the tests that every sink must pass: its lines are parsed again."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Status
from eventlog.sinks.console import format_value
from eventlog.sinks.plain import flatten
from eventlog.testing import FinishedRun, Shown, SinkConformance

_LINE = re.compile(r"(?P<axis>run|-|[a-z_]+) ?(?P<at>\d+)?  (?P<rest>.*)", re.DOTALL)
_NUMBER = r"(?:-?\d[\d.e+-]*|nan|-?inf|True|False)(?=  |$)"
_PAIR = re.compile(rf"(?P<key>.*?)=(?P<value>{_NUMBER}|word-\d)(?:  |$)", re.DOTALL)


class TestConsole(SinkConformance):
    """What is printed on standard error is all there is."""

    sink: ClassVar[str] = "console"
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "finished",
        "failed": "failed",
        "interrupted": "interrupted",
    }
    outcomes: ClassVar[Path | None] = Path(__file__).with_name("console_outcomes.json")
    recognises: ClassVar[bool] = False  # what is printed is printed

    def options(self, where: Path) -> dict[str, Any]:
        return {}

    def rounded(self, value: float) -> float:
        return float(format_value(value))

    def read(self, run: FinishedRun) -> Shown:
        assert run.printed is not None
        shown = Shown()
        for line in _lines(run.printed.read_text(encoding="utf-8")):
            match = _LINE.fullmatch(line)
            if match is not None:
                at = None if match["at"] is None else int(match["at"])
                _take(shown, match["axis"], at, match["rest"])
        return shown


def _lines(text: str) -> list[str]:
    """Return the lines; a name that has a line break of its own goes over two."""
    lines: list[str] = []
    for line in text.split("\n"):
        if lines and not _LINE.match(line):
            lines[-1] += "\n" + line
        else:
            lines.append(line)
    return [line.removesuffix("\n") for line in lines]


def _take(shown: Shown, axis: str, at: int | None, rest: str) -> None:
    if axis == "run":
        _take_run(shown, rest)
        return
    start = 0
    while (pair := _PAIR.match(rest, start)) is not None:
        start = pair.end()
        key = pair["key"] if axis == "step" else f"{pair['key']} by {axis}"
        value = {"True": "1", "False": "0"}.get(pair["value"], pair["value"])
        if value.startswith("word"):
            shown.texts.setdefault(key, []).append((at, value))
        else:
            shown.scalars.setdefault(key, []).append((at, float(value)))
    _take_more(shown, at, rest[start:])


def _take_run(shown: Shown, rest: str) -> None:
    status = rest.partition(":")[0]
    if status in ("finished", "failed", "interrupted"):
        shown.status = status
    elif " started" in rest:
        shown.name = rest.partition("/")[2].partition(" started")[0]


def _take_more(shown: Shown, at: int | None, rest: str) -> None:
    word, _, what = rest.partition(" ")
    if word == "summary":
        pairs = dict(pair.split("=", 1) for pair in what.split(", "))
        plain = {k: ast.literal_eval(v) if v.startswith("{") else v for k, v in pairs.items()}
        shown.summary |= flatten(plain)
    elif word == "model":
        shown.model_updates.append(what)
    elif rest.startswith("remark: "):
        shown.texts["remark"] = [(at, rest.partition(": ")[2])]
