"""``eventlog sinks``: which sinks are installed, and whether they work."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Annotated, Any, NamedTuple

import typer

from eventlog.cli.arguments import JsonOption
from eventlog.cli.outcome import FOUND_WRONG, one_line, reported
from eventlog.cli.output import write_json, write_table
from eventlog.exceptions import SinkError
from eventlog.sinks.registry import SinkEntry, available_sinks, install_command, load_sink_class

__all__ = ["sinks", "tracker_packages"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OURS = "eventlog-bus"


class _Row(NamedTuple):
    name: str
    package: str
    version: str
    sdk: dict[str, str | None]
    state: str


@reported
def sinks(
    check: Annotated[
        bool, typer.Option("--check", help="Load each sink and say if that works.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the installed sinks."""
    rows = [_row(entry, check) for entry in available_sinks().values()]
    if json:
        write_json([row._asdict() for row in rows])
    else:
        write_table(
            ["name", "package", "version", "sdk", "state"],
            [(r.name, r.package, r.version, _sdk(r.sdk), r.state) for r in rows],
        )
    if any(row.state.startswith("broken") for row in rows):
        raise typer.Exit(FOUND_WRONG)


def _row(entry: SinkEntry, check: bool) -> _Row:
    sdk = tracker_packages(entry)
    state = "installed"
    absent = [package for package, version in sdk.items() if version is None]
    if entry.duplicates:
        packages = ", ".join((entry.package, *entry.duplicates))
        state = f"broken: several packages bring it: {packages}"
    elif absent:
        state = f"broken: {', '.join(absent)} is missing: {install_command(entry.name, entry)}"
    elif check:
        try:
            load_sink_class(entry.name)
            state = "ok"
        except SinkError as error:
            state = f"broken: {one_line(error)}"
    return _Row(entry.name, entry.package, entry.version, sdk, state)


def tracker_packages(entry: SinkEntry) -> dict[str, str | None]:
    """Return the versions of the tracker's own packages, read from the plugin's metadata.

    These are the requirements that are called like the sink, or else all of them but eventlog.

    Returns:
        By package; None for one that is not installed.
    """
    if entry.package == _OURS:
        return {}
    try:
        requires = importlib.metadata.requires(entry.package) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    names: list[str] = []
    for requirement in requires:
        match = _NAME.match(requirement)
        if match and "extra ==" not in requirement and _normal(match.group()) != _OURS:
            names.append(match.group())
    named = [n for n in names if _normal(n).startswith(_normal(entry.name))]
    return {name: _version(name) for name in named or names}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _sdk(packages: dict[str, Any]) -> str:
    return (
        ", ".join(f"{name} {version or '(missing)'}" for name, version in packages.items()) or "-"
    )
