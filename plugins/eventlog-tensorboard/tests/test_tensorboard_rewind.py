"""What TensorBoard shows after a rewind: the latest attempt, and nothing less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as ServerAccumulator,
)
from tensorboard.util import tensor_util

from eventlog.events import (
    BatchEvent,
    EpochEvent,
    Event,
    Rewound,
    RunStarted,
    Scalar,
    StepEvent,
    TextEvent,
)
from eventlog.sinks.base import RunInfo
from eventlog_tensorboard import TensorBoardSink

WALL = 1_700_000_000_000_000_000


def opened(folder: Path, **run: Any) -> TensorBoardSink:
    sink = TensorBoardSink(dir=folder)
    sink.open(RunInfo(run_id="r1", **run))
    return sink


def published(folder: Path, tag: str = "v") -> list[tuple[int, float]]:
    """Read as scripts do."""
    reader = EventAccumulator(str(folder), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE).Reload()
    if tag not in reader.Tags()["scalars"]:
        return []
    return [(point.step, point.value) for point in reader.Scalars(tag)]


def served(folder: Path, tag: str = "v") -> list[tuple[int, float]]:
    """Read as the server does."""
    reader = ServerAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    if tag not in reader.tensors_by_tag:
        return []
    return [(p.step, tensor_util.make_ndarray(p.tensor_proto).item()) for p in reader.Tensors(tag)]


readers = pytest.mark.parametrize("points", [published, served])


def steps(values: range, attempt: int, seq: int, **more: Any) -> list[Event]:
    return [
        StepEvent(
            step=s, values={"v": float(attempt)}, attempt=attempt, wall=WALL, seq=seq + i, **more
        )
        for i, s in enumerate(values)
    ]


@readers
def test_only_superseded_points_are_lost(tmp_path: Path, points: Any) -> None:
    """Of 1,200 points on four axes a rewind takes those that it supersedes, and no other."""
    events: list[Event] = []

    def emit(kind: type[Event], **axes: Any) -> None:
        attempt = axes.pop("attempt", 1)
        value: dict[str, Scalar] = {"v": float(attempt)}
        events.append(kind(values=value, attempt=attempt, wall=WALL, seq=len(events), **axes))

    def train(first: int, last: int, attempt: int) -> None:
        """Four batches a step, ten steps an epoch, a validation step each step."""
        for step in range(first, last):
            epoch = step // 10
            for batch in range(4 * step, 4 * step + 4):
                emit(BatchEvent, step=step, batch=batch, epoch=epoch, attempt=attempt)
            emit(StepEvent, step=step, batch=4 * step + 4, epoch=epoch, attempt=attempt)
            emit(StepEvent, step=step, axis="val_step", attempt=attempt)
            if step % 10 == 9:
                emit(EpochEvent, step=step, batch=4 * step + 4, epoch=epoch, attempt=attempt)

    train(0, 197, 1)
    assert len(events) == 1201
    events.append(
        Rewound(to_step=150, step=150, batch=600, epoch=15, attempt=2, wall=WALL, seq=len(events))
    )
    train(150, 160, 2)
    sink = opened(tmp_path)
    for first in range(0, len(events), 100):
        sink.write(events[first : first + 100])
    sink.close("finished")

    def expected(kept: int, new: range) -> list[tuple[int, float]]:
        return [(at, 1.0) for at in range(kept)] + [(at, 2.0) for at in new]

    assert points(tmp_path) == expected(150, range(150, 160))
    assert points(tmp_path / "batch") == expected(600, range(600, 640))
    assert points(tmp_path / "epoch") == expected(15, range(15, 16))
    # A named axis says nothing about where it is after a rewind: nothing of it is purged.
    assert points(tmp_path / "val_step") == expected(197, range(150, 160))
    assert sink.unshown == {}


@readers
@pytest.mark.parametrize("first", [5, 6])
def test_the_last_valid_point_stays(tmp_path: Path, points: Any, first: int) -> None:
    """A run that goes on with the step after the one it went back to keeps this one's point."""
    sink = opened(tmp_path)
    sink.write(
        [
            *steps(range(10), 1, 0),
            Rewound(to_step=5, attempt=2, wall=WALL, seq=10),
            *steps(range(first, 8), 2, 11),
        ]
    )
    sink.close("finished")
    assert points(tmp_path) == [(s, 1.0) for s in range(first)] + [
        (s, 2.0) for s in range(first, 8)
    ]


@readers
@pytest.mark.parametrize("first", [2, 3])
def test_a_rewind_into_an_epoch(tmp_path: Path, points: Any, first: int) -> None:
    """After a rewind to two and a half epochs, the first epoch to come tells which still hold."""
    sink = opened(tmp_path)
    events: list[Event] = [
        EpochEvent(epoch=e, values={"v": 1.0}, wall=WALL, seq=e) for e in range(5)
    ]
    events.append(Rewound(to_step=25, epoch=2.5, attempt=2, wall=WALL, seq=5))
    events.append(EpochEvent(epoch=first, values={"v": 2.0}, attempt=2, wall=WALL, seq=6))
    sink.write(events)
    sink.close("finished")
    assert points(tmp_path / "epoch") == [(e, 1.0) for e in range(first)] + [(first, 2.0)]


