"""Where a run is: its step, batch and epoch counters, and how a user's own replace them."""

from __future__ import annotations

from typing import Any, NamedTuple

from eventlog._values import is_step

__all__ = ["Counters", "Place"]


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
            if number is None:
                advice = f"{name} must be an integer from 0 to 2**63 - 1, not {_show(given)}; "
                rejected.append((name, f"bad_{name}", advice + f"recorded at {counted}"))
                return counted
            return number

        place = Place(
            count("step", step, self.step),
            count("batch", batch, self.batch),
            self._epoch(epoch, rejected),
            (),
        )
        if not own_axis and step is not None:
            self.step = place.step or 0
        if batch is not None:
            self.batch = place.batch or 0
        return place._replace(rejected=tuple(rejected))

    def _epoch(self, epoch: Any, rejected: list[tuple[str, str, str]]) -> int | float:
        if epoch is None:
            return self.fractional_epoch
        whole = is_step(epoch)
        if whole is not None:
            self.epoch = whole
            return whole
        if isinstance(epoch, float) and 0 <= epoch < 2**63:
            self.epoch = int(epoch)
            return float(epoch)
        counted = self.fractional_epoch
        advice = f"epoch must be a number from 0, not {_show(epoch)}; recorded at {counted}"
        rejected.append(("epoch", "bad_epoch", advice))
        return counted


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
