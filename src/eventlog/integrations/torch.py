"""`watch`: learning rates, norms, optimizer steps, and what is done to the model itself.

Nothing here waits for a device: norms and sparsities are computed where the model is, and fetched
like any other value. torch is imported when `watch` is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from eventlog import _device
from eventlog._counters import Counters
from eventlog._due import Dues
from eventlog._run_loops import LoopMethods
from eventlog.exceptions import ValueRejectedError
from eventlog.integrations._model_figures import (
    norms_of,
    sizes_of,
    sparsity_of,
    tensors_of,
    total_norm,
)
from eventlog.integrations._model_state import ModelState, changes_between, state_of, unwrapped

if TYPE_CHECKING:
    import torch

    from eventlog.run import Run

__all__ = ["Watch", "watch"]

logger = logging.getLogger("eventlog")

_NAMED = 20
"""Names of a kind of change that are said; the rest is counted."""


def watch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    run: Run | None = None,
    every: str = "100 steps",
    updates: str | None = "100 steps",
    norms: bool = True,
    per_layer: bool = False,
    count: bool = False,
    prefix: str = "",
) -> Watch:
    """Log what an optimizer and a model do, from hooks on the optimizer's steps.

    Args:
        model: Whose norms are taken, and whose changes are noticed.
        optimizer: One or more; the steps of the first one decide when there is something to do.
            None for one that is stepped elsewhere: call `Watch.check` then.
        run: The run; the one that was opened last by default.
        every: When learning rates and norms are logged.
        updates: When it is looked whether the model changed; None for only when `Watch.check` is
            called. A look takes some microseconds for each module.
        norms: Whether the norms of all gradients and of all parameters are logged.
        per_layer: Whether each parameter's norms, and each changed weight's sparsity, are logged
            as well.
        count: Whether the run's step is counted here, at each step of the (first) optimizer: call
            `run.log` then, and not `run.step`; `run.steps` does not count then either. A step that
            a GradScaler skips is not counted, and accumulated micro-batches are one step.
        prefix: Put before the names of the values.

    Returns:
        A handle: `Watch.remove`, or leaving its `with` block, ends it.

    Raises:
        RuntimeError: There is no run.
        TypeError: What is given is no module, no optimizer of torch's, or no run.
        ValueError: `count` is asked for without an optimizer.
        CadenceError: A cadence is wrong, or counts what a run does not, such as "tokens".
    """
    if run is None:
        from eventlog.run import current_run

        run = current_run()
        if run is None:
            raise RuntimeError("there is no open run to log to: open one, or give run=")
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    if not isinstance(run, LoopMethods):
        raise TypeError(f"run must be a Run, not {run!r}")
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a text, not {prefix!r}")
    one = isinstance(optimizer, torch.optim.Optimizer) or not isinstance(optimizer, Iterable)
    given: list[Any] = [optimizer] if one else list(optimizer)  # type: ignore[arg-type]
    optimizers = [_own(o) for o in given if o is not None]
    if count and not optimizers:
        raise ValueError("count=True needs an optimizer, whose steps are counted")
    # a wrong text is said here, and not in the middle of the training
    for text in (every, updates):
        if text is not None or text is every:
            Dues().ask(text, Counters())
    return Watch(
        model, optimizers, run, every, updates, norms=norms, per_layer=per_layer, count=count,
        prefix=prefix,
    )  # fmt: skip


def _own(optimizer: Any) -> Any:
    """Return torch's optimizer, out of what a framework has wrapped around it.

    Raises:
        TypeError: It is none.
    """
    inner = getattr(optimizer, "optimizer", None)
    if inner is not None and "_optimizer_step_post_hooks" not in vars(optimizer):
        return _own(inner)
    if not hasattr(optimizer, "register_step_post_hook"):
        raise TypeError(
            f"optimizer must be a torch.optim.Optimizer or several, not {type(optimizer).__name__}"
        )
    return optimizer


class Watch:
    """What `watch` returns.

    Attributes:
        model: The model. Give another one here when the program goes on with one that was made
            from it, quantised for example: what is different in it is the next update.
        counts: Steps that each optimizer took since.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: list[torch.optim.Optimizer],
        run: Run,
        every: str,
        updates: str | None,
        *,
        norms: bool,
        per_layer: bool,
        count: bool,
        prefix: str,
    ) -> None:
        self.model = model
        self.counts = [0] * max(1, len(optimizers))
        self._optimizers = optimizers
        self._run = run
        self._every = every
        self._updates = updates
        self._norms = norms
        self._per_layer = per_layer
        self._count = count
        self._prefix = prefix
        self._failed = False
        self._skipped: Any = None
        inside = unwrapped(model)
        self._state: ModelState = state_of(inside)
        self._sizes = sizes_of(inside)
        self._sparsity, self._layers = sparsity_of(inside)
        self._handles: list[Any] = []
        for number, optimizer in enumerate(optimizers):
            hook = partial(self._also_stepped, number) if number else self._stepped
            self._handles.append(optimizer.register_step_post_hook(hook))
        if count:
            run._counted_by(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    @property
    def steps(self) -> int:
        """Steps that the (first) optimizer took since."""
        return self.counts[0]

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._run._counted_by(self, False)

    def _also_stepped(self, number: int, *_: Any) -> None:
        self.counts[number] += 1

    def _stepped(self, optimizer: Any = None, *_: Any) -> None:
        """Go on after the optimizer's step; nothing that goes wrong here reaches the training."""
        self.counts[0] += 1
        run = self._run
        # a fused optimizer steps in any case, and looks on the device whether to do anything
        found = getattr(optimizer, "found_inf", None)
        if found is not None:
            self._safely(partial(self._note_skipped, found))
        due = run.due(self._every)
        look = self._updates is not None and run.due(self._updates)
        if (due or look) and not self._is_idle():
            if due:
                self._safely(self._log)
            if look:
                self._safely(self.check)
        if self._count:
            run.advance()

    def _safely(self, work: Callable[[], object]) -> None:
        try:
            work()
        except ValueRejectedError:  # a strict run's: it is there to raise
            raise
        except Exception as error:
            if not self._failed:
                logger.warning("eventlog: the model cannot be watched: %r (said once)", error)
            self._failed = True

    def _is_idle(self) -> bool:
        """Whether nothing is to be computed now.

        Because another rank records, the run is over, or a graph is captured: then it would be
        part of that, and be done again at each replay.
        """
        if self._run._recorder.quiet or self._run._status is not None:
            return True
        first = next(self.model.parameters(), None)
        if first is None or first.device.type in ("cpu", "meta"):
            return False
        return _device._API.is_capturing(first.device)

    def _note_skipped(self, found: Any) -> None:
        """Count on the device, where it is known, that the GradScaler found an infinity."""
        skipped = (found.detach() > 0).long()
        self._skipped = skipped if self._skipped is None else self._skipped + skipped

    def _log(self) -> None:
        values = self._rates()
        if self._skipped is not None:
            values["skipped_steps"] = self._skipped
        try:
            if self._norms:
                values |= self._norm_values()
        finally:
            self._run.log({f"{self._prefix}{name}": value for name, value in values.items()})

    def _rates(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for number, optimizer in enumerate(self._optimizers):
            groups = optimizer.param_groups
            start = "" if len(self._optimizers) == 1 else f"optimizer{number}/"
            for at, group in enumerate(groups):
                if group.get("lr") is None:  # some have none
                    continue
                name = f"{start}lr" if len(groups) == 1 else f"{start}lr/{group.get('name', at)}"
                values[f"{name}/{at}" if name in values else name] = group["lr"]
        return values

    def _norm_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        grads, parameters = tensors_of(unwrapped(self.model))
        for kind, tensors in (("grad_norm", grads), ("param_norm", parameters)):
            single = norms_of(tensors)
            if single:
                values[kind] = total_norm(single.values())
            if self._per_layer:
                values |= {f"{kind}/{name}": norm for name, norm in single.items()}
        return values

    def check(self) -> dict[str, list[str]]:
        """Look now whether the model changed; if so, emit a `ModelUpdateEvent`.

        Returns:
            What changed: names of parameters or modules, by what was done to them.
        """
        model = unwrapped(self.model)
        before, after = self._state, state_of(model)
        changes = changes_between(before, after)
        self._state = after
        if not changes:
            return {}
        sizes, self._sizes = self._sizes, sizes_of(model)
        was, was_layers = self._sparsity, self._layers
        self._sparsity, self._layers = sparsity_of(model)
        values = {
            "parameters": self._sizes["parameters"],
            "trained": self._sizes["trained"],
            "sparsity_before": was,
            "sparsity": self._sparsity,
        }
        if self._per_layer:
            touched = _touched(changes)
            for key, layers in (("sparsity_before", was_layers), ("sparsity", self._layers)):
                values |= {f"{key}/{name}": n for name, n in layers.items() if touched(name)}
        self._run.model_updated(
            "+".join(changes),
            values={
                f"{self._prefix}{k}": value for k, value in values.items() if value is not None
            },
            changes={kind: _some(names) for kind, names in changes.items()},
            before=sizes,
            after=self._sizes,
        )
        return changes


def _some(names: list[str]) -> list[str]:
    left = len(names) - _NAMED
    return names if left <= 0 else [*names[:_NAMED], f"and {left} more"]


def _touched(changes: Mapping[str, list[str]]) -> Callable[[str], bool]:
    """Return whether a parameter is one of those that changed, or in a module that did."""
    whole = {name for names in changes.values() for name in names}
    within = tuple(f"{name}." for name in whole)
    return lambda name: name in whole or name.startswith(within) or "(model)" in whole
