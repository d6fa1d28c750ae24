"""Any tracker that is written for Accelerate, as a sink."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from accelerate.state import PartialState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers

from eventlog.events import ArtifactEvent, BlobRef, Event, Status, TableEvent
from eventlog.exceptions import SinkNotFoundError, UnavailableError
from eventlog.sinks.base import CAPABILITIES, Confirms, RunInfo
from eventlog.sinks.names import Names
from eventlog.sinks.plain import flatten, json_text
from eventlog.sinks.tracker import At, TrackerSink

__all__ = ["AccelerateSink"]

_NO_TEXT = frozenset({"aim", "dvclive", "mlflow", "clearml"})
"""Trackers of Accelerate that drop a text, or raise."""

_ONE_IMAGE = frozenset({"aim", "clearml"})
"""Trackers whose `log_images` takes one image for a name, where the others take a list."""

_PROCESSES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


class AccelerateSink(TrackerSink):
    """Runs a tracker of Accelerate, or any `GeneralTracker`, as a sink.

    The tracker's methods are called on the sink's own thread: `start`, `store_init_configuration`
    with flat plain values, `log` with the step, `log_images`, `log_table` and `log_artifact` where
    it has them, `finish`. What it has no method for is turned into text, or counted.

    Such a tracker has one axis and says nothing about what arrived: values at batches and at axes
    of their own get names of their own, and all counts as safe only when the tracker has ended. It
    cannot go on with a run: a resumed run is a new one there, and gets everything.

    Args:
        tracker: A name ("tensorboard", "wandb", ...), a `LoggerType`, a class, or an instance.
        project: The tracker's `run_name`; the run's project by default.
        logging_dir: For trackers that need one; a folder in the run's directory by default.
        init_kwargs: Further arguments of the tracker, where it is not made yet.

    Raises:
        SinkNotFoundError: There is no such tracker, or its package is not installed.
        TypeError: `tracker` is none of these, or arguments are given for one that is made already.
    """

    name = "accelerate"
    capabilities: ClassVar[frozenset[str]] = CAPABILITIES - {"summary", "status", "custom"}
    confirms: ClassVar[Confirms] = "close"
    requires = ("accelerate",)

    def __init__(
        self,
        tracker: Any,
        *,
        project: str | None = None,
        logging_dir: str | os.PathLike[str] | None = None,
        init_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._given = _resolve(tracker)
        if isinstance(self._given, GeneralTracker) and (project or logging_dir or init_kwargs):
            raise TypeError("project, logging_dir and init_kwargs are for a tracker not made yet")
        self._project = project
        self._logging_dir = logging_dir
        self._init_kwargs = dict(init_kwargs or {})
        self._called = str(self._given.name)
        self._told_config = False
        # two of these in one list need an alias each
        self.name = f"accelerate-{self._called}"  # type: ignore[misc]

    def target(self) -> str:
        """Return the tracker's name and its folder."""
        return f"{self._called} {self._logging_dir or ''}".strip()

    def can(self, capability: str) -> bool:
        """Whether the tracker shows such things as they are, as far as its methods tell."""
        has = {
            "scalars": True,
            "config": True,
            "text": self._called not in _NO_TEXT,
            "image": callable(getattr(self._given, "log_images", None)),
            "table": callable(getattr(self._given, "log_table", None)),
            "artifact": callable(getattr(self._given, "log_artifact", None)),
        }
        return has.get(capability, False)

    def start(self, run: RunInfo) -> None:
        """Make the tracker, if it is not made yet, and start it."""
        _prepare_accelerate()
        tracker = self._given
        if isinstance(tracker, type):
            arguments: list[Any] = [self._project or run.project]
            if getattr(tracker, "requires_logging_directory", False):
                arguments.append(self._folder(run))
            tracker = tracker(*arguments, **self._init_kwargs)
        with contextlib.suppress(AttributeError):
            # which ranks have sinks is decided already, and asking Accelerate could wait for them
            tracker.main_process_only = False
        self._general = tracker
        self._told_config = False
        tracker.start()
        self.names = Names(
            path=None if run.directory is None else run.directory / "names.json",
        )
        self.tracker = tracker.tracker
        self.run_id = run.run_id
        where = getattr(tracker, "logging_dir", None)
        self.url = None if where is None else str(where)

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        """Log numbers, at the event's step."""
        self._log(event, axis, at, {self.names(key, axis): v for key, v in values.items()})

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        """Log a text as a value, as Accelerate does."""
        self._log(event, axis, at, {self.names(tag, axis, "text"): text})

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        """Log images, as arrays of shape (height, width, channels), integers from 0 to 255."""
        import numpy as np
        from PIL import Image

        name, step = self.names(tag, axis, "image"), _step(event, axis, at)
        arrays = [np.asarray(Image.open(path).convert("RGB")) for path, _ in images]
        options = self.options(event)
        if self._called in _ONE_IMAGE:
            for array in arrays:
                self._general.log_images({name: array}, step=step)
        elif self._called == "tensorboard":
            shown = options | {"dataformats": "NHWC"}
            for array in arrays:
                self._general.log_images({name: array[None]}, step=step, **shown)
        else:
            self._general.log_images({name: arrays}, step=step, **options)

    def table(self, event: TableEvent, axis: str, at: At) -> None:
        """Log a table by its columns and rows."""
        self._general.log_table(
            self.names(event.tag, axis, "table"),
            columns=event.columns,
            data=event.rows,
            step=_step(event, axis, at),
            **self.options(event),
        )

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        """Hand a file or a folder over."""
        if path is None:
            return
        if path.is_dir() and hasattr(self._general, "log_artifacts"):
            self._general.log_artifacts(str(path), event.name)
        else:
            self._general.log_artifact(str(path))

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Log hyperparameters, flat; those that come later can be refused, which is counted."""
        values = {key: self._setting(value) for key, value in flatten(changed).items()}
        if not self._told_config:
            self._general.store_init_configuration(values)
            self._told_config = True
            return
        try:
            self._general.store_init_configuration(values)
        except Exception as error:  # MLflow for one takes a value once
            self.count(f"config that comes later: {type(error).__name__}", len(values))

    def finish(self, status: Status, error: str | None) -> None:
        """End the tracker's run."""
        self._general.finish()

    def options(self, event: Event) -> dict[str, Any]:
        """Return what a call says for this sink, by its alias or the tracker's own name."""
        given = event.options or {}
        return dict(given.get(self.run.alias) or given.get(self._called) or {})

    def _log(self, event: Event, axis: str, at: At, values: Mapping[str, Any]) -> None:
        self._general.log(dict(values), step=_step(event, axis, at), **self.options(event))

    def _setting(self, value: Any) -> Any:
        if value is None:
            # add_hparams of TensorBoard's writer raises for it
            return "None" if self._called == "tensorboard" else None
        return value if isinstance(value, bool | int | float | str) else json_text(value)

    def _folder(self, run: RunInfo) -> str:
        folder = self._logging_dir or run.directory
        if folder is None:
            raise ValueError(
                f"{self._called} needs a folder, and the run has none (dir=None): give logging_dir="
            )
        return str(folder)


