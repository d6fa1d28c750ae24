"""DVCLive passes the tests that every sink must pass, read back with DVCLive's own readers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Status
from eventlog.testing import FinishedRun, Shown, SinkConformance


class TestDvclive(SinkConformance):
    """Each run has a folder of its own below the one that the tests give."""

    sink: ClassVar[str] = "dvclive"
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "finished",
        "failed": "failed",
        "interrupted": "interrupted",
        "killed": "killed",
    }
    outcomes: ClassVar[Path | None] = Path(__file__).with_name("outcomes.json")
    # DVCLive imports pandas, and with it numpy, where they are installed
    shared_modules: ClassVar[frozenset[str]] = frozenset({"numpy", "pandas"})
    tolerated: ClassVar[Mapping[str, str]] = {
        "sys.meta_path": "six, which DVC needs, cannot be imported without its own importer",
    }

    def options(self, where: Path) -> dict[str, Any]:
        return {"dir": str(where / "dvclive-{run_id}")}

    def read(self, run: FinishedRun) -> Shown:
        return shown_in(run.where / f"dvclive-{run.run_id}")


def shown_in(folder: Path) -> Shown:
    """Return what the files of a run show."""
    from dvclive.serialize import load_yaml
    from dvclive.utils import parse_json, parse_tsv

    sdk: Any = load_yaml, parse_json, parse_tsv
    read_yaml, read_json, read_tsv = sdk
    shown = Shown()
    metrics = folder / "plots" / "metrics"
    for path in metrics.rglob("*.tsv"):
        name = path.relative_to(metrics).as_posix().removesuffix(".tsv")
        for row in read_tsv(path):
            at, text = int(row["step"]), row[name.rpartition("/")[2]]
            value = number(text)
            if value is None:
                shown.texts.setdefault(name, []).append((at, text))
                continue
            shown.scalars.setdefault(name, []).append((at, value))
            shown.wall_times.setdefault(name, []).append(int(row["timestamp"]) / 1000)
    own = folder / "eventlog"
    for name, at, path in files_in(own / "text"):
        shown.texts.setdefault(name, []).append((at, path.read_text(encoding="utf-8")))
    for name, at, path in files_in(folder / "plots" / "images"):
        shown.images.setdefault(name, []).append((at, path.read_bytes()))
    for name, at, path in files_in(folder / "plots" / "custom"):
        shown.histograms.setdefault(name, []).append((at, read_json(path)))
    for name, at, path in files_in(own / "tables"):
        shown.tables.setdefault(name, []).append((at, read_tsv(path)))
    if (folder / "params.yaml").exists():
        shown.config = dict(flat(read_yaml(folder / "params.yaml")))
    shown.summary = dict(flat(read_json(folder / "metrics.json")))
    page = json.loads((own / "run.json").read_text())
    shown.error = page.get("error")
    shown.status, shown.name = page["status"], page["name"]
    shown.notes, shown.group = page.get("notes"), page.get("group")
    shown.tags = page.get("tags", [])
    for name, facts in page.get("artifacts", {}).items():
        shown.artifacts[name] = (own / facts["copy"]).read_bytes() if "copy" in facts else None
    return shown


def number(text: str) -> float | None:
    """Return what a cell says; None where it is a word."""
    try:
        return float(text)
    except ValueError:
        return None


def files_in(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield name, step and path of the files of steps."""
    for path in sorted(folder.rglob("*")):
        found = re.fullmatch(r"(-?\d+)(_\d+)?", path.stem)
        if path.is_file() and found:
            yield path.parent.relative_to(folder).as_posix(), int(found[1]), path


def flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves by their names."""
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value
