"""AccelerateSink: trackers that are written for Accelerate, as sinks of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")

import numpy as np
from accelerate.state import PartialState
from accelerate.tracking import GeneralTracker, TensorBoardTracker, on_main_process
from accelerate.utils import LoggerType

from eventlog import Run, replay
from eventlog.exceptions import SinkNotFoundError, UnavailableError
from eventlog.integrations import AccelerateSink
from eventlog.sinks.base import RunInfo


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Accelerate keeps its state for the whole process; a sink may have to make it."""
    yield
    PartialState._reset_state()


class Listing(GeneralTracker):  # type: ignore[misc, unused-ignore]
    """A tracker of a user's own, as Accelerate's guide has it."""

    name = "listing"
    requires_logging_directory = False

    def __init__(self, run_name: str = "") -> None:
        super().__init__()
        self.run_name = run_name
        self.got: list[tuple[Any, ...]] = []
        self.threads: set[int] = set()

    def _note(self, *what: Any) -> None:
        self.threads.add(threading.get_ident())
        self.got.append(what)

    @property
    def tracker(self) -> list[tuple[Any, ...]]:
        return self.got

    @on_main_process  # type: ignore[untyped-decorator, unused-ignore]
    def start(self) -> None:
        self._note("start", self.run_name)

    @on_main_process  # type: ignore[untyped-decorator, unused-ignore]
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._note("config", values)

    @on_main_process  # type: ignore[untyped-decorator, unused-ignore]
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._note("log", values, step, kwargs)

    @on_main_process  # type: ignore[untyped-decorator, unused-ignore]
    def finish(self) -> None:
        self._note("finish")


