"""EventlogHandler: records of the standard library as text events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import Run, open_log
from eventlog.events import Event, TextEvent
from eventlog.integrations import EventlogHandler


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger without handlers, which has none afterwards either."""
    one = logging.getLogger("app.train")
    one.setLevel(logging.DEBUG)
    yield one
    one.handlers.clear()


def texts(run: Run) -> list[tuple[str, str]]:
    assert run.dir is not None
    events = open_log(run.dir).events(types=[TextEvent])
    return [(e.tag, e.text) for e in events if isinstance(e, TextEvent)]


def test_records_become_texts(tmp_path: Path, log: logging.Logger) -> None:
    """Under the logger's name and the level, at the run's step, with the traceback if any."""
    with Run("p", dir=tmp_path, sinks=[]) as run:
        log.addHandler(EventlogHandler(run, level="INFO"))
        run.step(x=1.0)
        log.debug("not taken")
        log.info("loaded %d rows", 3)
        try:
            raise ValueError("bad row")
        except ValueError:
            log.exception("row %s", 7)
        logging.getLogger("app.train.data").warning("slow")
    (first, second, third) = texts(run)
    assert first == ("app.train/INFO", "loaded 3 rows")
    assert second[0] == "app.train/ERROR"
    assert second[1].startswith("row 7\nTraceback")
    assert second[1].endswith("ValueError: bad row")
    assert third == ("app.train.data/WARNING", "slow")
    assert run.dir is not None
    assert {e.step for e in open_log(run.dir).events(types=[TextEvent])} == {1}


def test_without_a_run_it_is_the_current_one(tmp_path: Path, log: logging.Logger) -> None:
    """Where none is open, a record goes nowhere, and nothing happens."""
    log.addHandler(EventlogHandler())
    log.info("too early")
    with Run("p", dir=tmp_path, sinks=[]) as run:
        log.info("now")
    log.info("too late")
    assert texts(run) == [("app.train/INFO", "now")]


def test_it_does_not_feed_itself(tmp_path: Path) -> None:
    """What eventlog says, and what a sink's own thread logs, is not taken: it would never end."""
    root = logging.getLogger()
    tracker = logging.getLogger("some.tracker")
    seen = []

    def sink(event: Event) -> None:
        seen.append(event)
        tracker.warning("sent %s", type(event).__name__)

    handler = EventlogHandler()
    root.addHandler(handler)
    try:
        with Run("p", dir=tmp_path, sinks=[sink]) as run:
            run.step(x=1.0, bad=object())  # eventlog warns of it
            tracker.warning("mine")
            run.flush()
    finally:
        root.removeHandler(handler)
    assert texts(run) == [("some.tracker/WARNING", "mine")]
    assert len(seen) >= 3


def record_at(seconds: float, text: str = "x", *arguments: object) -> logging.LogRecord:
    record = logging.LogRecord("app", logging.INFO, __file__, 1, text, arguments or None, None)
    record.created = seconds
    return record


def test_a_record_that_cannot_be_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is reported as the standard library does, and raises nothing."""
    with Run("p", dir=tmp_path, sinks=[], strict=True) as run:
        handler = EventlogHandler(run)
        handler.handle(record_at(1.0, "%d", "no number"))
        handler.handle(record_at(2.0, "fine"))
    assert texts(run) == [("app/INFO", "fine")]
    assert "--- Logging error ---" in capsys.readouterr().err


def test_a_flood_is_bounded_and_counted(tmp_path: Path) -> None:
    """Ten times the rate at once, then the rate; what was left out is said."""
    with Run("p", dir=tmp_path, sinks=[]) as run:
        handler = EventlogHandler(run, rate=2)
        for _ in range(50):
            handler.handle(record_at(100.0))
        for number in range(3):
            handler.handle(record_at(101.0, f"later {number}"))
    got = [text for _, text in texts(run)]
    assert got == ["x"] * 20 + ["later 0\n(30 records before it were left out)", "later 1"]
    assert handler.left_out == 31


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    """At 16,384 characters; it says so."""
    with Run("p", dir=tmp_path, sinks=[]) as run:
        EventlogHandler(run, rate=None).handle(record_at(0.0, "y" * 100_000))
    ((_, text),) = texts(run)
    assert len(text) < 16_500
    assert text.endswith("... (100000 characters)")


def test_from_any_thread(tmp_path: Path, log: logging.Logger) -> None:
    """Records of other threads arrive, all of them."""
    with Run("p", dir=tmp_path, sinks=[]) as run:
        log.addHandler(EventlogHandler(run, rate=None))

        def say(number: int) -> None:
            for _ in range(50):
                log.info("%d", number)

        threads = [threading.Thread(target=say, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(texts(run)) == 200


@pytest.mark.parametrize("rate", [0, -1])
def test_a_wrong_rate(rate: float) -> None:
    """It is an error of the one who writes it."""
    with pytest.raises(ValueError, match="rate must be"):
        EventlogHandler(rate=rate)
