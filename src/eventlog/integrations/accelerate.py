"""Accelerate, both ways: eventlog as a tracker of Accelerate, its trackers as sinks of eventlog.

::

    accelerator = Accelerator(log_with=EventlogTracker("digits", sinks=["tensorboard"]))

is the whole change of a script that logs through Accelerate; and ::

    run = Run("digits", sinks=[AccelerateSink("wandb"), AccelerateSink(MyTracker())])

uses trackers that are written for Accelerate in a script that does not.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker

from eventlog.integrations._accelerate_sink import AccelerateSink
from eventlog.integrations._keeping import RunKeeper, list_images
from eventlog.run import Run
from eventlog.sinks.select import Sinks
from eventlog.subscription import Every

__all__ = ["AccelerateSink", "EventlogTracker"]

logger = logging.getLogger("eventlog")

_ARGUMENTS = frozenset({"batch", "epoch", "axis", "every", "durable"})


class EventlogTracker(GeneralTracker):  # type: ignore[misc, unused-ignore]
    """A run as a tracker of Accelerate.

    The run is opened by `start` (``accelerator.init_trackers``), or by the first call if that
    comes before. On processes other than the main one all calls work and do nothing, unless
    ``ranks="all"`` is given. Calls neither wait nor raise for what a value or a tracker does.

    Args:
        run_name: The project of the run. Accelerate hands an instance no project name.
        logging_dir: Where runs lie, as `dir`. Accelerate gives it to a tracker that it makes
            itself (``register_tracker_class(EventlogTracker)``, ``log_with="eventlog"``).
        sinks, every: As for `Run`.
        options: All others of `Run`; `dir` comes before `logging_dir`.

    Attributes:
        main_process_only: False with ``ranks="all"``.
    """

    name = "eventlog"
    requires_logging_directory = True

    def __init__(
        self,
        run_name: str | None = None,
        logging_dir: str | os.PathLike[str] | None = None,
        *,
        sinks: Sinks = None,
        every: Every = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if logging_dir is not None:
            options.setdefault("dir", logging_dir)
        self.run_name = run_name
        self.main_process_only = options.get("ranks", "main") != "all"
        self._keeper = RunKeeper(run_name, options | {"sinks": sinks, "every": every})
        self._counts = True
        self._entries = 0
        self._starts_to_come = 0
        self._last: tuple[int, Any, dict[Any, Any]] | None = None
        self._said: set[str] = set()

    @property
    def tracker(self) -> Run:
        """The run: what ``accelerator.get_tracker("eventlog", unwrap=True)`` returns."""
        return self._keeper.run

    @property
    def run(self) -> Run:
        """The same as `tracker`."""
        return self.tracker

    def start(self) -> None:
        """Open the run.

        Raises:
            EventlogError, TypeError, ValueError: As `Run` does.
        """
        # Accelerate never empties its list: each init_trackers adds this object once more, starts
        # it as often as it is listed, and has each log call come as often
        if self._starts_to_come:
            self._starts_to_come -= 1
        else:
            self._starts_to_come = self._entries
            self._entries += 1
        if self._keeper.is_open:
            self._say("twice", "init_trackers was called twice; what is logged comes once")
        else:
            self._keeper.open()
            self._counts = True

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Add hyperparameters: of any type, also nested ones."""
        try:
            self._keeper.run.config.update(values)
        except TypeError as error:
            self._say("config", f"the configuration is not recorded: {error}")

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log values.

        Args:
            values: As for `Run.log`: also nested, tensors on any device, functions.
            step: Where; None for the run's step, which each such call counts (unless
                ``watch(count=True)`` does), or, once a call has named a step, for the last one
                that was named.
            kwargs: ``log_kwargs["eventlog"]`` of ``accelerator.log``: `batch`, `epoch`, `axis`,
                `every` and `durable` as for `Run.log`; anything else is the name of a sink with
                what this call says to it, as in ``{"wandb": {"commit": False}}``.
        """
        if self._is_repeated(values, step):
            return
        named = self._named(kwargs)
        run = self._keeper.run
        if step is None and self._counts and "axis" not in named and not run._counting:
            run.step(values, **named)
            return
        if step is not None:
            self._counts = self._counts and "axis" in named
        self._keeper.log(values, step, **named)

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log images.

        Args:
            values: By name: a list of arrays, tensors or PIL images, an array of shape (images,
                height, width, channels) or (images, channels, height, width), a single image, or
                a pair of an image and its caption.
            step: None for the run's step.
            kwargs: `caption`; what this call says to single sinks, as for `log`.
        """
        caption = kwargs.pop("caption", None)
        kwargs.pop("dataformats", None)
        options = self._named(kwargs).get("options")
        for tag, value in values.items():
            images, own = list_images(value)
            caption_here = own if caption is None else caption
            self.run.image(tag, images, caption=caption_here, step=step, options=options)

    def log_table(
        self,
        table_name: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Log a table, given by `columns` and `data` (the first row of it, without `columns`).

        Args:
            table_name, step: Its tag, and where it is.
            columns, data, dataframe: Rows and what their cells are called, or a data frame.
            kwargs: What this call says to single sinks, as for `log`.
        """
        rows: Any = dataframe
        if dataframe is None:
            rows = list(data or ())
            if columns is None and rows:
                columns, rows = [str(cell) for cell in rows[0]], rows[1:]
        options = self._named(kwargs).get("options")
        self.run.table(table_name, rows, columns, step=step, options=options)

    def log_figure(self, figure: Any, artifact_file: str, **kwargs: Any) -> None:
        """Log a matplotlib figure under a name, of which a suffix such as ``.png`` is left out."""
        self.run.figure(str(Path(artifact_file).with_suffix("")), figure)

    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """Log a file, by reference."""
        name = Path(local_path).name
        self.run.artifact(local_path, f"{artifact_path}/{name}" if artifact_path else name)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Log a folder, by reference."""
        self.run.artifact(local_dir, artifact_path)

    def finish(self) -> None:
        """End the run; ``accelerator.end_training`` does it. May be called twice.

        Called while an exception is on its way, in a ``finally`` say, the run has failed.
        """
        self._keeper.close()

    def state_dict(self) -> dict[str, Any]:
        """Return where the run is, for ``accelerator.register_for_checkpointing(tracker)``."""
        return self._keeper.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: later steps that were logged already are superseded.

        Raises:
            ValueError: It is no state of a run.
        """
        self._keeper.load_state_dict(state)

    def _is_repeated(self, values: Any, step: Any) -> bool:
        """Whether this is what Accelerate's list of trackers brings once more."""
        if self._entries < 2:
            return False
        last = (id(values), step, dict(values) if isinstance(values, Mapping) else {})
        repeated = self._last is not None and _same(self._last, last)
        self._last = last
        return repeated

    def _named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        named = {key: value for key, value in kwargs.items() if key in _ARGUMENTS}
        options = dict(kwargs.get("options") or {})
        for key, value in kwargs.items():
            if key in _ARGUMENTS or key == "options":
                continue
            if isinstance(value, Mapping):
                options[key] = value
            else:
                self._say(
                    key,
                    f"log_kwargs: {key!r} is neither an argument of Run.log nor the name of a sink "
                    'with a mapping, such as {"eventlog": {"wandb": {"commit": False}}}; left out',
                )
        if options:
            named["options"] = options
        return named

    def _say(self, what: str, text: str) -> None:
        """Warn once of each kind of thing."""
        if what not in self._said:
            self._said.add(what)
            logger.warning("eventlog: %s", text)


def _same(one: tuple[int, Any, dict[Any, Any]], other: tuple[int, Any, dict[Any, Any]]) -> bool:
    """Whether two calls had the same object with the same values in it, at the same step."""
    if one[:2] != other[:2] or one[2].keys() != other[2].keys():
        return False
    return all(value is other[2][key] for key, value in one[2].items())
