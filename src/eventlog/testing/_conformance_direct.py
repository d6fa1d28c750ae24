"""A sink alone in a fresh process, on one thread, as delivery calls it; and what that changed.

::

    python -m eventlog.testing._conformance_direct job.json report.json
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from eventlog.clock import wall_ns
from eventlog.events import Event, RunStarted, StepEvent
from eventlog.sinks.base import RunInfo, Sink
from eventlog.sinks.registry import load_sink_class
from eventlog.testing._conformance_guard import (
    changes,
    child_processes,
    loopback_only,
    process_state,
)

__all__ = ["FRAMEWORKS", "Job", "Report", "batches", "main"]

FRAMEWORKS = (
    "torch", "tensorflow", "jax", "keras", "transformers", "lightning", "pytorch_lightning",
    "sklearn", "xgboost", "lightgbm", "matplotlib", "pandas", "fastai", "IPython",
)  # fmt: skip
"""What a sink must not import into a program that does without."""

PATIENCE = 45.0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to do.

    Attributes:
        sink: Name.
        options: For its class.
        run_dir, alias, project, run_id: Of the run.
        task: What to do: the whole; have a batch confirmed, and be killed; or end what a killed
            process left, as the next delivery does.
        state: What the killed process kept.
    """

    sink: str
    options: dict[str, Any]
    run_dir: str
    alias: str
    project: str
    run_id: str
    task: Literal["whole", "kill", "end"] = "whole"
    state: dict[str, Any] = {}


class Report(msgspec.Struct, kw_only=True):
    """What became of it.

    Attributes:
        early: Modules of the SDK, or frameworks, that are there before `open`.
        frameworks: Frameworks that are there after it.
        ready, bare: What `unready` says of the options, and of none.
        failed: Which call failed, and how; the rest was not done then.
        closed_unopened, closed_twice: How these failed.
        late_write: How a write after the close failed; None when it was taken.
        states: What `state` gave, and its bytes as msgpack.
        ids, urls: After each open.
        confirms: What the sink says once it is open: its options may decide.
        changes: What is no more as it was in the process, and how.
        threads, children: What is left after the last close.
        asked: Hosts beside this one.
        read_stdin: Whether somebody wanted to read standard input.
        stalled: Where the sink's thread was when time was up.
    """

    early: list[str] = []
    frameworks: list[str] = []
    ready: str | None = None
    bare: str | None = None
    failed: str | None = None
    closed_unopened: str | None = None
    closed_twice: str | None = None
    late_write: str | None = None
    states: list[tuple[dict[str, Any], int]] = []
    ids: list[str | None] = []
    urls: list[str | None] = []
    confirms: str = ""
    changes: dict[str, str] = {}
    threads: list[str] = []
    children: list[str] = []
    asked: list[str] = []
    read_stdin: bool = False
    stalled: str | None = None


def batches(run_id: str, project: str) -> tuple[list[Event], list[Event], list[Event]]:
    """Return the batches that the sink is given: two for a start, and one after its close."""
    now = wall_ns()

    def step(number: int) -> Event:
        return StepEvent(
            mono=number,
            step=number,
            values={"again": 2401.5 + number},
            wall=now + number * 1_000_000,
            seq=number + 1,
        )

    started = RunStarted(run_id=run_id, project=project, name="direct", wall=now, seq=0)
    first: list[Event] = [started, *(step(n) for n in range(5))]
    return first, [step(n) for n in range(5, 10)], [step(10)]


