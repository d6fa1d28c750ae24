"""Finding the points that came before, in a store that would keep them twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventlog_mlflow.bulk import Point

__all__ = ["Repeats"]


class Repeats:
    """Leaves out the points of a resumed run that its files have: each would be another line.

    A database knows a point by its key, time, step and value, and needs no help.

    Args:
        client: MLflow's.
        run_id: The run's.
    """

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._since: int | None = None
        self._known: dict[str, set[tuple[int, int, str]]] = {}

    def without(self, points: Sequence[Point]) -> list[Point]:
        """Return the points that are new."""
        if self._since is None:
            # what was written before what has been confirmed is not given again
            self._since = min((point.timestamp for point in points), default=None)
        fresh: list[Point] = []
        for point in points:
            if point.key not in self._known:
                self._known[point.key] = self._history(point.key)
            here = (point.timestamp, point.step, repr(point.value))
            if here not in self._known[point.key]:
                fresh.append(point)
        return fresh

    def _history(self, key: str) -> set[tuple[int, int, str]]:
        return {
            (metric.timestamp, metric.step, repr(metric.value))
            for metric in self._client.get_metric_history(self._run_id, key)
            if metric.timestamp >= (self._since or 0)
        }
