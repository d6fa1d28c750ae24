"""Care for the process that a sink is a guest in: what it costs there, and how long it holds on.

Python runs one thread at a time. While a sink's thread computes, a training thread gets its turn
back only when the interpreter takes it away from the other, and gives it up with each operation of
torch: a sink that catches up would leave it a few percent. So what a sink's calls cost is measured,
they are cut to a length, and there is a pause between them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["CARE", "Care", "Guest", "Meter", "Turn", "turn_on"]


@dataclass(frozen=True)
class Care:
    """What a sink may take of a process that trains.

    Attributes:
        slice: Seconds of CPU time that one `write` is to take; batches are cut to that. It is what
            the interpreter grants a thread at once: shorter calls hand its lock back no sooner.
        overhead: The part of its time that a sink may lose to being called more often.
        duty: The part of one core that a sink may take while it has a backlog. At the end of the
            run it may have all of it.
        share: The part of one core beyond which the sink is named in a warning.
        window: Seconds over which that is judged.
        interval: Seconds between two looks at the log of a sink that has all there is. Each look
            and each call has a price of its own, which a batch of some steps shares; what is not
            given yet lies in the log.
    """

    slice: float = 0.005
    overhead: float = 0.2
    duty: float = 0.5
    share: float = 0.1
    window: float = 10.0
    interval: float = 0.1


CARE = Care()
LONGEST_PAUSE = 1.0
_FORGET = 0.9
_AT_FIRST = 16


class Turn(NamedTuple):
    """A call that has a loop to itself, until it awaits something.

    Attributes:
        what: Which it is.
        deadline: Seconds that it may take.
    """

    what: str
    deadline: float


_turns: dict[int, Turn] = {}


def turn_on(thread: int) -> Turn | None:
    """Return the call that the loop of a thread is in just now."""
    return _turns.get(thread)


class Meter:
    """What the calls of one sink have cost, in seconds.

    Attributes:
        calls: How many have ended.
        cpu: CPU time on the thread that they ran on.
        busy: Time from their beginnings to their ends.
        last: CPU time of the last one, and how long it took.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.cpu = self.busy = 0.0
        self.last = (0.0, 0.0)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function."""
        wall, cpu = time.monotonic(), time.thread_time()
        try:
            return function()
        finally:
            self._add(time.monotonic() - wall, time.thread_time() - cpu)

    async def wait(self, coroutine: Coroutine[Any, Any, Any], turn: Turn) -> None:
        """Await a coroutine, whose CPU time does not count while it waits."""
        wall, turns = time.monotonic(), _Turns(coroutine, turn)
        try:
            await turns
        finally:
            self._add(time.monotonic() - wall, turns.cpu)

    def _add(self, busy: float, cpu: float) -> None:
        self.calls += 1
        self.busy += busy
        self.cpu += cpu
        self.last = (cpu, busy)


class _Turns:
    """A coroutine that is awaited, and how much CPU time its turns have taken."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], turn: Turn) -> None:
        self._coroutine = coroutine
        self._turn = turn
        self.cpu = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        go: Callable[[Any], Any] = self._coroutine.send
        given: Any = None
        thread = threading.get_ident()
        while True:
            before = time.thread_time()
            _turns[thread] = self._turn
            try:
                waits_for = go(given)
            except StopIteration as end:
                return end.value
            finally:
                del _turns[thread]
                self.cpu += time.thread_time() - before
            try:
                given = yield waits_for
                go = self._coroutine.send
            except BaseException as error:
                given, go = error, self._coroutine.throw


class Guest:
    """A sink in a process that trains.

    What a call costs is learned: a part for each call, and one for each event. A sink that sends
    a request for each call has a large first part, and cutting its batches would only cost more.

    Args:
        care: What it may take.
    """

    def __init__(self, care: Care) -> None:
        self._care = care
        self._calls = self._events = self._seconds = self._squares = self._products = 0.0
        self._since: tuple[float, float] | None = None
        self._judged = False

    def learn(self, events: int, seconds: float) -> None:
        """Take what a call with so many events took."""
        self._calls = self._calls * _FORGET + 1.0
        self._events = self._events * _FORGET + events
        self._seconds = self._seconds * _FORGET + seconds
        self._squares = self._squares * _FORGET + events * events
        self._products = self._products * _FORGET + events * seconds

    def most(self, limit: int) -> int:
        """Return how many events the next call should have, at most `limit`."""
        if not self._events:
            return min(limit, _AT_FIRST)
        each, once = self._parts()
        length = max(self._care.slice, once / self._care.overhead)
        return limit if each * limit <= length - once else max(1, int((length - once) / each))

    @property
    def interval(self) -> float:
        """Seconds until a sink that has all there is looks for more."""
        return self._care.interval

    def pause(self, cpu: float, busy: float) -> float:
        """Return the seconds to wait after a call that took so much CPU time, and so long."""
        return min(LONGEST_PAUSE, cpu / self._care.duty - busy)

    def _parts(self) -> tuple[float, float]:
        """Return the seconds of an event and those of a call: a line through what was learned."""
        mean = self._seconds / self._events, 0.0
        spread = self._calls * self._squares - self._events**2
        if spread <= 1e-3 * self._events**2:  # all had about the same number of events
            return mean
        each = (self._calls * self._products - self._events * self._seconds) / spread
        once = (self._seconds - each * self._events) / self._calls
        if each <= 0:
            return 0.0, self._seconds / self._calls
        return (each, once) if once >= 0 else mean

    def judge(self, now: float, cpu: float) -> float | None:
        """Return the part of a core that the sink has taken, if that is too much: the first time.

        Args:
            now: Seconds of a monotonic clock.
            cpu: What its calls have taken until now.
        """
        if self._since is None:
            self._since = now, cpu
            return None
        begun, before = self._since
        if now - begun < self._care.window:
            return None
        self._since = now, cpu
        share = (cpu - before) / (now - begun)
        if self._judged or share <= self._care.share:
            return None
        self._judged = True
        return share
