"""The media methods of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eventlog._config import plain_config
from eventlog._media import (
    DeferredArtifact,
    DeferredFigure,
    DeferredHistogram,
    DeferredImage,
    Sized,
    copy_array,
    plain_table,
    render_figure,
)
from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    TableEvent,
    TextEvent,
)
from eventlog.recorder import Recorder

__all__ = ["MediaMethods"]

_NO_BLOB = BlobRef(sha256="", size=0, mime="")


class MediaMethods:
    """What a run can show beside scalars. Each takes a value, or a function that makes it when due.

    What cannot be shown is counted and named in a warning; only `Run(strict=True)` raises.
    """

    _recorder: Recorder

    def _axes(self, step: Any, axis: str | None, options: Any = None) -> dict[str, Any]:
        raise NotImplementedError

    def due(self, every: str) -> bool:
        """See `Run.due`."""
        raise NotImplementedError

    def _refuse_foreign(self) -> None:
        raise NotImplementedError

    def _emit(
        self,
        tag: str,
        every: str | None,
        make: Callable[[], tuple[Any, int]],
    ) -> None:
        """Put what `make` returns, an item and its size, unless it is not due or fails."""
        if self._recorder.foreign:
            self._refuse_foreign()
            self._recorder.inbox.drop(self._recorder.absence)
            return
        if every is not None and not self.due(every):
            return
        if self._recorder.quiet:
            return
        try:
            item, size = make()
        except Exception as error:
            self._recorder.inbox.drop("media")
            self._recorder.rejections.add([(tag, "media", f"{type(error).__name__}: {error}")])
            return
        self._recorder.inbox.put(item, size=size)

    def _needs_blobs(self) -> Any:
        blobs = self._recorder.blobs
        if blobs is None:
            raise ValueError("a run without a directory (dir=None) keeps no files; give it one")
        return blobs

    def image(
        self,
        tag: str,
        image: Any,
        *,
        caption: str | None = None,
        step: int | None = None,
        axis: str | None = None,
        every: str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Log an image, or a list of images under one tag.

        Args:
            tag: Its name.
            image: An array or tensor of shape (height, width), (height, width, channels) or
                (channels, height, width), floats from 0 to 1 or integers from 0 to 255; a PIL
                image; PNG, JPEG or GIF as bytes or as a path; a list of these; or a function
                that returns one, called when due. Arrays are copied now, encoded later.
            caption: A text beside it.
            step, axis: Where it is, if not at the run's step.
            every: A cadence, if it is not to be logged at each call.
            options: What single sinks are told with it; see `Run.step`.
        """

        def make() -> tuple[Any, int]:
            value = image() if callable(image) else image
            many = value if isinstance(value, list | tuple) else [value]
            event = ImageEvent(tag=tag, caption=caption, **self._axes(step, axis, options))
            item = DeferredImage(event, [copy_array(one) for one in many], self._needs_blobs())
            return item, item.size

        self._emit(tag, every, make)

    def figure(
        self,
        tag: str,
        figure: Any,
        *,
        step: int | None = None,
        axis: str | None = None,
        every: str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Log a matplotlib figure: rendered to PNG now, on this thread (tens of milliseconds).

        Args:
            tag: Its name.
            figure: A figure or axes, or a function that returns one, called when due.
            step, axis, every, options: As for `image`.
        """

        def make() -> tuple[Any, int]:
            blobs = self._needs_blobs()
            png = render_figure(figure() if _is_maker(figure) else figure)
            event = FigureEvent(tag=tag, blob=_NO_BLOB, **self._axes(step, axis, options))
            return DeferredFigure(event, png, blobs), len(png)

        self._emit(tag, every, make)

    def histogram(
        self,
        tag: str,
        values: Any,
        *,
        bins: int = 64,
        step: int | None = None,
        axis: str | None = None,
        every: str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Log a distribution.

        Args:
            tag: Its name.
            values: An array, tensor or sequence of numbers of any shape, or a function that
                returns one, called when due. Copied now, binned later; NaN and infinities are
                counted apart.
            bins: How many bins of equal width.
            step, axis, every, options: As for `image`.
        """

        def make() -> tuple[Any, int]:
            value = copy_array(values() if callable(values) else values)
            event = HistogramEvent(tag=tag, edges=[], counts=[], **self._axes(step, axis, options))
            item = DeferredHistogram(event, value, bins)
            return item, item.size

        self._emit(tag, every, make)

    def text(
        self,
        tag: str,
        text: str | Callable[[], str],
        *,
        step: int | None = None,
        axis: str | None = None,
        every: str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Log a text; trackers that can show Markdown do.

        Args:
            tag: Its name.
            text: The text, or a function that returns it, called when due.
            step, axis, every, options: As for `image`.
        """

        def make() -> tuple[Any, int]:
            value = str(text() if callable(text) else text)
            event = TextEvent(tag=tag, text=value, **self._axes(step, axis, options))
            return _sized(event, len(value))

        self._emit(tag, every, make)

    def table(
        self,
        tag: str,
        rows: Any,
        columns: Sequence[str] | None = None,
        *,
        step: int | None = None,
        axis: str | None = None,
        every: str | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Log a table of plain values.

        Args:
            tag: Its name.
            rows: Rows of cells, rows as mappings, a mapping of columns, a data frame, or a
                function that returns one of these, called when due.
            columns: Their names, where `rows` does not have them.
            step, axis, every, options: As for `image`.
        """

        def make() -> tuple[Any, int]:
            names, cells = plain_table(columns, rows() if _is_maker(rows) else rows)
            event = TableEvent(
                tag=tag, columns=names, rows=cells, **self._axes(step, axis, options)
            )
            return _sized(event, 32 * len(names) * len(cells))

        self._emit(tag, every, make)

    def artifact(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        kind: str = "file",
        metadata: Mapping[str, Any] | None = None,
        copy: bool = False,
        step: int | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Log a file or a folder that belongs to the run.

        Args:
            path: It must exist.
            name: What to call it; the last part of the path by default.
            kind: dataset, model, checkpoint, ...
            metadata: Plain values about it.
            copy: Copy the file into the run (on the writer's thread) instead of pointing to it.
            step: Where it is, if not at the run's step.
            options: As for `image`.
        """

        def make() -> tuple[Any, int]:
            full = Path(path).resolve(strict=True)
            if copy and not full.is_file():
                raise ValueError("copy=True takes a file, not a folder; pack it first")
            event = ArtifactEvent(
                name=name or full.name,
                kind=kind,
                path=str(full),
                size=full.stat().st_size if full.is_file() else 0,
                metadata=plain_config(metadata or {}),
                **self._axes(step, None, options),
            )
            return (DeferredArtifact(event, self._needs_blobs()), 0) if copy else (event, 0)

        self._emit(name or str(path), None, make)


def _is_maker(value: Any) -> bool:
    return callable(value) and not hasattr(value, "savefig") and not hasattr(value, "columns")


def _sized(event: Event, size: int) -> tuple[Any, int]:
    return (Sized(event, size), size) if size > 4096 else (event, 0)
