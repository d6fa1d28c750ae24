"""What a tracker shows of a run: what a reader of its files or of its server gives to the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["At", "FinishedRun", "Shown"]

At: TypeAlias = int | float | None


@dataclass(frozen=True)
class FinishedRun:
    """Which run to read back.

    Attributes:
        where: The folder that the sink's options were made for.
        run_dir: The run's own directory.
        project, name, run_id: The run's, in eventlog.
        url: What the sink said one can look at.
        tracker_id: The run's id in the tracker, as the sink said.
        printed: The file that has what was printed on standard error meanwhile.
    """

    where: Path
    run_dir: Path
    project: str
    name: str
    run_id: str
    url: str | None
    tracker_id: str | None
    printed: Path | None = None


@dataclass
class Shown:
    """All that a tracker shows of a run, by the tracker's names.

    Each thing is listed with its place on its own axis: the step of a step event and of media, the
    batch of a batch event, the epoch of an epoch event; None where the tracker keeps no place.

    Attributes:
        scalars: (place, value), in the order that the tracker shows them: by name.
        texts: (place, text): by name; strings, and what is shown as text, are among them.
        images: (place, file's bytes or None where the tracker does not give them back): by name.
        figures: The same; empty where figures are shown among the images.
        histograms, tables: (place, whatever the tracker gives back): by name.
        artifacts: The contents of files, by name; None where only the name can be read.
        config: Hyperparameters, flat, by name.
        summary: Values of the whole run, flat, by name.
        model_updates: One text for each.
        status: The tracker's own word.
        error: What is shown of the error that a run ended with; None where it ended without one.
        name, notes, group: As shown; None where they are not.
        tags: As shown.
        originals: What the log calls things whose name differs, by the tracker's name; what
            `eventlog.sinks.names.Names` keeps in a file ``names.json`` is found without it.
        wall_times: Seconds since 1970 of the points in `scalars`, one for each, by name; only
            where the tracker keeps them.
    """

    scalars: dict[str, list[tuple[At, float]]] = field(default_factory=dict)
    texts: dict[str, list[tuple[At, str]]] = field(default_factory=dict)
    images: dict[str, list[tuple[At, bytes | None]]] = field(default_factory=dict)
    figures: dict[str, list[tuple[At, bytes | None]]] = field(default_factory=dict)
    histograms: dict[str, list[tuple[At, Any]]] = field(default_factory=dict)
    tables: dict[str, list[tuple[At, Any]]] = field(default_factory=dict)
    artifacts: dict[str, bytes | None] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    model_updates: list[str] = field(default_factory=list)
    status: str | None = None
    error: str | None = None
    name: str | None = None
    notes: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    originals: dict[str, str] = field(default_factory=dict)
    wall_times: dict[str, list[float]] = field(default_factory=dict)
