"""The tests of a sink alone in a process of its own: its manners, and batches that come again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from eventlog._config import plain_config
from eventlog.sinks.base import CAPABILITIES, Confirms, Isolation, Rewind
from eventlog.sinks.registry import available_sinks
from eventlog.testing._conformance_curves import Board, curves_of
from eventlog.testing._conformance_direct import Job, Report, batches
from eventlog.testing._conformance_kit import SinkDescription, check
from eventlog.testing._conformance_runs import PROJECT
from eventlog.testing.shown import FinishedRun, Shown

__all__ = ["Alone", "AloneTests"]

_SECONDS = 90.0
_STATE_BYTES = 1024


class Alone:
    """A sink in a process of its own, made when it is first asked for.

    Args:
        kit: Says how to make and to read the sink.
        where: A folder for everything.
        kill: Whether the process is killed once a batch is confirmed.
    """

    def __init__(self, kit: SinkDescription, where: Path, *, kill: bool = False) -> None:
        self._kit = kit
        self._where = where
        self._kill = kill
        self._folder = where / ("killed" if kill else "direct")
        self.run_id = f"{self._folder.name}-0001"
        self.printed = ""

    @cached_property
    def report(self) -> Report:
        """What became of it."""
        if not self._kill:
            return self._do("whole", {})
        killed = self._do("kill", {})
        if killed.failed or killed.confirms == "close":
            return killed
        # as the next process does that delivers to this run's sinks
        ended = self._do("end", killed.states[-1][0])
        return msgspec.structs.replace(ended, confirms=killed.confirms)

    def _do(self, task: Literal["whole", "kill", "end"], state: dict[str, Any]) -> Report:
        run_dir = self._folder / self.run_id
        run_dir.mkdir(parents=True, exist_ok=True)
        job = Job(
            sink=self._kit.sink,
            options=plain_config(self._kit.options(self._where)),
            run_dir=str(run_dir),
            alias=self._kit.sink.partition(":")[0],
            project=PROJECT,
            run_id=self.run_id,
            task=task,
            state=state,
        )
        (self._folder / "job.json").write_bytes(msgspec.json.encode(job))
        done = self._start()
        self.printed = done.stdout
        path = self._folder / "report.json"
        wanted = -signal.SIGKILL if task == "kill" else 0
        if done.returncode != wanted or not path.exists():
            text = f"exit code {done.returncode}\n{self.standard_error.read_text()[-3000:]}"
            return Report(failed=text)
        return msgspec.json.decode(path.read_bytes(), type=Report)

    @property
    def standard_error(self) -> Path:
        """The file that has what was printed there."""
        return self._folder / "stderr"

    def _start(self) -> subprocess.CompletedProcess[str]:
        arguments = [str(self._folder / name) for name in ("job.json", "report.json")]
        environment = os.environ | self._kit.environment(self._where)
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        with (
            self.standard_error.open("a", encoding="utf-8") as stderr,
            (self._folder / "stdout").open("w+", encoding="utf-8") as stdout,
        ):
            # files, not pipes: a child that outlives the sink would keep a pipe open
            done = subprocess.run(  # noqa: S603 - our own module, arguments as a list
                [sys.executable, "-m", "eventlog.testing._conformance_direct", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                timeout=_SECONDS,
                check=False,
                start_new_session=True,
            )
            stdout.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, stdout.read())

    @cached_property
    def shown(self) -> Shown:
        """What the tracker shows of it."""
        report = self.report
        check(not report.failed, f"{report.failed}")
        run = FinishedRun(
            self._where,
            self._folder / self.run_id,
            PROJECT,
            "direct",
            self.run_id,
            report.urls[-1],
            report.ids[-1],
            self.standard_error,
        )
        return self._kit.read(run)


class AloneTests(SinkDescription):
    """They share one process, in which the sink is opened twice; another one is killed."""

    def test_it_works_on_one_thread_that_is_not_the_main_one(self, alone: Alone) -> None:
        """All methods can be called on a thread of the sink's own, and come back."""
        check(not alone.report.stalled, f"a call does not return: {alone.report.stalled}")
        check(not alone.report.failed, f"{alone.report.failed}")

    def test_it_declares_what_there_is(self) -> None:
        """Name, capabilities and the like are of those that eventlog knows."""
        kind = self.sink_class()
        if ":" not in self.sink:
            check(self.sink in available_sinks(), f"no package declares a sink {self.sink!r}")
            check(kind.name == self.sink, f"its name is {kind.name!r}, not {self.sink!r}")
        check(kind.capabilities <= CAPABILITIES, f"{kind.capabilities - CAPABILITIES} are unknown")
        for value, known in (
            (kind.confirms, Confirms),
            (kind.rewind, Rewind),
            (kind.isolation, Isolation),
        ):
            check(value in get_args(known), f"{value!r} is none of {get_args(known)}")

    def test_an_unknown_option_is_refused(self) -> None:
        """An option that does not exist raises when the sink is made, and names itself."""
        try:
            self.sink_class()(no_such_option=1)  # type: ignore[call-arg]
        except TypeError as error:
            check("no_such_option" in str(error), f"the error does not name it: {error}")
        else:
            check(False, "an option that does not exist is taken")

    def test_importing_it_imports_nothing_else(self, alone: Alone) -> None:
        """Neither the SDK nor a framework is imported before the sink is opened."""
        found = sorted(set(alone.report.early) - self.shared_modules)
        check(not found, f"imported before open(): {found}")

    def test_opening_it_imports_no_framework(self, alone: Alone) -> None:
        """A program that does without torch, pandas and the like goes on without."""
        found = sorted(set(alone.report.frameworks) - self.shared_modules)
        check(not found, f"opening it imports {found}; `shared_modules` says what it may")

    def test_it_leaves_the_process_as_it_was(self, alone: Alone) -> None:
        """Streams, hooks, signal handlers, warnings, the environment and the like are untouched."""
        found = {k: v for k, v in alone.report.changes.items() if k not in self.tolerated}
        text = "\n".join(f"{name}: {how}" for name, how in found.items())
        check(not found, f"changed by the sink, or by its SDK when it is imported:\n{text}")

    def test_it_leaves_nothing_behind(self, alone: Alone) -> None:
        """After close() there is no thread that keeps the process, and no child process."""
        threads, children = alone.report.threads, alone.report.children
        check(not threads, f"threads that are no daemons: {threads}")
        if "child processes" not in self.tolerated:
            check(not children, f"child processes: {children}")

    def test_it_prints_nothing_and_asks_nobody(self, alone: Alone) -> None:
        """Standard output stays the program's own, and standard input is not read."""
        check(not alone.report.read_stdin, "it wants to read standard input")
        check(not alone.printed, f"it prints on standard output: {alone.printed[:500]!r}")

    def test_it_stays_on_this_machine(self, alone: Alone) -> None:
        """With the options and the environment given, no other host is asked for."""
        check(not alone.report.asked, f"these hosts were asked for: {alone.report.asked}")

    def test_it_says_whether_it_is_ready(self, alone: Alone) -> None:
        """With its options it is ready; without any it is, or says why not."""
        check(alone.report.ready is None, f"unready() with the options: {alone.report.ready}")
        check(alone.report.bare is None or alone.report.bare.strip(), "unready() gives no reason")

    def test_close_can_come_at_any_time(self, alone: Alone) -> None:
        """Before open(), and a second time, close() does nothing."""
        check(not alone.report.failed, f"{alone.report.failed}")
        check(not alone.report.closed_unopened, f"before open(): {alone.report.closed_unopened}")
        check(not alone.report.closed_twice, f"a second time: {alone.report.closed_twice}")

    def test_nothing_is_lost_after_close(self, alone: Alone) -> None:
        """What is written after close() is refused, or it is shown."""
        points = alone.shown.scalars.values()
        shown = any(value == self.rounded(2411.5) for curve in points for _, value in curve)
        check(alone.report.late_write or shown, "write() after close() is lost without an error")

    def test_its_state_is_small_and_plain(self, alone: Alone) -> None:
        """What state() returns goes through msgpack, within a kibibyte."""
        for state, size in alone.report.states:
            check(size <= _STATE_BYTES, f"{size} bytes: {state}")

    def test_a_batch_that_comes_again(self, alone: Alone) -> None:
        """A batch is shown once, also in a sink that was opened anew, and none is lost."""
        first, second, _ = batches(alone.run_id, PROJECT)
        match = Board(curves_of([*first, *second]), alone.shown, self.rounded).match("again")
        check(not match.missing, f"{match.missing} are lost; shown is {match.seen}")
        if self.recognises:
            check(match.same, f"{match.extra} are there twice; shown is {match.seen}")
            ids = alone.report.ids
            check(len(set(ids)) == 1, f"it went on in another run of the tracker: {ids}")

    def test_what_is_confirmed_survives_a_kill(self, where: Path) -> None:
        """A batch is there after the call that `confirms` names, even if the process is killed.

        It may take the next process, which gets the state that this one kept, to bring it out.
        A sink that keeps nothing until its close confirms with that, and promises nothing here.
        """
        killed = Alone(self, where, kill=True)
        check(not killed.report.failed, f"{killed.report.failed}")
        if killed.report.confirms == "close":
            return
        shown = killed.shown
        first = batches(killed.run_id, PROJECT)[0]
        match = Board(curves_of(first), shown, self.rounded).match("again")
        check(match.same, f"{match.missing} are lost, although they were confirmed")

    def test_a_killed_run(self, alone: Alone) -> None:
        """A run that was killed is shown as that, where the tracker has a word for it."""
        if self.declares("status"):
            wanted, shown = self.statuses.get("killed"), alone.shown.status
            check(wanted == shown, f"it is shown as {shown!r}; `statuses` has {wanted!r}")