class _NoInput(io.TextIOBase):
    """A standard input that nobody may read."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> NoReturn:
        self._report.read_stdin = True
        raise EOFError("a sink must not ask for input")

    def readline(self, size: int = -1, /) -> NoReturn:  # type: ignore[override]
        self.read()


class _Guest:
    """The sink, and the loop in which it is awaited where it is asynchronous."""

    def __init__(self, job: Job, report: Report, target: Path) -> None:
        self._job = job
        self._report = report
        self._target = target
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        result = function(*args)
        if inspect.isawaitable(result):
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(_awaited(result))

    def attempt(self, function: Callable[..., Any], *args: Any) -> str | None:
        try:
            self.call(function, *args)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def info(self, state: dict[str, Any], attempt: int) -> RunInfo:
        job = self._job
        run_dir = Path(job.run_dir)
        return RunInfo(
            run_id=job.run_id,
            alias=job.alias,
            project=job.project,
            name="direct",
            run_dir=run_dir,
            directory=run_dir / job.alias,
            state=state,
            attempt=attempt,
        )

    def work(self) -> None:
        """Do the job's task."""
        tasks = {"whole": self._work, "kill": self._confirm, "end": self._end}
        try:
            tasks[self._job.task]()
        except Exception:
            self._report.failed = traceback.format_exc()
        if self._loop is not None:
            self._loop.close()

    def _confirm(self) -> None:
        """Have a batch confirmed, which is then safe from a kill: this process ends here.

        While the sink is there: once it is collected, Python closes its files, and so writes them.
        """
        job = self._job
        sink = load_sink_class(job.sink)(**job.options)
        self.call(sink.open, self.info({}, 1))
        self._note(sink)
        self._report.confirms = sink.confirms
        self.call(sink.write, batches(job.run_id, job.project)[0])
        if sink.confirms == "flush":
            self.call(sink.flush)
        self._state(sink)
        _write_report(self._target, self._report)
        os.kill(os.getpid(), signal.SIGKILL)

    def _end(self) -> None:
        job = self._job
        sink = load_sink_class(job.sink)(**job.options)
        self.call(sink.open, self.info(job.state, 1))
        self._note(sink)
        self.call(sink.flush)
        self.call(sink.close, "killed")

    def _work(self) -> None:
        """Open it twice, and give it the first batch three times."""
        report, job = self._report, self._job
        kind = load_sink_class(job.sink)
        report.ready, report.bare = kind.unready(job.options), kind.unready({})
        first, second, late = batches(job.run_id, job.project)
        sink = kind(**job.options)
        report.early = _imported(kind.requires)
        report.closed_unopened = self.attempt(sink.close, "finished")
        sink = kind(**job.options)
        self.call(sink.open, self.info({}, 1))
        self._note(sink)
        self._write(sink, [first, first])
        state = self._state(sink)
        self.call(sink.close, "interrupted")
        if sink.confirms == "close":
            state = self._state(sink)
        sink = kind(**job.options)
        self.call(sink.open, self.info(state, 1))
        self._note(sink)
        self._write(sink, [first, second])
        self._state(sink)
        self.call(sink.close, "killed")
        report.closed_twice = self.attempt(sink.close, "killed")
        report.late_write = self.attempt(sink.write, late)
        report.frameworks = _imported(())

    def _write(self, sink: Sink, given: Sequence[Sequence[Event]]) -> None:
        for batch in given:
            self.call(sink.write, batch)
        self.call(sink.flush)

    def _note(self, sink: Sink) -> None:
        self._report.ids = [*self._report.ids, sink.run_id]
        self._report.urls = [*self._report.urls, sink.url]

    def _state(self, sink: Sink) -> dict[str, Any]:
        packed = msgspec.msgpack.encode(sink.state())
        state: dict[str, Any] = msgspec.msgpack.decode(packed)
        self._report.states = [*self._report.states, (state, len(packed))]
        return state


async def _awaited(result: Any) -> None:
    await result


def _imported(more: Sequence[str]) -> list[str]:
    return [name for name in (*more, *FRAMEWORKS) if name in sys.modules]


def main(arguments: Sequence[str]) -> None:
    """Do the job, and write the report."""
    job = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Job)
    report = Report()
    target = Path(arguments[1])
    guest = _Guest(job, report, target)
    sys.stdin = _NoInput(report)
    before = process_state()
    thread = threading.Thread(target=guest.work, name="the sink's thread", daemon=True)
    with loopback_only() as asked:
        thread.start()
        thread.join(PATIENCE)
    if thread.is_alive() and thread.ident is not None:
        stack = traceback.format_stack(sys._current_frames()[thread.ident])
        report.stalled = "".join(stack[-6:])
    if job.task == "kill":  # it went wrong before
        _write_report(target, report)
        os.kill(os.getpid(), signal.SIGKILL)
    report.changes = changes(before, process_state())
    report.asked = asked
    report.children = child_processes()
    report.threads = [
        t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()
    ]
    _write_report(target, report)


def _write_report(path: Path, report: Report) -> None:
    path.write_text(json.dumps(msgspec.to_builtins(report)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
