"""What the logger takes from Lightning: its base class, the rank, and a callback's checkpoints."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning.pytorch.loggers.logger import Logger
else:
    _NAMES = ("lightning.pytorch", "pytorch_lightning")

    def _loggers():
        """Return Lightning's own class, of each of its names that is in use."""
        used = [name for name in _NAMES if name in sys.modules]
        if not used:
            packages = [n for n in _NAMES if importlib.util.find_spec(n.partition(".")[0])]
            used = packages[:1] or [_NAMES[0]]
        modules = [importlib.import_module(f"{name}.loggers.logger") for name in used]
        return tuple(module.Logger for module in modules)

    class Logger(*_loggers()):
        """Lightning's own class, under each name that is in use."""


__all__ = ["Logger", "checkpoints_of", "is_lazy", "rank_of"]


def rank_of() -> int:
    """Return the rank as Lightning knows it."""
    from lightning_utilities.core.rank_zero import rank_zero_only

    return int(getattr(rank_zero_only, "rank", None) or 0)


def is_lazy(parameter: Any) -> bool:
    """Whether a parameter has no shape yet."""
    return type(parameter).__name__.startswith("Uninitialized")


def checkpoints_of(callback: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the paths of a checkpoint callback's files, with what it knows of each."""
    best = str(getattr(callback, "best_model_path", "") or "")
    last = str(getattr(callback, "last_model_path", "") or "")
    scores = dict(getattr(callback, "best_k_models", None) or {})
    newest = str(getattr(callback, "_last_checkpoint_saved", "") or "")
    found: list[tuple[str, dict[str, Any]]] = []
    for path in dict.fromkeys([*map(str, scores), best, last, newest]):
        if not path:
            continue
        facts: dict[str, Any] = {"monitor": getattr(callback, "monitor", None)}
        score = scores.get(path)
        if score is not None:
            facts["score"] = float(score)
        facts["best"] = path == best
        found.append((path, {key: value for key, value in facts.items() if value is not None}))
    return found
