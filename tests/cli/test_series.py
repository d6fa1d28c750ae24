"""Metrics as series of points."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from eventlog import Run, open_log
from eventlog.cli.series import Axis, envelope, read_metrics


def test_points_are_those_of_the_latest_attempt_in_order(tmp_path: Path) -> None:
    """What was logged again is there once; what a rewind left behind is not."""
    with Run("p", dir=tmp_path) as run:
        for value in range(10):
            run.step(loss=value)
        run.rewind(5)
        run.step(loss=-5)
        run.step(loss=-6)
    assert run.dir is not None
    (series,) = read_metrics(open_log(run.dir), Axis.STEP).series
    assert list(series.x) == list(range(7))
    assert list(series.y) == [0, 1, 2, 3, 4, -5, -6]


def test_an_axis_of_its_own_is_a_series_of_its_own(tmp_path: Path) -> None:
    """Steps of validation are not steps of training."""
    with Run("p", dir=tmp_path) as run:
        for i in range(4):
            run.step(loss=i)
            run.log(loss=-i, step=10 * i, axis="val_step")
    assert run.dir is not None
    metrics = read_metrics(open_log(run.dir), Axis.STEP)
    assert [(s.key, s.axis) for s in metrics.series] == [("loss", "step"), ("loss", "val_step")]
    assert list(metrics.series[1].x) == [0, 10, 20, 30]


def test_an_epoch_is_one_point(tmp_path: Path) -> None:
    """The mean of what was logged in it."""
    with Run("p", dir=tmp_path) as run:
        for epoch in range(2):
            for value in (1.0, 3.0):
                run.step(loss=value + epoch)
            run.epoch(done=True)
    assert run.dir is not None
    metrics = {s.key: s for s in read_metrics(open_log(run.dir), Axis.EPOCH).series}
    assert list(metrics["loss"].x) == [0, 1]
    assert list(metrics["loss"].y) == [2.0, 3.0]
    assert list(metrics["done"].y) == [1, 1]


def test_what_is_not_finite_is_kept_apart(tmp_path: Path) -> None:
    """A NaN has a place, but no height."""
    with Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)
        run.step(loss=float("nan"))
        run.step(loss=float("inf"))
    assert run.dir is not None
    (series,) = read_metrics(open_log(run.dir), Axis.STEP).series
    assert (list(series.x), list(series.nonfinite)) == ([0], [1, 2])
    assert series.last == float("inf")
    assert len(series) == 3


def test_updates_are_no_metrics(tmp_path: Path) -> None:
    """They are where they are on the axis, whatever keys are asked for."""
    with Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)
        run.model_updated("prune", sparsity=0.5)
        run.step(loss=1.0)
    assert run.dir is not None
    metrics = read_metrics(open_log(run.dir), Axis.STEP, ["lo*"])
    assert [s.key for s in metrics.series] == ["loss"]
    assert metrics.updates == [(1, "prune")]


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400),
    st.integers(1, 50),
)
def test_thinning_keeps_what_can_be_seen(y: list[float], columns: int) -> None:
    """The ends, the least and the greatest value stay, and few enough points."""
    x = [float(i) for i in range(len(y))]
    thin_x, thin_y = envelope(x, y, columns, x[0], x[-1])
    assert thin_x == sorted(thin_x)
    assert (thin_x[0], thin_x[-1]) == (x[0], x[-1])
    assert (min(thin_y), max(thin_y)) == (min(y), max(y))
    assert len(thin_x) <= 4 * (columns + 1)
    assert set(zip(thin_x, thin_y, strict=True)) <= set(zip(x, y, strict=True))
