"""The sink's options, checked before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from eventlog_wandb.settings import MODES

__all__ = ["checked"]

_TEXTS = ("project", "entity", "server", "run_id")
# arguments of `wandb.init` that are options of the sink, or what it relies on
_OURS = {
    "config": "the run's own config",
    "dir": "the option dir",
    "entity": "the option entity",
    "id": "the option run_id",
    "mode": "the option mode",
    "project": "the option project",
    "reinit": "left alone",
    "resume": "left alone",
    "resume_from": "left alone",
}


def checked(**options: Any) -> dict[str, Any]:
    """Return the options.

    Raises:
        TypeError, ValueError: One of them is not what it must be.
    """
    mode = options["mode"]
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    for name in _TEXTS:
        if options[name] is not None and not (isinstance(options[name], str) and options[name]):
            raise ValueError(f"{name} must be a text that is not empty, not {options[name]!r}")
    folder = options["dir"]
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise TypeError(f"dir must be a path, not {folder!r}")
    limit = options["artifact_limit"]
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ValueError(f"artifact_limit must be a number of bytes, not {limit!r}")
    return options | {"init": _init(options["init"])}


def _init(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"init must be a mapping of wandb.init's arguments, not {given!r}")
    for name in given:
        if name in _OURS:
            raise ValueError(f"init must not have {name!r}: that is {_OURS[name]}")
    settings = given.get("settings", {})
    if not isinstance(settings, Mapping):
        raise TypeError(f"init['settings'] must be a mapping of settings, not {settings!r}")
    return {**given, "settings": dict(settings)}
