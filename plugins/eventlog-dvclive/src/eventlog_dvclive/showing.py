"""What lies in files of its own, beside the rows of metrics: texts, images, plots, tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from eventlog.events import ArtifactEvent, BlobRef, Event, HistogramEvent, TableEvent
from eventlog.sinks.tracker import At, TrackerSink
from eventlog_dvclive.artifacts import Artifacts
from eventlog_dvclive.layout import utf8
from eventlog_dvclive.live import LiveFiles
from eventlog_dvclive.media import Media
from eventlog_dvclive.places import Place, Places
from eventlog_dvclive.rows import bins, suffix_of, write_rows, write_table

__all__ = ["MediaSink"]


class MediaSink(TrackerSink):
    """The part of the sink that writes such files; `start` of the whole sets what it needs."""

    _files: LiveFiles
    _media: Media
    _artifacts: Artifacts
    _places: Places

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        """Write a Markdown file of its own."""
        data = utf8(text).encode()
        self._put(self.place(event, axis, at), "text", tag, ".md", lambda p: p.write_bytes(data))

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        """Copy images to where DVC's tools look for them, unchanged."""
        place = self.place(event, axis, at)
        for index, (path, blob) in enumerate(images):
            suffix = suffix_of(blob)
            if suffix is None:
                self.count("image of a type that DVC does not show")
                continue
            below = "" if len(images) == 1 else str(index)
            copy = partial(shutil.copyfile, path)
            self._files.list_image(self._put(place, "images", tag, suffix, copy, below))
        if caption:
            self.text(event, axis, at, f"{tag}/caption", caption)

    def figure(self, event: Event, axis: str, at: At, tag: str, path: Path, blob: BlobRef) -> None:
        """Copy a plot to where DVC's tools look for images, as DVCLive does."""
        self.image(event, axis, at, tag, [(path, blob)], None)

    def histogram(self, event: HistogramEvent, axis: str, at: At) -> None:
        """Write the bins as a bar plot."""
        if len(event.edges) != len(event.counts) + 1:
            self.count("histogram whose edges and counts do not match")
            return
        if event.nonfinite:
            self.count("histogram's NaN and infinities")
        place, write = self.place(event, axis, at), partial(write_rows, bins(event))
        path = self._put(place, "custom", event.tag, ".json", write)
        self._files.list_plot(path, utf8(event.tag))

    def table(self, event: TableEvent, axis: str, at: At) -> None:
        """Write a file of tab-separated rows."""
        place, write = self.place(event, axis, at), partial(write_table, event)
        self._put(place, "tables", event.tag, ".tsv", write)

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        """Keep where it is; copy what eventlog keeps a copy of, or what is asked for."""
        self._artifacts.take(event, path, self.options(event))

    def place(self, event: Event, axis: str, at: At) -> Place:
        """Return where an event is shown; without a place, where the last one left off."""
        place = self._places.find(event, axis, at)
        if place[1] is None:
            self.count("no axis: steps counted up")
        return place

    def _put(
        self,
        place: Place,
        kind: str,
        tag: str,
        suffix: str,
        write: Callable[[Path], object],
        below: str = "",
    ) -> Path:
        axis, step = place
        folder = self._media.folder(self._media.name(kind, tag, axis)) / below
        return self._media.put(folder, step, suffix, write)
