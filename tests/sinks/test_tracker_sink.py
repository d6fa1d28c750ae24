"""The base of tracker sinks: events taken apart, what cannot be shown converted and counted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventlog import Run
from eventlog.events import (
    ArtifactEvent,
    BatchEvent,
    BlobRef,
    ConfigUpdated,
    EpochEvent,
    Event,
    FigureEvent,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    SummaryUpdated,
    TableEvent,
    TextEvent,
    UnknownEvent,
)
from eventlog.sinks.base import CAPABILITIES, RunInfo
from eventlog.sinks.plain import describe_histogram, flatten, markdown_table, place, short_text
from eventlog.sinks.tracker import TrackerSink


class Pruned(Event, tag="pruned_by_a_test", frozen=True, kw_only=True):
    """A user's own type."""

    layer: str = ""


def recorder(*capabilities: str, buffered: bool = False, call_options: Iterable[str] = ()) -> Any:
    """Return a sink that can show some things, and keeps what it was told in `got`."""

    class Recording(TrackerSink):
        name = "recording"

        def __init__(self) -> None:
            super().__init__()
            self.got: list[tuple[Any, ...]] = []
            self.fail_at: int | None = None
            self.commits = self.discards = 0

        def start(self, run: RunInfo) -> None:
            self.run_id = run.state.get("run_id", "t1")

        def _note(self, *what: Any) -> None:
            if self.fail_at is not None and len(self.got) >= self.fail_at:
                raise OSError("down")
            self.got.append(what)

        def numbers(self, event: Event, axis: str, at: Any, values: Any) -> None:
            self._note("numbers", axis, at, dict(values), self.options(event))

        def text(self, event: Event, axis: str, at: Any, tag: str, text: str) -> None:
            self._note("text", axis, at, tag, text)

        def image(
            self, event: Event, axis: str, at: Any, tag: str, images: Any, caption: str | None
        ) -> None:
            self._note("image", tag, [path.read_bytes() for path, _ in images], caption)

        def histogram(self, event: HistogramEvent, axis: str, at: Any) -> None:
            self._note("histogram", event.tag)

        def table(self, event: TableEvent, axis: str, at: Any) -> None:
            self._note("table", event.tag)

        def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
            self._note("artifact", event.name, path)

        def custom(self, event: Event, axis: str, at: Any, fields: Mapping[str, Any]) -> None:
            self._note("custom", dict(fields))

        def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
            self._note("config", dict(config), dict(changed))

        def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
            self._note("summary", dict(summary), dict(changed))

        def rewound(self, event: Event, to_step: int) -> None:
            self._note("rewound", to_step)

        def commit(self) -> None:
            self.commits += 1

        def discard(self) -> None:
            self.discards += 1

        def finish(self, status: str, error: str | None) -> None:
            self._note("finish", status, error)

    Recording.capabilities = frozenset(capabilities)
    Recording.buffered = buffered
    Recording.call_options = frozenset(call_options)
    return Recording()


def opened(sink: Any, **info: Any) -> Any:
    sink.open(RunInfo(run_id="r", alias="mine", **info))
    return sink


def blob(folder: Path, data: bytes) -> BlobRef:
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "blobs" / digest).write_bytes(data)
    return BlobRef(sha256=digest, size=len(data), mime="image/png")


HISTOGRAM = HistogramEvent(
    tag="h", edges=[0.0, 1.0, 2.0], counts=[1, 3], n=4, min=0.5, max=2.0, sum=6.0, nonfinite=1
)
TABLE = TableEvent(tag="t", columns=["a", "b"], rows=[[1, "x|y"], [None, "p\nq"]])


@pytest.mark.parametrize(
    ("event", "axis", "at"),
    [
        (StepEvent(step=3, batch=7, epoch=1), "step", 3),
        (BatchEvent(step=3, batch=7), "batch", 7),
        (EpochEvent(step=3, epoch=0.5), "epoch", 0.5),
        (StepEvent(step=3, axis="val_step"), "val_step", 3),
        (TextEvent(tag="t", text="x", step=4), "step", 4),
        (BatchEvent(step=3), "step", 3),
        (StepEvent(epoch=2), "epoch", 2),
        (EpochEvent(), "step", None),
    ],
)
def test_each_event_has_its_place(event: Event, axis: str, at: Any) -> None:
    """On its own axis, or else on the first that it has."""
    assert place(event) == (axis, at)


