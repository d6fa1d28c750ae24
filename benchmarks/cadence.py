"""Time the cadence's hot calls beside a Struct with a dict of three floats, in one run.

    python benchmarks/cadence.py

The bar: log_ready, exact and on_change, at most 1.8 of the Struct (0.5 us where it costs 0.28 us).
"""

import statistics
import time
import timeit
from collections.abc import Callable

import msgspec

from eventlog.cadence import FrequencyManager, every, log_ready

CALLS = 50_000
ROUNDS = 15
BAR = 0.5 / 0.28


class Event(msgspec.Struct, gc=False):
    """What an emitted event is, at the least."""

    time: int
    values: dict[str, float]


def cases() -> dict[str, Callable[[], object]]:
    """Return what is timed; each is bound beforehand, so that a call is all that is measured."""
    exact = FrequencyManager(10, "exact", "step")
    on_change = FrequencyManager(10, "on_change", "step")
    epochs = FrequencyManager(0.1)
    for manager in (exact, on_change):
        manager.log_written(100)
        manager.model_updated(104)
    epochs.log_written(1.0)
    (steps,) = every("10 steps").terms
    (tenths,) = every("0.1 epochs").terms
    return {
        "Struct + dict + time_ns": lambda: Event(time.time_ns(), {"a": 1.0, "b": 2.0, "c": 0.5}),
        "log_ready exact, not due": lambda: exact.log_ready(105),
        "log_ready exact, due": lambda: exact.log_ready(115),
        "log_ready on_change, not due": lambda: on_change.log_ready(112),
        "log_ready on_change, due": lambda: on_change.log_ready(115),
        "log_ready float epochs": lambda: epochs.log_ready(1.05),
        "model_updated": lambda: on_change.model_updated(104),
        "log_written": lambda: exact.log_written(100),
        "stateless log_ready": lambda: log_ready(105, 100, 10),
        "stateless log_ready, update": lambda: log_ready(115, 100, 10, 104, True),
        "stateless log_ready, floats": lambda: log_ready(1.05, 1.0, 0.1),
        "AxisTerm.index, integer": lambda: steps.index(105),  # type: ignore[union-attr]
        "AxisTerm.index, float": lambda: tenths.index(1.05),  # type: ignore[union-attr]
    }


def main() -> None:
    """Interleave the cases, so that a slow spell of the machine meets all of them."""
    timers = {name: timeit.Timer(call) for name, call in cases().items()}
    spent: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            spent[name].append(timer.timeit(CALLS) / CALLS * 1e9)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    unit = medians["Struct + dict + time_ns"]
    for name, ns in medians.items():
        barred = "exact" in name or "on_change" in name
        verdict = ("  within the bar" if ns <= BAR * unit else "  OVER THE BAR") if barred else ""
        print(f"{name:30} {ns:7.0f} ns {ns / unit:6.2f} of the Struct{verdict}")


if __name__ == "__main__":
    main()
