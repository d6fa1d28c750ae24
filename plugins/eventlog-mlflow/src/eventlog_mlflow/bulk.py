"""A quick way into a local SQLite store: the rows of `log_batch`, without an object for each.

MLflow's own way makes two objects of its database library for every point, which takes most of
the time that a point costs. Here the same rows go into the same tables, by MLflow's own
description of them, in one statement. Where that description is not the one that is known here,
`fast_way` says so, and `log_batch` it is.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eventlog.exceptions import UnavailableError

__all__ = ["Point", "fast_way"]

_METRICS = ("key", "value", "timestamp", "step", "is_nan", "run_uuid")
_LARGEST = sys.float_info.max
_KEYS_AT_ONCE = 500
_BUSY = "PRAGMA busy_timeout = 10000"


class Point(NamedTuple):
    """A value of a metric: `timestamp` in milliseconds; `extra` as `Metric` has them."""

    key: str
    value: float
    timestamp: int
    step: int
    extra: tuple[tuple[str, str], ...] = ()


def fast_way(client: Any, run_id: str) -> Callable[[Sequence[Point]], bool] | None:
    """Return a function that writes points and says whether it did; None where there is none."""
    store = getattr(getattr(client, "_tracking_client", None), "store", None)
    engine = getattr(store, "engine", None)
    if engine is None or engine.dialect.name != "sqlite":
        return None
    try:
        from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlRun

        tables = [model.__table__ for model in (SqlMetric, SqlLatestMetric, SqlRun)]
    except (ImportError, AttributeError):
        return None
    metrics, latest, runs = tables
    if any(set(table.columns.keys()) != set(_METRICS) for table in (metrics, latest)):
        return None
    if not {"run_uuid", "lifecycle_stage"} <= set(runs.columns.keys()):
        return None
    return _Bulk(engine, run_id, metrics, latest, runs).write


class _Bulk:
    """Writes points of a run; the arguments are SQLAlchemy's objects."""

    def __init__(self, engine: Any, run_id: str, metrics: Any, latest: Any, runs: Any) -> None:
        from sqlalchemy import bindparam, select, text
        from sqlalchemy.dialects.sqlite import insert

        self._engine = engine
        self._run_id = run_id
        self._busy = text(_BUSY)
        self._stage = select(runs.c.lifecycle_stage).where(runs.c.run_uuid == run_id)
        # a point that is there already is one that came before
        self._insert = insert(metrics).on_conflict_do_nothing()
        self._newest = select(
            latest.c.key, latest.c.step, latest.c.timestamp, latest.c.value
        ).where(latest.c.run_uuid == run_id, latest.c.key.in_(bindparam("keys", expanding=True)))
        put = insert(latest)
        self._put = put.on_conflict_do_update(
            index_elements=["key", "run_uuid"],
            set_={name: put.excluded[name] for name in ("value", "timestamp", "step", "is_nan")},
        )

    def write(self, points: Sequence[Point]) -> bool:
        """Write points; False where the run cannot take any, which MLflow can say better."""
        from sqlalchemy.exc import OperationalError

        rows = [self._row(point) for point in points]
        try:
            with self._engine.begin() as connection:
                connection.execute(self._busy)
                if connection.execute(self._stage).scalar() != "active":
                    return False
                connection.execute(self._insert, rows)
                newer = self._newer(connection, rows)
                if newer:
                    connection.execute(self._put, newer)
        except OperationalError as error:  # locked, full, gone
            raise UnavailableError(f"{error.orig}") from error
        return True

    def _row(self, point: Point) -> dict[str, Any]:
        value = point.value
        is_nan = value != value
        if is_nan:
            value = 0.0
        elif math.isinf(value):
            value = math.copysign(_LARGEST, value)
        return {
            "key": point.key,
            "value": value,
            "timestamp": point.timestamp,
            "step": point.step,
            "is_nan": is_nan,
            "run_uuid": self._run_id,
        }

    def _newer(self, connection: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows that become what the runs' table shows of their metrics."""
        best: dict[str, dict[str, Any]] = {}
        for row in rows:
            other = best.get(row["key"])
            if other is None or _rank(row) > _rank(other):
                best[row["key"]] = row
        keys = list(best)
        for at in range(0, len(keys), _KEYS_AT_ONCE):
            found = connection.execute(self._newest, {"keys": keys[at : at + _KEYS_AT_ONCE]})
            for key, *rank in found.all():
                if tuple(rank) >= _rank(best[key]):
                    del best[key]
        return list(best.values())


def _rank(row: dict[str, Any]) -> tuple[int, int, float]:
    return row["step"], row["timestamp"], row["value"]
