"""The end of a run: close, flush, the status, sinks that fail or hang, exits of real programs."""

import logging
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog import Run, open_log
from eventlog.delivery import Deadlines, Retry
from eventlog.events import Event, RunFinished, StepEvent
from eventlog.exceptions import EventlogError, LogError
from eventlog.testing import AsyncFaultySink, Fault, FaultySink, MemorySink

QUICK = Retry(first=0.001, most=0.002)


def end_of(directory: Path) -> tuple[str, str | None, int]:
    """Return status, error and number of events of the only run in a directory."""
    (run_dir,) = (p for p in directory.glob("*/*/") if p.is_dir())
    events = list(open_log(run_dir).events())
    last = events[-1]
    assert isinstance(last, RunFinished)
    return last.status, last.error, len(events)


# -- in this process --------------------------------------------------------------------------


def test_a_log_is_free_again_after_an_end_that_nobody_waited_for(tmp_path: Path) -> None:
    """In the same process: it can be gone on with once its last event is in it."""
    run = Run("p", dir=tmp_path)
    for _ in range(5_000):
        run.step(x=1.0)
    assert not run.close(timeout=0).written
    deadline = time.monotonic() + 30
    while True:
        try:
            again = Run("p", dir=tmp_path, resume=run.id)
            break
        except LogError:
            assert time.monotonic() < deadline, "the log is still held"
            time.sleep(0.01)
    again.close()
    events = list(open_log(tmp_path / "p" / run.id).events())
    assert [e.seq for e in events] == list(range(len(events)))
    assert sum(type(e) is RunFinished for e in events) == 2


def test_a_run_is_closed_by_its_block(tmp_path: Path) -> None:
    """As finished; sinks are told, and everything is there."""
    sink = MemorySink()
    with Run("p", dir=tmp_path, sinks=[sink]) as run:
        run.step(x=1.0)
    assert end_of(tmp_path) == ("finished", None, 3)
    assert sink.statuses == ["finished"]
    assert run.close().complete


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ValueError("bad"), "failed", "ValueError: bad"),
        (SystemExit(0), "finished", None),
        (SystemExit(), "finished", None),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt: "),
        (ValueError("token hf_" + "a" * 30), "failed", "ValueError: token [redacted]"),
    ],
)
def test_the_status_is_that_of_the_block(
    tmp_path: Path, error: BaseException, status: str, text: str | None
) -> None:
    """The exception comes out unchanged."""
    sink = MemorySink()
    with pytest.raises(type(error)) as caught, Run("p", dir=tmp_path, sinks=[sink]):
        raise error
    assert caught.value is error
    assert end_of(tmp_path) == (status, text, 2)
    assert sink.statuses == [status]


