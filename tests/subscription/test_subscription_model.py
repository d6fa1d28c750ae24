"""A subscription against a model that takes all events one by one, from a list, without blocks."""

from __future__ import annotations

import fnmatch
import math
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventlog import _lanes
from eventlog.cadence import FrequencyManager
from eventlog.codec import encode_events
from eventlog.events import (
    BatchEvent,
    EpochEvent,
    Event,
    Flushed,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    TextEvent,
)
from eventlog.log.archive import open_log
from eventlog.log.attempts import Attempts
from eventlog.log.source import Block, Source, TailCache, describe
from eventlog.recorder import Recorder
from eventlog.subscription import Mark, Ready, Subscription

EPOCH = 12  # batches
SECOND = 10**9
WALL = 1_000 * SECOND


# --- the model ------------------------------------------------------------------------------

Term = tuple[str, Any]
"""("step" | "batch" | "epoch" | counter, n), ("pow2", axis), ("time", ns), ("update", None)"""


@dataclass
class Rule:
    """A cadence, as the subscription gets it and as the model reads it."""

    given: str | FrequencyManager
    terms: list[Term] = field(default_factory=list)

    def __repr__(self) -> str:
        return repr(self.given)

    @property
    def axes(self) -> list[str]:
        if isinstance(self.given, FrequencyManager):
            return [self.given.frequency_type]
        return [
            n if axis == "pow2" else axis
            for axis, n in self.terms
            if axis not in ("time", "update")
        ]


def place(event: Event, axis: str) -> Fraction | None:
    """Where an event is on an axis, as an exact number: epochs are multiples of 1 / EPOCH."""
    value: Any
    if axis in ("step", "batch", "epoch"):
        value = getattr(event, axis)
    elif event.axis == axis:
        value = event.step
    else:
        value = event.values.get(axis)
    if value is None or isinstance(value, bool | str) or not math.isfinite(value):
        return None
    return Fraction(value).limit_denominator(EPOCH) if axis == "epoch" else Fraction(value)


def number(term: Term, event: Event, origin: int, updates: int) -> int | None:
    """The number of the interval of a term that an event lies in."""
    axis, n = term
    if axis == "time":
        return (event.mono - origin) // int(n)
    if axis == "update":
        return updates
    x = place(event, n if axis == "pow2" else axis)
    if x is None or x < 0:
        return None
    if axis == "pow2":
        return sum(1 for power in range(64) if 2**power <= x)
    return math.floor(x / Fraction(n))


class Lane:
    """What the model knows of one kind of event on one axis."""

    def __init__(self, rule: Rule, fresh: bool) -> None:
        self.key: Any = None
        self.due = False
        self.due_key: Any = None
        self.highest: list[int | None] = [None] * len(rule.terms)
        self.origin: int | None = None
        self.waiting: list[Event] = []
        given = rule.given
        self.manager = given.copy(fresh=fresh) if isinstance(given, FrequencyManager) else None