def test_numbers_and_strings_are_told_apart() -> None:
    """Bools are numbers; strings go to texts, whatever order they come in."""
    sink = opened(recorder("scalars", "text"))
    sink.write([StepEvent(step=1, values={"a": 1.5, "s": "x", "b": True, "n": 3})])
    assert sink.got == [
        ("numbers", "step", 1, {"a": 1.5, "b": True, "n": 3}, {}),
        ("text", "step", 1, "s", "x"),
    ]
    assert sink.unshown == {}


def test_what_cannot_be_shown_becomes_text_and_is_counted(tmp_path: Path) -> None:
    """A table, a histogram, a model update, an artifact, a user's event: nothing goes by."""
    sink = opened(recorder("scalars", "text"), run_dir=tmp_path)
    sink.write(
        [
            TABLE,
            HISTOGRAM,
            ModelUpdateEvent(kind="prune", summary={"sparsity": 0.5}),
            ArtifactEvent(name="m", path=str(tmp_path), kind="model"),
            Pruned(layer="fc"),
            ImageEvent(tag="i", blobs=[blob(tmp_path, b"png")]),
            FigureEvent(tag="f", blob=blob(tmp_path, b"fig")),
            ConfigUpdated(config={"lr": 1}),
            SummaryUpdated(summary={"best": 1}),
            UnknownEvent(type_name="x"),
        ]
    )
    tags = [tag for _, _, _, tag, _ in sink.got]
    assert tags == ["t", "h", "model_update", "artifact/m", "pruned_by_a_test"]
    assert sink.unshown == {
        "table shown as text": 1,
        "histogram shown as text": 1,
        "model_update shown as text": 1,
        "artifact shown as text": 1,
        "event of a user's type shown as text": 1,
        "image": 1,
        "figure": 1,
        "config": 1,
        "summary": 1,
        "event of an unknown type: only its values": 1,
    }


def test_without_text_all_is_counted(tmp_path: Path) -> None:
    """A tracker of numbers alone."""
    sink = opened(recorder("scalars"), run_dir=tmp_path)
    sink.write([TABLE, HISTOGRAM, TextEvent(tag="t", text="x"), StepEvent(values={"s": "x"})])
    assert sink.got == []
    assert sink.unshown == {"table": 1, "histogram": 1, "text": 1, "string": 1}


def test_what_can_be_shown_comes_as_it_is(tmp_path: Path) -> None:
    """Media with their files; a figure as an image where there is no better."""
    able = CAPABILITIES - {"figure"}
    sink = opened(recorder(*able), run_dir=tmp_path)
    model = tmp_path / "model.pt"
    model.write_bytes(b"m")
    sink.write(
        [
            ImageEvent(tag="i", blobs=[blob(tmp_path, b"a"), blob(tmp_path, b"b")], caption="c"),
            FigureEvent(tag="f", blob=blob(tmp_path, b"fig")),
            HISTOGRAM,
            TABLE,
            ArtifactEvent(name="m", path=str(model)),
            Pruned(layer="fc"),
        ]
    )
    assert sink.got == [
        ("image", "i", [b"a", b"b"], "c"),
        ("image", "f", [b"fig"], None),
        ("histogram", "h"),
        ("table", "t"),
        ("artifact", "m", model),
        ("custom", {"layer": "fc"}),
    ]
    assert sink.unshown == {"figure shown as an image": 1}


def test_a_file_that_is_gone_is_counted(tmp_path: Path) -> None:
    """A blob that was removed or cut, and an artifact that moved, cost themselves only."""
    gone, cut = blob(tmp_path, b"gone"), blob(tmp_path, b"cut")
    (tmp_path / "blobs" / gone.sha256).unlink()
    (tmp_path / "blobs" / cut.sha256).write_bytes(b"c")
    sink = opened(recorder(*CAPABILITIES), run_dir=tmp_path)
    sink.write(
        [
            ImageEvent(tag="i", blobs=[gone, cut]),
            FigureEvent(tag="f", blob=BlobRef(sha256="../../etc", size=1, mime="x")),
            ArtifactEvent(name="m", path=str(tmp_path / "nowhere")),
        ]
    )
    assert sink.got == [("artifact", "m", None)]
    assert sink.unshown == {
        "file that is missing or damaged": 3,
        "artifact that is not there any more": 1,
    }


