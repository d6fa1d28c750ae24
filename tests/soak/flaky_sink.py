"""A copy of a log whose tracker has a bad day: outages, refusals, answers that are lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from eventlog.events import Event, StepEvent
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.log import LogSink

REFUSED_EVERY = 1009


def refuses(event: Event) -> bool:
    """Whether an event is one that the tracker never takes."""
    return type(event) is StepEvent and event.seq % REFUSED_EVERY == 7


class FlakySink(LogSink):
    """Fails in a part of its calls, at random, before or after it has taken what it was given.

    Args:
        rate: The part of the calls that fail.
        seed: Of the random numbers.
        options: Of the log.
    """

    name = "flaky"

    def __init__(self, *, rate: float = 0.05, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self._rate = rate
        self._random = random.Random(seed)

    def write(self, batch: Sequence[Event]) -> None:
        """Take a batch, or not."""
        self._fail()
        if any(map(refuses, batch)):
            raise RefusedError("the tracker does not take one of these")
        super().write(batch)
        self._fail()

    def flush(self) -> None:
        """Flush, or not."""
        self._fail()
        super().flush()

    def _fail(self) -> None:
        if self._random.random() >= self._rate:
            return
        fault = self._random.randrange(4)
        if fault == 0:
            raise UnavailableError("busy", retry_after=0.05)
        if fault == 1:
            raise ConnectionResetError("the answer was lost")
        if fault == 2:
            raise TimeoutError("no answer")
        raise UnavailableError("away for a moment")
