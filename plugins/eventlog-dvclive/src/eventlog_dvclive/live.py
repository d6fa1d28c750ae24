"""DVCLive's own object, made so that it leaves alone what nobody asked it to touch."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eventlog_dvclive.files import replace_file
from eventlog_dvclive.rows import PLOT

__all__ = ["LiveFiles", "mend_files", "start_live", "untouched"]


@contextmanager
def untouched() -> Iterator[None]:
    """Undo what importing DVC does to the process.

    DVC replaces the standard streams by colorama's, and what it imports adds filters for warnings.
    Only these are taken back: what another thread of the user's changes meanwhile stays.
    """
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    filters = list(warnings.filters)
    try:
        yield
    finally:
        for name, stream in streams.items():
            if type(getattr(sys, name)).__module__.startswith("colorama"):
                setattr(sys, name, stream)
        added = [entry for entry in warnings.filters if entry not in filters]
        if any(map(_by_library, added)):
            kept = [e for e in warnings.filters if e in filters or not _by_library(e)]
            # through the module's own function, which makes it forget what it remembered
            warnings.filters[:] = kept  # type: ignore[index]
            getattr(warnings, "_filters_mutated", lambda: None)()


def _by_library(entry: Any) -> bool:
    """Whether a library added a filter: for a category of its own, or about numpy's sizes."""
    _, message, category, _, _ = entry
    pattern = getattr(message, "pattern", message) or ""
    return category.__module__ != "builtins" or str(pattern).startswith("numpy.")


def mend_files(folder: Path) -> list[str]:
    """Remove what DVCLive could not read when it goes on; return the names.

    DVCLive writes these files in place, so a killed process can leave half of one. Metrics are
    found in their own files again, and hyperparameters are told again.

    Raises:
        OSError: A file cannot be read or removed.
    """
    from dvclive import serialize

    sdk: Any = serialize
    damaged = []
    for name in ("metrics.json", "params.yaml"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            found = sdk.load_yaml(path) if name == "params.yaml" else json.loads(path.read_bytes())
        except (ValueError, sdk.YAMLFileCorruptedError):
            found = None
        if not isinstance(found, dict):
            path.unlink()
            damaged.append(name)
    return damaged


def start_live(
    folder: Path, options: Mapping[str, Any], *, resume: bool, repository: bool, studio: bool
) -> Any:
    """Return a `dvclive.Live` for a folder.

    Args:
        folder: Where its files lie.
        options: More of its own options.
        resume: Whether to keep what is there.
        repository: Whether it may use the git and DVC repositories that the process is in. By
            itself, DVCLive would make a DVC repository in a git repository that has none.
        studio: Whether it may post to DVC Studio, which it would do wherever it finds a token.
    """
    from dvclive.live import Live

    class LocalLive(Live):
        """Posts nothing to DVC Studio."""

        def _init_studio(self) -> None:
            self._studio_events_to_skip |= {"start", "data", "done"}

        def post_data_to_studio(self) -> None:
            pass

    class FolderLive(LocalLive):
        """Touches nothing outside its folder, but for the dvc.yaml that it is told to write."""

        def _init_dvc(self) -> None:
            self._dvc_file = self._init_dvc_file()

        def _init_test(self) -> None:
            self._init_dvc()

        def end(self) -> None:
            live: Any = self
            if live._inside_with:
                return
            if live._system_monitor is not None:
                live._system_monitor.end()
            live.sync()

    kind: Any = Live if studio else LocalLive if repository else FolderLive
    return kind(dir=str(folder), resume=resume, **options)


class LiveFiles:
    """The files that DVCLive's object writes: metrics.json, params.yaml, and where asked more.

    Args:
        live: The object.
    """

    def __init__(self, live: Any) -> None:
        self.live = live
        self.folder = Path(live.dir)
        self.plots_dir = Path(live.plots_dir)
        self._params: dict[str, Any] = {}
        # with these, DVCLive is to know about images and plots
        self.listed = bool(
            live._dvcyaml or live._report_mode or live._cache_images or live._dvc_studio_config
        )

    def add_params(self, params: Mapping[str, Any]) -> None:
        """Take hyperparameters, which the next `write_params` writes."""
        self._params |= params

    def write_params(self) -> None:
        """Write params.yaml, if it lacks anything.

        Raises:
            OSError: It cannot be written.
        """
        if self._params:
            self.live.log_params(self._params)
            self._params = {}

    def write_summary(self, latest: Mapping[str, Any], gone: set[str], step: int | None) -> None:
        """Write metrics.json as `Live.make_summary` does, at once.

        Args:
            latest: The value of each metric, by names with ``/``.
            gone: Names that are not there any more.
            step: The step that the run has come to.

        Raises:
            OSError: It cannot be written.
        """
        from dvclive import serialize
        from dvclive.plots.utils import NumpyEncoder

        sdk: Any = serialize
        summary: dict[str, Any] = self.live.summary
        for name in gone:
            _remove(summary, name.split("/"))
        for name, value in latest.items():
            _put(summary, name.split("/"), value)
        if step is not None:
            self.live.step = step
            summary["step"] = step
        replace_file(
            Path(self.live.metrics_file),
            lambda temporary: sdk.dump_json(summary, os.fspath(temporary), cls=NumpyEncoder),
        )

    def sync(self) -> None:
        """Write what DVCLive makes of everything: dvc.yaml, a report, a post to DVC Studio."""
        self._forget_removed()
        self.live.sync()

    def end(self) -> None:
        """End DVCLive's run."""
        self._forget_removed()
        self.live.end()

    def list_present(self) -> None:
        """Tell DVCLive about images and plots of an earlier process."""
        if not self.listed:
            return
        for path in sorted((self.plots_dir / "images").rglob("*")):
            if path.is_file():
                self.list_image(path)
        found = [path for path in (self.plots_dir / "custom").rglob("*.json") if path.is_file()]
        for path in sorted(found, key=lambda path: (path.parent, len(path.name), path.name)):
            self.list_plot(path, path.parent.relative_to(self.plots_dir / "custom").as_posix())

    def list_image(self, path: Path) -> None:
        """Tell DVCLive about an image that lies among its plots."""
        if self.listed:
            from dvclive.plots.image import Image

            name = path.relative_to(self.plots_dir / "images").as_posix()
            image = self.live._images[name] = Image(name, str(self.plots_dir))
            image.step = self.live.step

    def list_plot(self, path: Path, title: str) -> None:
        """Tell DVCLive about a plot's newest file; a report wants to know of all."""
        if not self.listed:
            return
        from dvclive.plots.custom import CustomPlot

        name = path.relative_to(self.plots_dir / "custom").with_suffix("").as_posix()
        plots: dict[str, Any] = self.live._plots
        if not self.live._report_mode:
            folder = name.rpartition("/")[0]
            for older in [one for one in plots if one.rpartition("/")[0] == folder]:
                del plots[older]
        plots[name] = CustomPlot(name, str(self.plots_dir), title=title, **PLOT)

    def _forget_removed(self) -> None:
        for listed in (self.live._images, self.live._plots):
            for name in [name for name, one in listed.items() if not one.output_path.exists()]:
                del listed[name]


def _put(nested: dict[str, Any], parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        inner = nested.get(part)
        if not isinstance(inner, dict):
            inner = nested[part] = {}
        nested = inner
    nested[parts[-1]] = value


def _remove(nested: dict[str, Any], parts: list[str]) -> None:
    inner = nested.get(parts[0])
    if len(parts) == 1:
        nested.pop(parts[0], None)
    elif isinstance(inner, dict):
        _remove(inner, parts[1:])
        if not inner:
            del nested[parts[0]]