def _step(event: Event, axis: str, at: At) -> int | None:
    """Return the step to log at: the axis's own place, or for an epoch the step it ended at."""
    if axis == "epoch" and event.step is not None:
        return event.step
    return None if at is None else int(at)


def _resolve(tracker: Any) -> Any:
    if isinstance(tracker, GeneralTracker):
        return tracker
    if isinstance(tracker, type) and issubclass(tracker, GeneralTracker):
        return tracker
    name = getattr(tracker, "value", tracker)
    if not isinstance(name, str):
        raise TypeError(
            "tracker must be a name, a LoggerType, or a GeneralTracker or its class, "
            f"not {tracker!r}"
        )
    kind = LOGGER_TYPE_TO_CLASS.get(name)
    usable = [str(getattr(one, "value", one)) for one in get_available_trackers()]
    if kind is None:
        known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
        raise SinkNotFoundError(f"Accelerate has no tracker {name!r}; it has: {known}")
    if kind.__module__ == GeneralTracker.__module__ and name not in usable:
        raise SinkNotFoundError(
            f"Accelerate's tracker {name!r} needs a package that is not installed; those that are: "
            f"{', '.join(sorted(usable)) or 'none'}"
        )
    return kind


def _prepare_accelerate() -> None:
    """See to it that Accelerate knows its processes, without which its trackers cannot log.

    Raises:
        UnavailableError: Finding out would make a process group and wait for the other processes;
            that is for the program to do, and the sink is tried again until then.
    """
    if PartialState._shared_state != {}:
        return
    if any(os.environ.get(name, "1") not in ("", "1") for name in _PROCESSES):
        raise UnavailableError(
            "in a program of several processes, make an Accelerator() or PartialState() first; the "
            "tracker starts then"
        )
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "y", "on")
    PartialState(cpu=on_cpu)