def test_config_and_summary_are_told_whole_and_what_is_new() -> None:
    """What `open` knew already is not told twice, and what did not change is not told at all."""
    sink = opened(recorder("config", "summary"), config={"lr": 1})
    sink.write([RunStarted(run_id="r", config={"lr": 1})])
    sink.write([ConfigUpdated(config={"lr": 2, "seed": 3}), ConfigUpdated(config={"seed": 3})])
    sink.write([SummaryUpdated(summary={"best": 1})])
    sink.write([RunFinished(summary={"best": 1, "n": 2}, status="failed", error="E: x")])
    sink.close("failed")
    assert sink.got == [
        ("config", {"lr": 1}, {"lr": 1}),
        ("config", {"lr": 2, "seed": 3}, {"lr": 2, "seed": 3}),
        ("summary", {"best": 1}, {"best": 1}),
        ("summary", {"best": 1, "n": 2}, {"n": 2}),
        ("finish", "failed", "E: x"),
    ]


@pytest.mark.parametrize("buffered", [False, True])
def test_what_was_taken_is_not_taken_again(buffered: bool) -> None:
    """In the same process, and in the next one, which knows the position from the state."""
    events = [StepEvent(step=s, seq=s, values={"x": float(s)}) for s in range(6)]
    sink = opened(recorder("scalars", buffered=buffered))
    sink.write(events[:4])
    sink.write(events[2:5])
    assert [got[2] for got in sink.got] == [0, 1, 2, 3, 4]
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(sink.state()))
    again = opened(recorder("scalars", buffered=buffered), state=state)
    again.write(events[3:])
    assert [got[2] for got in again.got] == [5]
    again.write([StepEvent(step=2, seq=6, attempt=2, values={"x": 0.0})])
    assert again.got[-1][2] == 2


def test_a_batch_that_failed_goes_on_where_it_stopped() -> None:
    """Without a buffer, event by event; with one, whole, after `discard`."""
    events = [StepEvent(step=s, seq=s, values={"x": float(s)}) for s in range(4)]
    sink = opened(recorder("scalars"))
    sink.fail_at = 2
    with pytest.raises(OSError, match="down"):
        sink.write(events)
    assert sink.discards == 1
    sink.fail_at = None
    sink.write(events)
    assert [got[2] for got in sink.got] == [0, 1, 2, 3]
    whole = opened(recorder("scalars", buffered=True))
    whole.fail_at = 2
    with pytest.raises(OSError, match="down"):
        whole.write(events)
    whole.fail_at = None
    whole.got.clear()
    whole.write(events)
    assert [got[2] for got in whole.got] == [0, 1, 2, 3]


def test_what_failed_is_told_again() -> None:
    """Hyperparameters of a batch that failed are news the next time, and counted once."""
    batch = [
        ConfigUpdated(config={"lr": 1}, seq=0),
        StepEvent(values={"s": "x"}, seq=1),
        StepEvent(values={"x": 1.0}, seq=2),
    ]
    sink = opened(recorder("scalars", "config", buffered=True))
    sink.fail_at = 1
    with pytest.raises(OSError, match="down"):
        sink.write(batch)
    sink.fail_at = None
    sink.got.clear()
    sink.write(batch)
    assert sink.got[0] == ("config", {"lr": 1}, {"lr": 1})
    assert sink.unshown == {"string": 1}
    direct = opened(recorder("scalars", "config"))
    direct.fail_at = 0
    with pytest.raises(OSError, match="down"):
        direct.write(batch)
    direct.fail_at = None
    direct.write(batch)
    assert direct.got[0] == ("config", {"lr": 1}, {"lr": 1})


