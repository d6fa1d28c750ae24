"""What is said outside the program: environment variables, and a section of a TOML file.

An argument of the program comes first, then the environment, then the file: ``eventlog.toml``, or
``[tool.eventlog]`` in ``pyproject.toml``, of the working directory or the nearest one above it
that has either, up to the root of the repository.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from eventlog.exceptions import EventlogError

__all__ = ["Settings", "load_settings"]

SINKS, PROJECT, DIR, CONFIG = (
    "EVENTLOG_SINKS",
    "EVENTLOG_PROJECT",
    "EVENTLOG_DIR",
    "EVENTLOG_CONFIG",
)
_SECTION = "[tool.eventlog"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was found.

    Attributes:
        project, dir: For `Run`; None where nothing is said.
        sinks: A name, a list of names, or aliases with options; None where nothing is said.
        every, reduce: For sinks that do not say.
        options: What a sink gets, by its alias, where the program does not say otherwise.
    """

    project: str | None = None
    dir: str | None = None
    sinks: str | list[str] | dict[str, str | dict[str, Any]] | None = None
    every: str | None = None
    reduce: str | dict[str, str] | None = None
    options: dict[str, dict[str, Any]] = {}


def load_settings(start: Path | None = None) -> Settings:
    """Return what the environment and the nearest file say.

    Args:
        start: Where to look for the file; the working directory by default.

    Raises:
        EventlogError: The file cannot be read, or says something that is not known.
    """
    path = _find(start)
    found = Settings() if path is None else _read(path)
    changes: dict[str, Any] = {}
    if SINKS in os.environ:
        changes["sinks"] = _names(os.environ[SINKS])
    if os.environ.get(PROJECT):
        changes["project"] = os.environ[PROJECT]
    if os.environ.get(DIR):
        changes["dir"] = os.environ[DIR]
    return msgspec.structs.replace(found, **changes) if changes else found


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    return [name for name in names if name and name != "none"]


def _find(start: Path | None) -> Path | None:
    given = os.environ.get(CONFIG)
    if given is not None:
        return Path(given) if given else None
    try:
        here = Path.cwd() if start is None else start
    except OSError:  # the working directory was removed
        return None
    for folder in (here, *here.parents):
        own = folder / "eventlog.toml"
        if own.is_file():
            return own
        project = folder / "pyproject.toml"
        if project.is_file():
            return project
        if (folder / ".git").exists():
            return None
    return None


def _read(path: Path) -> Settings:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if path.name == "pyproject.toml":
            return Settings()
        raise EventlogError(f"{path} cannot be read: {error}") from None
    whole = path.name != "pyproject.toml"
    if not whole and _SECTION not in text:
        return Settings()  # somebody else's file, whatever is wrong with it
    try:
        content: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EventlogError(f"{path} is no TOML: {error}") from None
    except RecursionError:
        raise EventlogError(f"{path} is nested too deeply") from None
    where = str(path)
    tools = content.get("tool")
    sections = tools if isinstance(tools, dict) else {}
    if not whole or "eventlog" in sections:
        content = sections.get("eventlog", {})
        where = f"{path}, [tool.eventlog]"
    try:
        found = msgspec.convert(content, Settings)
    except msgspec.ValidationError as error:
        known = ", ".join(Settings.__struct_fields__)
        raise EventlogError(f"{where}: {error}; it may say: {known}") from None
    if found.dir is not None:
        # a program that is started in a folder below means the same place
        found = msgspec.structs.replace(found, dir=str(path.parent / found.dir))
    return found
