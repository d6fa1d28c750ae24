"""Time what a subscription costs for each event, beside decoding one, in one run.

    python benchmarks/subscription.py

Events lie in the cache, in blocks as the writer makes them. The bars: 0.7 us for a gated event and
0.1 us for one in a block that cannot be due, where decoding one takes 0.37 us.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from eventlog.codec import decode_events, encode_events
from eventlog.events import BatchEvent, Event, StepEvent
from eventlog.log.source import Block, TailCache, describe
from eventlog.subscription import Subscription

EVENTS = 100_000
BLOCK = 512
ROUNDS = 7
PULL = 512
GATED, PASSED_BY = 0.7 / 0.37, 0.1 / 0.37

TICKING = ["1 step", "10 steps", "100 steps", "20 batches", "0.01 epochs", "10 ms",
           "7 steps or 1 s"]  # fmt: skip
NOT_DUE = ["10_000_000 steps", "10_000_000 batches", "10_000 epochs", "1 h", "every update"]


def steps(per_step: int = 1) -> Iterator[Event]:
    """Steps of 1 ms and two batches, a thousand an epoch."""
    for n in range(EVENTS):
        s = n // per_step
        yield StepEvent(s * 10**6, s, 2 * s, s / 1000, {"loss": 0.5, "lr": 0.1}, seq=n)


def steps_and_batches() -> Iterator[Event]:
    """A batch event and a step event by turns."""
    for n, event in enumerate(steps()):
        if n % 2:
            yield BatchEvent(event.mono, n // 2, n, n / 1000, event.values, seq=n)
        else:
            yield StepEvent(event.mono, n // 2, n, n / 1000, event.values, seq=n)


def cache_of(events: Iterator[Event], unread: bool = False) -> TailCache:
    """Put events in blocks, in memory or still to be decoded."""
    cache = TailCache(10**9, 10**15)
    found = list(events)
    for first in range(0, len(found), BLOCK):
        part = found[first : first + BLOCK]
        payload = encode_events(part) if unread else b""
        flags, range_of_steps = describe(part)
        block = Block(
            first,
            len(part),
            flags,
            range_of_steps,
            attempt=1,
            first_time=0,
            size=0,
            events=None if unread else part,
            payload=partial(bytes, payload) if unread else None,
        )
        cache.append(block)
    cache.close()
    return cache


def drain(*subscriptions: Subscription) -> None:
    """Pull by turns, as the delivery to several sinks does."""
    while all([s.pull(PULL) is not None for s in subscriptions]):  # noqa: C419 - all take turns
        pass


def cases() -> dict[str, tuple[float, Callable[[], object]]]:
    """Return what is timed, with the bar as a ratio to decoding; 0 for none."""
    plain, thrice, mixed = (cache_of(e) for e in (steps(), steps(per_step=3), steps_and_batches()))
    payloads = [encode_events(b.events()) for b in plain._blocks]

    def over(source: TailCache, count: int = 1, **options: Any) -> Callable[[], object]:
        return lambda: drain(*[Subscription(source, **options) for _ in range(count)])

    found: dict[str, tuple[float, Callable[[], object]]] = {
        "decode": (0, lambda: [decode_events(p) for p in payloads]),
        "no cadence": (0, over(plain)),
        "types, no cadence": (0, over(plain, types=["step"])),
        "keys, no cadence": (0, over(plain, keys=["loss"])),
    }
    for text in TICKING:
        found[text] = (0 if text == "1 step" else GATED, over(plain, every=text))
    found["10 steps, three events a step"] = (GATED, over(thrice, every="10 steps"))
    found["10 steps, steps and batches by turns"] = (GATED, over(mixed, every="10 steps"))
    found["10 steps, mean"] = (0, over(plain, every="10 steps", reduce="mean"))
    for text in NOT_DUE:
        found[f"{text}, not due"] = (PASSED_BY, over(plain, every=text))
    found["1 h, not due, steps and batches by turns"] = (GATED, over(mixed, every="1 h"))
    for text in ("10_000_000 steps", "1 h"):
        found[f"64 times {text}, not due"] = (0, over(plain, 64, every=text))
    found["10_000_000 steps, not due, unread"] = (
        PASSED_BY,
        lambda: drain(Subscription(unread, every="10_000_000 steps")),
    )
    unread = cache_of(steps(), unread=True)
    return found


def main() -> None:
    """Interleave the cases, so that a slow spell of the machine meets all of them."""
    calls = cases()
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (_, call) in calls.items():
            start = time.perf_counter()
            call()
            spent[name].append((time.perf_counter() - start) / EVENTS * 1e9)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    for name, (bar, _) in calls.items():
        ratio = medians[name] / medians["decode"]
        verdict = "" if not bar else "  within the bar" if ratio <= bar else "  OVER THE BAR"
        print(f"{name:42} {medians[name]:7.0f} ns an event {ratio:6.2f} of decoding{verdict}")


if __name__ == "__main__":
    main()
