"""The loops of training, with their counters kept."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex, TypeVar

from eventlog._counters import Counters
from eventlog._run_progress import Bar, Bars

__all__ = ["LoopMethods"]

T = TypeVar("T")


class LoopMethods:
    """Iterators that count what passes through them, unless their body counts by itself."""

    rank: int
    _counters: Counters
    _bars: Bars | None = None
    _counting: weakref.WeakSet[Any] | None = None

    def epoch(self, *values: Any, **scalars: Any) -> None:
        """See `Run.epoch`; another part of `Run` brings it."""
        raise NotImplementedError

    def epochs(self, n: SupportsIndex, *, progress: bool = False) -> Iterator[int]:
        """Yield the numbers of the epochs up to n; a resumed run begins the one it is in again.

        At the end of each, the epoch is counted and an `EpochEvent` logged, unless the body did
        that with `Run.epoch`, to give it values. One that is left, with ``break`` or an exception,
        is not over: it is neither counted nor logged.

        Args:
            n: How many epochs there are to be in all.
            progress: Show a bar in the terminal; see `steps`.

        Raises:
            ValueError: `n` is no number of epochs.
        """
        return self._epochs(_checked("n must be a number of epochs", n), progress)

    def _epochs(self, n: int, progress: bool) -> Iterator[int]:
        counters = self._counters
        bar = self._bar("epoch", n, counters.epoch, progress)
        try:
            while counters.epoch < n:
                at, attempt = counters.epoch, counters.attempt
                if bar is not None:
                    bar.show(at, at)
                yield at
                if counters.epoch == at and counters.attempt == attempt:
                    self.epoch()
        finally:
            if bar is not None:
                bar.end()

    def steps(
        self, batches: Iterable[T], *, count: bool = True, progress: bool = False
    ) -> Iterator[T]:
        """Yield what a loader yields, and count a step after each.

        What the body logs with `Run.log` is at the step that it is in. A body that counts by
        itself, with `Run.step`, is not counted twice; nothing is counted here while
        ``watch(count=True)`` does. A step that is left, with ``break`` or an exception, is not
        counted.

        Args:
            batches: A loader, or anything that can be iterated.
            count: False only shows the bar: for validation, which is no training step.
            progress: Show a bar on standard error, where that is a terminal, on rank 0; with a
                total where the loader has a length.
        """
        counters = self._counters
        bar = self._bar("step", _length(batches), 0, progress)
        try:
            for done, batch in enumerate(batches, 1):
                at, attempt = counters.step, counters.attempt
                yield batch
                unmoved = counters.step == at and counters.attempt == attempt
                if count and unmoved and not self._counting:
                    counters.step += 1
                if bar is not None:
                    bar.show(done, counters.step)
        finally:
            if bar is not None:
                bar.end()

    def advance(self, steps: SupportsIndex = 1) -> None:
        """Count steps without logging anything.

        Raises:
            ValueError: `steps` is no number of steps.
        """
        self._counters.step += _checked("steps must be a number of steps", steps)

    def _counted_by(self, somebody: object, does: bool = True) -> None:
        """Take note of who counts the steps, as long as it lives, so that loops do not."""
        if self._counting is None:
            self._counting = weakref.WeakSet()
        if does:
            self._counting.add(somebody)
        else:
            self._counting.discard(somebody)

    def _bar(self, name: str, total: int | None, done: int, wanted: bool) -> Bar | None:
        if not wanted or self.rank:
            return None
        if self._bars is None:
            self._bars = Bars()
        return Bar(self._bars, name, total, done)

    def _hide_bars(self) -> None:
        if self._bars is not None:
            self._bars.hide()


def _checked(rule: str, number: Any) -> int:
    """Return a count as Python's integer: a configuration may have it from NumPy."""
    try:
        count = -1 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"{rule}, not {number!r}")
    return count


def _length(batches: Any) -> int | None:
    """Return how many there will be; a loader over a stream has a length that raises."""
    try:
        return len(batches)
    except Exception:
        return None
