"""Answers to "is it due now?": for values that are dear to compute."""

from __future__ import annotations

from eventlog._counters import Counters
from eventlog.cadence import CadenceError
from eventlog.cadence.gate import Gate
from eventlog.clock import monotonic_ns
from eventlog.events import Event, StepEvent

__all__ = ["Dues"]

_AXES = frozenset({"step", "batch", "epoch"})


class _Due:
    """One cadence, asked at the places where a run is."""

    def __init__(self, every: str) -> None:
        self.gate = Gate(every)
        for axis in self.gate.axes:
            if axis not in _AXES:
                problem = f"a run counts steps, batches and epochs, and no {axis!r}"
                raise CadenceError(every, max(every.find(axis), 0) + 1, problem)
        self._place: tuple[object, ...] | None = None
        self._places = 0

    def ask(self, counters: Counters) -> bool:
        epoch = counters.fractional_epoch
        place = (counters.step, counters.batch, epoch)
        if place != self._place:
            self._place = place
            self._places += 1
        # a cadence in steps decides once a step; any other once wherever a counter has moved
        key = counters.step if "step" in self.gate.axes else self._places
        return self.gate.enter(StepEvent(monotonic_ns(), key, counters.batch, epoch)).due


class Dues:
    """The cadences that were asked for by their text; all who ask at one place agree."""

    def __init__(self) -> None:
        self._by_text: dict[str, _Due] = {}

    def ask(self, every: str, counters: Counters) -> bool:
        """Whether a cadence is due where the run is.

        Raises:
            CadenceError: The text is wrong, or counts what a run does not: it would never be due.
        """
        due = self._by_text.get(every)
        if due is None:
            due = self._by_text[every] = _Due(every)
        return due.ask(counters)

    def model_updated(self, event: Event) -> None:
        """Take note of a model update."""
        for due in self._by_text.values():
            due.gate.model_updated(event)

    def restart(self) -> None:
        """Forget what was answered: another attempt begins."""
        self._by_text.clear()
