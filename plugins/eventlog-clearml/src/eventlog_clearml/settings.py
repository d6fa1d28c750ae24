"""The sink's options, checked, and whether ClearML can work with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eventlog.sinks.base import RunInfo
from eventlog_clearml.convert import plain_text
from eventlog_clearml.session import NO_CREDENTIALS
from eventlog_clearml.tasks import Wanted

__all__ = ["Settings", "is_offline", "why_unready"]

_TYPES = (
    "training",
    "testing",
    "inference",
    "data_processing",
    "application",
    "monitor",
    "controller",
    "optimizer",
    "service",
    "qc",
    "custom",
)
_SHORTEST_NAME = 3
_CREDENTIALS = ("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY")


class Settings:
    """The options; see `ClearmlSink` for what they mean.

    Raises:
        TypeError, ValueError: An option cannot be used.
    """

    def __init__(
        self,
        *,
        project: str | None,
        offline: bool | None,
        dir: str | os.PathLike[str] | None,
        task_id: str | None,
        task_type: str,
        adopt: bool,
        api_server: str | None,
        web_server: str | None,
        files_server: str | None,
        output_uri: str | None,
        upload_artifacts: bool,
        init: Mapping[str, Any] | None,
    ) -> None:
        texts = {"project": project, "task_id": task_id, "output_uri": output_uri}
        texts |= {"api_server": api_server, "web_server": web_server, "files_server": files_server}
        for option, value in texts.items():
            if value is not None and (not isinstance(value, str) or not value):
                raise TypeError(f"{option} must be a text that is not empty, not {value!r}")
        for option, flag in {"adopt": adopt, "upload_artifacts": upload_artifacts}.items():
            if not isinstance(flag, bool):
                raise TypeError(f"{option} must be True or False, not {flag!r}")
        if not (offline is None or isinstance(offline, bool)):
            raise TypeError(f"offline must be True, False or None, not {offline!r}")
        if not (dir is None or isinstance(dir, str | os.PathLike)):
            raise TypeError(f"dir must be a path, not {dir!r}")
        if task_type not in _TYPES:
            raise ValueError(f"task_type must be one of {', '.join(_TYPES)}, not {task_type!r}")
        if not (init is None or isinstance(init, Mapping)):
            raise TypeError(f"init must be a mapping of arguments of Task.init, not {init!r}")
        self.project, self.task_id, self.output_uri = project, task_id, output_uri
        self.api_server, self.web_server, self.files_server = api_server, web_server, files_server
        self.offline = is_offline({"offline": offline})
        self.dir = None if dir is None else Path(dir).absolute()
        self.task_type, self.adopt, self.upload_artifacts = task_type, adopt, upload_artifacts
        self.init = None if init is None else dict(init)

    def wanted(
        self, run: RunInfo, task_id: str | None, count: Callable[[str, int], None]
    ) -> Wanted:
        """Return which task is to be opened for a run.

        Args:
            run: The run.
            task_id: The task that this sink had open before, if any.
            count: Told what cannot be called by its name.
        """

        def long_enough(name: str) -> str:
            name = plain_text(name).strip() or "run"
            if len(name) >= _SHORTEST_NAME:
                return name
            count("name shorter than 3 characters: lengthened", 1)
            return name.ljust(_SHORTEST_NAME, "_")

        name = run.name or run.run_id
        folder = self.dir or run.directory or Path("clearml").absolute()
        return Wanted(
            project=long_enough(self.project or run.project or "eventlog"),
            name=long_enough(f"{name} rank {run.rank}" if run.rank else name),
            task_type=self.task_type,
            task_id=task_id or run.state.get("run_id") or self.task_id,
            folder=folder if self.offline else None,
            api_server=self.api_server,
            adopt=self.adopt,
            init=self.init,
        )

    def target(self) -> str:
        """Return what identifies the place that these options write to."""
        if self.offline:
            return f"offline:{self.dir or ''}"
        server = self.api_server or os.environ.get("CLEARML_API_HOST", "")
        return f"{server}|{self.project or ''}|{self.task_id or ''}"


def is_offline(options: Mapping[str, Any]) -> bool:
    """Whether the options, or else the environment, say that ClearML has no server."""
    offline = options.get("offline")
    if offline is None:
        said = os.environ.get("CLEARML_OFFLINE_MODE", "").strip().lower()
        return said not in ("", "0", "false", "no")
    return bool(offline)


def why_unready(options: Mapping[str, Any]) -> str | None:
    """Return what is missing for ClearML to log in, or None."""
    if is_offline(options) or os.environ.get("CLEARML_AUTH_TOKEN"):
        return None
    if all(os.environ.get(name) for name in _CREDENTIALS):
        return None
    given = os.environ.get("CLEARML_CONFIG_FILE") or "~/clearml.conf"
    if Path(given).expanduser().is_file():
        return None
    return NO_CREDENTIALS