def test_rewinds_are_told() -> None:
    """By `rewind`, and by a resume that says at which step it goes on."""
    sink = opened(recorder("scalars"))
    sink.write([Rewound(to_step=5, attempt=2, seq=1)])
    sink.write([RunStarted(run_id="r", attempt=3, step=4, seq=2)])
    sink.write([RunStarted(run_id="r", attempt=4, seq=3)])
    assert sink.got == [("rewound", 5), ("rewound", 4)]


def test_the_options_of_a_call_reach_their_sink() -> None:
    """By alias or name; those of other sinks do not, and what it does not know is counted."""
    sink = opened(recorder("scalars", call_options=["context"]))
    sink.write(
        [
            StepEvent(values={"x": 1.0}, options={"mine": {"context": "val"}}),
            StepEvent(values={"x": 1.0}, options={"recording": {"context": "train", "odd": 1}}),
            StepEvent(values={"x": 1.0}, options={"other": {"odd": 1}}),
        ]
    )
    assert [got[-1] for got in sink.got] == [{"context": "val"}, {"context": "train"}, {}]
    assert sink.unshown == {"option 'odd' of a log call": 1}
    # whatever kind of thing it is, and whether or not it can be shown
    sink.write([TABLE, msgspec.structs.replace(TABLE, options={"mine": {"odd": 1, "context": 2}})])
    assert sink.unshown["option 'odd' of a log call"] == 2


def test_the_last_model_update_is_told_to_a_sink_that_starts_late() -> None:
    """Once: a sink that goes on has it already."""
    update = ModelUpdateEvent(kind="prune")
    assert opened(recorder("text"), model_update=update).got[0][3] == "model_update"
    state = {"run_id": "t1", "attempt": 1, "seq": 5}
    assert opened(recorder("text"), model_update=update, state=state).got == []


def test_calls_out_of_order_are_answered() -> None:
    """A write before open or after close says so; close without open, or twice, does nothing."""
    sink = recorder("scalars")
    with pytest.raises(RuntimeError, match="call open"):
        sink.write([StepEvent()])
    sink.close("finished")
    assert sink.got == []
    opened(sink)
    sink.close("finished")
    sink.close("finished")
    assert sink.got == [("finish", "finished", None)]
    with pytest.raises(RuntimeError, match="call open"):
        sink.write([StepEvent()])


def test_it_is_a_sink_like_any_other(tmp_path: Path) -> None:
    """In a run: each step once, in order, with what the run says about itself."""
    sink = recorder("scalars", "text", "config")
    with Run("p", dir=tmp_path, config={"lr": 1}, sinks=sink) as run:
        for step in range(5):
            run.step(loss=float(step))
        run.text("note", "hello")
    steps = [(got[2], got[3]) for got in sink.got if got[0] == "numbers"]
    assert steps == [(s, {"loss": float(s)}) for s in range(5)]
    assert sink.got[0] == ("config", {"lr": 1}, {"lr": 1})
    assert sink.got[-2:] == [
        ("text", "step", 5, "note", "hello"),
        ("finish", "finished", None),
    ]
    assert run.statistics().sinks["recording"].unshown == {}


def test_nested_values_are_flattened() -> None:
    """Names are joined; two that would be one get a number; lists and empty mappings stay."""
    nested = {"a": {"b": {"c": 1}, "d": []}, "a/d": 2, "e": {}}
    assert flatten(nested) == {"a/b/c": 1, "a/d": [], "a/d~2": 2, "e": {}}
    assert flatten({"a": {"b": 1}}, ".") == {"a.b": 1}


def test_texts_made_for_trackers() -> None:
    """Markdown keeps its cells together; a text that is cut says how long it was."""
    assert markdown_table(["a"], [["x|y"], [None], ["p\nq"]]) == (
        "| a |\n| --- |\n| x\\|y |\n|  |\n| p<br>q |"
    )
    assert describe_histogram(HISTOGRAM).splitlines()[-1] == "| 4 | 0.5 | 1.5 | 2.0 | 1 |"
    cut = short_text("x" * 7000, 100)
    assert (len(cut), cut.endswith("... (7000 characters)")) == (100, True)
    assert short_text("short", 100) == "short"
