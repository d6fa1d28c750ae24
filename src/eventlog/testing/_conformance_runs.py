"""The runs that the conformance tests look at: each is made once, when the first test asks."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from eventlog._replay import replay
from eventlog.delivery import Deadlines, Retry, SinkStatistics
from eventlog.events import Event, Status
from eventlog.log.archive import open_log
from eventlog.run import Run
from eventlog.testing import _conformance_script as script
from eventlog.testing._conformance_guard import loopback_only
from eventlog.testing._conformance_kit import SinkDescription
from eventlog.testing.shown import FinishedRun, Shown

__all__ = ["PROJECT", "Blocked", "Recorded", "Runs"]

PROJECT = "conformance"
_PATIENCE = 60.0

T = TypeVar("T")


@dataclass(frozen=True)
class Recorded:
    """A run that ended, and what became of it.

    Attributes:
        run: Which one.
        shown: What the tracker shows of it.
        events: What the log holds.
        statistics: Of the sink.
        error: What went wrong with the sink, last.
        left: Events that were not delivered in time.
        seconds: How long the end of the run took.
        outside: Hosts that were asked for beside this one.
    """

    run: FinishedRun
    shown: Shown
    events: list[Event]
    statistics: SinkStatistics
    error: str | None
    left: int
    seconds: float
    outside: list[str]


@dataclass(frozen=True)
class Blocked:
    """A run whose sink could not write where it was to.

    Attributes:
        state, error: Of the sink at the end.
        events: What the log holds.
        shown: What can be read back, or why nothing can.
        counted: How many things the sink or the delivery counted as not shown.
    """

    state: str
    error: str | None
    events: list[Event]
    shown: Shown | str
    counted: int


class Runs:
    """The runs of one sink, all in the process or all in the sidecar.

    Args:
        kit: Says how to make and to read the sink.
        where: A folder for everything; both ways may share it.
        mode: process or sidecar.
    """

    def __init__(self, kit: SinkDescription, where: Path, mode: str) -> None:
        self.kit = kit
        self.mode = mode
        self.where = where
        self.alias = kit.sink.partition(":")[0]
        self._made: dict[str, Any] = {}

    def everything(self) -> Recorded:
        """Return the run that has everything."""

        def write(run: Run) -> None:
            script.log_everything(run, self.where)

        return self._once("everything", lambda: self._record("everything", write, "finished"))

    def rewound(self) -> Recorded:
        """Return a run that was rewound, and failed."""
        return self._once("rewound", lambda: self._record("rewound", script.log_again, "failed"))

    def interrupted(self) -> Recorded:
        """Return a run that was interrupted, as it was then."""
        return self._both_parts()[0]

    def resumed(self) -> Recorded:
        """Return the same run after it was resumed, and finished."""
        return self._both_parts()[1]

    def _both_parts(self) -> tuple[Recorded, Recorded]:
        def make() -> tuple[Recorded, Recorded]:
            state: dict[str, Any] = {}

            def write(run: Run) -> None:
                script.log_first_part(run)
                state.update(run.state_dict())

            def go_on(run: Run) -> None:
                script.log_second_part(run, state)

            error = KeyboardInterrupt("the first part was cut off")
            first = self._record("resumed", write, "interrupted", error=error)
            second = self._record("resumed", go_on, "finished", resume=first.run.run_id)
            return first, second

        return self._once("resumed", make)

    def replayed(self) -> Recorded:
        """Return what a replay of the run that has everything shows, in a place of its own."""
        return self._once("replayed", self._replay)

    def twins(self) -> tuple[Recorded, Recorded]:
        """Return what two sinks of one run show, each in a place of its own."""
        return self._once("twins", self._twins)

    def blocked(self) -> Blocked:
        """Return what became of a run whose sink was to write below a file."""
        return self._once("blocked", self._block)

    def _once(self, label: str, make: Callable[[], T]) -> T:
        """Return what was made before; a failure is as good as a result, and comes again."""
        if label not in self._made:
            try:
                self._made[label] = make()
            except Exception as error:
                self._made[label] = error
        found = self._made[label]
        if isinstance(found, Exception):
            raise found
        made: T = found
        return made

    @contextlib.contextmanager
    def surroundings(self, printed: Path) -> Iterator[list[str]]:
        """Set what a sink needs around it; yields a list for hosts that it should not ask for."""
        before = dict(os.environ)
        os.environ.update(self.kit.environment(self.where))
        try:
            # the runner's filters may make an SDK's own warnings into errors of the sink
            with (
                warnings.catch_warnings(),
                printed.open("a", encoding="utf-8", errors="backslashreplace") as file,
                contextlib.redirect_stderr(file),
                loopback_only() as outside,
            ):
                warnings.simplefilter("ignore")
                yield outside
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)

    def _run(self, label: str, places: Mapping[str, Path], resume: str | None = None) -> Run:
        """Open a run with a sink for each alias, each with a place of its own."""
        common = {"sink": self.kit.sink, "isolate": self.mode == "sidecar"}
        sinks = {alias: common | self.kit.options(place) for alias, place in places.items()}
        return Run(
            PROJECT,
            str(script.LABELS["name"]) if label == "everything" else label,
            dir=self.where / f"{self.mode}-runs",
            config=script.CONFIG if label == "everything" else {"lr": 0.25},
            group=script.LABELS["group"],
            notes=script.LABELS["notes"],
            tags=script.LABELS["tags"],
            sinks=sinks,
            resume=resume,
            deadlines=Deadlines(
                open=_PATIENCE, write=_PATIENCE, flush=_PATIENCE, close=self.kit.close_seconds
            ),
            retry=Retry(first=0.05, most=0.2, permanent=2),
            close_timeout=_PATIENCE,
        )

    def _record(
        self,
        label: str,
        write: Callable[[Run], None],
        status: Status,
        resume: str | None = None,
        error: BaseException | None = None,
    ) -> Recorded:
        places = {self.alias: self.where}
        return self._record_all(label, places, write, status, resume, error)[0]

    def _record_all(
        self,
        label: str,
        places: Mapping[str, Path],
        write: Callable[[Run], None],
        status: Status,
        resume: str | None = None,
        error: BaseException | None = None,
    ) -> list[Recorded]:
        """Do a run, and return what each of its sinks shows."""
        printed = self.where / f"{self.mode}-{label}.stderr"
        with self.surroundings(printed) as outside:
            run = self._run(label, places, resume)
            try:
                write(run)
            finally:
                begun = time.monotonic()
                report = run.close(status, error=error)
                seconds = time.monotonic() - begun
                _end_sidecar(run)
            found: list[Recorded] = []
            for alias, place in places.items():
                handle = run.sink(alias)
                finished = self._finished(run, alias, place, printed)
                found.append(
                    Recorded(
                        finished,
                        self._read(finished, f"the sink is {handle.state}: {handle.error}"),
                        list(open_log(finished.run_dir).events()),
                        run.statistics().sinks[alias],
                        handle.error,
                        report.left.get(alias, 0),
                        seconds,
                        outside,
                    )
                )
        return found

    def _read(self, run: FinishedRun, state: str) -> Shown:
        try:
            return self.kit.read(run)
        except Exception as error:
            tail = "" if run.printed is None else run.printed.read_text(errors="replace")[-2000:]
            raise AssertionError(
                f"read() failed: {type(error).__name__}: {error}; {state}\n{tail}"
            ) from error

    def _finished(self, run: Run, alias: str, where: Path, printed: Path) -> FinishedRun:
        if run.dir is None:
            raise RuntimeError("a run of the conformance tests has a directory")
        if self.mode == "sidecar":
            printed = run.dir / "sidecar-0.log"
        handle = run.sink(alias)
        return FinishedRun(
            where, run.dir, run.project, run.name, run.id, handle.url, handle.run_id, printed
        )

    def _replay(self) -> Recorded:
        live = self.everything()
        where = self.where / f"{self.mode}-replay"
        where.mkdir()
        printed = where / "stderr"
        with self.surroundings(printed) as outside:
            sink = self.kit.sink_class()(**self.kit.options(where))
            # the artifacts that are logged by their path lie beside the run
            report = replay(live.run.run_dir, {self.alias: sink}, outside_files=True)
            finished = FinishedRun(
                where,
                report.directory,
                live.run.project,
                live.run.name,
                live.run.run_id,
                sink.url,
                sink.run_id,
                printed,
            )
            shown = self._read(finished, f"the replay is {report.sinks[self.alias]}")
        statistics = report.sinks[self.alias]
        return Recorded(finished, shown, live.events, statistics, statistics.error, 0, 0.0, outside)

    def _twins(self) -> tuple[Recorded, Recorded]:
        aliases = ("one", "other")
        places = {alias: self.where / f"{self.mode}-twins" / alias for alias in aliases}
        for place in places.values():
            place.mkdir(parents=True)
        one, other = self._record_all("twins", places, script.log_curve, "finished")
        return one, other

    def _block(self) -> Blocked:
        file = self.where / f"{self.mode}-a-file"
        file.write_text("no folder")
        printed = self.where / "blocked.stderr"
        with self.surroundings(printed):
            try:
                self.kit.options(file / "below")
            except OSError as error:
                return Blocked("failed", str(error), [], str(error), 0)
            run = self._run("blocked", {self.alias: file / "below"})
            for step in range(3):
                run.step(blocked=2501.5 + step)
            deadline = time.monotonic() + _PATIENCE / 3
            while run.sink(self.alias).state in ("waiting", "opening"):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            # an outage would be waited for until the end of the time
            run.close("finished", timeout=2.0 if run.sink(self.alias).error else _PATIENCE / 3)
            handle = run.sink(self.alias)
            finished = self._finished(run, self.alias, file / "below", printed)
            shown: Shown | str
            try:
                shown = self.kit.read(finished)
            except Exception as error:
                shown = f"read() failed: {type(error).__name__}: {error}"
        statistics = run.statistics().sinks[self.alias]
        return Blocked(
            handle.state,
            handle.error,
            list(open_log(finished.run_dir).events()),
            shown,
            sum(statistics.unshown.values()) + statistics.dead,
        )


def _end_sidecar(run: Run) -> None:
    """End a sidecar that has not ended in time: it would go on for minutes."""
    supervisor = run._supervisor
    deadline = time.monotonic() + 5.0
    while supervisor is not None and supervisor.pid is not None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.kill(supervisor.pid, signal.SIGKILL)
        time.sleep(0.05)