class Model:
    """Takes events one by one."""

    def __init__(
        self,
        rules: dict[type[Event], Rule],
        *,
        reduce: str | None = None,
        types: Sequence[type[Event]] | None = None,
        keys: Sequence[str] | None = None,
        superseded: Callable[[Event], bool] = lambda event: False,
        most: int = 1_000,
    ) -> None:
        self.rules = rules
        self.reduce = reduce
        self.types = types
        self.keys = keys
        self.superseded = superseded
        self.most = most
        self.out: list[Event] = []
        self.attempt: int | None = None
        self.fresh = False
        self.begin()

    def begin(self) -> None:
        self.lanes: dict[tuple[type[Event], str], Lane] = {}
        self.updates: list[Event] = []

    @property
    def waiting(self) -> int:
        return sum(len(lane.waiting) for lane in self.lanes.values())

    def take(self, event: Event) -> None:
        if self.attempt is not None and event.attempt != self.attempt:
            self.finish()
            self.begin()
            self.fresh = True
        self.attempt = event.attempt
        if self.superseded(event):
            return
        kind = type(event)
        if kind is ModelUpdateEvent:
            self.updates.append(event)
            for lane in self.lanes.values():
                self.tell(lane, event)
        if kind is RunFinished:
            self.finish()
        if kind in (EpochEvent, Flushed) and self.reduce:
            for (of, _), lane in self.lanes.items():
                if kind is Flushed:
                    closes = lane.due
                else:  # epoch events are at the end of their epoch themselves
                    closes = of is not EpochEvent and self.epoch_ends(self.rules[of], lane, event)
                if closes:
                    self.close(lane)
                    lane.due = False
        if self.types is not None and kind not in self.types:
            return
        if self.types is None and kind is Flushed:
            return
        kept = self.select(event)
        if kind not in self.rules:
            if kept.values or not event.values:
                self.out.append(kept)
        elif self.keys is None or kept.values:
            self.gated(self.rules[kind], event, kept)

    def select(self, event: Event) -> Event:
        if self.keys is None:
            return event
        return msgspec.structs.replace(
            event,
            values={
                name: value
                for name, value in event.values.items()
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.keys)
            },
        )

    def tell(self, lane: Lane, update: Event) -> None:
        if lane.manager is not None:
            x = getattr(update, lane.manager.frequency_type)
            if x is not None:
                lane.manager.model_updated(x)

    def key(self, rule: Rule, event: Event) -> Any:
        order = ["step", "batch", "epoch"]
        if type(event) is BatchEvent and rule.axes[:1] != ["step"]:
            order = ["batch", "step", "epoch"]
        if type(event) is EpochEvent:
            order = ["epoch", "step", "batch"]
        return next((getattr(event, a) for a in order if getattr(event, a) is not None), None)

    def gated(self, rule: Rule, event: Event, kept: Event) -> None:
        where = (type(event), event.axis)
        if where not in self.lanes:
            lane = self.lanes[where] = Lane(rule, self.fresh)
            for update in self.updates:
                self.tell(lane, update)
        lane = self.lanes[where]
        key = self.key(rule, event)
        if key is None or key != lane.key:
            if self.reduce and lane.due:
                self.close(lane)
            if not self.reduce:
                lane.waiting = []
            lane.due = key is not None and key == lane.due_key
            if not lane.due and self.decide(rule, lane, event):
                lane.due, lane.due_key = True, key
            lane.key = key
        if lane.due and not self.reduce:
            self.out.append(kept)
        else:
            lane.waiting.append(kept)
            if not self.reduce:
                lane.waiting = lane.waiting[-self.most :]

    def decide(self, rule: Rule, lane: Lane, event: Event) -> bool:
        if lane.manager is not None:
            x = getattr(event, lane.manager.frequency_type)
            if x is None or not lane.manager.log_ready(x):
                return False
            lane.manager.log_written(x)
            return True
        if lane.origin is None:
            lane.origin = event.mono
        due = False
        for i, term in enumerate(rule.terms):
            n, highest = number(term, event, lane.origin, len(self.updates)), lane.highest[i]
            if n is not None and (highest is None or n > highest):
                lane.highest[i] = n
                due = True
        return due

    def epoch_ends(self, rule: Rule, lane: Lane, event: Event) -> bool:
        if event.epoch is None or "epoch" not in rule.axes:
            return False
        if lane.manager is not None:
            if not lane.manager.log_ready(event.epoch + 1):
                return False
            lane.manager.log_written(event.epoch + 1)
            return True
        ends = False
        for i, term in enumerate(rule.terms):
            if term[0] == "epoch" or term == ("pow2", "epoch"):
                after = msgspec.structs.replace(event, epoch=event.epoch + 1)
                n = number(term, after, 0, 0) or 0
                if n > (lane.highest[i] or 0):
                    lane.highest[i] = n
                    ends = True
        return ends

    def close(self, lane: Lane) -> None:
        if lane.waiting:
            assert self.reduce
            self.out.append(reduced(lane.waiting, self.reduce))
            lane.waiting = []

    def finish(self) -> None:
        last: list[Event] = []
        for (kind, _), lane in self.lanes.items():
            given = self.rules[kind].given
            never = isinstance(given, FrequencyManager) and given.log_frequency is None
            if lane.waiting and not never:
                last += [reduced(lane.waiting, self.reduce)] if self.reduce else lane.waiting
            lane.waiting = []
        self.out += sorted(last, key=lambda event: event.seq)


