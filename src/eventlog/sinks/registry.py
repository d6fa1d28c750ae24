"""Which sinks there are: the entry points of the group ``eventlog.sinks``.

Nothing is imported until a sink is named, and a broken plugin is in nobody's way but that of who
asks for it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable
from typing import NamedTuple

from eventlog.exceptions import SinkLoadError, SinkNotFoundError
from eventlog.sinks.base import Sink

__all__ = ["GROUP", "KNOWN", "SinkEntry", "available_sinks", "load_sink_class"]

GROUP = "eventlog.sinks"

KNOWN = ("aim", "clearml", "comet", "dvclive", "mlflow", "tensorboard", "wandb")
"""The plugins of this project; each is the package ``eventlog-<name>``."""


class SinkEntry(NamedTuple):
    """An installed sink, not loaded.

    Attributes:
        name: What to call it.
        target: Module and class.
        package, version: The distribution that brings it.
        duplicates: Other packages that claim the same name; it cannot be loaded then.
    """

    name: str
    target: str
    package: str
    version: str
    duplicates: tuple[str, ...] = ()


def available_sinks() -> dict[str, SinkEntry]:
    """Return the installed sinks by name, without importing any of them."""
    found: dict[str, SinkEntry] = {}
    for point in sorted(_entry_points(), key=lambda p: p.name):
        dist = point.dist
        package = dist.name if dist is not None else "?"
        version = dist.version if dist is not None else "?"
        other = found.get(point.name)
        if other is None:
            found[point.name] = SinkEntry(point.name, point.value, package, version)
        elif other.target != point.value:
            found[point.name] = other._replace(duplicates=(*other.duplicates, package))
    if "console" not in found:
        # run from a source tree that was never installed
        target = "eventlog.sinks.console:ConsoleSink"
        found["console"] = SinkEntry("console", target, "eventlog-bus", "?")
    return dict(sorted(found.items()))


def _entry_points() -> Iterable[importlib.metadata.EntryPoint]:
    return importlib.metadata.entry_points(group=GROUP)


def load_sink_class(name: str) -> type[Sink]:
    """Import the sink of that name.

    Raises:
        SinkNotFoundError: None is installed; says how to install it where that is known.
        SinkLoadError: It does not import, is no sink, or several packages claim the name.
    """
    entries = available_sinks()
    entry = entries.get(name)
    if entry is None:
        raise SinkNotFoundError(_not_found(name, entries))
    if entry.duplicates:
        packages = ", ".join((entry.package, *entry.duplicates))
        raise SinkLoadError(
            f"several packages bring a sink named {name!r}: {packages}; uninstall all but one"
        )
    point = importlib.metadata.EntryPoint(name, entry.target, GROUP)
    try:
        kind = point.load()
    except Exception as error:
        raise SinkLoadError(
            f"sink {name!r} ({entry.target}, from {entry.package} {entry.version}) does not "
            f"load: {type(error).__name__}: {error}; reinstall it: {install_command(name, entry)}"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Sink)):
        raise SinkLoadError(
            f"sink {name!r} ({entry.target}, from {entry.package}) must be a subclass of "
            f"eventlog.Sink, not {kind!r}"
        )
    missing = [m for m in kind.requires if importlib.util.find_spec(m) is None]
    if missing:
        raise SinkLoadError(
            f"sink {name!r} needs {', '.join(missing)}, which is not installed: "
            f"{install_command(name, entry)}"
        )
    return kind


def install_command(name: str, entry: SinkEntry | None = None) -> str:
    """Return what to type to have a sink."""
    if name in KNOWN:
        return f'pip install "eventlog-bus[{name}]"'
    return f"pip install {entry.package}" if entry is not None else f"pip install eventlog-{name}"


def _not_found(name: str, entries: dict[str, SinkEntry]) -> str:
    installed = f"installed are: {', '.join(entries)}"
    if name in KNOWN:
        return f"sink {name!r} is not installed ({install_command(name)}); {installed}"
    return (
        f"there is no sink named {name!r}; {installed}; a package that brings it declares an "
        f"entry point {name!r} in the group {GROUP!r}"
    )
