"""Finding runs in directories, and opening the one that is meant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from eventlog._paths import read_json
from eventlog.cli.outcome import note
from eventlog.exceptions import NotALogError
from eventlog.log.archive import Log, open_log
from eventlog.log.segment_reader import Segment, list_segments

__all__ = ["choose_run", "find_runs", "manifest", "open_run", "ranks_of", "started"]

_DEPTH = 3  # ./runs/<project>/<run id>


def find_runs(directory: Path) -> list[Path]:
    """Return the run directories at `directory` or up to three levels under it."""
    return sorted(_walk(directory, _DEPTH))


def _walk(directory: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(directory) as entries:
            children = [
                Path(entry.path)
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir()
            ]
    except OSError:
        return
    if any(child.name.startswith("rank-") and list_segments(child) for child in children):
        yield directory
    elif depth:
        for child in children:
            yield from _walk(child, depth - 1)


def ranks_of(run_dir: Path, rank: int | None) -> list[Log]:
    """Return the logs of all ranks of a run, or of the one that is asked for."""
    log = open_log(run_dir, rank)
    if rank is not None or log.directory == run_dir:
        return [log]
    return [log, *(open_log(run_dir, other) for other in log.ranks[1:])]


def started(run_dir: Path) -> int:
    """Return when a run began, wall ns by its first segment; 0 where that cannot be read."""
    try:
        segments = list_segments(open_log(run_dir).directory)
        for _, path in segments:
            segment = Segment(path)
            header = segment.header
            segment.close()
            if header is not None:
                return header.wall
    except (NotALogError, OSError):
        pass
    return 0


def manifest(run_dir: Path) -> dict[str, str]:
    """Return what a run's ``manifest.json`` says, in texts; empty where there is none."""
    try:
        content = read_json(run_dir / "manifest.json")
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, str)}


def open_run(path: Path, rank: int | None = None) -> Log:
    """Open the run at a path, or the newest one of those that it holds.

    Raises:
        NotALogError: There is none; says what is there.
    """
    return open_log(choose_run(path), rank)


def choose_run(path: Path) -> Path:
    """Return `path`, or the newest run in it where it is a directory that holds runs."""
    if not path.is_dir() or list_segments(path):
        return path
    runs = find_runs(path)
    if not runs or runs == [path]:
        return path
    newest = max(runs, key=lambda run: (started(run), run.name))
    more = f"the newest of {len(runs)} runs" if len(runs) > 1 else "the only run there"
    note(f"{newest}, {more}")
    return newest
