"""Lightning: a logger for its `Trainer`, and for Fabric.

Lightning is one library under two names, `lightning` and `pytorch_lightning`, with classes of its
own under each. The logger here belongs to that which is imported already, or to both.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from eventlog._names import safe_name
from eventlog._run_end import status_of
from eventlog._settings import load_settings
from eventlog.events import Status
from eventlog.integrations._keeping import RunKeeper, list_images
from eventlog.integrations._lightning_parts import Logger, checkpoints_of, is_lazy, rank_of
from eventlog.run import Run

__all__ = ["EventlogLogger"]

_STATUS: dict[str, Status] = {"success": "finished", "finished": "finished", "failed": "failed"}


class EventlogLogger(Logger):
    """Logs what a Lightning `Trainer` says to a run.

    ::

        trainer = Trainer(logger=EventlogLogger("digits", sinks=["tensorboard"]))

    Metrics are logged under Lightning's names at the step that it gives, with the epoch that it
    puts beside them; checkpoints as artifacts, by reference. The run is opened by the first call,
    on rank 0; on the other ranks, calls do nothing unless ``ranks="all"`` is given.

    It goes on after ``fit()``, for ``test()`` and whatever follows. It ends with `close`, at the
    end of a ``with`` block, or with the program; when training raises, it ends there, as *failed*
    (or *interrupted*, by Ctrl-C), and a later call opens another run.

    A copy of the logger shares its run, but a pickled one has none: in another process it opens
    its own.

    Args:
        project: Of the run; by default that of the settings, or ``lightning_logs``.
        run: A run that is open already, instead of one that the logger opens and ends.
        prefix: What the metrics' names begin with, before a ``/``.
        checkpoints: Whether checkpoints are logged as artifacts.
        options: All others of `Run`: `sinks`, `every`, `dir`, `name`, ...

    Raises:
        TypeError: `run` is given together with `project` or options.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        run: Run | None = None,
        prefix: str = "",
        checkpoints: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self._keeper = RunKeeper(project, options, run, reopens=True)
        self._prefix = f"{prefix}/" if prefix else ""
        self._checkpoints = checkpoints
        self._saved: dict[str, float] = {}

    # -- what Lightning asks ------------------------------------------------------------------

    @property
    def experiment(self) -> Run:
        """The run; opened now, if it is not open. On other ranks, one whose calls do nothing."""
        keeper = self._keeper
        if keeper.is_open and keeper.last is not None:
            return keeper.last
        if keeper.project is None:
            keeper.project = load_settings().project or "lightning_logs"
        more: dict[str, Any] = {}
        rank = rank_of()
        if rank > 0 and not {"rank", "world_size"} & set(keeper.options):
            # Lightning knows it before the environment or a process group does
            more |= {"rank": rank, "world_size": rank + 1}
        return keeper.open(**more)

    @property
    def run(self) -> Run | None:
        """The run that was opened last, also when it has ended; None before the first one."""
        return self._keeper.last

    @property
    def name(self) -> str:
        """The run's project, as a folder is called."""
        return safe_name(self.experiment.project)

    @property
    def version(self) -> str | None:
        """The run's id; None on ranks that do not record."""
        return self.experiment.id if self._records else None

    @property
    def root_dir(self) -> str | None:
        """The folder of the project; None for a run without a directory."""
        log_dir = self.log_dir
        return None if log_dir is None else str(Path(log_dir).parent)

    @property
    def log_dir(self) -> str | None:
        """The run's directory; None where it has none."""
        run_dir = self.experiment.dir if self._records else None
        return None if run_dir is None else str(run_dir)

    @property
    def save_dir(self) -> str | None:
        """The folder of all projects: below it, Lightning puts ``<name>/<version>/checkpoints``."""
        root_dir = self.root_dir
        return None if root_dir is None else str(Path(root_dir).parent)

    @property
    def group_separator(self) -> str:
        """What joins nested names."""
        return "/"

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log values at a step; an `epoch` among them is also the event's epoch."""
        prefix = self._prefix
        values = {f"{prefix}{key}": value for key, value in metrics.items()} if prefix else metrics
        named = {}
        epoch = metrics.get("epoch")
        if isinstance(epoch, int | float) and epoch >= 0:
            named["epoch"] = int(epoch) if float(epoch).is_integer() else float(epoch)
        _ = self.experiment
        self._keeper.log(values, step, **named)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Add hyperparameters: a mapping or a namespace, nested or not.

        Args:
            params: These.
            args, kwargs: `metrics`, a mapping of values to begin with, and `step`, as
                TensorBoard's logger takes them.
        """
        metrics, step = ([*args, None, None])[:2]
        metrics, step = kwargs.get("metrics", metrics), kwargs.get("step", step)
        if params is not None:
            self.experiment.config.update(params)
        if isinstance(metrics, Mapping):
            self.log_metrics(metrics, step)

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Log what the model is made of, as a text and as parameter counts in the config.

        Its graph is not traced: that would run the model once more.
        """
        run = self.experiment
        if run.attempt == 1:
            # a resumed run does not know yet at which step it goes on, and has said this before
            run.text("model", f"```text\n{model}\n```", step=0)
        parameters = (
            list(model.parameters()) if callable(getattr(model, "parameters", None)) else []
        )
        sizes = [(p.numel(), p.requires_grad) for p in parameters if not is_lazy(p)]
        if sizes:
            trainable = sum(n for n, trained in sizes if trained)
            counts = {"all": sum(n for n, _ in sizes), "trainable": trainable}
            run.config.update({"parameters": counts})

    def save(self) -> None:
        """Do nothing: what was logged is in the log 50 ms later, and nobody has to wait for it."""

    def finalize(self, status: str) -> None:
        """End the run where training failed; see the class for when it ends otherwise."""
        ends = status == "failed" or multiprocessing.parent_process() is not None
        if not ends or not self._keeper.is_open:
            return
        error = sys.exc_info()[1]
        known = _STATUS.get(status, "failed")
        if known == "failed" and error is not None:
            self._keeper.close(*status_of(error, None))
        else:
            self._keeper.close(known)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Log the checkpoints that are new since the last call, by reference."""
        if not self._checkpoints or not self._records:
            return
        run = self.experiment
        for path, metadata in checkpoints_of(checkpoint_callback):
            try:
                changed = os.stat(path).st_mtime
            except OSError:  # removed already, or not on this machine
                continue
            if self._saved.get(path) != changed:
                self._saved[path] = changed
                run.artifact(path, Path(path).name, kind="checkpoint", metadata=metadata)

    # -- what a module may say itself, as to Weights & Biases' logger -------------------------

    def log_image(
        self, key: str, images: Sequence[Any], step: int | None = None, **kwargs: Any
    ) -> None:
        """Log images under one name; `caption` may be a text, or a list of one for each image."""
        shown, own = list_images(images)
        caption = kwargs.get("caption", own)
        if isinstance(caption, list | tuple):
            caption = " | ".join(map(str, caption))
        self.experiment.image(key, shown, caption=caption, step=step)

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log a table, given by its columns and rows or as a data frame."""
        rows = list(data or ()) if dataframe is None else dataframe
        self.experiment.table(key, rows, columns, step=step)

    def log_text(
        self,
        key: str,
        columns: Sequence[str] | str | None = None,
        data: Sequence[Sequence[str]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log a text (in place of `columns`), or a table of texts."""
        if isinstance(columns, str):
            self.experiment.text(key, columns, step=step)
        else:
            self.log_table(key, columns, data, dataframe, step)

    # -- the run ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return where the run is, for ``on_save_checkpoint``."""
        _ = self.experiment
        return self._keeper.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, in ``on_load_checkpoint``: what was logged after it is void.

        Raises:
            ValueError: It is no state of a run.
        """
        _ = self.experiment
        self._keeper.load_state_dict(state)

    def close(self, status: Status = "finished") -> None:
        """End the run, unless it was given. May be called twice."""
        self._keeper.close(status)

    def __enter__(self) -> EventlogLogger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._keeper.close(*status_of(error, None))

    @property
    def _records(self) -> bool:
        run = self.experiment
        return run.rank == 0 or self._keeper.options.get("ranks") == "all"

    def __deepcopy__(self, memo: dict[int, Any]) -> EventlogLogger:
        other = type(self).__new__(type(self))
        other.__dict__ |= self.__dict__
        return other

    def __copy__(self) -> EventlogLogger:
        return self.__deepcopy__({})

    def __getstate__(self) -> dict[str, Any]:
        """Leave the run out: it has threads and an open log."""
        keeper = self._keeper
        other = RunKeeper(keeper.project, keeper.options, reopens=True)
        return self.__dict__ | {"_keeper": other}
