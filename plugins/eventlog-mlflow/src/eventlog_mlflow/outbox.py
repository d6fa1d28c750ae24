"""What waits for `commit`, and is sent in as few calls as MLflow allows."""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from eventlog.exceptions import UnavailableError
from eventlog_mlflow.bulk import Point
from eventlog_mlflow.repeats import Repeats

__all__ = ["File", "Outbox"]

SECONDS = 20.0
"""How long a batch may take before the rest of it is left for another call."""

_AGAIN = re.compile("unique|duplicate", re.IGNORECASE)
_ROOM = 900_000
"""Bytes of params in one request; MLflow's own limit is 1 MB."""

T = TypeVar("T")


class File(NamedTuple):
    """An artifact: its path in the run, and its contents or the file that has them."""

    path: str
    source: bytes | Path


class Outbox:
    """Gathers what a batch brings and sends it.

    What got through of a batch that failed is remembered, and is not sent again when the batch
    comes again: otherwise a slow server would never get to the end of it.

    Args:
        client: MLflow's.
        run_id: The run's.
        params: What the run has already.
        fast_way: See `eventlog_mlflow.bulk`.
        count: Counts what could not be shown.
    """

    def __init__(
        self,
        client: Any,
        run_id: str,
        params: Mapping[str, str],
        fast_way: Callable[[Sequence[Point]], bool] | None,
        count: Callable[[str], None],
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._fast_way = fast_way
        self._count = count
        self._known = dict(params)
        self._sent: set[object] = set()
        self.points: list[Point] = []
        self.params: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.files: list[File] = []

    def param(self, name: str) -> str | None:
        """Return the value of a param, as it is or will be; None where there is none."""
        return self.params.get(name, self._known.get(name))

    def clear(self) -> None:
        """Forget what waits."""
        self.points = []
        self.params = {}
        self.tags = {}
        self.files = []

    def send(self) -> None:
        """Send all of it, or raise; what was sent by then is known."""
        if not (self.points or self.params or self.tags or self.files):
            return
        self._until = time.monotonic() + SECONDS
        done: list[Iterator[object]] = []
        try:
            for sent in self._steps():
                done.append(sent)
        except BaseException:
            for sent in done:
                self._sent.update(sent)
            raise
        self._sent.clear()
        self.clear()

    def _steps(self) -> Iterator[Iterator[object]]:
        """Send one request after the other; each yields what it brought over."""
        from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH

        params = [(name, value) for name, value in self.params.items() if name not in self._known]
        for some in _parts(params, MAX_PARAMS_TAGS_PER_BATCH, _weight):
            self._check_time()
            self._log_params(some)
            yield iter(())
        points = self._unsent(self.points, _identity)
        most = MAX_METRICS_PER_BATCH if self._fast_way is None else max(1, len(points))
        for chunk in _parts(points, most):
            self._check_time()
            self._log_points(chunk)
            yield map(_identity, chunk)
        for tags in _parts(list(self.tags.items()), MAX_PARAMS_TAGS_PER_BATCH, _weight):
            self._check_time()
            self._log_tags(tags)
            yield iter(())
        files = self._unsent(self.files, lambda file: file.path)
        if files:
            with tempfile.TemporaryDirectory(prefix="eventlog-mlflow-") as folder:
                for file in files:
                    self._check_time()
                    self._log_file(file, Path(folder))
                    yield iter((file.path,))

    def _unsent(self, items: list[T], identity: Callable[[T], object]) -> list[T]:
        if not self._sent:
            return items
        return [item for item in items if identity(item) not in self._sent]

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise UnavailableError("MLflow is slow: the rest of the batch follows", retry_after=0.0)

    def _log_points(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric
        from mlflow.exceptions import MlflowException

        plain = self._fast_way is not None and not any(point.extra for point in points)
        if plain and self._fast_way is not None and self._fast_way(points):
            return

        def log(points: Sequence[Point]) -> None:
            metrics = [Metric(p.key, p.value, p.timestamp, p.step, **dict(p.extra)) for p in points]
            self._client.log_batch(self._run_id, metrics=metrics)

        try:
            log(points)
        except MlflowException as error:
            if not _AGAIN.search(str(error)):
                raise
            # older servers refuse a NaN that they have, and with it the whole request
            fresh = Repeats(self._client, self._run_id).without(points)
            if len(fresh) == len(points):
                raise
            log(fresh)

    def _log_params(self, params: Sequence[tuple[str, str]]) -> None:
        from mlflow.entities import Param

        self._client.log_batch(self._run_id, params=[Param(*param) for param in params])
        self._known.update(params)

    def _log_tags(self, tags: Sequence[tuple[str, str]]) -> None:
        from mlflow.entities import RunTag

        self._client.log_batch(self._run_id, tags=[RunTag(*tag) for tag in tags])

    def _log_file(self, file: File, folder: Path) -> None:
        """Upload a file under the name that its path has, which a blob's own file has not."""
        where, name = posixpath.split(file.path)
        local = folder / name
        if isinstance(file.source, bytes):
            local.write_bytes(file.source)
        elif os.access(file.source, os.R_OK):
            local.symlink_to(file.source.absolute())
        else:
            self._count("file that cannot be read")
            return
        try:
            self._client.log_artifact(self._run_id, str(local), where or None)
        finally:
            local.unlink()


def _identity(point: Point) -> object:
    return point._replace(value=0.0), repr(point.value)


def _weight(pair: tuple[str, str]) -> int:
    # what is not ASCII takes six bytes in a request, or twelve
    return sum(len(text) if text.isascii() else 12 * len(text) for text in pair)


def _parts(
    items: Sequence[T], most: int, weight: Callable[[T], int] | None = None
) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most so many, and so heavy where that counts."""
    if weight is None:
        for start in range(0, len(items), most):
            yield items[start : start + most]
        return
    part: list[T] = []
    room = _ROOM
    for item in items:
        heavy = weight(item)
        if part and (len(part) == most or heavy > room):
            yield part
            part, room = [], _ROOM
        part.append(item)
        room -= heavy
    if part:
        yield part
