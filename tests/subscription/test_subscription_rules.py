"""What a subscription promises, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from eventlog._columns import Columns, shared_columns
from eventlog.cadence import CadenceError, FrequencyManager
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
    Window,
)
from eventlog.log.source import Block, Reader, TailCache, describe
from eventlog.subscription import Mark, Subscription


def log(*events: Event, size: int = 4, closed: bool = True, cache: TailCache | None = None) -> Any:
    """A source of these events, in blocks of one attempt each."""
    cache = cache or TailCache()
    at = 0
    while at < len(events):
        end = at + 1
        while end < min(len(events), at + size) and events[end].attempt == events[at].attempt:
            end += 1
        cache.append(block(events[at:end], cache.end))
        at = end
    if closed:
        cache.close()
    return cache


def block(events: Sequence[Event], first: int) -> Block:
    placed = [msgspec.structs.replace(e, seq=first + i) for i, e in enumerate(events)]
    flags, steps = describe(placed)
    return Block(
        first,
        len(placed),
        flags,
        steps,
        attempt=placed[0].attempt,
        first_time=0,
        size=1,
        events=placed,
    )


def stored(events: Sequence[Event], first: int) -> Block:
    """A block that says when it is decoded."""
    made = block(events, first)
    bare = [msgspec.structs.replace(e, seq=-1, wall=0) for e in made.events()]
    return Block(
        first,
        len(bare),
        made.flags,
        made.steps,
        attempt=made.attempt,
        first_time=0,
        size=1,
        payload=lambda: encode_events(bare),
    )


def steps(*numbers: int, **fields: Any) -> list[Event]:
    return [StepEvent(step=n, values={"loss": float(n)}, **fields) for n in numbers]


def drain(subscription: Subscription) -> list[Event]:
    found: list[Event] = []
    while (ready := subscription.pull()) is not None:
        found += ready.events
    return found


def passed(source: Any, every: Any, **options: Any) -> list[int | None]:
    """The steps of the step and batch events that pass."""
    subscription = Subscription(source, every=every, **options)
    return [e.step for e in drain(subscription) if isinstance(e, StepEvent | BatchEvent)]


def test_the_first_event_passes_and_so_does_the_last_one_when_the_run_finishes() -> None:
    """Whatever the cadence, a run is seen from its beginning to its end."""
    source = log(RunStarted(run_id="r"), *steps(*range(3, 26)), RunFinished())
    subscription = Subscription(source, every="10 steps")
    events = drain(subscription)
    assert [e.step for e in events if type(e) is StepEvent] == [3, 10, 20, 25]
    assert type(events[-1]) is RunFinished
    assert subscription.pull() is None


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_killed_run_hands_out_its_last_value_once(size: int) -> None:
    """A source that closes without saying so has ended all the same."""
    events = [*steps(0, 1, 2), *steps(2, 2)]
    source = log(*events, size=size, closed=False)
    subscription = Subscription(source, every="10 steps")
    first = subscription.pull()
    assert first is not None
    assert [e.step for e in first.events] == [0]
    assert subscription.pull() is None
    assert subscription.open == 3
    source.close()
    last = subscription.pull()
    assert last is not None
    assert [e.seq for e in last.events] == [2, 3, 4]
    assert subscription.pull() is None
    again = Subscription(source, every="10 steps")
    again.restore(last.mark)
    assert drain(again) == []


def test_what_was_due_last_is_not_handed_out_again_at_the_end() -> None:
    """The last event passes once."""
    assert passed(log(*steps(0, 5, 10), RunFinished()), "10 steps") == [0, 10]


def test_three_metrics_by_three_calls_arrive_at_the_same_steps() -> None:
    """A tick belongs to a step, not to an event."""
    events = [
        StepEvent(step=s, values={name: 0.0})
        for s in range(35)
        for name in ("loss", "grad_norm", "val/loss")
    ]
    for size in (1, 2, 7, 1000):
        found = drain(Subscription(log(*events, size=size), every="10 steps"))
        by_name = {
            name: [e.step for e in found if name in e.values]
            for name in ("loss", "grad_norm", "val/loss")
        }
        assert set(map(tuple, by_name.values())) == {(0, 10, 20, 30, 34)}


def test_a_manager_given_to_two_subscriptions_is_not_shared() -> None:
    """A subscription owns its state: neither starves the other, and the given one is as it was."""
    manager = FrequencyManager(10, frequency_type="step")
    source = log(*steps(*range(25)))
    both = [Subscription(source, every=manager) for _ in range(2)]
    found: list[list[Any]] = [[], []]
    for _ in range(20):
        for each, so_far in zip(both, found, strict=True):
            if (ready := each.pull(2)) is not None:
                so_far += [e.step for e in ready.events]
    assert found == [[0, 10, 20, 24]] * 2
    assert manager.last_log_step is None


def test_a_manager_that_has_logged_before_goes_on_from_there() -> None:
    """What its owner told it counts in the first attempt, also over a restart, and not later."""
    manager = FrequencyManager(10, frequency_type="step")
    manager.log_written(5)
    events = [*steps(6, 7, 15), *steps(6, 7, attempt=2)]
    assert passed(log(*events), manager) == [15, 6, 7]
    whole = Subscription(log(*events), every=manager)
    ready = whole.pull(scan=1)
    assert ready is not None
    second = Subscription(log(*events), every=manager)
    second.restore(ready.mark)
    assert [e.step for e in [*ready.events, *drain(second)]] == [15, 6, 7]


def test_a_manager_without_a_frequency_lets_nothing_pass() -> None:
    """Never is never: neither the first nor the last event, reduced or not."""
    for reduce in (None, "mean"):
        subscription = Subscription(
            log(*steps(0, 1, 2), RunFinished()),
            every=FrequencyManager(None, frequency_type="step"),
            reduce=reduce,
        )
        assert [type(e) for e in drain(subscription)] == [RunFinished]
        assert subscription.never_ticked
        assert (subscription.open, subscription.filtered) == (0, 3)


def test_text_cadences_fire_on_a_grid_and_once_for_a_jump_over_several() -> None:
    """At a stride of 7, ten steps are crossed at 0, 14, 21, 35, 42."""
    strided = steps(*range(0, 50, 7))
    assert passed(log(*strided), "10 steps") == [0, 14, 21, 35, 42, 49]
    manager = FrequencyManager(10, frequency_type="step")
    assert passed(log(*strided), manager) == [0, 14, 28, 42, 49]
    assert passed(log(*steps(0, 95, 96, 100)), "10 steps") == [0, 95, 100]


@pytest.mark.parametrize("n", [3, 7, 11, 49, 185, 200, 997, 10_000])
def test_every_step_of_a_fraction_of_an_epoch_passes_once(n: int) -> None:
    """1/N epochs at N steps an epoch: no step is left out, none comes twice."""
    count = 2 * n + 1
    events = [StepEvent(step=s, epoch=s / n) for s in range(count)]
    source = log(*events, size=300)
    assert passed(source, f"1/{n} epochs") == list(range(count))
    assert passed(source, FrequencyManager(1 / n, frequency_type="epoch")) == list(range(count))


def test_integers_beyond_what_floats_hold_compare_exactly() -> None:
    """2**53 + 1 is not 2**53."""
    big = 2**53
    assert passed(log(*steps(big - 1, big, big + 1, big + 2)), "1 step") == [
        big - 1, big, big + 1, big + 2,
    ]  # fmt: skip
    found = passed(log(*steps(big - 2, big - 1, big, big + 1, big + 2)), f"{big} steps")
    assert found == [big - 2, big, big + 2]


def test_on_change_is_as_published_and_on_update_does_not_settle() -> None:
    """With an update at every step, on_change logs once and on_update at its frequency."""
    events: list[Event] = []
    for s in range(31):
        events += [ModelUpdateEvent(step=s), StepEvent(step=s)]
    types = [StepEvent]
    on_change = FrequencyManager(10, "on_change", "step")
    on_update = FrequencyManager(10, "on_update", "step")
    assert passed(log(*events), on_change, types=types) == [0, 30]
    assert passed(log(*events), on_update, types=types) == [0, 10, 20, 30]


def test_model_updates_reach_the_cadence_whatever_types_are_taken() -> None:
    """They are not handed out where they are not wanted, and they count."""
    events = [*steps(0, 1, 2), ModelUpdateEvent(step=2), *steps(2, 3, 4), RunFinished()]
    assert passed(log(*events), "every update", types=["step"]) == [0, 3, 4]


def test_a_lower_step_is_not_a_rewind() -> None:
    """Neither does it tick, nor does what was ticked already tick again after it."""
    assert passed(log(*steps(0, 9, 10, 11, 5, 6, 12, 20, 3, 21)), "10 steps") == [0, 10, 20, 21]
    timed = [
        StepEvent(step=s, mono=t * 10**9) for s, t in [(50, 0), (55, 0), (20, 9), (56, 9), (60, 9)]
    ]
    assert passed(log(*timed), "10 steps or 5 s") == [50, 20, 60]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_late_events_of_the_step_that_was_due_pass(size: int) -> None:
    """Until another step is due."""
    source = log(*steps(10, 11, 10, 12, 20, 10, 21), size=size)
    found = drain(Subscription(source, every="10 steps"))
    assert [e.seq for e in found] == [0, 2, 4, 6]


def test_a_new_attempt_starts_the_cadence_afresh() -> None:
    """After a rewind it is not silent until the old step is reached, and the end of one passes."""
    events = [
        *steps(0, 5, 10, 13),
        Rewound(to_step=4, attempt=2),
        *steps(4, 5, 10, 11, attempt=2),
        RunFinished(attempt=2),
    ]
    for every in ("10 steps", FrequencyManager(10, frequency_type="step")):
        expected = [0, 10, 13, 4, 10, 11] if every == "10 steps" else [0, 10, 13, 4, 11]
        assert passed(log(*events), every) == expected


def test_an_attempt_that_began_without_a_word_ends_the_one_before() -> None:
    """A killed run that was resumed: windows and the last event of the first attempt pass."""
    events = [*steps(0, 1, 2), *steps(1, 2, attempt=2)]
    found = drain(Subscription(log(*events), every="10 steps", reduce="mean"))
    assert [(e.attempt, e.values["loss"]) for e in found] == [(1, 0.0), (1, 1.5), (2, 1.0), (2, 2)]


def test_axes_do_not_share_their_ticks() -> None:
    """Train and validation steps interleave, each on an axis of its own."""
    events: list[Event] = []
    for s in range(25):
        events.append(StepEvent(step=s))
        events.append(StepEvent(step=1000 - s, axis="val_step"))
    found = drain(Subscription(log(*events), every="10 steps"))
    assert [e.step for e in found if e.axis == "step"] == [0, 10, 20, 24]
    assert [e.step for e in found if e.axis == "val_step"] == [1000, 976]


def test_a_missing_axis_is_never_ready() -> None:
    """Events without the axis of the cadence pass neither first nor on a tick."""
    events = [StepEvent(step=s) for s in range(5)]
    subscription = Subscription(log(*events), every="1 batch")
    assert [e.step for e in drain(subscription)] == [4]  # the last one
    assert subscription.never_ticked
    mixed = [StepEvent(step=0), StepEvent(step=1, batch=7), StepEvent(step=2), StepEvent(step=3)]
    assert passed(log(*mixed), "3 batches") == [1, 3]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), -1.0])
def test_an_epoch_that_is_no_number_is_a_missing_one(wrong: float) -> None:
    """It wedges nothing: neither a text nor a manager, nor the end of an epoch, nor an update."""
    events = [
        StepEvent(step=0, epoch=wrong),
        ModelUpdateEvent(epoch=wrong),
        StepEvent(step=1, epoch=0.0),
        EpochEvent(epoch=wrong),
        StepEvent(step=2, epoch=wrong),
        StepEvent(step=3, epoch=1.0),
        StepEvent(step=4, epoch=1.1),
    ]
    for every in ("1 epoch", "pow2 epochs or 5 epochs", FrequencyManager(1)):
        for size in (1, 100):
            found = passed(log(*events, size=size), every)
            assert found == [1, 3, 4]
            windows = drain(
                Subscription(log(*events, size=size), every=every, reduce="last", types=["step"])
            )
            assert [e.step for e in windows] == [1, 3, 4]


def test_a_negative_step_is_a_missing_one() -> None:
    """A manager would refuse it."""
    events = [*steps(-5, 0, 5, 10), ModelUpdateEvent(step=-1), *steps(20)]
    for every in ("10 steps", FrequencyManager(10, "on_update", "step"), "pow2 steps or 10 steps"):
        assert passed(log(*events), every)[-2:] == [10, 20]


def test_epoch_run_model_and_media_events_pass_without_a_cadence_of_their_own() -> None:
    """Only step and batch events are gated, unless a mapping says otherwise."""
    events: list[Event] = []
    for s in range(4):
        events += [
            StepEvent(step=s),
            BatchEvent(step=s, batch=s),
            EpochEvent(epoch=s),
            TextEvent(tag="t", text="x", step=s),
        ]
    kinds = [type(e) for e in drain(Subscription(log(*events), every="100 steps"))]
    assert [kinds.count(k) for k in (StepEvent, BatchEvent, EpochEvent, TextEvent)] == [2, 2, 4, 4]
    by_kind: dict[str | type[Event], str] = {"text": "2 steps", EpochEvent: "3 epochs"}
    kinds = [type(e) for e in drain(Subscription(log(*events), every=by_kind))]
    assert [kinds.count(k) for k in (StepEvent, BatchEvent, EpochEvent, TextEvent)] == [4, 4, 2, 3]


def test_windows_close_at_the_end_of_an_epoch_that_has_a_cadence_itself() -> None:
    """A mapping for epoch events does not hide them from the windows of steps."""
    events: list[Event] = []
    for s in range(8):
        events.append(StepEvent(step=s, epoch=s / 4, values={"x": s}))
        if s % 4 == 3:
            events.append(EpochEvent(epoch=s // 4, step=s))
    every = {"step": "1 epoch", "epoch": "1 epoch"}
    found = drain(Subscription(log(*events), every=every, reduce="mean"))
    assert [(type(e).__name__, e.step) for e in found] == [
        ("StepEvent", 0), ("StepEvent", 3), ("StepEvent", 7), ("EpochEvent", 3), ("EpochEvent", 7),
    ]  # fmt: skip


def test_a_window_closes_when_the_axis_passes_the_tick() -> None:
    """It holds what came after the tick before, through all events of the tick itself."""
    source = log(*steps(0, 0, 1, 2, 10, 10), closed=False)
    subscription = Subscription(source, every="10 steps", reduce="mean")
    ready = subscription.pull()
    assert ready is not None
    assert [e.window for e in ready.events] == [Window(first=0, last=0, n=2)]
    log(*steps(11), cache=source, closed=False)
    ready = subscription.pull()
    assert ready is not None
    (event,) = ready.events
    assert (event.window, event.step, event.seq) == (Window(first=1, last=10, n=4), 10, 5)
    assert event.values == {"loss": 23 / 4}
    assert subscription.read == 7
    assert (subscription.delivered, subscription.open, subscription.filtered) == (2, 1, 4)


def test_a_flush_closes_the_windows_that_are_due_and_stops_the_pull() -> None:
    """What is not due goes on being collected."""
    source = log(*steps(0), Flushed(), *steps(0, 1), Flushed(), *steps(2, 10), Flushed(), size=50)
    subscription = Subscription(source, every="10 steps", reduce="sum")
    found = []
    while (ready := subscription.pull()) is not None:
        found.append(([e.window for e in ready.events], ready.flush))
    assert found == [
        ([Window(0, 0, 1)], True),
        ([], True),
        ([Window(0, 10, 4)], True),
    ]


@pytest.mark.parametrize(
    ("every", "lasts"),
    [
        ("1 epoch", [0, 3, 7, 9]),
        ("0.5 epochs", [0, 2, 3, 6, 7, 9]),
        ("2 epochs", [0, 7, 9]),
        ("pow2 epochs", [0, 3, 7, 9]),
        (FrequencyManager(1), [0, 3, 7, 9]),
        ("100 steps", [0, 9]),
        ("1 epoch or 3 steps", [0, 3, 6, 7, 9]),
    ],
)
def test_windows_of_a_cadence_in_epochs_close_with_the_epoch(every: Any, lasts: list[int]) -> None:
    """They do not wait for the first step of the next one; other cadences know no epochs."""
    events: list[Event] = []
    for s in range(10):
        events.append(StepEvent(step=s, epoch=s / 4, values={"x": s}))
        if s % 4 == 3:
            events.append(EpochEvent(epoch=s // 4))
    found = drain(Subscription(log(*events), every=every, reduce="last"))
    assert [e.step for e in found if type(e) is StepEvent] == lasts
    assert sum(e.window.n for e in found if e.window is not None) == 10


def test_windows_of_steps_without_epochs_close_with_the_epoch_events() -> None:
    """Where steps do not say their epoch, the epoch events do."""
    events = [*steps(0, 1), EpochEvent(epoch=0), *steps(2, 3), EpochEvent(epoch=1), *steps(4)]
    found = drain(Subscription(log(*events), every="1 epoch", reduce="sum", types=["step"]))
    assert [e.values["loss"] for e in found] == [1.0, 5.0, 4.0]


def test_wall_clock_cadences_use_the_stamp_that_events_carry() -> None:
    """Counted from the first event, whatever the time of delivery is."""
    events = [StepEvent(step=s, mono=7 * 10**9 + s * 400_000_000) for s in range(10)]
    assert passed(log(*events), "1 s") == [0, 3, 5, 8, 9]
    bare = [StepEvent(mono=s * 400_000_000) for s in range(10)]
    found = drain(Subscription(log(*bare), every="1 s"))
    assert [e.seq for e in found] == [0, 3, 5, 8, 9]


def test_keys_do_not_hide_a_counter_from_the_cadence() -> None:
    """They choose what is handed out; what decides is the whole event."""
    events = [StepEvent(step=s, values={"loss": s, "tokens": 7 * s}) for s in range(8)]
    for reduce in (None, "last"):
        found = drain(Subscription(log(*events), every="20 tokens", keys=["loss"], reduce=reduce))
        assert [e.values for e in found] == [{"loss": n} for n in (0, 3, 6, 7)]


def test_keys_leave_out_events_of_which_nothing_is_kept() -> None:
    """Those do not tick either: the first one with a wanted value passes."""
    events = [
        StepEvent(step=s, values={"val/acc": 1.0, "loss": 1.0} if s % 5 == 3 else {"loss": 1.0})
        for s in range(20)
    ]
    source = log(*events, TextEvent(tag="t", text="x"))
    found = drain(Subscription(source, every="10 steps", keys=["val/*"]))
    assert [(e.step, e.values) for e in found] == [
        (3, {"val/acc": 1.0}), (13, {"val/acc": 1.0}), (None, {}), (18, {"val/acc": 1.0}),
    ]  # fmt: skip


def test_what_falls_out_of_the_cache_is_counted_as_lost() -> None:
    """And delivery goes on with what there is."""
    cache = TailCache(max_events=8)
    subscription = Subscription(cache, every="10 steps")
    log(*steps(*range(30)), cache=cache)
    found = drain(subscription)
    assert subscription.lost == cache.first == 24
    assert [e.step for e in found] == [24, 29]
    assert subscription.read == 6
    assert subscription.cursor == 30


class _Damaged:
    """A source whose last block cannot be had, as after a torn write."""

    def __init__(self, blocks: list[Block], end: int, closed: bool = True) -> None:
        self.blocks = blocks
        self.first, self.end, self.synced, self.closed = 0, end, end, closed

    def open_reader(self) -> Reader:
        return self

    def read(self, seq: int) -> Block | None:
        return next((b for b in self.blocks if b.end > seq), None)

    def listen(self, wake: Any) -> Any:
        return lambda: None


def test_damage_at_the_end_of_a_log_does_not_keep_the_last_value() -> None:
    """What cannot be read is lost, counted, and the run ends nonetheless."""
    source = _Damaged([block(steps(0, 1, 2), 0)], end=10)
    subscription = Subscription(source, every="10 steps")
    assert [e.step for e in drain(subscription)] == [0, 2]
    assert (subscription.lost, subscription.cursor, subscription.read) == (7, 10, 3)


def test_a_block_that_cannot_be_decoded_is_lost_and_no_more_than_that() -> None:
    """Delivery goes on behind it."""
    broken = block(steps(3, 4), 3)
    broken = Block(
        3, 2, broken.flags, (0, 4), attempt=1, first_time=0, size=1, payload=lambda: b"\xc1"
    )
    source = _Damaged([block(steps(0, 1, 2), 0), broken, block(steps(5, 10), 5)], end=7)
    subscription = Subscription(source, every="10 steps")
    assert [e.step for e in drain(subscription)] == [0, 10]
    assert (subscription.lost, subscription.read) == (2, 5)
    unread = _Damaged([block(steps(0), 0), broken], end=5)
    unread.blocks[1].first, unread.blocks[1].end, unread.blocks[1].steps = 1, 3, (3, 4)
    last = Subscription(unread, every="10 steps")
    assert [e.step for e in drain(last)] == [0]


def test_stored_blocks_that_cannot_be_due_are_never_decoded() -> None:
    """But for the last one, whose last value passes at the end."""
    blocks = [stored(steps(*range(n, n + 10)), n) for n in range(0, 200, 10)]
    source = _Damaged(blocks, end=200)
    subscription = Subscription(source, every="100 steps or every update")
    assert [e.step for e in drain(subscription)] == [0, 100, 199]
    assert [b.first for b in blocks if b.in_memory] == [0, 100, 190]
    assert (subscription.read, subscription.filtered, subscription.open) == (200, 197, 0)


def test_a_mark_of_another_cadence_decides_anew_and_repeats_nothing() -> None:
    """Whoever changes the cadence of a sink over a restart loses no window, and gets no error."""
    source = log(*steps(*range(16)), size=100)
    first = Subscription(source, every="10 steps", reduce="sum")
    ready = first.pull()
    assert ready is not None
    assert [e.window for e in ready.events] == [Window(0, 0, 1), Window(1, 10, 10)]
    for every in ("10 steps or 1 s", "4 steps", FrequencyManager(4, frequency_type="step")):
        second = Subscription(source, every=every, reduce="sum")
        second.restore(ready.mark)
        found = drain(second)
        assert found[0].step == 11
        assert sum(e.window.n for e in found if e.window is not None) == 5
    plain = Subscription(source)
    plain.restore(ready.mark)
    assert drain(plain) == []
    fresh = Subscription(source, every="10 steps")
    fresh.restore(Mark(3))
    assert [e.step for e in drain(fresh)] == [3, 10, 15]


def test_ticks_are_counted_over_attempts_and_restarts() -> None:
    """And a subscription that never ticked says so, if there was something to gate."""
    events = [*steps(0, 10, 11), *steps(5, 10, attempt=2), RunFinished(attempt=2)]
    whole = Subscription(log(*events, size=1), every="10 steps")
    assert not whole.never_ticked
    ready = whole.pull(scan=4)
    assert ready is not None
    drain(whole)
    assert whole.ticks == 4
    second = Subscription(log(*events), every="10 steps")
    second.restore(ready.mark)
    drain(second)
    assert second.ticks == 4
    assert not Subscription(log(EpochEvent(epoch=1)), every="10 steps").never_ticked


def test_live_subscriptions_share_what_they_look_up_in_a_block() -> None:
    """Columns are made once for the newest blocks of a source, and only for these."""
    cache = log(*[StepEvent(step=s, batch=s) for s in range(400)], size=4)
    some = [Subscription(cache, every="1000 batches") for _ in range(3)]
    made = 0
    original = Columns.__init__

    def counted(self: Columns, events: Sequence[Event]) -> None:
        nonlocal made
        made += 1
        original(self, events)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Columns, "__init__", counted)
        while all(s.pull(scan=4) is not None for s in some):
            pass
    assert 90 <= made <= 100
    assert len(shared_columns(cache)) <= 16


def test_wrong_arguments_are_refused_at_once() -> None:
    """With what they must be."""
    source = log(*steps(0))
    with pytest.raises(ValueError, match="reduce needs a cadence"):
        Subscription(source, reduce="mean")
    with pytest.raises(ValueError, match="reduce must be one of last, mean"):
        Subscription(source, every="1 s", reduce="median")
    with pytest.raises(TypeError, match="reduce must be a reducer's name"):
        Subscription(source, every="1 s", reduce=3)  # type: ignore[arg-type]
    with pytest.raises(CadenceError, match="column 15"):
        Subscription(source, every="10 lightyears ago")
    with pytest.raises(TypeError, match="a cadence must be a text"):
        Subscription(source, every=10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="types must name event types, not 'stepp'"):
        Subscription(source, types=["stepp"])
    with pytest.raises(TypeError, match="types must hold event types"):
        Subscription(source, types=[int])  # type: ignore[list-item]


def test_a_lane_that_begins_after_a_restart_knows_of_the_last_model_update() -> None:
    """As it would have without one."""
    events = [
        *steps(1),
        ModelUpdateEvent(step=5, batch=5),
        RunStarted(run_id="r"),
        *[BatchEvent(batch=n, step=n) for n in (6, 7, 12, 20, 31)],
    ]
    manager = FrequencyManager(10, "on_change", "batch")
    source = log(*events, size=1)
    whole = Subscription(source, every=manager)
    ready = [r for _ in range(3) if (r := whole.pull(scan=1)) is not None]
    second = Subscription(source, every=manager)
    second.restore(ready[-1].mark)
    assert [e.step for e in drain(whole)] == [6, 1, 31]
    assert [e.step for e in drain(second)] == [6, 1, 31]


def test_of_blocks_that_were_passed_by_only_the_last_value_waits_over_a_restart() -> None:
    """Their events are read again, and those of earlier values are left out again."""
    for pulls, expected in ((2, 4), (3, 6)):
        blocks = [block(steps(0), 0), stored(steps(1, 2, 3, 3), 1), stored(steps(3, 3), 5)]
        source = _Damaged(blocks[:pulls], end=blocks[pulls - 1].end)
        first = Subscription(source, every="10 steps")
        ready = [r for _ in range(pulls) if (r := first.pull(scan=1)) is not None]
        assert first.open == (4 if pulls == 2 else 6)
        second = Subscription(source, every="10 steps")
        second.restore(ready[-1].mark)
        last = [e.seq for e in drain(second)]
        assert last == [e.seq for e in drain(first)] == list(range(3, expected + 1))


def test_a_value_that_goes_on_in_blocks_unread_waits_from_its_first_event_on() -> None:
    """Some of its events were looked at, others were not; a restart needs them all."""
    blocks = [block(steps(0, 1), 0), stored(steps(1, 1), 2), stored(steps(1), 4)]
    source = _Damaged(blocks, end=5)
    first = Subscription(source, every="10 steps")
    ready = [r for _ in range(3) if (r := first.pull(scan=1)) is not None]
    second = Subscription(source, every="10 steps")
    second.restore(ready[-1].mark)
    assert [e.seq for e in drain(second)] == [e.seq for e in drain(first)] == [1, 2, 3, 4]