def test_closing_twice_gives_the_same_report() -> None:
    """From several threads as well."""
    sink = MemorySink()
    run = Run("p", dir=None, sinks=[sink])
    run.step(x=1.0)
    reports: list[Any] = []
    threads = [threading.Thread(target=lambda: reports.append(run.close())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reports == [run.close("failed")] * 4
    assert sink.statuses == ["finished"]


def test_what_is_logged_after_the_end_is_counted() -> None:
    """By every method; nothing raises."""
    with Run("p", dir=None) as run:
        run.step(x=1.0)
    run.step(x=1.0)
    run.log({"x": 1.0}, step=3)
    run.batch(x=1.0)
    run.epoch(x=1.0)
    run.text("t", "x")
    run.model_updated()
    run.config["x"] = 1
    assert not run.emit(StepEvent())
    log = run.statistics().log
    assert log.dropped == {"closed": 8}
    assert log.emitted == log.written + 8
    assert run.flush(1).written
    run.rewind(0)


def test_flush_waits_for_the_log_and_for_every_sink(tmp_path: Path) -> None:
    """What was logged before is then with them all."""
    sink, flushing = MemorySink(), MemorySink(confirms="flush")
    with Run("p", dir=tmp_path, sinks={"a": sink, "b": flushing}) as run:
        for i in range(1_000):
            run.step(x=float(i))
        report = run.flush(10)
        assert report[:3] == (True, True, {})
        assert len(sink.values("x")) == len(flushing.values("x")) == 1_000
        assert flushing.count("flush") >= 1
        assert len([e for e in open_log(run.dir).events() if type(e) is StepEvent]) == 1_000  # type: ignore[arg-type]


def test_flush_reports_what_is_left_and_where(caplog: pytest.LogCaptureFixture) -> None:
    """Within its time; the others have everything."""
    hung, good = FaultySink(write=Fault(hang=True)), MemorySink()
    run = Run("p", dir=None, sinks={"hung": hung, "good": good})
    run.step(x=1.0)
    start = time.monotonic()
    report = run.flush(0.2)
    assert time.monotonic() - start < 5
    assert (report.complete, report.written) == (False, True)
    assert list(report.left) == ["hung"]
    hung.release()
    assert run.flush(10).complete
    run.close()


def test_flush_does_not_wait_for_what_others_log_meanwhile() -> None:
    """It ends as soon as what was logged before it is delivered."""
    reports: list[Any] = []
    with Run("p", dir=None, sinks=[MemorySink()]) as run:
        run.step(x=1.0)
        assert run.flush(10).complete
        with run._recorder.writer._turn_lock:  # what follows is written in one turn
            thread = threading.Thread(target=lambda: reports.append(run.flush(0.5)))
            thread.start()
            while len(run._inbox.items) < 2:
                time.sleep(0.001)
            run.step(x=2.0)
        thread.join()
    assert [r[:3] for r in reports] == [(True, True, {})]


def test_flush_with_a_full_inbox_waits_for_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not claim to be complete while the writer has not come to it."""
    with Run("p", dir=None) as run:
        run.flush()
        with run._recorder.writer._turn_lock:  # the writer stands still
            monkeypatch.setattr(run._inbox, "_max_events", 1)
            monkeypatch.setattr(run._inbox, "_reserve", 0)
            run.log({"x": 1.0}, step=0)
            report = run.flush(0.1)
        assert not report.complete
        later = run.flush(10)
        # what found no room is not forgotten
        assert (later.left, later.written, later.complete) == ({}, False, False)


@pytest.mark.parametrize("method", ["open", "write", "flush", "close"])
@pytest.mark.parametrize("form", [FaultySink, AsyncFaultySink])
@pytest.mark.parametrize(
    "fault",
    [OSError("down"), ValueError("bad"), SystemExit(3), KeyboardInterrupt(), Fault(hang=True)],
    ids=["outage", "error", "exit", "interrupt", "hang"],
)
def test_a_sink_that_fails_anywhere_costs_nobody_else(
    tmp_path: Path, form: Any, method: str, fault: Any
) -> None:
    """Training goes on, the log and the other sink are whole, and the end comes in time."""
    bad, good = form(**{method: fault}), MemorySink()
    start = time.monotonic()
    with Run(
        "p",
        dir=tmp_path,
        sinks={"bad": bad, "good": good},
        retry=QUICK,
        deadlines=Deadlines(open=0.1, write=0.1, flush=0.1, close=0.1),
        close_timeout=0.3 if isinstance(fault, OSError) else 3.0,
    ) as run:
        for i in range(100):
            run.step(x=float(i))
        assert good.wait_for(lambda s: len(s.values("x")) == 100)
    assert time.monotonic() - start < 5
    assert end_of(tmp_path) == ("finished", None, 102)
    assert good.statuses == ["finished"]
    s = run.statistics().sinks["bad"]
    assert s.read == s.delivered + s.filtered + s.dead + s.in_flight
    assert run.sink("good").state == "closed"
    assert run.sink("bad").error is not None or s.dead
    bad.release()


def test_close_says_what_is_left_and_how_to_deliver_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The command stands in the warning."""
    bad = FaultySink(write=OSError("down"))
    run = Run("p", dir=tmp_path, sinks={"bad": bad}, retry=QUICK)
    run.step(x=1.0)
    with caplog.at_level(logging.WARNING, "eventlog"):
        report = run.close(timeout=0.3)
    assert (report.complete, report.written, report.left) == (False, True, {"bad": 3})
    assert f"eventlog replay --pending {run.dir}" in caplog.text
    assert "OSError: down" in caplog.text


def test_a_sink_is_looked_at_by_its_alias() -> None:
    """An unknown one names those that are there."""
    sink = MemorySink()
    sink.url, sink.run_id, sink.tracker = "https://x", "id", object()
    with Run("p", dir=None, sinks={"mine": sink}) as run:
        assert sink.wait_for(1)
        assert run.sink("mine") == ("mine", "open", "https://x", "id", sink.tracker, None)
        assert run.url == "https://x"
        with pytest.raises(KeyError, match="its sinks: mine"):
            run.sink("other")
    assert run.sink("mine").state == "closed"


@pytest.mark.parametrize(
    "sinks",
    [
        "nope",
        {"console": {"nope": 1}},
        {"console": "10 steps or"},
        ["console", "console"],
        3,
    ],
)
def test_a_run_that_cannot_be_made_leaves_nothing(tmp_path: Path, sinks: Any) -> None:
    """No folder, no thread, no current run."""
    threads = threading.active_count()
    with pytest.raises((EventlogError, ValueError, TypeError)):
        Run("p", dir=tmp_path / "runs", sinks=sinks)
    assert threading.active_count() <= threads
    assert list(tmp_path.rglob("*")) == []


def test_two_runs_never_write_one_log(tmp_path: Path) -> None:
    """Also not in one process."""
    with Run("p", dir=tmp_path) as run:
        run.flush()
        with pytest.raises(LogError, match="is being written"):
            Run("p", dir=tmp_path, resume=run.id)
        assert open_log(run.dir).status() == "running"  # type: ignore[arg-type]
        code = f"import eventlog; eventlog.Run('p', dir={str(tmp_path)!r}, resume={run.id!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "is being written by another process" in done.stderr
        run.step(x=1.0)
    assert end_of(tmp_path) == ("finished", None, 3)


@pytest.mark.parametrize(
    "option",
    [
        {"name": 3},
        {"group": 5},
        {"notes": 7},
        {"tags": [1, 2]},
        {"tags": "abc"},
        {"steps_per_epoch": "5"},
        {"steps_per_epoch": 0},
        {"resume": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_arguments_of_a_wrong_type_are_named(tmp_path: Path, option: dict[str, Any]) -> None:
    """At once, not by a log that cannot be read or an error in a training step."""
    (name,) = option
    with pytest.raises((TypeError, ValueError), match=name):
        Run("p", dir=tmp_path, **option).close()


def test_a_status_that_is_none_is_refused() -> None:
    """finished, failed or interrupted."""
    run = Run("p", dir=None)
    try:
        with pytest.raises(ValueError, match="status must be"):
            run.close("banana")  # type: ignore[arg-type]
    finally:
        run.close()


# -- real programs ----------------------------------------------------------------------------


class Program:
    """A program that logs a step, in both ways of using a run, and ends as it is told."""

    def __init__(self, directory: Path, block: bool, end: str, *, setup: str = "", **options: Any):
        arguments = "".join(f", {key}={value}" for key, value in options.items())
        opened = f"eventlog.Run('p', dir={str(directory)!r}{arguments})"
        lines = ["import os, signal, sys, threading, time, eventlog", setup]
        if block:
            lines += [f"with {opened} as run:"]
        else:
            lines += [f"run = {opened}", "if True:"]
        lines += ["    run.step(x=1.0)", *(f"    {line}" for line in end.splitlines())]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "\n".join(lines)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> tuple[int, str]:
        try:
            _, errors = self.process.communicate(timeout=40)
        finally:
            self.process.kill()
        return self.process.returncode, errors


@pytest.mark.parametrize("block", [True, False], ids=["with", "without"])
@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        ("pass", 0, "finished"),
        ("raise ValueError('x')", 1, "failed"),
        ("sys.exit(0)", 0, "finished"),
        ("sys.exit(3)", 3, "failed"),
    ],
)
def test_a_program_s_end_is_the_run_s_end(
    tmp_path: Path, block: bool, end: str, code: int, status: str
) -> None:
    """With its own exit code; nothing is lost, with a block or without."""
    returned, errors = Program(tmp_path, block, end).finish()
    assert returned == code, errors
    if not block and end == "sys.exit(3)":
        # the interpreter tells nobody of an exit that was asked for
        status = "finished"
    assert end_of(tmp_path)[::2] == (status, 3)


@pytest.mark.parametrize("block", [True, False], ids=["with", "without"])
def test_ctrl_c_is_an_interruption(tmp_path: Path, block: bool) -> None:
    """The program dies of the signal, as it would without a run."""
    program = Program(
        tmp_path,
        block,
        "run.flush()\nprint('ready', flush=True)\nsignal.pause()",
        sinks="'console'",
    )
    assert program.process.stdout is not None
    assert program.process.stdout.readline() == "ready\n"
    program.process.send_signal(signal.SIGINT)
    returned, errors = program.finish()
    assert returned == -signal.SIGINT, errors
    assert end_of(tmp_path)[0] == "interrupted"


HANG = """
class Hang(eventlog.Sink):
    name = 'hang'
    def write(self, batch): pass
    def {method}(self, *_):
        print('hangs', flush=True)
        threading.Event().wait()
"""


@pytest.mark.parametrize("method", ["open", "write", "flush", "close"])
def test_a_program_exits_with_its_own_code_while_a_sink_hangs(tmp_path: Path, method: str) -> None:
    """Within the deadline; the other sink has everything."""
    start = time.monotonic()
    returned, errors = Program(
        tmp_path,
        method in ("open", "flush"),
        "run.log(y=1.0)\nsys.exit(5)",
        setup=HANG.format(method=method),
        sinks="[Hang(), 'console']",
        close_timeout=0.5,
    ).finish()
    assert returned == 5
    assert time.monotonic() - start < 15
    assert "step 1  y=1" in errors
    said = "has taken everything, but has not closed" if method == "close" else "has not taken"
    assert f"sink 'hang' {said}" in errors
    assert end_of(tmp_path)[2] == 4


def test_a_signal_handler_may_close_a_run_that_is_being_closed(tmp_path: Path) -> None:
    """SIGTERM in the last second of a program does not hang it."""
    end = (
        "signal.signal(signal.SIGALRM, lambda *_: run.close(timeout=0.1))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "threading.Timer(4, os._exit, (9,)).start()\n"
        "run.close()\nos._exit(0)"
    )
    setup = HANG.format(method="close")
    program = Program(tmp_path, False, end, setup=setup, sinks="[Hang()]", close_timeout=1.0)
    assert program.finish()[0] == 0


def test_a_program_that_ends_at_once_delivers_all_the_same(tmp_path: Path) -> None:
    """No thread that the end needs is started too late; exit handlers may still log."""
    _, errors = Program(
        tmp_path,
        False,
        "import atexit; atexit.register(lambda: run.log(last=1.0))",
        setup="sys.setswitchinterval(1.0)",
        sinks="'console'",
    ).finish()
    assert "step 1  last=1" in errors
    assert "run  finished" in errors
    assert end_of(tmp_path)[2] == 4


def test_a_killed_program_leaves_what_was_logged(tmp_path: Path) -> None:
    """kill -9 half a second later: the log has everything and says so."""
    program = Program(tmp_path, True, "time.sleep(0.5)\nos.kill(os.getpid(), signal.SIGKILL)")
    assert program.finish()[0] == -signal.SIGKILL
    (run_dir,) = tmp_path.glob("p/*/")
    log = open_log(run_dir)
    events: list[Event] = list(log.events())
    assert [e.values for e in events if type(e) is StepEvent] == [{"x": 1.0}]
    assert log.status() == "killed"


def test_a_signal_handler_may_log_and_close_amid_logging(tmp_path: Path) -> None:
    """A handler that runs in the middle of an emit, or of a rejection, waits for nothing."""
    code = textwrap.dedent(
        """
        import logging, signal, sys, eventlog
        logging.getLogger("eventlog").setLevel(logging.CRITICAL)
        run = eventlog.Run("p", dir=sys.argv[1])
        seen = 0
        def handler(*_):
            global seen
            seen += 1
            run.log({"handled": 1.0, "bad": None})
            if seen == 300:
                signal.setitimer(signal.ITIMER_REAL, 0)
                run.close("interrupted")
                sys.exit(7)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while True:
            run.log({"a": 1.0, "bad": None})
        """
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=50, check=False)
    assert done.returncode == 7
    assert end_of(tmp_path)[0] == "interrupted"


def test_a_close_that_was_interrupted_can_be_done_again(tmp_path: Path) -> None:
    """A Ctrl-C while a slow tracker is waited for leaves a run that can still be closed."""
    code = textwrap.dedent(
        """
        import sys, threading, time, signal, eventlog
        class Slow(eventlog.Sink):
            name = "slow"
            said = False
            def write(self, batch):
                if not self.said:
                    print("writing", flush=True)
                self.said = True
                time.sleep(2)
        run = eventlog.Run("p", dir=sys.argv[1], sinks=Slow())
        run.step(x=1.0)
        try:
            run.close()
        except KeyboardInterrupt:
            assert eventlog.current_run() is run
            report = run.close()
            assert report.complete, report
            assert eventlog.current_run() is None
            sys.exit(9)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGINT)
    assert process.wait(50) == 9
    assert end_of(tmp_path)[0] == "finished"


def test_who_interrupts_the_end_waits_no_more(tmp_path: Path) -> None:
    """It says whom it waits for; Ctrl-C ends that at once, also at the exit; the log has it all."""
    code = textwrap.dedent(
        """
        import sys, time, eventlog
        class Hangs(eventlog.Sink):
            name = "hangs"
            def write(self, batch):
                time.sleep(1000)
        with eventlog.Run("p", dir=sys.argv[1], sinks=Hangs(), close_timeout=600) as run:
            run.step(x=1.0)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr as said:
        line = said.readline()
        assert "waiting for 'hangs' (open, 3 events to go), at most 597 s more; Ctrl-C" in line
        process.send_signal(signal.SIGINT)
        rest = said.read()
    assert process.wait(30) in (-signal.SIGINT, 1)
    assert "'hangs' has not taken 3 events" in rest
    assert "replay --pending" in rest
    assert end_of(tmp_path) == ("finished", None, 3)


def test_after_the_end_nothing_of_ours_goes_on(tmp_path: Path) -> None:
    """A tracker that stays down is left alone after close(), and nobody's random is drawn from."""
    before = random.getstate()
    sink = FaultySink(write=Fault(OSError("down")))
    run = Run("p", dir=tmp_path, sinks=sink, retry=Retry(first=0.001, most=0.002))
    run.step(x=1.0)
    report = run.close(timeout=0.3)
    assert report.left == {sink.name: 3}
    run._thread.join(10)
    assert not run._thread.is_alive()
    assert run.sink(sink.name).state == "failed"
    assert "down" in str(run.sink(sink.name).error)
    assert random.getstate() == before
