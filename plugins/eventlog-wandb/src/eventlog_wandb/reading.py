"""Reading an offline run back from its files, as `wandb sync` does, for tests and scripts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eventlog_wandb.wandb_file import records

__all__ = ["OfflineArtifact", "OfflineRun", "read_offline"]


@dataclass
class OfflineArtifact:
    """An artifact that waits for being sent.

    Attributes:
        name, kind: Its name and type.
        metadata: What was said about it.
        files: Where its files lie, by their names in it; None for a reference.
    """

    name: str
    kind: str
    metadata: dict[str, Any]
    files: dict[str, Path | None]


@dataclass
class OfflineRun:
    """What the files of a run say.

    Attributes:
        folders: The run's folders, in the order in which they were written.
        run_id, project, name, group, notes, tags: As W&B shows them.
        config, summary: The last values.
        rows: The history; media are mappings with ``_type``.
        axes: The x axis of each column that has one.
        artifacts: In the order in which they were logged.
        exit_code: None for a run that did not end.
    """

    folders: list[Path] = field(default_factory=list)
    run_id: str = ""
    project: str = ""
    name: str = ""
    group: str = ""
    notes: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    axes: dict[str, str] = field(default_factory=dict)
    artifacts: list[OfflineArtifact] = field(default_factory=list)
    exit_code: int | None = None

    def media(self, path: str) -> bytes:
        """Return a media file, by its path in a row.

        Raises:
            FileNotFoundError: None of the run's folders has it.
        """
        for folder in self.folders:
            if (folder / "files" / path).is_file():
                return (folder / "files" / path).read_bytes()
        raise FileNotFoundError(path)


def read_offline(folder: str | os.PathLike[str], run_id: str) -> OfflineRun:
    """Read all that lies of a run below a folder, that which each process wrote in turn.

    Args:
        folder: The one that the sink was told (`dir`), which has a folder ``wandb``.
        run_id: The run's id in W&B.
    """
    from wandb.proto import wandb_internal_pb2

    parse = vars(wandb_internal_pb2)["Record"].FromString  # made when the module is imported
    found = OfflineRun()
    files = Path(folder).glob(f"*/offline-run-*-{run_id}*/run-{run_id}.wandb")
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        found.folders.append(path.parent)
        found.exit_code = None
        for data in records(path):
            _take(found, parse(data))
    return found


def _take(found: OfflineRun, record: Any) -> None:
    match record.WhichOneof("record_type"):
        case "run":
            run = record.run
            found.run_id, found.project, found.name = run.run_id, run.project, run.display_name
            found.group, found.notes, found.tags = run.run_group, run.notes, list(run.tags)
            found.config |= _nested(run.config.update)
        case "config":
            found.config |= _nested(record.config.update)
        case "summary":
            found.summary |= _nested(record.summary.update)
            for item in record.summary.remove:
                found.summary.pop(item.key or item.nested_key[0], None)
        case "history":
            found.rows.append(_nested(record.history.item))
        case "metric" if record.metric.step_metric:
            found.axes[record.metric.name] = record.metric.step_metric
        case "artifact":
            found.artifacts.append(_artifact(record.artifact))
        case "exit":
            found.exit_code = record.exit.exit_code


def _artifact(record: Any) -> OfflineArtifact:
    files = {
        entry.path: None if entry.ref else Path(entry.local_path)
        for entry in record.manifest.contents
    }
    metadata = json.loads(record.metadata) if record.metadata else {}
    return OfflineArtifact(record.name, record.type, metadata, files)


def _nested(items: Iterable[Any]) -> dict[str, Any]:
    """Return items by name; the parts of a nested name are keys of mappings."""
    found: dict[str, Any] = {}
    for item in items:
        path = list(item.nested_key) or [item.key]
        here = found
        for part in path[:-1]:
            here = here.setdefault(part, {})
        here[path[-1]] = json.loads(item.value_json)
    return found