BY_THE_BOOK: dict[str, Callable[[list[Any]], Any]] = {
    "mean": lambda xs: math.fsum(xs) / len(xs),
    "sum": math.fsum,
    "min": min,
    "max": max,
    "std": statistics.pstdev,
}


def reduced(events: list[Event], how: str) -> Event:
    """One event for a window, by the book."""
    values: dict[str, Any] = {}
    for name in {name: None for event in events for name in event.values}:
        found: list[Any] = [event.values[name] for event in events if name in event.values]
        if how == "last":
            values[name] = found[-1]
        elif how == "count":
            values[name] = len(found)
        elif any(x != x for x in found):
            values[name] = math.nan
        else:
            values[name] = BY_THE_BOOK[how](found)
    axis = {BatchEvent: "batch", EpochEvent: "epoch"}.get(type(events[-1]), "step")
    first, last = (
        e.step if getattr(e, axis) is None else getattr(e, axis) for e in (events[0], events[-1])
    )
    every = [v for event in events for v in event.values.values()]
    window = {"first": first, "last": last, "n": len(events), "nans": sum(v != v for v in every)}
    return msgspec.structs.replace(events[-1], values=values, window=window)


def seen(events: Iterable[Event]) -> list[Any]:
    """What two deliveries are compared by; NaN equals itself, and sums are rounded."""
    found = []
    for event in events:
        values = {
            k: "nan" if v != v else (float(f"{v:.9g}") if isinstance(v, float) else v)
            for k, v in event.values.items()
        }
        window: Any = event.window
        if window is not None and not isinstance(window, dict):
            window = msgspec.structs.asdict(window)
        found.append((event.seq, type(event).__name__, values, window))
    return found


# --- streams of events ------------------------------------------------------------------------

MIXED = [
    *["step"] * 12, *["again"] * 4, *["batch"] * 6, *["val"] * 3, *["epoch", "update", "flush"] * 2,
    *["lower", "bare"] * 2, "text", "jump", "rewind", "finish", "late",
]  # fmt: skip
STEPS = [*["step"] * 30, *["again"] * 6]
PLAIN = [
    STEPS,
    [*STEPS, "rewind", "epoch", "flush", "update", "finish"],
    [*STEPS, *["lower"] * 12, "jump", *["late"] * 3],
    ["again"] * 10 + ["step"],
    ["again", "again", "step"],
    [*["batch"] * 20, "update"],
]
PROFILES = [
    MIXED,
    *PLAIN,
    [*["batch"] * 20, *["step"] * 6, "epoch"],
    [*["bare"] * 4, *["batch"] * 20, *["step"] * 20],
]
"""What happens, by how often: training loops differ, and blocks of one kind are read otherwise."""

KEYS = st.sampled_from([("loss",), ("loss", "lr"), ("val/acc",), ("tokens", "loss"), ()])


