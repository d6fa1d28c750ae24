"""How much is measured: with `--quick`, by default, and in the test."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything.

    Attributes:
        rounds: Rounds of all cases: a process of each, or as many as its weight says.
        whole: Steps of the loop that is timed with its end.
        burst: Calls in a tight loop, at most.
        burst_seconds: And how long that may take.
        pairs: Pairs of blocks, with and without the logger, for each length of a step in ms.
        block: Steps in a block: long beside what a logger puts off, which falls into the next
            block, the one without it.
        pair_seconds: How long the pairs of one length may take.
        paced: Seconds of the run that is killed in its middle.
        calibrated: Whether steps have the length that they should have.
        deadline: Seconds for a process, its start and its end included.
    """

    rounds: int = 3
    whole: int = 600
    burst: int = 2000
    burst_seconds: float = 3.0
    pairs: dict[str, int]
    block: dict[str, int]
    pair_seconds: float = 8.0
    paced: float = 5.0
    calibrated: bool = True
    deadline: float = 240.0


DEFAULT = Plan(
    pairs={"0.2": 3, "1.5": 4, "10.0": 2},
    block={"0.2": 2000, "1.5": 700, "10.0": 100},
    pair_seconds=12.0,
)
QUICK = Plan(
    rounds=1,
    whole=200,
    burst=500,
    burst_seconds=1.0,
    pairs={"0.2": 3, "1.5": 4, "10.0": 2},
    block={"0.2": 500, "1.5": 200, "10.0": 20},
    pair_seconds=2.0,
    paced=2.0,
    deadline=150.0,
)
TINY = Plan(
    rounds=1,
    whole=10,
    burst=20,
    burst_seconds=0.5,
    pairs={"1.5": 2},
    block={"1.5": 5},
    pair_seconds=1.0,
    paced=0.5,
    calibrated=False,
    deadline=60.0,
)
PLANS = {"default": DEFAULT, "quick": QUICK, "tiny": TINY}
