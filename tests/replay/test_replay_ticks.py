"""Live delivery and a replay of its log tick at the same events, whatever happened in between."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from eventlog.events import (
    BatchEvent,
    EpochEvent,
    Event,
    Flushed,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    StepEvent,
)
from eventlog.log.checkpoint import Checkpoint, CheckpointFile, checkpoint_path
from eventlog.log.seal import compact_log
from eventlog.log.source import Source, TailCache
from eventlog.log.stored import StoredSource
from eventlog.subscription import Mark, Subscription

from ..log.conftest import Book
from ..log.logs import exactly

TEXTS = (
    "every step",
    "3 steps",
    "4 batches",
    "1 epoch",
    "0.5 epochs",
    "2 epochs",
    "every update",
    "0.05 s",
    "1/3 epochs",
    "pow2 steps",
    "2 lr",
    "3 steps or 0.1 s",
    "1 epoch or 5 batches",
    "every update or 7 steps",
)
EVERY: tuple[Any, ...] = (*TEXTS, {"step": "3 steps", "epoch": "2 epochs"}, {"batch": "1 epoch"})
REDUCERS: tuple[Any, ...] = (
    None,
    "last",
    "mean",
    "min",
    "max",
    "sum",
    {"loss": "mean", "acc": "max"},
)


class Act(NamedTuple):
    """Something that a trainer, or fate, does."""

    what: str
    argument: Any = None


def acts() -> st.SearchStrategy[list[Act]]:
    """Return how a run goes."""
    numbers = st.integers(1, 3)
    return st.lists(
        st.one_of(
            st.builds(Act, st.sampled_from(["batch", "step", "step", "val"]), numbers),
            st.builds(Act, st.sampled_from(["batch", "step", "step", "val"]), numbers),
            st.builds(Act, st.just("pull"), st.integers(1, 7)),
            st.builds(Act, st.just("rest"), st.sampled_from([0.001, 0.06, 0.3])),
            st.sampled_from(
                [
                    Act("epoch"),
                    Act("turn"),
                    Act("turn"),
                    Act("model_update"),
                    Act("flush"),
                    Act("restart_delivery"),
                    Act("restart_delivery"),
                    Act("crash"),
                ]
            ),
            st.builds(Act, st.just("rewind"), st.integers(1, 6)),
        ),
        max_size=60,
    )


class Training:
    """A run, its log, and one sink that keeps its place."""

    def __init__(self, run_dir: Path, cached: int, segment_bytes: int, **rule: Any) -> None:
        self.book = Book(run_dir)
        self.rule = rule
        self.opening = {"segment_bytes": segment_bytes}
        self.cached = cached
        self.steps = self.batches = self.epochs = 0
        self.delivered: list[Event] = []
        self.restored_in_a_window = 0
        self.open()

    def open(self) -> None:
        """Begin an attempt."""
        recorder = self.book.open(cache=TailCache(max_events=self.cached), **self.opening)
        self.attempt = recorder.attempt
        self.source: Source = recorder.source
        self.restart_delivery()

    def emit(self, kind: type[Event], /, **fields: Any) -> None:
        """Emit an event, a millisecond after the one before."""
        self.book.clock.advance(0.001)
        place = {"step": self.steps, "batch": self.batches, "epoch": self.epochs + 0.0}
        made = kind(
            mono=self.book.clock.monotonic_ns(), attempt=self.attempt, **{**place, **fields}
        )
        recorder = self.book.recorder
        assert recorder is not None
        recorder.inbox.put(made)

    def step(self, calls: int) -> None:
        for call in range(calls):
            self.emit(StepEvent, values={("loss", "acc", "lr")[call]: self.steps / 3 + call})
        self.steps += 1

    def batch(self, n: int) -> None:
        for _ in range(n):
            self.emit(BatchEvent, values={"loss": float(self.batches)})
            self.batches += 1

    def val(self, n: int) -> None:
        for i in range(n):
            self.emit(StepEvent, step=i, axis="val", values={"val/loss": i + 0.5})

    def epoch(self) -> None:
        self.emit(EpochEvent, values={"acc": self.epochs / 2})
        self.epochs += 1

    def model_update(self) -> None:
        self.emit(ModelUpdateEvent, kind="pruned")

    def flush(self) -> None:
        self.emit(Flushed)

    def rewind(self, back: int) -> None:
        self.attempt += 1
        self.steps = max(0, self.steps - back)
        self.emit(Rewound, to_step=self.steps, step=None)

    def rest(self, seconds: float) -> None:
        self.book.clock.advance(seconds)

    def turn(self) -> None:
        self.book.turn()

    def crash(self) -> None:
        """Let the process die in the middle of whatever it does, and another one go on."""
        self.book.crash()
        self.open()

    # -- delivery --

    def place(self) -> CheckpointFile:
        return CheckpointFile(checkpoint_path(self.book.directory, "sink", "target"))

    def restart_delivery(self) -> None:
        """Let the delivering process die, with whatever window is open, and another one go on."""
        file = self.place()
        known = file.load()
        file.close()
        self.subscription = Subscription(self.source, **self.rule)
        if known is not None:
            self.subscription.restore(Mark(known.seq, known.state))
            self.restored_in_a_window += known.seq < known.passed

    def pull(self, limit: int) -> bool:
        """Deliver a batch, and keep the place."""
        ready = self.subscription.pull(limit, scan=2 * limit)
        if ready is None:
            return False
        self.delivered += ready.events
        mark = ready.mark
        file = self.place()
        passed = mark.state.get("passed", mark.seq)
        file.save(
            Checkpoint(alias="sink", seq=mark.seq, passed=passed, state=mark.state), sync=False
        )
        file.close()
        return True

    def end(self, finished: bool) -> None:
        """End the run, and deliver what is left."""
        if finished:
            self.emit(RunFinished)
        recorder = self.book.recorder
        assert recorder is not None
        recorder.stop(10)
        self.book.recorder = None
        while self.pull(5):
            pass


def replayed(directory: Path, rule: dict[str, Any], limit: int) -> list[Event]:
    """Return what a replay of the whole log delivers."""
    subscription = Subscription(StoredSource(directory), **rule)
    found: list[Event] = []
    while (ready := subscription.pull(limit)) is not None:
        found += ready.events
    assert subscription.lost == 0
    return found


def check(rule: dict[str, Any], does: list[Act], finished: bool, **more: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Training(Path(name) / "run", **more, **rule)
        for act in does:
            getattr(run, act.what)(*(() if act.argument is None else (act.argument,)))
        run.end(finished)
        event(f"restored in an open window: {min(run.restored_in_a_window, 3)}")
        live = exactly(run.delivered)
        for limit in (1, 512):
            assert exactly(replayed(run.book.directory, rule, limit)) == live
        list(compact_log(run.book.directory))
        assert exactly(replayed(run.book.directory, rule, 512)) == live
        run.book.close()


CHANCE: dict[str, Any] = {
    "every": st.sampled_from(EVERY),
    "reduce": st.sampled_from(REDUCERS),
    "types": st.sampled_from([None, None, ["step"], ["step", "epoch", "flushed"]]),
    "keys": st.sampled_from([None, None, ["loss", "*/loss"]]),
    "does": acts(),
    "finished": st.booleans(),
    "cached": st.sampled_from([1, 7, 10**6]),
    "segment_bytes": st.sampled_from([1, 5_000, 10**8]),
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(**CHANCE)
def test_live_delivery_and_a_replay_tick_at_the_same_events(
    every: Any, reduce: Any, types: Any, keys: Any, does: list[Act], finished: bool, **more: Any
) -> None:
    """Over crashes of the trainer and of the delivery, also in an open window; and compacted."""
    rule = {"every": every, "reduce": reduce, "types": types, "keys": keys}
    check(rule, does, finished, **more)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=5_000, suppress_health_check=[HealthCheck.too_slow])
@given(**CHANCE)
def test_live_delivery_and_a_replay_tick_at_the_same_events_for_longer(
    every: Any, reduce: Any, types: Any, keys: Any, does: list[Act], finished: bool, **more: Any
) -> None:
    """The same, for longer."""
    rule = {"every": every, "reduce": reduce, "types": types, "keys": keys}
    check(rule, does, finished, **more)


@pytest.mark.parametrize("reduce", REDUCERS)
@pytest.mark.parametrize("every", TEXTS)
def test_a_crash_at_every_place_of_a_window(tmp_path: Path, every: str, reduce: Any) -> None:
    """The delivering process dies after each batch of two, in each cadence: nothing shows."""
    rule = {"every": every, "reduce": reduce}
    run = Training(tmp_path / "run", 10**6, 10**8, **rule)
    for n in range(24):
        run.batch(1)
        run.step(1 + n % 2)
        if n % 6 == 5:
            run.epoch()
        if n % 9 == 8:
            run.model_update()
        run.turn()
        run.pull(2)
        run.restart_delivery()
    run.end(finished=True)
    assert exactly(run.delivered) == exactly(replayed(run.book.directory, rule, 512))
    assert run.restored_in_a_window or every == "every step"
