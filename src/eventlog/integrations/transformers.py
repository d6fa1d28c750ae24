"""Transformers' `Trainer`: a callback that logs what the trainer says."""

from __future__ import annotations

import logging
import multiprocessing
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from transformers.trainer_callback import TrainerCallback

from eventlog._run_end import status_of
from eventlog._settings import load_settings
from eventlog.events import Status
from eventlog.exceptions import EventlogError
from eventlog.integrations._keeping import RunKeeper
from eventlog.run import Run

__all__ = ["EventlogCallback"]

logger = logging.getLogger("eventlog")

_KEY = "eventlog"
"""Under which a trainer's state, and so each checkpoint, holds the run's id.

It is no callback's name, so that the trainer restores nothing from it by itself.
"""


class EventlogCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Logs a `Trainer`'s training and evaluation to a run.

    ::

        trainer = Trainer(..., callbacks=[EventlogCallback("digits", sinks=["tensorboard"])])

    Everything that the trainer logs is logged at its ``global_step`` and epoch, under the names
    that the trainer's TensorBoard callback gives it: ``train/loss``, ``eval/loss``. The arguments
    and the model's configuration become the run's config, checkpoints its artifacts, by reference.

    The run goes on after ``train()``, for what ``evaluate()`` and ``predict()`` say then. It ends
    with `close`, at the end of a ``with`` block, with the next ``train()`` that starts at step 0,
    or with the program; an exception that ends the block or the program makes it *failed*.

    ``train(resume_from_checkpoint=...)`` goes on with the run that the checkpoint names, where it
    is found; what had been logged after the checkpoint is superseded.

    Args:
        project: Of the run; by default that of the settings, or of the trainer's arguments.
        run: A run that is open already, instead of one that the callback opens and ends.
        rename: False keeps the trainer's own names: ``loss``, ``eval_loss``.
        checkpoints: Whether checkpoints are logged as artifacts.
        options: All others of `Run`: `sinks`, `every`, `dir`, ...

    Raises:
        TypeError: `run` is given together with `project` or options.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        run: Run | None = None,
        rename: bool = True,
        checkpoints: bool = True,
        **options: Any,
    ) -> None:
        self._keeper = RunKeeper(project, options, run)
        self._rename = rename
        self._checkpoints = checkpoints
        self._has_ended = True
        self._told: set[str] = set()

    @property
    def run(self) -> Run | None:
        """The run; None before training has begun. On other ranks its calls do nothing."""
        return self._keeper.last

    def close(self, status: Status | None = None) -> None:
        """End the run, unless it was given. May be called twice.

        Args:
            status: None for what the exception says that is being handled now; without one,
                finished, or failed where training began and did not come to its end.
        """
        if status is None and sys.exc_info()[1] is None:
            status = "finished" if self._has_ended else "failed"
        self._keeper.close(status)

    def __enter__(self) -> EventlogCallback:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        status, text = status_of(error, None)
        self._keeper.close(status, text)

    # -- what the trainer calls ---------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open a run, or go on with the one that a checkpoint names."""
        keeper = self._keeper
        at, saved = int(state.global_step or 0), _saved(state)
        if keeper.is_open and keeper.given is None and not (at and self._is_own(saved)):
            # without on_train_end, something has ended the training before
            keeper.close("finished" if self._has_ended else "failed")
        self._has_ended = False
        was_open = keeper.is_open
        if not was_open or keeper.last is None:
            self._open(args, state, saved if at else None)
        run = self._keeper.run
        if at and (was_open or saved):
            self._go_on(run, state, at, saved or run.id)
        self._tell(args, state, kwargs.get("model"))

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log values at the trainer's step."""
        if self._keeper.last is None:  # evaluate() without train()
            self._open(args, state, None)
            self._tell(args, state, kwargs.get("model"))
        if not logs:
            return
        values = {_renamed(key): v for key, v in logs.items()} if self._rename else dict(logs)
        self._keeper.log(values, state.global_step, epoch=state.epoch)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log a checkpoint, by reference."""
        run = self._keeper.last
        if run is None or not self._checkpoints or not state.is_world_process_zero:
            return
        name = f"checkpoint-{state.global_step}"
        path = _find(Path(args.output_dir), name)
        if path is None:
            return
        facts = {
            "step": state.global_step,
            "epoch": state.epoch,
            "best_metric": state.best_metric,
            "is_best": state.best_model_checkpoint == str(path),
        }
        metadata = {key: value for key, value in facts.items() if value is not None}
        run.artifact(path, name, kind="checkpoint", metadata=metadata, step=state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that training came to its end."""
        self._has_ended = True
        if multiprocessing.parent_process() is not None:
            # a child of multiprocessing ends without the hooks that would end the run
            self._keeper.close("finished")

    # -- the run ------------------------------------------------------------------------------

    def _is_own(self, saved: str | None) -> bool:
        return saved is not None and self._keeper.last is not None and self._keeper.last.id == saved

    def _open(self, args: Any, state: Any, saved: str | None) -> None:
        keeper = self._keeper
        if keeper.project is None:
            keeper.project = load_settings().project or getattr(args, "project", "transformers")
        self._told = set()
        more: dict[str, Any] = {}
        name = getattr(state, "trial_name", None) or getattr(args, "run_name", None)
        if name and name != args.output_dir:
            more["name"] = str(name)
        if not {"rank", "world_size"} & set(keeper.options):
            more |= {"rank": args.process_index, "world_size": args.world_size}
        chosen = {"resume", "run_id"} & set(keeper.options)
        if saved is not None and not chosen:
            try:
                keeper.open(**more, resume=saved)
                return
            except EventlogError as error:
                logger.warning("eventlog: run %s cannot be gone on with: %s", saved, error)
        keeper.open(**more)

    def _go_on(self, run: Run, state: Any, at: int, saved: str) -> None:
        """Set the run to the step after the checkpoint's, which the trainer had logged by then."""
        epoch = int(state.epoch or 0)
        place = {"run_id": saved, "step": at + 1, "batch": 0, "epoch": epoch, "epoch_step": at + 1}
        run.load_state_dict(place)

    def _tell(self, args: Any, state: Any, model: Any) -> None:
        """Tell the run of the configuration, and the trainer's state of the run."""
        run = self._keeper.run
        if state.is_world_process_zero:
            state.stateful_callbacks[_KEY] = {"args": {}, "attributes": {"run_id": run.id}}
        config = dict(args.to_dict())
        for name, part in (("model", "config"), ("peft", "peft_config")):
            settings = getattr(model, part, None)
            if settings is not None:
                config[name] = settings
        count = getattr(model, "num_parameters", None)
        if callable(count):
            config["parameters"] = count()
        run.config.update(config)


def _saved(state: Any) -> str | None:
    """Return the run's id that a checkpoint's state holds."""
    kept = (getattr(state, "stateful_callbacks", None) or {}).get(_KEY)
    run_id = kept.get("attributes", {}).get("run_id") if isinstance(kept, Mapping) else None
    return run_id if isinstance(run_id, str) and run_id else None


def _renamed(key: str) -> str:
    for prefix in ("eval", "test"):
        if key.startswith(f"{prefix}_"):
            return f"{prefix}/{key[len(prefix) + 1 :]}"
    return f"train/{key}"


def _find(folder: Path, name: str) -> Path | None:
    """Return where a checkpoint lies: in the output folder, or in that of a trial."""
    if (folder / name).is_dir():
        return folder / name
    trials = [path for path in folder.glob(f"run-*/{name}") if path.is_dir()]
    return max(trials, key=lambda path: path.stat().st_mtime) if trials else None
