"""``eventlog sinks``: which sinks are installed, and whether they work."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from typing import Annotated, Any, NamedTuple

import typer

from eventlog._settings import Settings, load_settings
from eventlog.cli.arguments import JsonOption
from eventlog.cli.outcome import FOUND_WRONG, one_line, reported
from eventlog.cli.output import write_json, write_table
from eventlog.exceptions import EventlogError
from eventlog.sinks._thread import is_users_own
from eventlog.sinks.base import CAPABILITIES
from eventlog.sinks.registry import (
    BUILT_IN,
    SinkEntry,
    available_sinks,
    install_command,
    load_sink_class,
)
from eventlog.sinks.select import select_sinks, unready

__all__ = ["sinks", "tracker_packages"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OURS = "eventlog-bus"
_IMPORT = """
import importlib, sys
try:
    for name in sys.argv[1:]:
        importlib.import_module(name)
except BaseException as error:
    sys.stderr = sys.__stderr__
    sys.exit(f"{type(error).__name__}: {error}")
"""


class _Row(NamedTuple):
    name: str
    package: str
    version: str
    sdk: dict[str, str | None]
    shows: list[str]
    runs: str
    state: str
    writes: str


@reported
def sinks(
    check: Annotated[
        bool, typer.Option("--check", help="Import each tracker's SDK, too, and say if that works.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the installed sinks: what each shows, whether it could start now, where it would write.

    The settings of the environment and of pyproject.toml or eventlog.toml hold. A sink that is
    not ready says what is missing; exit code 1 means that one is broken.

    Example: eventlog sinks --check
    """
    settings = load_settings()
    rows = [_row(entry, check, settings) for entry in available_sinks().values()]
    if json:
        write_json([row._asdict() for row in rows])
    else:
        write_table(
            ["name", "package", "version", "sdk", "shows", "runs in", "state", "writes to"],
            [
                (r.name, r.package, r.version, _sdk(r.sdk), _shown(r.shows), r.runs,
                 r.state.partition(":")[0], r.writes)
                for r in rows
            ],
        )  # fmt: skip
        # whole sentences would make the table wider than any screen
        for row in rows:
            if ":" in row.state:
                typer.echo(f"\n{row.name} is {row.state}")
    if any(row.state.startswith("broken") for row in rows):
        raise typer.Exit(FOUND_WRONG)


def _row(entry: SinkEntry, check: bool, settings: Settings) -> _Row:
    sdk = tracker_packages(entry)
    row = _Row(entry.name, entry.package, entry.version, sdk, [], "-", "", "-")
    absent = [package for package, version in sdk.items() if version is None]
    if entry.duplicates:
        packages = ", ".join((entry.package, *entry.duplicates))
        return row._replace(state=f"broken: several packages bring it: {packages}")
    if absent:
        advice = install_command(entry.name, entry)
        return row._replace(state=f"broken: {', '.join(absent)} is missing: {advice}")
    try:
        kind = load_sink_class(entry.name)
        problem = _import_problem(kind.requires) if check else None
        if problem is not None:
            return row._replace(state=f"broken: {problem}")
        row = row._replace(shows=sorted(kind.capabilities), runs=kind.isolation)
        spec = select_sinks(entry.name, settings=settings)[0]
        problem = unready(spec)
        target = "" if entry.name in BUILT_IN else spec.make().target()
    except EventlogError as error:
        return row._replace(state=f"broken: {one_line(error)}")
    except BaseException as error:  # of a plugin of anybody's, or of its SDK
        if is_users_own(error):
            raise
        return row._replace(state=f"broken: {type(error).__name__}: {one_line(error)}")
    if entry.name not in BUILT_IN:
        # what is neither a path nor an address tells of nothing but the run's own directory
        shown = target.rstrip("/|:") if "/" in target else ""
        row = row._replace(writes=shown or f"<run>/{entry.name}")
    return row._replace(state="ready" if problem is None else f"not ready: {problem}")


def _import_problem(modules: tuple[str, ...]) -> str | None:
    """Import modules in a process of their own, where they can change nothing here."""
    if not modules:
        return None
    done = subprocess.run(  # noqa: S603 - the names are a sink's own, and are imported anyway
        [sys.executable, "-c", _IMPORT, *modules], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    return " ".join(done.stderr.split()) or f"importing it ended with {done.returncode}"


def _shown(capabilities: list[str]) -> str:
    left_out = sorted(CAPABILITIES.difference(capabilities))
    if not capabilities:
        return "-"
    if len(left_out) < len(capabilities):
        return f"all but {', '.join(left_out)}" if left_out else "all"
    return ", ".join(capabilities)


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