@st.composite
def streams(draw: st.DrawFn, most: int = 90, profiles: list[list[str]] = PROFILES) -> list[Event]:
    """Events as training emits them, with all that may go wrong about their axes."""
    profile = st.sampled_from(draw(st.sampled_from(profiles)))
    least = draw(st.sampled_from([0, most // 3, most * 2 // 3]))  # lists are short by themselves
    ops = draw(st.lists(profile, min_size=least, max_size=most))
    full = draw(st.sampled_from([("batch", "epoch"), ("batch", "epoch"), ("batch",), ()]))
    pace = draw(st.sampled_from([0, 40_000_000, 300_000_000]))
    numbers = st.integers(-5, 5).map(float) | st.just(math.nan) | st.integers(0, 9)
    step = batch = tokens = val = 0
    attempt = 1
    mono = draw(st.sampled_from([0, 5 * SECOND]))
    events: list[Event] = []
    emitted: list[Event] = [RunStarted(run_id="r")]

    def emit(kind: type[Event], **fields: Any) -> None:
        axes: dict[str, Any] = {"step": step}
        if "batch" in full:
            axes["batch"] = batch
        if "epoch" in full:
            axes["epoch"] = batch / EPOCH
        names = draw(KEYS) if kind in (StepEvent, BatchEvent, EpochEvent) else ()
        values: dict[str, Any] = {name: draw(numbers) for name in names if name != "tokens"}
        if "tokens" in names:
            values["tokens"] = tokens
        events.append(
            kind(**{"values": values, **axes, **fields, "mono": mono, "attempt": attempt})
        )

    for op in ops:
        mono += draw(st.integers(0, 3)) * pace
        if op == "step":
            step, batch, tokens = step + 1, batch + 1, tokens + 7
            emit(StepEvent)
        elif op == "again":
            emit(StepEvent)
        elif op == "batch":
            batch += 1
            emit(BatchEvent)
        elif op == "val":
            val += draw(st.integers(0, 2))
            emit(StepEvent, step=val, axis="val")
        elif op == "epoch":
            emit(EpochEvent, epoch=batch // EPOCH)
        elif op == "update":
            emit(ModelUpdateEvent)
        elif op == "text":
            emit(TextEvent, tag="t", text="x")
        elif op == "flush":
            events.append(Flushed(mono=mono, attempt=attempt))
        elif op == "lower":
            emit(StepEvent, step=max(0, step - draw(st.integers(1, 12))))
        elif op == "jump":
            step, batch = step + draw(st.integers(2, 25)), batch + draw(st.integers(1, 9))
        elif op == "bare":
            kind = draw(st.sampled_from([StepEvent, BatchEvent]))
            missing: dict[str, Any] = dict.fromkeys(
                draw(st.sets(st.sampled_from(["step", "batch", "epoch"]), min_size=1))
            )
            emit(kind, **missing)
        elif op == "late":
            mono = max(0, mono - pace)
            emit(StepEvent)
        elif op == "finish":
            events.append(RunFinished(mono=mono, attempt=attempt))
        elif op == "rewind":
            attempt += 1
            step = max(0, step - draw(st.integers(0, 12)))
            batch = min(batch, step)
            events.append(Rewound(mono=mono, attempt=attempt, to_step=step))
    events = [*emitted, *events]
    if draw(st.booleans()):
        events.append(RunFinished(mono=mono, attempt=attempt))
    return [
        msgspec.structs.replace(event, seq=seq, wall=event.mono + WALL)
        for seq, event in enumerate(events)
    ]


def axis_term(axis: str, n: Any) -> Term:
    return (axis, Fraction(n))


TEXTS = {
    "1 step": [axis_term("step", 1)],
    "3 steps": [axis_term("step", 3)],
    "10 steps": [axis_term("step", 10)],
    "1000 steps": [axis_term("step", 1000)],
    "3 batches": [axis_term("batch", 3)],
    "40 batches": [axis_term("batch", 40)],
    "0.25 epochs": [axis_term("epoch", "1/4")],
    "1/12 epochs": [axis_term("epoch", "1/12")],
    "1 epoch": [axis_term("epoch", 1)],
    "5 epochs": [axis_term("epoch", 5)],
    "2 s": [("time", 2 * SECOND)],
    "1 h": [("time", 3600 * SECOND)],
    "every update": [("update", None)],
    "pow2 steps": [("pow2", "step")],
    "pow2 epochs": [("pow2", "epoch")],
    "7 steps or 1 s": [axis_term("step", 7), ("time", SECOND)],
    "20 tokens": [axis_term("tokens", 20)],
    "4 val": [axis_term("val", 4)],
    "0.5 epochs or 10 steps or update": [
        axis_term("epoch", "1/2"), axis_term("step", 10), ("update", None),
    ],
    "6 batches or 100 tokens": [axis_term("batch", 6), axis_term("tokens", 100)],
}  # fmt: skip
rules = st.one_of(
    st.sampled_from(sorted(TEXTS)).map(lambda text: Rule(text, TEXTS[text])),
    st.builds(
        lambda n, mode, kind, anchor: Rule(
            FrequencyManager(
                n if n is None or kind != "epoch" else n / EPOCH, mode, kind, anchor=anchor
            )
        ),
        st.sampled_from([1, 3, 10, None, 500]),
        st.sampled_from(["exact", "on_change", "on_update"]),
        st.sampled_from(["step", "batch", "epoch"]),
        st.sampled_from(["last", "grid"]),
    ),
)


PLAINLY: dict[str, Any] = {"reduce": None, "types": None, "keys": None}


@dataclass
class Case:
    """How to subscribe."""

    every: dict[type[Event], Rule]
    options: dict[str, Any]
    latest: bool

    def model(self, events: list[Event], most: int = 1_000) -> Model:
        return Model(
            self.every,
            most=most,
            superseded=covered_later(events) if self.latest else lambda event: False,
            **self.options,
        )

    def subscribe(self, source: Source, events: list[Event], start: int = 0) -> Subscription:
        every: Any = {kind: rule.given for kind, rule in self.every.items()}
        shared = {id(rule) for rule in self.every.values()}
        if set(self.every) == {StepEvent, BatchEvent} and len(shared) == 1:
            (every,) = {rule.given for rule in self.every.values()}
        attempts = Attempts(spans_of(events)) if self.latest else None
        return Subscription(
            source, every=every or None, attempts=attempts, start=start, **self.options
        )


def spans_of(events: list[Event]) -> dict[tuple[int, str], tuple[int, int]]:
    """The first and the last step of each attempt on each axis; a rewind voids all behind it."""
    steps: dict[tuple[int, str], list[int]] = {}
    for event in events:
        if event.step is not None and not isinstance(event, RunStarted | RunFinished | Flushed):
            steps.setdefault((event.attempt, event.axis), []).append(event.step)
    lows = {(e.attempt, "step"): e.to_step for e in events if isinstance(e, Rewound)}
    spans = {where: (min(found), max(found)) for where, found in steps.items()}
    for where, low in lows.items():
        first, _ = spans.get(where, (low, -1))
        spans[where] = (min(first, low), 2**63 - 1)
    return spans


def covered_later(events: list[Event]) -> Callable[[Event], bool]:
    spans = spans_of(events)

    def superseded(event: Event) -> bool:
        if event.step is None or isinstance(event, RunStarted | RunFinished | Flushed | Rewound):
            return False
        return any(
            attempt > event.attempt and axis == event.axis and first <= event.step <= last
            for (attempt, axis), (first, last) in spans.items()
        )

    return superseded


@st.composite
def cases(draw: st.DrawFn, gated: bool = False) -> Case:
    """A rule for steps and batches, or rules by kind, and the other options of a subscription."""
    rule = draw(rules)
    every: dict[type[Event], Rule] = {StepEvent: rule, BatchEvent: rule}
    if draw(st.integers(0, 4)) == 0:
        kinds: list[type[Event]]
        kinds = [StepEvent, BatchEvent, EpochEvent, ModelUpdateEvent, TextEvent]
        by_kind = st.dictionaries(st.sampled_from(kinds), rules, min_size=int(gated), max_size=3)
        every = draw(by_kind)
    elif not gated and draw(st.integers(0, 9)) == 0:
        every = {}
    how = ["last", "mean", "min", "max", "sum", "count", "std"]
    taken: list[type[Event]] = [StepEvent, BatchEvent, EpochEvent, TextEvent, RunFinished, Flushed]
    return Case(
        every,
        {
            "reduce": draw(st.none() | st.none() | st.sampled_from(how)) if every else None,
            "types": draw(st.none() | st.none() | st.lists(st.sampled_from(taken), unique=True)),
            "keys": draw(
                st.none() | st.none() | st.sampled_from([["loss"], ["val/*", "lr"], ["x*"]])
            ),
        },
        draw(st.booleans()),
    )


plain_cases = rules.map(lambda rule: Case({StepEvent: rule, BatchEvent: rule}, PLAINLY, False))
"""Nothing but a cadence: then blocks of one kind of event are gone through by bisection."""

# --- sources --------------------------------------------------------------------------------


def block_of(events: list[Event], stored: bool) -> Block:
    """One block, in memory or still to be decoded."""
    flags, steps = describe(events)
    bare = [msgspec.structs.replace(event, seq=-1, wall=0) for event in events]
    return Block(
        events[0].seq,
        len(events),
        flags,
        steps,
        attempt=events[0].attempt,
        first_time=events[0].wall,
        size=len(events),
        events=None if stored else events,
        payload=(lambda: encode_events(bare)) if stored else None,
    )


def blocks_of(events: list[Event], lengths: Sequence[int], stored: Sequence[bool]) -> list[Block]:
    """Cut events into blocks, each of one attempt, of lengths that are taken in turn.

    If the first length is even, what is said about the run is in blocks of its own.
    """
    blocks, at, turn = [], 0, 0
    apart = (RunStarted, RunFinished) if lengths[0] % 2 == 0 else ()
    while at < len(events):
        end = min(len(events), at + lengths[turn % len(lengths)])
        while end > at + 1 and events[end - 1].attempt != events[at].attempt:
            end -= 1
        run = next((i for i in range(at, end) if isinstance(events[i], apart)), end)
        end = max(run, at + 1)
        blocks.append(block_of(events[at:end], stored[turn % len(stored)]))
        at, turn = end, turn + 1
    return blocks


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    lengths = draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 20, 100]), min_size=1, max_size=4))
    return lengths, draw(st.lists(st.booleans(), min_size=1, max_size=3))


