"""`watch`: learning rates, norms, optimizer steps, and what is done to the model itself.

Nothing here waits for a device: norms and sparsities are computed where the model is, and fetched
like any other value.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from eventlog.integrations._model_state import (
    ModelState,
    changes_between,
    sparsity_of,
    state_of,
    summary_of,
)

if TYPE_CHECKING:
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
        optimizer: One or more; None for one that is stepped elsewhere: call `Watch.check` then.
        run: The run; the one that was opened last by default.
        every: When learning rates and norms are logged.
        updates: When it is looked whether the model changed; None for never. A look takes about
            a microsecond for each parameter and module.
        norms: Whether the norms of all gradients and of all parameters are logged.
        per_layer: Whether each parameter's norms, and each layer's sparsity, are logged as well.
        count: Whether the run's step is counted here, at each step of the (first) optimizer: call
            `run.log` then, and not `run.step`. A step that a GradScaler skips is not counted, and
            accumulated micro-batches are one step.
        prefix: Put before the names of the values.

    Returns:
        A handle: `Watch.remove`, or leaving its `with` block, ends it.

    Raises:
        RuntimeError: There is no run.
        CadenceError: A cadence is wrong.
    """
    if run is None:
        from eventlog.run import current_run

        run = current_run()
        if run is None:
            raise RuntimeError("there is no open run to log to: open one, or give run=")
    if optimizer is None:
        optimizers: list[torch.optim.Optimizer] = []
    elif isinstance(optimizer, torch.optim.Optimizer):
        optimizers = [optimizer]
    else:
        optimizers = list(optimizer)
    return Watch(
        model, optimizers, run, every, updates, norms=norms, per_layer=per_layer, count=count,
        prefix=prefix,
    )  # fmt: skip


class Watch:
    """What `watch` returns.

    Attributes:
        steps: Steps that the (first) optimizer took since.
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
        self.steps = 0
        self._model = model
        self._optimizers = optimizers
        self._run = run
        self._every = every
        self._updates = updates
        self._norms = norms
        self._per_layer = per_layer
        self._count = count
        self._prefix = prefix
        self._failed = False
        run.due(every)  # a wrong text is said here, and not in the middle of the training
        if updates is not None:
            run.due(updates)
        self._state: ModelState = state_of(model)
        self._sparsity, self._layers = sparsity_of(model)
        self._handles = [o.register_step_post_hook(self._stepped) for o in optimizers[:1]]

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _stepped(self, *_: Any) -> None:
        """Go on after the optimizer's step; nothing that goes wrong here reaches the training."""
        self.steps += 1
        run = self._run
        try:
            if run.due(self._every):
                run.log(self._values())
            if self._updates is not None and run.due(self._updates):
                self.check()
        except Exception as error:
            if not self._failed:
                logger.warning("eventlog: the model cannot be watched: %r (said once)", error)
            self._failed = True
        if self._count:
            run.advance()

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for number, optimizer in enumerate(self._optimizers):
            groups = optimizer.param_groups
            for at, group in enumerate(groups):
                name = "lr" if len(groups) == 1 else f"lr/{group.get('name', at)}"
                values[name if len(self._optimizers) == 1 else f"optimizer{number}/{name}"] = group[
                    "lr"
                ]
        if self._norms:
            values |= self._norm_values()
        return {f"{self._prefix}{name}": value for name, value in values.items()}

    @torch.no_grad()
    def _norm_values(self) -> dict[str, Any]:
        named = [(name, p) for name, p in self._model.named_parameters() if p.is_floating_point()]
        values: dict[str, Any] = {}
        for kind, tensors in (
            ("grad_norm", {name: p.grad for name, p in named if p.grad is not None}),
            ("param_norm", {name: p.detach() for name, p in named}),
        ):
            single = _norms(tensors)
            if single:
                values[kind] = torch.linalg.vector_norm(
                    torch.stack([_on(one, single) for one in single.values()])
                )
            if self._per_layer:
                values |= {f"{kind}/{name}": norm for name, norm in single.items()}
        return values

    def check(self) -> dict[str, list[str]]:
        """Look now whether the model changed; if so, emit a `ModelUpdateEvent`.

        Returns:
            What changed: names of parameters or modules, by what was done to them.
        """
        before, after = self._state, state_of(self._model)
        changes = changes_between(before, after)
        if not changes:
            return {}
        self._state = after
        was, was_layers = self._sparsity, self._layers
        self._sparsity, self._layers = sparsity_of(self._model)
        summary: dict[str, Any] = {
            "changes": {kind: _some(names) for kind, names in changes.items()},
            "before": summary_of(before),
            "after": summary_of(after),
        }
        values = {"sparsity_before": was, "sparsity": self._sparsity}
        if self._per_layer:
            pairs = {
                name: layer for name, layer in self._layers.items() if name in _touched(changes)
            }
            values |= {f"sparsity/{name}": layer for name, layer in pairs.items()}
            values |= {
                f"sparsity_before/{name}": was_layers[name] for name in pairs if name in was_layers
            }
        known = {
            f"{self._prefix}{key}": value for key, value in values.items() if value is not None
        }
        self._run.model_updated("+".join(changes), values=known, **summary)
        return changes


def _norms(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name: torch.linalg.vector_norm(
            tensor.coalesce().values() if tensor.is_sparse else tensor, dtype=torch.float32
        )
        for name, tensor in tensors.items()
    }


def _on(norm: torch.Tensor, all_norms: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return a norm where the first one is: a model may lie on several devices."""
    return norm.to(next(iter(all_norms.values())).device, non_blocking=True)


def _some(names: list[str]) -> list[str]:
    left = len(names) - _NAMED
    return names if left <= 0 else [*names[:_NAMED], f"and {left} more"]


def _touched(changes: Mapping[str, list[str]]) -> set[str]:
    return {name for names in changes.values() for name in names}