@readers
def test_several_rewinds_in_one_batch(tmp_path: Path, points: Any) -> None:
    """Each rewind counts, however close they follow, also in the same second."""
    sink = opened(tmp_path)
    events: list[Event] = []
    for attempt in range(1, 30):
        events.append(Rewound(to_step=attempt, attempt=attempt, wall=WALL, seq=len(events)))
        events += steps(range(attempt, attempt + 3), attempt, len(events))
    sink.write(events)
    sink.close("finished")
    assert points(tmp_path) == [(a, float(a)) for a in range(1, 30)] + [(30, 29.0), (31, 29.0)]


@readers
def test_a_lower_step_is_no_rewind(tmp_path: Path, points: Any) -> None:
    """Steps that go back without a rewind purge nothing."""
    sink = opened(tmp_path)
    sink.write([*steps(range(10), 1, 0), *steps(range(3), 1, 10)])
    sink.close("finished")
    assert len(points(tmp_path)) == 13


@readers
def test_a_rewind_that_nothing_follows(tmp_path: Path, points: Any) -> None:
    """When the run ends after a rewind, what it superseded is gone."""
    sink = opened(tmp_path)
    sink.write([*steps(range(10), 1, 0), Rewound(to_step=4, attempt=2, wall=WALL, seq=10)])
    assert len(points(tmp_path)) == 10
    sink.close("failed")
    assert points(tmp_path) == [(s, 1.0) for s in range(5)]


@readers
def test_a_rewind_outlives_the_process(tmp_path: Path, points: Any) -> None:
    """A rewind that was flushed without a point after it is remembered in the sink's state."""
    sink = opened(tmp_path)
    sink.write([*steps(range(10), 1, 0), Rewound(to_step=4, attempt=2, wall=WALL, seq=10)])
    sink.flush()
    again = opened(tmp_path, attempt=2, state=sink.state())
    again.write(steps(range(4, 6), 2, 11))
    again.close("finished")
    assert points(tmp_path) == [(s, 1.0) for s in range(4)] + [(4, 2.0), (5, 2.0)]


@readers
@pytest.mark.parametrize(("step", "kept"), [(4, 4), (0, 10), (None, 10)])
def test_a_resume_purges_where_it_says_its_step(
    tmp_path: Path, points: Any, step: int | None, kept: int
) -> None:
    """Another attempt that does not say where it goes on may not erase what was before."""
    sink = opened(tmp_path)
    sink.write([RunStarted(run_id="r1", wall=WALL, seq=0), *steps(range(10), 1, 1)])
    sink.close("failed")
    again = opened(tmp_path, attempt=2, state=sink.state())
    again.write([RunStarted(run_id="r1", attempt=2, step=step, wall=WALL, seq=11)])
    again.write(steps(range(4, 6), 2, 12))
    again.close("finished")
    assert points(tmp_path) == [(s, 1.0) for s in range(kept)] + [(4, 2.0), (5, 2.0)]


@readers
def test_batches_that_start_anew_in_each_epoch_stay(tmp_path: Path, points: Any) -> None:
    """A rewind to a batch number that several epochs have would purge valid points: none go."""
    sink = opened(tmp_path)
    sink.write(
        [
            BatchEvent(batch=b, values={"v": 1.0}, wall=WALL, seq=10 * e + b)
            for e in range(3)
            for b in range(10)
        ]
    )
    again = opened(tmp_path, state=sink.state())
    again.write([Rewound(to_step=0, batch=5, attempt=2, wall=WALL, seq=30)])
    again.write([BatchEvent(batch=5, values={"v": 2.0}, attempt=2, wall=WALL, seq=31)])
    again.close("finished")
    assert len(points(tmp_path / "batch")) == 31
    assert sum(again.unshown.values()) == 1


def test_texts_and_hparams_after_a_rewind_to_the_start(tmp_path: Path) -> None:
    """A rewind to step 0 takes texts with it, but not what concerns the whole run."""
    sink = opened(tmp_path, config={"lr": 0.1})
    sink.write(
        [
            TextEvent(tag="t", text="old", step=3, wall=WALL, seq=0),
            Rewound(to_step=0, attempt=2, wall=WALL, seq=1),
            TextEvent(tag="t", text="new", step=0, attempt=2, wall=WALL, seq=2),
        ]
    )
    sink.close("finished")
    reader = ServerAccumulator(str(tmp_path), size_guidance={"tensors": 0}).Reload()
    assert [p.tensor_proto.string_val[0] for p in reader.Tensors("t")] == [b"new"]
    assert all(reader.Tensors(tag) for tag in ("config", "run", "status"))
    assert reader.Tensors("_hparams_/session_start_info")


def test_extreme_rewinds_do_not_raise(tmp_path: Path) -> None:
    """Whatever a rewind carries, the sink goes on."""
    sink = opened(tmp_path)
    for seq, (step, epoch) in enumerate([(2**80, float("nan")), (-(2**80), 1.5), (0, 10**400)]):
        sink.write(
            [
                Rewound(to_step=step, epoch=epoch, wall=WALL, seq=3 * seq),
                StepEvent(step=1, values={"v": 1.0}, wall=WALL, seq=3 * seq + 1),
                EpochEvent(epoch=1, values={"v": 1.0}, wall=WALL, seq=3 * seq + 2),
            ]
        )
    sink.close("finished")
    assert published(tmp_path) == [(1, 1.0)]
