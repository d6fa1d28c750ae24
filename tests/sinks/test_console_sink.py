"""The lines that a person watches."""

import io
import math
import sys

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
    Window,
)
from eventlog.sinks import RunInfo
from eventlog.sinks.console import ConsoleSink, format_event, format_value


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            StepEvent(step=3, values={"loss": 0.123456789, "lr": 1e-5}),
            "step 3  loss=0.123457  lr=1.0000e-05",
        ),
        (StepEvent(step=3, axis="val_step", values={"a": 1}), "val_step 3  a=1"),
        (StepEvent(values={"a": True, "b": "text"}), "-  a=True  b=text"),
        (StepEvent(step=0), "step 0"),
        (
            StepEvent(step=9, values={"x": 1.0}, window=Window(first=0, last=9, n=10)),
            "step 9  x=1  (10 reduced)",
        ),
        (BatchEvent(step=1, batch=7, values={"x": 2.0}), "batch 7  x=2"),
        (EpochEvent(step=1, epoch=2, values={"acc": 0.5}), "epoch 2  acc=0.5"),
        (EpochEvent(epoch=1_000_000), "epoch 1000000"),
        (EpochEvent(epoch=0.25), "epoch 0.25"),
        (RunStarted(run_id="id", project="p", name="n"), "run  p/n started, attempt 1"),
        (RunStarted(run_id="id", project="p"), "run  p/id started, attempt 1"),
        (RunFinished(status="failed", error="ValueError: x"), "run  failed: ValueError: x"),
        (RunFinished(), "run  finished"),
        (ConfigUpdated(config={"lr": 0.1}), "-  config lr=0.1"),
        (SummaryUpdated(step=4, summary={"best": 0.9}), "step 4  summary best=0.9"),
        (ModelUpdateEvent(step=4, kind="prune", summary={"s": 0.5}), "step 4  model prune: s=0.5"),
        (Rewound(step=5, to_step=5, attempt=2), "step 5  rewound to step 5, attempt 2"),
        (TextEvent(step=1, tag="t", text="hello"), "step 1  t: hello"),
        (
            TableEvent(step=1, tag="t", columns=["a", "b"], rows=[[1, 2]]),
            "step 1  t: a table of 1 rows x 2 columns",
        ),
        (
            ImageEvent(
                step=1, tag="i", blobs=[BlobRef("0" * 64, 1, "image/png")], width=4, height=3
            ),
            "step 1  i: 1 image(s), 4 x 3",
        ),
        (
            FigureEvent(step=1, tag="f", blob=BlobRef("0" * 64, 1, "image/png"), width=4, height=3),
            "step 1  f: a figure, 4 x 3",
        ),
        (
            HistogramEvent(step=1, tag="h", edges=[0, 1], counts=[2], n=2, min=0.0, max=1.0),
            "step 1  h: 2 values from 0 to 1",
        ),
        (ArtifactEvent(step=1, name="m", path="/m"), "step 1  artifact m: /m"),
        (UnknownEvent(type_name="odd"), "-  odd (of a type that is not known here)"),
    ],
)
def test_each_kind_of_event_has_a_line(event: Event, line: str) -> None:
    """Where it is, and what it says."""
    assert format_event(event) == line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (1e-4, "0.0001"),
        (9.9e-5, "9.9000e-05"),
        (12_345_678.0, "1.2346e+07"),
        (123_456.789, "123457"),
        (3, "3"),
        (10**30, "1" + "0" * 30),
        (False, "False"),
        ("nan", "nan"),
    ],
)
def test_numbers_are_short_and_nan_is_nan(value: object, text: str) -> None:
    """At most a dozen characters, and never an error."""
    assert format_value(value) == text


def run_with(sink: ConsoleSink) -> None:
    with Run("p", "n", dir=None, sinks=[sink]) as run:
        run.step(loss=0.5)
        run.epoch(acc=math.nan)


def test_plain_lines_go_to_the_file() -> None:
    """One for each event, no escape codes."""
    file = io.StringIO()
    run_with(ConsoleSink(file))
    assert file.getvalue() == (
        "run  p/n started, attempt 1\nstep 0  loss=0.5\nepoch 0  acc=nan\nrun  finished\n"
    )
    assert not file.closed


def test_colours_come_when_asked_for() -> None:
    """Also into a file; each line ends what it began."""
    file = io.StringIO()
    run_with(ConsoleSink(file, color=True))
    assert file.getvalue() == (
        "\x1b[32mrun  p/n started, attempt 1\x1b[0m\nstep 0  loss=0.5\n"
        "\x1b[1mepoch 0  acc=nan\x1b[0m\n\x1b[32mrun  finished\x1b[0m\n"
    )


def test_a_run_that_failed_is_red() -> None:
    """What went wrong is seen."""
    file = io.StringIO()
    sink = ConsoleSink(file, color=True)
    sink.open(RunInfo(run_id="r"))
    sink.write([RunFinished(status="failed")])
    assert file.getvalue() == "\x1b[31mrun  failed\x1b[0m\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_has_colours_unless_its_user_wants_none(
    monkeypatch: pytest.MonkeyPatch, no_color: str
) -> None:
    """NO_COLOR is respected where nothing else was said."""
    monkeypatch.setenv("NO_COLOR", no_color)
    file = Terminal()
    run_with(ConsoleSink(file))
    assert ("\x1b[" in file.getvalue()) == (not no_color)


def test_standard_error_is_taken_as_it_is_when_the_run_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program's standard output stays its own."""
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    run_with(ConsoleSink())
    assert "step 0  loss=0.5" in file.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_file_cannot_hold_is_shown_escaped(encoding: str) -> None:
    """An emoji on an ASCII terminal, or half a surrogate pair anywhere."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    sink = ConsoleSink(file, color=False)
    sink.open(RunInfo(run_id="r"))
    sink.write([TextEvent(tag="\N{GRINNING FACE}", text="\ud800")])
    file.flush()
    assert raw.getvalue().decode(encoding).endswith(": \\ud800\n")
