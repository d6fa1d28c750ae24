"""The loops of training, with their counters kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, TypeVar

from eventlog._counters import Counters

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["LoopMethods"]

T = TypeVar("T")


class LoopMethods:
    """Iterators that count what passes through them, unless their body counts by itself."""

    _counters: Counters
    _shown: Progress | None = None

    if TYPE_CHECKING:  # what another part of `Run` brings

        def epoch(self, *values: Any, **scalars: Any) -> None:
            """See `Run.epoch`."""

    def epochs(self, n: int, *, progress: bool = False) -> Iterator[int]:
        """Yield the numbers of the epochs up to n; a resumed run goes on with the one it is in.

        At the end of each, the epoch is counted and an `EpochEvent` logged, unless the body did
        that with `Run.epoch`, to give it values.

        Args:
            n: How many epochs there are to be in all.
            progress: Show a bar in the terminal.

        Raises:
            ValueError: `n` is no number of epochs.
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise ValueError(f"n must be a number of epochs, not {n!r}")
        return self._epochs(n, progress)

    def _epochs(self, n: int, progress: bool) -> Iterator[int]:
        counters = self._counters
        with self._bar(progress) as bar:
            task = None if bar is None else bar.add_task("epoch", total=n, completed=counters.epoch)
            while counters.epoch < n:
                at = counters.epoch
                attempt = counters.attempt
                yield at
                if counters.epoch == at and counters.attempt == attempt:
                    self.epoch()
                if bar is not None and task is not None:
                    bar.update(task, completed=counters.epoch)

    def steps(self, batches: Iterable[T], *, progress: bool = False) -> Iterator[T]:
        """Yield what a loader yields, and count a step after each.

        A body that counts by itself, with `Run.step`, is not counted twice; one that only logs,
        with `Run.log`, logs at the step that it is in. Leaving the loop early counts what was
        done.

        Args:
            batches: A loader, or anything that can be iterated.
            progress: Show a bar in the terminal; with a total where the loader has a length.
        """
        counters = self._counters
        total = len(batches) if isinstance(batches, Sized) else None
        with self._bar(progress) as bar:
            task = None if bar is None else bar.add_task("step", total=total)
            for batch in batches:
                at, attempt = counters.step, counters.attempt
                yield batch
                if counters.step == at and counters.attempt == attempt:
                    counters.step += 1
                if bar is not None and task is not None:
                    bar.update(task, advance=1, description=f"step {counters.step}")
            if bar is not None and task is not None:
                bar.remove_task(task)

    def advance(self, steps: int = 1) -> None:
        """Count steps without logging anything.

        Raises:
            ValueError: `steps` is no number of steps.
        """
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise ValueError(f"steps must be a number of steps, not {steps!r}")
        self._counters.step += steps

    @contextlib.contextmanager
    def _bar(self, wanted: bool) -> Iterator[Progress | None]:
        """Show a bar; inside of another loop, below its bar, for a terminal has one display."""
        if not wanted or self._shown is not None:
            yield self._shown if wanted else None
            return
        with _display() as shown:
            self._shown = shown
            try:
                yield shown
            finally:
                self._shown = None


def _display() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
