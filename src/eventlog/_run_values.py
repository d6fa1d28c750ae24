"""A run's hyperparameters and its summary: mappings that tell every sink when they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventlog._config import plain_config

__all__ = ["RunConfig", "RunSummary"]

Tell = Callable[[dict[str, Any]], None]


class RunConfig:
    """The hyperparameters of a run: read like a mapping, extended by `update`."""

    def __init__(self, values: dict[str, Any], tell: Tell) -> None:
        self._values = values
        self._tell = tell

    def update(self, values: Any = None, /, **more: Any) -> None:
        """Add or replace some; every sink is told.

        Args:
            values: A mapping, dataclass, namespace or the like.
            more: Single ones.

        Raises:
            TypeError: `values` is none of these.
        """
        plain = plain_config(values) | plain_config(more)
        if plain:
            self._values |= plain
            self._tell(plain)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: str, default: Any = None) -> Any:
        """Return one, or `default` where it is not set."""
        return self._values.get(key, default)

    def as_dict(self) -> dict[str, Any]:
        """Return a copy: plain values, secrets redacted."""
        return dict(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"


class RunSummary(RunConfig):
    """Values that stand for the whole run, such as its best accuracy.

    Sinks are told when one is set, and once more of all of them at the end.
    """