class Tabling(Listing):
    """One that can show images and tables, too."""

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._note("images", {k: [i.shape for i in v] for k, v in values.items()}, step, kwargs)

    def log_table(
        self,
        table_name: str,
        columns: Any = None,
        data: Any = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        self._note("table", table_name, columns, data, step)


def test_a_users_own_tracker(tmp_path: Path) -> None:
    """It is started, told the config and each value with its step, and finished; on one thread."""
    mine = Listing("named")
    config = {"lr": 0.1, "model": {"layers": [1, 2]}, "who": None}
    with Run("p", dir=tmp_path, config=config, sinks=[AccelerateSink(mine)]) as run:
        run.step({"loss": 0.5}, options={"listing": {"commit": False}})
        run.step(loss=0.25, note="x")
        run.log({"n": 3}, step=9)
        run.batch(loss=7.0)
        run.epoch({"val": 1.0})
        run.flush()  # the sink is open by then
        run.config.update(seed=1)
    assert mine.got == [
        ("start", "named"),
        ("config", {"lr": 0.1, "model/layers": "[1, 2]", "who": None}),
        ("log", {"loss": 0.5}, 0, {"commit": False}),
        ("log", {"loss": 0.25}, 1, {}),
        ("log", {"note": "x"}, 1, {}),
        ("log", {"n": 3}, 9, {}),
        ("log", {"loss_batch": 7.0}, 0, {}),
        ("log", {"val": 1.0}, 9, {}),
        ("config", {"seed": 1}),
        ("finish",),
    ]
    assert len(mine.threads) == 1
    assert threading.get_ident() not in mine.threads
    handle = run.sink("accelerate-listing")
    assert (handle.state, handle.tracker) == ("closed", mine.got)


def test_what_it_has_no_method_for_is_shown_otherwise_or_counted(tmp_path: Path) -> None:
    """A table becomes a text; an image is counted."""
    pytest.importorskip("PIL")
    plain, able = Listing(), Tabling()
    sinks = {"plain": AccelerateSink(plain), "able": AccelerateSink(able)}
    with Run("p", dir=tmp_path, sinks=sinks) as run:
        run.table("t", [[1, 2]], ["a", "b"], step=4)
        run.image("i", np.zeros((4, 5, 3), np.uint8), step=5)
    assert [what[0] for what in plain.got] == ["start", "log", "finish"]
    assert "| 1 | 2 |" in plain.got[1][1]["t"]
    assert run.statistics().sinks["plain"].unshown == {"table shown as text": 1, "image": 1}
    assert able.got[1:-1] == [
        ("table", "t", ["a", "b"], [[1, 2]], 4),
        ("images", {"i": [(4, 5, 3)]}, 5, {}),
    ]
    assert run.statistics().sinks["able"].unshown == {}


@pytest.mark.parametrize("by", ["tensorboard", LoggerType.TENSORBOARD, TensorBoardTracker])
def test_accelerates_tensorboard(tmp_path: Path, points: Callable[[Path], Any], by: Any) -> None:
    """By name, LoggerType or class: the points are there, in a folder of the run's."""
    with Run(
        "p", dir=tmp_path, config={"lr": 0.1, "none": None}, sinks=[AccelerateSink(by)]
    ) as run:
        for step in range(3):
            run.step(loss=1 / (step + 1))
    url = run.sink("accelerate-tensorboard").url
    assert url is not None
    assert run.dir is not None
    assert Path(url).is_relative_to(run.dir)
    assert points(Path(url)) == {"loss": [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]}
    assert run.close().complete


def test_media_in_accelerates_tensorboard(tmp_path: Path) -> None:
    """Images and texts arrive; TensorBoard's reader finds them."""
    pytest.importorskip("PIL")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Run("p", dir=tmp_path, sinks=[AccelerateSink("tensorboard")]) as run:
        run.image("i", [np.zeros((4, 5, 3), np.uint8)] * 2, step=5)
        run.text("note", "hello", step=6)
    assert run.close().complete
    reader = EventAccumulator(str(run.sink("accelerate-tensorboard").url))
    reader.Reload()
    images = reader.Images("i")
    assert {(image.step, image.height, image.width) for image in images} == {(5, 4, 5)}
    assert reader.Tags()["tensors"] == ["note/text_summary"]


def test_an_init_argument_and_a_folder(tmp_path: Path) -> None:
    """What Accelerate would have from init_trackers and project_dir can be given."""
    sink = AccelerateSink(
        "tensorboard",
        project="named",
        logging_dir=tmp_path / "logs",
        init_kwargs={"filename_suffix": ".mine"},
    )
    with Run("p", dir=None, sinks=[sink]) as run:
        run.step(loss=1.0)
    files = list((tmp_path / "logs" / "named").iterdir())
    assert any(file.name.endswith(".mine") for file in files)


def test_a_replay_goes_through_it(tmp_path: Path) -> None:
    """A log can be brought into a tracker that was written for Accelerate, afterwards."""
    with Run("p", dir=tmp_path, sinks=[]) as run:
        run.step(loss=1.0)
    mine = Listing()
    assert run.dir is not None
    assert replay(run.dir, AccelerateSink(mine)).complete
    assert ("log", {"loss": 1.0}, 0, {}) in mine.got


def test_a_tracker_that_raises(tmp_path: Path) -> None:
    """It costs its own points; the run and its other sinks go on."""

    class Raising(Listing):
        def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
            if step == 1:
                raise ValueError("no")
            super().log(values, step, **kwargs)

    bad, good = Raising(), Listing()
    sinks = {"bad": AccelerateSink(bad), "good": AccelerateSink(good)}
    with Run("p", dir=tmp_path, sinks=sinks) as run:
        for step in range(3):
            run.step(x=float(step))
    assert [what[2] for what in good.got if what[0] == "log"] == [0, 1, 2]
    assert [what[2] for what in bad.got if what[0] == "log"] == [0, 2]
    assert run.close().dead == {"bad": 1}


def test_one_that_is_not_there() -> None:
    """Accelerate drops it without a word; here it is an error that says what there is."""
    with pytest.raises(SinkNotFoundError, match="no tracker 'nonsense'; it has: aim"):
        AccelerateSink("nonsense")
    with pytest.raises(SinkNotFoundError, match="'swanlab' needs a package"):
        AccelerateSink("swanlab")
    with pytest.raises(TypeError, match="tracker must be a name"):
        AccelerateSink(3)
    with pytest.raises(TypeError, match="not made yet"):
        AccelerateSink(Listing(), project="p")


def test_it_makes_no_process_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under torchrun, it waits until the program has set up Accelerate itself."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    mine = Listing()
    sink = AccelerateSink(mine)
    with pytest.raises(UnavailableError, match="make an Accelerator"):
        sink.open(RunInfo(run_id="r"))
    assert mine.got == []
    monkeypatch.delenv("WORLD_SIZE")
    sink.open(RunInfo(run_id="r"))
    assert mine.got == [("start", "")]
