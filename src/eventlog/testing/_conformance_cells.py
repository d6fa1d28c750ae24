"""What a tracker made of each kind of thing, found out from what it shows and what was counted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from eventlog.events import ImageEvent
from eventlog.testing import _conformance_script as script
from eventlog.testing._conformance_curves import Board, Match, Verdict, curves_of, plain
from eventlog.testing._conformance_kit import SinkDescription
from eventlog.testing._conformance_media import judge_media
from eventlog.testing._conformance_runs import Recorded
from eventlog.testing.shown import FinishedRun, Shown

__all__ = ["Judge", "originals"]


def originals(run: FinishedRun, shown: Shown) -> dict[str, str]:
    """Return what the log calls what is shown under another name."""
    found: dict[str, str] = {}
    for folder in {run.run_dir, run.where}:
        for path in folder.rglob("names.json"):
            rows = json.loads(path.read_text(encoding="utf-8"))
            found |= {row["name"]: row["key"] for row in rows if isinstance(row, dict)}
    return found | shown.originals


class Judge:
    """Says of each cell of the table what became of it in the run that has everything."""

    def __init__(self, kit: SinkDescription, recorded: Recorded) -> None:
        self.kit = kit
        self.shown = recorded.shown
        self.recorded = recorded
        self.unshown = recorded.statistics.unshown
        self.board = Board(curves_of(recorded.events), recorded.shown, kit.rounded)

    # -- numbers ------------------------------------------------------------------------------

    def kind(self, cell: str) -> Verdict:
        """Judge a kind of value."""
        if cell == "str":
            return self._strings()
        return self._curve(cell, self.board.match(script.KINDS[cell]))

    def special(self, cell: str) -> Verdict:
        """Judge numbers that trackers drop or change."""
        match = self.board.match(script.SPECIALS[cell][0])
        verdict = self._curve(cell, match)
        reason, counted = self.kit.explained(cell, self.unshown)
        if verdict.outcome == "shown" and counted:
            # a reader that makes good what the sink had to change must not hide it
            return Verdict("converted", reason)
        if verdict.outcome == "shown" and cell in ("big integer", "tiny"):
            seen = [value for _, value in self.shown.scalars[match.name or ""]]
            logged = [value for _, value in match.curve.points]
            # an integer and a float are compared exactly; less than a float keeps is no matter
            if any(_differ(value, other) for value, other in zip(logged, seen, strict=True)):
                return Verdict("converted", "rounded to the digits that the tracker keeps")
        if verdict.outcome == "impossible" and self._text_of(match.curve.key):
            return Verdict("converted", verdict.note)
        return verdict

    def axis(self, cell: str) -> Verdict:
        """Judge the places of points on one of the axes."""
        key, axis = {
            "step axis": ("curve", "step"),
            "batch axis": ("micro", "batch"),
            "epoch axis": ("accuracy", "epoch"),
            "named axis": ("both", "val_step"),
        }[cell]
        return self._curve(cell, self.board.match(key, axis))

    def _curve(self, cell: str, match: Match) -> Verdict:
        if match.same:
            return Verdict("shown")
        key = match.curve.key
        reason, counted = self.kit.explained(cell, self.unshown)
        missing, extra = match.missing, match.extra
        if not missing and not extra:
            return Verdict("wrong", f"{key!r} is shown in another order: {match.seen[:8]}")
        if counted >= max(len(missing), len(extra)):
            return Verdict("impossible" if not extra else "converted", reason)
        what = f"{key!r} lacks {missing[:4]} and has {extra[:4]} instead"
        if not extra:
            what = f"{key!r} lacks {missing[:4]}"
        elif not missing:
            what = f"{key!r} has points twice, or some that were never logged: {extra[:4]}"
        return Verdict("wrong", f"{what} (shown as {match.name!r}); {self._counted(cell)}")

    def _counted(self, cell: str) -> str:
        return (
            f"and `unshown` has no reason for that cell: {dict(self.unshown)}. What cannot be "
            f"shown must be counted; if one of these reasons is it, say so in "
            f"`reasons = {{{cell!r}: 'a pattern'}}`"
        )

    def _strings(self) -> Verdict:
        wanted = [f"word-{number}" for number in range(3)]
        found = [text for points in self.shown.texts.values() for _, text in points]
        if all(any(word in text for text in found) for word in wanted):
            return Verdict("shown")
        reason, counted = self.kit.explained("str", self.unshown)
        if counted >= len(wanted):
            return Verdict("impossible", reason)
        return Verdict("wrong", f"strings among the values are not shown; {self._counted('str')}")

    def _text_of(self, key: str) -> bool:
        return any(plain(key) in plain(name) for name in self.shown.texts)

    # -- names --------------------------------------------------------------------------------

    def names(self) -> Verdict:
        """Judge names that trackers reject or take for one another."""
        logged = [self._logged(name) for name in script.ODD_NAMES]
        matches = [self.board.match(key) for key in logged]
        lost = [m for m in matches if not m.same]
        reason, counted = self.kit.explained("odd names", self.unshown)
        if len(lost) > counted:
            what = {m.curve.key[:40]: (m.name or "")[:40] for m in lost}
            return Verdict(
                "wrong",
                f"curves of these names are lost, or share a name with others: {what}; "
                f"{self._counted('odd names')}",
            )
        back = originals(self.recorded.run, self.shown)
        renamed = [m for m in matches if m.name not in (None, m.curve.key)]
        # a name without characters cannot be shown as it is, and there is only one
        untold = [m for m in renamed if m.curve.key and back.get(m.name or "") != m.curve.key]
        if untold:
            what = {m.curve.key[:40]: (m.name or "")[:40] for m in untold}
            return Verdict(
                "wrong",
                f"what these are called in the log cannot be found again: {what}; keep a table "
                "(eventlog.sinks.names.Names with path=run.directory / 'names.json'), or return "
                "it from read() as Shown.originals",
            )
        if lost:
            return Verdict("impossible" if len(lost) == len(matches) else "converted", reason)
        others = [m for m in renamed if m.curve.key]
        return Verdict("converted", "renamed, the originals kept") if others else Verdict("shown")

    def _logged(self, name: str) -> str:
        return name.encode("utf-8", "replace").decode()

    # -- what concerns the run ------------------------------------------------------------------

    def config(self) -> Verdict:
        """Judge hyperparameters of any shape."""
        wrong = _leaves_that_differ(self.shown.config, _config_wanted())
        return self._leaves("config", wrong, len(_config_wanted()))

    def summary(self) -> Verdict:
        """Judge the values of the whole run."""
        wanted = {"best/accuracy": _is_number(0.875), "verdict": _has("rather-good")}
        return self._leaves("summary", _leaves_that_differ(self.shown.summary, wanted), len(wanted))

    def _leaves(self, cell: str, wrong: Mapping[str, Any], total: int) -> Verdict:
        declared = self.kit.declares(cell)
        reason, counted = self.kit.explained(cell, self.unshown)
        if not wrong:
            return Verdict("shown") if declared else _undeclared(cell)
        if not declared and len(wrong) == total:
            if counted:
                return Verdict("impossible", reason)
            return Verdict("wrong", f"it is not shown, and not counted; {self._counted(cell)}")
        if counted >= len(wrong):
            return Verdict("converted", reason)
        few = {name: f"{value!r:.80}" for name, value in list(wrong.items())[:6]}
        return Verdict("wrong", f"these are shown otherwise, or not: {few}; {self._counted(cell)}")

    def labels(self) -> Verdict:
        """Judge the run's name, group, notes and tags; which a tracker lacks is in the note."""
        shown = self.shown
        seen = {"name": shown.name, "group": shown.group, "notes": shown.notes}
        tags = sorted(shown.tags)
        wrong = [k for k, v in seen.items() if v is not None and script.LABELS[k] not in v]
        if tags and not set(script.LABELS["tags"]) <= set(tags):
            wrong.append("tags")
        if wrong:
            return Verdict("wrong", f"{wrong} are shown otherwise: {seen}, {tags}")
        absent = [k for k, v in seen.items() if v is None] + ([] if tags else ["tags"])
        if len(absent) == len(script.LABELS):
            return Verdict("impossible", "the tracker has none")
        return Verdict("converted", f"without {', '.join(absent)}") if absent else Verdict("shown")

    # -- media ----------------------------------------------------------------------------------

    def media(self, cell: str) -> Verdict:
        """Judge what is more than values."""
        images = sum(len(e.blobs) for e in self.recorded.events if isinstance(e, ImageEvent))
        verdict = judge_media(cell, self.kit, self.shown, self.unshown, images)
        if verdict.outcome == "wrong":
            return Verdict("wrong", f"{verdict.note}; {self._counted(cell)}")
        return verdict


