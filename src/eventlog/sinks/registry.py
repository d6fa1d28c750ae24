"""Which sinks there are: the entry points of the group ``eventlog.sinks``.

Nothing is imported until a sink is named, and a broken plugin is in nobody's way but that of who
asks for it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eventlog._version import __version__
from eventlog.exceptions import SinkLoadError, SinkNotFoundError
from eventlog.sinks._thread import is_users_own
from eventlog.sinks.base import Sink

__all__ = ["BUILT_IN", "GROUP", "KNOWN", "SinkEntry", "available_sinks", "load_sink_class"]

logger = logging.getLogger("eventlog")

GROUP = "eventlog.sinks"

BUILT_IN = {
    "console": "eventlog.sinks.console:ConsoleSink",
    "log": "eventlog.sinks.log:LogSink",
}

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
    for entry in _entries(importlib.metadata.distributions()):
        other = found.get(entry.name)
        if other is None:
            found[entry.name] = entry
        elif other.target != entry.target:
            found[entry.name] = other._replace(duplicates=(*other.duplicates, entry.package))
    for name, target in BUILT_IN.items():
        # also in a source tree that was never installed
        found.setdefault(name, SinkEntry(name, target, "eventlog-bus", __version__))
    return dict(sorted(found.items()))


def _entries(dists: Iterable[importlib.metadata.Distribution]) -> Iterator[SinkEntry]:
    """Yield what each distribution declares; of two with one name the first on the path counts.

    `importlib.metadata.entry_points` fails for everybody where one distribution is damaged.
    """
    seen: set[str] = set()
    for dist in dists:
        try:
            points = [p for p in dist.entry_points if p.group == GROUP]
            if not points:
                continue
            package, version = dist.name, dist.version
        except Exception as error:
            logger.debug("eventlog: %r cannot be read: %r", dist, error)
            continue
        key = str(package).replace("_", "-").lower()
        if key not in seen:
            seen.add(key)
            for point in points:
                yield SinkEntry(point.name, point.value, str(package), str(version))


def load_sink_class(name: str) -> type[Sink]:
    """Import the sink of that name, or the class at ``module:Class``.

    Raises:
        SinkNotFoundError: None is installed; says how to install it where that is known.
        SinkLoadError: It does not import, is no sink, or several packages claim the name.
    """
    entries = available_sinks()
    entry = entries.get(name)
    if entry is None and ":" in name:
        entry = SinkEntry(name, name, "your own code", "")
    if entry is None:
        raise SinkNotFoundError(_not_found(name, entries))
    if entry.duplicates:
        packages = ", ".join((entry.package, *entry.duplicates))
        raise SinkLoadError(
            f"several packages bring a sink named {name!r}: {packages}; uninstall all but one"
        )
    point = importlib.metadata.EntryPoint(name, entry.target, GROUP)
    own = name not in entries
    try:
        kind = point.load()
    except BaseException as error:
        if is_users_own(error):
            raise
        problem = f"does not load: {type(error).__name__}: {error}"
        if own:
            raise SinkLoadError(f"sink {name!r} {problem}") from error
        raise SinkLoadError(
            f"sink {name!r} ({entry.target}, from {entry.package} {entry.version}) {problem}; "
            f"reinstall it: {install_command(name, entry)}"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Sink)):
        raise SinkLoadError(
            f"sink {name!r}{'' if own else f' ({entry.target}, from {entry.package})'} must be a "
            f"subclass of eventlog.Sink, not {kind!r}"
        )
    missing = [m for m in kind.requires if not _importable(m)]
    if missing:
        raise SinkLoadError(
            f"sink {name!r} needs {', '.join(missing)}, which is not installed"
            + ("" if own else f": {install_command(name, entry)}")
        )
    return kind


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent that is missing, or broken
        return False


def install_command(name: str, entry: SinkEntry | None = None) -> str:
    """Return what to type to have a sink."""
    if entry is not None and name not in KNOWN:
        return f"pip install {entry.package}"
    return f"pip install eventlog-{name}"


def _not_found(name: str, entries: dict[str, SinkEntry]) -> str:
    installed = f"installed are: {', '.join(entries)}"
    if name in KNOWN:
        return f"sink {name!r} is not installed ({install_command(name)}); {installed}"
    return (
        f"there is no sink named {name!r}; {installed}; a package that brings it declares an "
        f"entry point {name!r} in the group {GROUP!r}"
    )
