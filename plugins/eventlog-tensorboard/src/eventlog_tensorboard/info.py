"""What concerns a run as a whole: hyperparameters, status, and its description.

TensorBoard keeps the first hyperparameters that it finds for a run. They are therefore not
appended when they change: they have a small file of their own, named to be read first, that is
replaced. An experiment summary is left out on purpose: a server takes the first one it finds for
all runs, and would show no hyperparameter that this one run does not have; without it, the server
collects hyperparameters and metrics from all runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from eventlog.events import Status
from eventlog.sinks.base import RunInfo
from eventlog.sinks.plain import as_json
from eventlog.sinks.plain import flatten as leaves
from eventlog_tensorboard.records import frame, replace_event_file
from eventlog_tensorboard.summaries import (
    file_head,
    hparams_value,
    load_protos,
    summary_event,
    text_value,
)

__all__ = ["INFO_TAGS", "RunPage", "flatten"]

INFO_STEP = -1
"""The step of what has none: before all others, so that no rewind purges it."""

_START, _END = "_hparams_/session_start_info", "_hparams_/session_end_info"
INFO_TAGS = frozenset({"config", "run", "status", _START, _END})
_EXACT = 2**53


def flatten(config: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Return hyperparameters as the HPARAMS tab takes them: bool, float or text by name.

    Lists, None, empty mappings and numbers that a float or JSON cannot hold become text.
    """
    return {name: _plain(value) for name, value in leaves(config).items()}


def _plain(value: Any) -> bool | float | str:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) <= _EXACT:
        return float(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@dataclass(slots=True)
class RunPage:
    """The run's own file, and what is in it.

    Attributes:
        path: The file.
        run: As it was given to `open`.
        hparams: Whether there is a row in the HPARAMS tab.
        config: Hyperparameters known by now.
        started: Seconds since 1970.
        status: Once the run ended.
        error: What ended it.
        ended: Seconds since 1970.
        stale: The file lacks something.
    """

    path: Path
    run: RunInfo
    hparams: bool
    config: dict[str, Any]
    started: float
    status: Status | None = None
    error: str | None = None
    ended: float = 0.0
    stale: bool = field(default=True)

    @classmethod
    def in_folder(cls, folder: Path, run: RunInfo, hparams: bool, started: float) -> RunPage:
        """Return the page of a run; `write` makes the file."""
        digest = sha256(run.run_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        path = folder / f"events.out.tfevents.{0:010d}.{digest}.run"
        return cls(path, run, hparams, dict(run.config), started)

    def update(self, config: Mapping[str, Any]) -> None:
        """Merge hyperparameters over those before."""
        merged = self.config | dict(config)
        self.stale = self.stale or merged != self.config
        self.config = merged

    def start(self, at: float) -> None:
        """Take note of when the run began."""
        self.stale = self.stale or at != self.started
        self.started = at

    def end(self, status: Status, at: float) -> None:
        """Take note of how the run ended."""
        self.status, self.ended, self.stale = status, at, True

    def write(self) -> None:
        """Replace the file, if it lacks anything.

        Raises:
            OSError: It cannot be written.
        """
        if not self.stale:
            return
        events = file_head(self.started, None)
        for build, tag in self._summaries():
            events.append(summary_event(self.started, INFO_STEP, build(tag)))
        replace_event_file(self.path, b"".join(map(frame, events)))
        self.stale = False

    def _summaries(self) -> list[tuple[Callable[[str], Any], str]]:
        found: list[tuple[Callable[[str], Any], str]] = []
        if self.hparams:
            found.append((self._start, _START))
            if self.status is not None:
                found.append((self._end, _END))
        found.append((lambda tag: text_value(tag, self._description()), "run"))
        if self.config:
            found.append((lambda tag: text_value(tag, as_json(self.config)), "config"))
        if self.status is not None:
            status = self.status if self.error is None else f"{self.status}: {self.error}"
            found.append((lambda tag: text_value(tag, status), "status"))
        return found

    def _description(self) -> str:
        run = self.run
        known = {
            "project": run.project,
            "name": run.name,
            "run_id": run.run_id,
            "group": run.group,
            "tags": list(run.tags),
            "notes": run.notes,
            "provenance": run.provenance,
        }
        return as_json({key: value for key, value in known.items() if value})

    def _start(self, tag: str) -> Any:
        info = load_protos().hparams.SessionStartInfo(
            group_name=_utf8(self.run.run_id), start_time_secs=self.started
        )
        for key, value in flatten(self.config).items():
            kind = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
            plain = _utf8(value) if isinstance(value, str) else value
            setattr(info.hparams[_utf8(key)], kind, plain)
        return hparams_value(tag, session_start_info=info)

    def _end(self, tag: str) -> Any:
        protos = load_protos()
        good = self.status == "finished"
        status = protos.hparams_api.Status.Value("STATUS_SUCCESS" if good else "STATUS_FAILURE")
        info = protos.hparams.SessionEndInfo(status=status, end_time_secs=self.ended)
        return hparams_value(tag, session_end_info=info)
