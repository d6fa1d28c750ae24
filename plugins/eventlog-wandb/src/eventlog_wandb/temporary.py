"""What the SDK keeps outside of a run's folder, and removes only when the interpreter exits.

A process that delivers for others ends before that, so these folders go with the last run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

__all__ = ["make_on_demand", "release", "remove_empty"]


class _OnDemand(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is made again when somebody asks for its name."""

    @property
    def name(self) -> str:
        path: str = vars(self)["name"]
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    @name.setter
    def name(self, path: str) -> None:
        vars(self)["name"] = path


# None of it has a public name in the SDK; where one is missing, a folder stays.


def make_on_demand() -> None:
    """Let the SDK's folder for media be removed before the process ends, whoever uses it later."""
    folder = _media()
    if type(folder) is tempfile.TemporaryDirectory:
        folder.__class__ = _OnDemand


def release(values: Iterable[Any]) -> None:
    """Remove what was written of tables that are logged: the SDK has staged a copy."""
    for value in values:
        artifact = getattr(getattr(value, "_artifact_target", None), "artifact", None)
        folder = getattr(artifact, "_tmp_dir", None)
        if folder is not None:
            folder.cleanup()


def remove_empty() -> None:
    """Remove the SDK's temporary folders, if nothing is in them."""
    media, artifact = _media(), _loaded("wandb.sdk.artifacts.artifact", "Artifact")
    made_again = media if isinstance(media, _OnDemand) else None
    for folder in (made_again, getattr(artifact, "_TMP_DIR", None)):
        if folder is not None:
            with contextlib.suppress(OSError):
                os.rmdir(vars(folder)["name"])


def _media() -> Any:
    return _loaded("wandb.sdk.data_types._private", "MEDIA_TMP")


def _loaded(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)