def cache_of(blocks: Iterable[Block]) -> TailCache:
    cache = TailCache()
    for block in blocks:
        cache.append(block)
    cache.close()
    return cache


def pull_all(subscription: Subscription, limits: Sequence[int]) -> list[Ready]:
    """Pull until the end, and see that the accounts are right at each pull."""
    found: list[Ready] = []
    filtered = 0
    while True:
        limit = limits[len(found) % len(limits)]
        ready = subscription.pull(limit, scan=max(1, 3 * limit))
        if ready is None:
            return found
        found.append(ready)
        delivered = sum(len(r.events) for r in found)
        assert subscription.delivered == delivered
        assert subscription.read == delivered + subscription.filtered + subscription.open
        assert subscription.open >= 0
        assert subscription.filtered >= filtered
        filtered = subscription.filtered
        assert subscription.lost == 0
        assert len(found) < 10_000


def delivered(found: Iterable[Ready]) -> list[Event]:
    return [event for ready in found for event in ready.events]


limits = st.lists(st.sampled_from([1, 2, 7, 30, 512]), min_size=1, max_size=3)
thorough = settings(
    max_examples=int(os.environ.get("EVENTLOG_EXAMPLES", "80")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


# --- the properties ---------------------------------------------------------------------------


@thorough
@given(streams(), cases(), layouts(), limits)
def test_delivery_is_that_of_the_model_for_every_layout_and_limit(
    events: list[Event], case: Case, layout: tuple[list[int], list[bool]], limits: list[int]
) -> None:
    """What passes depends on the events alone, not on blocks, decoding, or how much is pulled."""
    check_delivery(events, case, layout, limits)


@thorough
@given(streams(profiles=PLAIN), plain_cases, layouts(), limits)
def test_bisection_finds_what_the_model_finds_one_by_one(
    events: list[Event], case: Case, layout: tuple[list[int], list[bool]], limits: list[int]
) -> None:
    """Also where steps have several events, come late, or straddle blocks."""
    check_delivery(events, case, layout, limits)


def check_delivery(
    events: list[Event], case: Case, layout: tuple[list[int], list[bool]], limits: list[int]
) -> None:
    model = case.model(events)
    for event in events:
        model.take(event)
    model.finish()
    subscription = case.subscribe(cache_of(blocks_of(events, *layout)), events)
    found = pull_all(subscription, limits)
    assert seen(delivered(found)) == seen(model.out)
    assert subscription.open == 0
    assert subscription.read == len(events)
    assert subscription.pull() is None


@thorough
@given(streams(), cases(), layouts(), limits, st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_live_delivery_ticks_as_catching_up_does(
    events: list[Event],
    case: Case,
    layout: tuple[list[int], list[bool]],
    limits: list[int],
    pulls: list[int],
) -> None:
    """Blocks that come one by one, between pulls, change nothing; what waits is accounted for."""
    model, seen_by_model = case.model(events), 0
    cache = TailCache()
    subscription = case.subscribe(cache, events)
    found: list[Ready] = []
    unread = any(layout[1])
    for i, block in enumerate(blocks_of(events, *layout)):
        cache.append(block)
        for _ in range(pulls[i % len(pulls)]):
            ready = subscription.pull(limits[i % len(limits)])
            if ready is None:
                break
            found.append(ready)
            while seen_by_model < subscription.cursor:
                model.take(events[seen_by_model])
                seen_by_model += 1
            begun = seen_by_model < len(events) and events[seen_by_model].attempt != model.attempt
            if sum(len(r.events) for r in found) > len(model.out):
                assert begun  # what waited for the end of the attempt is out already
            else:
                # what is handed out, and what waits, is the same at any time
                assert sum(len(r.events) for r in found) == len(model.out)
                assert subscription.open >= model.waiting
                assert unread or subscription.open == model.waiting
    cache.close()
    found += pull_all_quietly(subscription)
    for event in events[seen_by_model:]:
        model.take(event)
    model.finish()
    assert seen(delivered(found)) == seen(model.out)


def pull_all_quietly(subscription: Subscription) -> list[Ready]:
    found = []
    while (ready := subscription.pull()) is not None:
        found.append(ready)
    return found


@thorough
@given(streams(), cases(), layouts(), layouts(), limits, limits, st.data())
def test_a_restart_at_any_mark_delivers_the_rest_exactly_once(
    events: list[Event],
    case: Case,
    layout: tuple[list[int], list[bool]],
    later: tuple[list[int], list[bool]],
    limits: list[int],
    later_limits: list[int],
    data: st.DataObject,
) -> None:
    """A mark that went through msgpack goes on where it was made, twice over, in other blocks."""
    check_restart(events, case, layout, later, limits, later_limits, data)


@thorough
@given(streams(profiles=PLAIN), plain_cases, layouts(), layouts(), limits, limits, st.data())
def test_a_restart_after_blocks_that_were_passed_by_repeats_nothing(
    events: list[Event],
    case: Case,
    layout: tuple[list[int], list[bool]],
    later: tuple[list[int], list[bool]],
    limits: list[int],
    later_limits: list[int],
    data: st.DataObject,
) -> None:
    """Whether their events were looked at or not."""
    check_restart(events, case, layout, later, limits, later_limits, data)


def check_restart(
    events: list[Event],
    case: Case,
    layout: tuple[list[int], list[bool]],
    later: tuple[list[int], list[bool]],
    limits: list[int],
    later_limits: list[int],
    data: st.DataObject,
) -> None:
    whole = pull_all(case.subscribe(cache_of(blocks_of(events, *layout)), events), limits)
    if not whole:
        return
    near_the_end = st.integers(max(0, len(whole) - 3), len(whole) - 1)
    at = data.draw(near_the_end | st.integers(0, len(whole) - 1), label="crash after pull")
    before = whole[: at + 1]
    mark = travelled(before[-1].mark)
    second = case.subscribe(cache_of(blocks_of(events, *later)), events, start=mark.seq)
    second.restore(mark)
    after = pull_all(second, later_limits)
    assert seen(delivered([*before, *after])) == seen(delivered(whole))
    if not after:
        return
    # and once more: a crash while what waited is being read again, or later
    again = data.draw(st.integers(0, len(after) - 1), label="second crash after pull")
    mark = travelled(after[again].mark)
    third = case.subscribe(cache_of(blocks_of(events, *layout)), events)
    third.restore(mark)
    rest = pull_all(third, limits)
    assert seen(delivered([*before, *after[: again + 1], *rest])) == seen(delivered(whole))


def travelled(mark: Mark) -> Mark:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(mark), type=Mark)


@settings(max_examples=60, deadline=None)
@given(streams(most=40), cases(gated=True), limits, st.integers(1, 9))
def test_a_recorded_run_ticks_live_and_from_its_files_alike(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[Event],
    case: Case,
    limits: list[int],
    turn: int,
) -> None:
    """A real log, read from the writer's cache while it grows and from its files afterwards."""
    run_dir: Path = tmp_path_factory.mktemp("run")
    recorder = Recorder(run_dir, run_id="r", attempt=1)
    live = case.subscribe(recorder.source, events)
    found: list[Ready] = []
    for at in range(0, len(events), turn):
        for event in events[at : at + turn]:
            recorder.inbox.put(msgspec.structs.replace(event, seq=-1, wall=0))
        recorder.writer.turn()
        if (ready := live.pull(limits[at % len(limits)])) is not None:
            found.append(ready)
    recorder.stop(None)
    found += pull_all_quietly(live)
    model = case.model(events)
    for event in events:
        model.take(event)
    model.finish()
    assert seen(delivered(found)) == seen(model.out)
    log = open_log(run_dir)
    assert Attempts.scan(log.directory).spans == spans_of(events)
    stored = case.subscribe(log.source(), events)
    assert seen(delivered(pull_all(stored, limits))) == seen(model.out)


@thorough
@given(streams(), st.lists(cases(), min_size=2, max_size=4), layouts(), limits)
def test_subscriptions_of_one_source_do_not_meet(
    events: list[Event], some: list[Case], layout: tuple[list[int], list[bool]], limits: list[int]
) -> None:
    """Taking turns on the same blocks, each gets what it would get alone."""
    source = cache_of(blocks_of(events, *layout))
    subscriptions = [case.subscribe(source, events) for case in some]
    found: list[list[Ready]] = [[] for _ in some]
    going = True
    while going:
        going = False
        for subscription, so_far in zip(subscriptions, found, strict=True):
            ready = subscription.pull(limits[len(so_far) % len(limits)])
            if ready is not None:
                so_far.append(ready)
                going = True
    for case, so_far in zip(some, found, strict=True):
        model = case.model(events)
        for event in events:
            model.take(event)
        model.finish()
        assert seen(delivered(so_far)) == seen(model.out)


@thorough
@given(streams(), cases(gated=True), layouts(), layouts(), limits, st.integers(1, 4), st.data())
def test_of_the_last_axis_value_the_newest_events_are_kept(
    events: list[Event],
    case: Case,
    layout: tuple[list[int], list[bool]],
    later: tuple[list[int], list[bool]],
    limits: list[int],
    most: int,
    data: st.DataObject,
) -> None:
    """What waits is bounded, by the same events for every layout and over a restart."""
    with mock.patch.object(_lanes, "HELD", most):
        model = case.model(events, most)
        for event in events:
            model.take(event)
        model.finish()
        whole = pull_all(case.subscribe(cache_of(blocks_of(events, *layout)), events), limits)
        assert seen(delivered(whole)) == seen(model.out)
        if not whole:
            return
        before = whole[: data.draw(st.integers(1, len(whole)), label="pulls before the crash")]
        second = case.subscribe(cache_of(blocks_of(events, *later)), events)
        second.restore(travelled(before[-1].mark))
        assert seen(delivered([*before, *pull_all(second, limits)])) == seen(model.out)
