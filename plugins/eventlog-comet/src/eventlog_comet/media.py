"""What Comet shows beside curves: texts, images, histograms, tables and files."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eventlog.events import ArtifactEvent, HistogramEvent
from eventlog_comet.values import file_name, whole_text

__all__ = ["SUFFIXES", "Media"]

SUFFIXES = {
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
}

_MODELS = frozenset({"checkpoint", "model"})
_LARGEST = 9.9e19  # Comet's bins end at 1e20, and what is beyond is lost


class Media:
    """Gives files and the like to the SDK, at the step that the experiment was told.

    Args:
        sdk: The module `comet_ml`.
        experiment: The running one.
        count: Told the reason for what cannot be shown.
    """

    def __init__(self, sdk: Any, experiment: Any, count: Callable[[str], None]) -> None:
        self._sdk = sdk
        self._experiment = experiment
        self._count = count

    def text(self, tag: str, text: str, **facts: Any) -> None:
        """Show a text in the Text tab; its tag is among its metadata."""
        known = {"tag": whole_text(tag)} | facts
        self._check(self._experiment.log_text(whole_text(text), metadata=known), "text")

    def image(self, name: str, path: Path, facts: Mapping[str, Any]) -> None:
        """Show an image file in the Graphics tab."""
        data = io.BytesIO(path.read_bytes())
        self._check(self._experiment.log_image(data, name, metadata=dict(facts)), "image")

    def histogram(self, event: HistogramEvent) -> None:
        """Show a distribution in the Histograms tab, in the bins that Comet has."""
        points = [
            min(max((low + high) / 2, -_LARGEST), _LARGEST)
            for low, high in zip(event.edges, event.edges[1:], strict=False)
        ]
        filled = [
            (point, count) for point, count in zip(points, event.counts, strict=False) if count
        ]
        if not filled:
            self._count("empty histogram")
            return
        histogram = self._sdk.data_structure.Histogram()
        histogram.add([point for point, _ in filled], counts=[count for _, count in filled])
        facts = {name: getattr(event, name) for name in ("n", "min", "max", "sum", "nonfinite")}
        logged = self._experiment.log_histogram_3d(histogram, file_name(event.tag), metadata=facts)
        self._check(logged, "histogram")

    def data(self, name: str, data: bytes, facts: Mapping[str, Any] | None = None) -> None:
        """Keep bytes as a file of the run."""
        # of a path the SDK makes one copy, of an open file two
        with tempfile.TemporaryDirectory(prefix="eventlog-") as folder:
            path = Path(folder, f"data{Path(name).suffix}")
            path.write_bytes(data)
            metadata = None if facts is None else dict(facts)
            self._check(self._experiment.log_asset(str(path), name, metadata=metadata), "file")

    def artifact(self, event: ArtifactEvent, path: Path, facts: dict[str, Any]) -> None:
        """Keep a file, or all files of a folder; a model among the models."""
        given = Path(event.path)
        name = file_name(event.name, given.suffix if path.is_file() else "")
        for file, inner in _files(path, name):
            if event.kind in _MODELS:
                model = file_name(event.name).replace("/", "_")
                logged = self._experiment.log_model(model, str(file), inner, metadata=facts)
            else:
                logged = self._experiment.log_asset(str(file), inner, metadata=facts)
            self._check(logged, "file")

    def _check(self, logged: object, what: str) -> None:
        if not logged:
            self._count(f"{what} that Comet did not take")


def _files(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, name
        return
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield file, f"{name}/{file.relative_to(path).as_posix()}"