def _differ(value: float, other: float) -> bool:
    if isinstance(value, int):
        return value != other
    return not math.isclose(value, other, rel_tol=1e-5, abs_tol=0.0)


def _undeclared(cell: str) -> Verdict:
    return Verdict("wrong", f"it is shown, but {cell!r} is not among the sink's capabilities")


def _is_number(number: float) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        try:
            return float(value) == number
        except (TypeError, ValueError):
            return False

    return holds


def _has(*words: str) -> Callable[[Any], bool]:
    return lambda value: all(word in str(value) for word in words)


def _config_wanted() -> dict[str, Callable[[Any], bool]]:
    return {
        "lr": _is_number(0.5),
        "warmup": _is_number(500),
        "flag": lambda value: str(value).casefold() in ("true", "1", "1.0"),
        "layers": _has("64", "32"),
        "nothing": lambda value: str(value).casefold() in ("none", "null", ""),
        "path": _has("data", "images"),
        "colour": _has("TEAL"),
        "optimizer/name": _has("adam"),
        "optimizer/betas": _has("0.5", "0.75"),
        "optimizer/extra/eps": _is_number(0.125),
        "text": lambda value: value == script.CONFIG["text"],
        **{f"many{i:03d}": _is_number(i) for i in range(300)},
    }


def _leaves_that_differ(
    shown: Mapping[str, Any], wanted: Mapping[str, Callable[[Any], bool]]
) -> dict[str, Any]:
    by_word = {plain(name): value for name, value in shown.items()}
    missing = "(not shown)"
    return {
        name: by_word.get(plain(name), missing)
        for name, holds in wanted.items()
        if plain(name) not in by_word or not holds(by_word[plain(name)])
    }
