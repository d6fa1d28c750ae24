"""Contents of the files that DVCLive does not write row by row: plots, tables, images."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import Any

from eventlog.events import BlobRef, HistogramEvent, TableEvent
from eventlog_dvclive.layout import utf8

__all__ = ["PLOT", "bins", "suffix_of", "write_rows", "write_table"]

PLOT: dict[str, Any] = {"x": "count", "y": "from", "template": "bar_horizontal"}
"""How DVC plots the rows of `bins`."""

_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif"}


def suffix_of(blob: BlobRef) -> str | None:
    """Return what an image's file name ends with; None for a type that DVC does not show."""
    return _SUFFIXES.get(blob.mime)


def bins(event: HistogramEvent) -> list[dict[str, Any]]:
    """Return a row for each bin."""
    edges = [edge if math.isfinite(edge) else str(edge) for edge in event.edges]
    return [
        {"from": low, "to": high, "count": count}
        for low, high, count in zip(edges, edges[1:], event.counts, strict=False)
    ]


def write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """Write a plot's rows as DVCLive does.

    Raises:
        OSError: The file cannot be written.
    """
    from dvclive import serialize

    sdk: Any = serialize
    sdk.dump_json(rows, os.fspath(path))


def write_table(event: TableEvent, path: Path) -> None:
    """Write a table with tabs between its cells, as DVC's tools read it; None is an empty cell.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator=os.linesep)
        writer.writerow([utf8(column) for column in event.columns])
        for row in event.rows:
            writer.writerow([utf8(cell) if isinstance(cell, str) else cell for cell in row])
