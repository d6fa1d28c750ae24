"""Where a run is: its step, batch and epoch counters, and how a user's own replace them."""

from __future__ import annotations

from typing import Any, NamedTuple

from eventlog._values import is_step

__all__ = ["LAST_STEP", "Counters", "Place"]

LAST_STEP = 2**62
"""The largest step or batch that is taken: one can count on from it, and a log can hold it."""


class Place(NamedTuple):
    """Where an event is on each axis.

    Attributes:
        rejected: (key, reason, advice) of what the user gave that is no place.
    """

    step: int | None
    batch: int | None
    epoch: int | float | None
    rejected: tuple[tuple[str, str, str], ...]


class Counters:
    """The attempt, and the next step, batch and epoch; all count from 0 over the whole run."""

    __slots__ = ("attempt", "batch", "epoch", "epoch_step", "step", "steps_per_epoch")

    def __init__(self, steps_per_epoch: int | None = None) -> None:
        self.attempt = 1
        self.step = 0
        self.batch = 0
        self.epoch = 0
        self.epoch_step = 0
        self.steps_per_epoch = steps_per_epoch

    def end_epoch(self) -> None:
        """Count an epoch."""
        self.epoch += 1
        self.epoch_step = self.step

    @property
    def fractional_epoch(self) -> int | float:
        """The epoch, with the steps since its beginning where their number is known."""
        if self.steps_per_epoch is None:
            return self.epoch
        done = min(self.step - self.epoch_step, self.steps_per_epoch)
        return self.epoch + done / self.steps_per_epoch if done > 0 else self.epoch

    def place(self, step: Any, batch: Any, epoch: Any, *, own_axis: bool) -> Place:
        """Return where an event is: as the user says, or as counted.

        A step that is none is replaced by the counter's, so that the values are not lost.
        """
        rejected: list[tuple[str, str, str]] = []

        def count(name: str, given: Any, counted: int) -> int:
            if given is None:
                return counted
            number = is_step(given)
            if number is None or number > LAST_STEP:
                advice = f"{name} must be an integer from 0 to 2**62, not {_show(given)}; "
                rejected.append((name, f"bad_{name}", advice + f"recorded at {counted}"))
                return counted
            return number

        place = Place(
            count("step", step, self.step),
            count("batch", batch, self.batch),
            None,
            (),
        )
        if not own_axis and step is not None:
            self.step = place.step or 0
        if batch is not None:
            self.batch = place.batch or 0
        return place._replace(epoch=self._epoch(epoch, rejected), rejected=tuple(rejected))

    def _epoch(self, epoch: Any, rejected: list[tuple[str, str, str]]) -> int | float:
        if epoch is None:
            return self.fractional_epoch
        whole = is_step(epoch)
        if whole is not None and whole <= LAST_STEP:
            self._enter_epoch(whole, 0.0)
            return whole
        if isinstance(epoch, float) and 0 <= epoch < LAST_STEP:
            self._enter_epoch(int(epoch), epoch % 1)
            return float(epoch)
        counted = self.fractional_epoch
        advice = f"epoch must be a number from 0, not {_show(epoch)}; recorded at {counted}"
        rejected.append(("epoch", "bad_epoch", advice))
        return counted

    def _enter_epoch(self, epoch: int, done: float) -> None:
        """Follow a user's own epoch; what was counted of it so far is then known, too."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.epoch_step = self.step - round(done * (self.steps_per_epoch or 0))


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
