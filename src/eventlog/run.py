"""A run: what training code talks to. Synchronous, never waiting, with and without `with`."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

import anyio

from eventlog._config import error_text, plain_config, redact_text
from eventlog._counters import Counters
from eventlog._due import Dues
from eventlog._meeting import Meeting, Whereabouts
from eventlog._names import safe_name
from eventlog._provenance import provenance
from eventlog._ranks import Job, Standing, find_job, find_standing
from eventlog._reduction import Reduced, check_reduction, split_by_rank
from eventlog._retention import Retain, Retention, parse_retain
from eventlog._run_closing import HURRY, ClosingMethods
from eventlog._run_end import all_runs, current_run, open_runs, status_of, uncaught
from eventlog._run_joining import Joining
from eventlog._run_logging import LoggingMethods
from eventlog._run_pickling import PicklingMethods
from eventlog._run_places import choose_run, newest_attempt, rank_directories, write_manifest
from eventlog._run_reports import CloseReport, RunStatistics, SinkHandle
from eventlog._run_sinks import SinkMethods
from eventlog._run_values import RunConfig, RunSummary
from eventlog._settings import load_settings
from eventlog._sieve import Sieve
from eventlog._supervisor import Supervisor
from eventlog._terms import keep_terms
from eventlog._wake import Wake
from eventlog.cadence.gate import Gate
from eventlog.cadence.window import Reduce, Reduction
from eventlog.delivery import DEADLINES, RETRY, Deadlines, Delivery, Retry
from eventlog.events import Rewound, RunStarted, Status
from eventlog.exceptions import EventlogError
from eventlog.log.archive import open_log
from eventlog.log.inbox import Inbox
from eventlog.log.writer import SEGMENT_BYTES
from eventlog.recorder import Recorder, rank_directory
from eventlog.sinks.base import Sink
from eventlog.sinks.plan import write_plan
from eventlog.sinks.select import Selected, Sinks, SinkSpec, select_sinks
from eventlog.subscription import Every

__all__ = ["CloseReport", "Run", "RunStatistics", "SinkHandle", "current_run"]

logger = logging.getLogger("eventlog")


class _Default(str):
    """A default that can be told from the same text given by the user."""


_RUNS = _Default("runs")

_NOWHERE_YET = {"step": None, "batch": None, "epoch": None}
"""Where a run is that was just resumed: `load_state_dict` says, or the first step."""


class _Kit(NamedTuple):
    """What a run is put together from, once it is known where it is."""

    specs: Selected
    made: list[tuple[SinkSpec, Sink]]
    isolated: list[str]
    reduced: list[SinkSpec]
    reduce: str | Mapping[str, str] | None
    resumed: bool
    retain: Retain
    deadlines: Deadlines
    retry: Retry


class Run(PicklingMethods, LoggingMethods, ClosingMethods, SinkMethods, Joining):
    """A training run: a log on disk and any number of trackers.

    Logging is an append to a queue in memory: it makes no system call, waits for nobody and
    raises nothing for what a value or a tracker does.

    Args:
        project: What the run belongs to; also the directory under `dir`. By default what the
            settings say (``EVENTLOG_PROJECT``, or `project` in ``[tool.eventlog]``).
        name: For people; the run's id by default.
        dir: Runs lie in ``dir/<project>/<run id>``; None keeps the newest events in memory only.
            By default what the settings say (``EVENTLOG_DIR``, or `dir`), or ``runs``.
        config: Hyperparameters: a mapping, dataclass, namespace or the like.
        sinks: A name, a sink, a function, "all", a list of these, or a mapping of aliases to
            options, cadences, sinks or functions. By default what the settings say
            (``EVENTLOG_SINKS``, or `sinks`); ``[]`` for none at all.
        every: When step and batch events pass, for sinks that do not say: "10 steps or 30 s".
        reduce: What becomes of the values between two ticks: last, mean, min, max, sum, count,
            std, or a mapping of keys (or patterns) to these. None passes due events as they are.
        group, tags, notes: For the trackers.
        record: A cadence for what is recorded at all; everything by default.
        resume: A run's id or directory, "must" or "allow": go on with that run, or with the newest
            one of this project (and name), as another attempt.
        run_id: The run's id, where you choose it (``EVENTLOG_RUN_ID`` otherwise). A run that has
            it already is gone on with, as another attempt.
        ranks: Which of a job's processes record: "main" for rank 0, or "all", each into a log of
            its own in the same run. On a rank that does not, all calls work and do nothing.
        reduce_ranks: With ``ranks="all"``: mean, min, max, sum, std or count, or a mapping of
            keys (or patterns) to these. What the ranks log is reduced so, into the log in
            ``<run>/reduced``, which sinks with the option ``"ranks": "reduced"`` follow.
        rank, world_size: Which process of how many this is, where that cannot be found.
        steps_per_epoch: Makes the epoch axis fractional: "0.1 epochs" works then.
        retain: How much of the log stays: "all", "delivered" (what some sink has not confirmed),
            or a size such as "10 GB"; nothing goes that a sink has not confirmed.
        segment_bytes: Where a file of the log ends and the next one starts.
        strict: Raise `ValueRejectedError` for what cannot be recorded: for tests.
        deadlines, retry: How long sinks may take, and how they are tried again.
        close_timeout: Seconds that the end of the run may take.

    Attributes:
        rank, world_size: Which process of how many this is.
        config, summary: See `RunConfig.update` and `RunSummary.update`.

    Raises:
        SinkNotFoundError: A sink that was named is not installed.
        LogError: The log cannot be made, or another process writes it.
        TypeError, ValueError: An argument is none that is accepted.

    Counters belong to the thread that trains; `log` may be called from any.
    """

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        *,
        dir: str | os.PathLike[str] | None = _RUNS,
        config: Any = None,
        sinks: Sinks = None,
        every: Every = None,
        reduce: Reduce = None,
        group: str | None = None,
        tags: Iterable[str] = (),
        notes: str | None = None,
        record: str | None = None,
        resume: str | os.PathLike[str] | None = None,
        run_id: str | None = None,
        ranks: Literal["main", "all"] = "main",
        reduce_ranks: str | Mapping[str, str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        steps_per_epoch: int | None = None,
        retain: Retain = "all",
        segment_bytes: int = SEGMENT_BYTES,
        strict: bool = False,
        deadlines: Deadlines = DEADLINES,
        retry: Retry = RETRY,
        close_timeout: float = 30.0,
    ) -> None:
        settings = load_settings()
        project = _text("project", settings.project if project is None else project)
        name = _text("name", name)
        if not project:
            raise TypeError(
                "project must be a text that is not empty: an argument, EVENTLOG_PROJECT, or "
                "project in [tool.eventlog] of pyproject.toml"
            )
        dir = settings.dir if dir is _RUNS and settings.dir else dir
        sinks = settings.sinks if sinks is None else sinks
        every = settings.every if every is None else every
        reduce = settings.reduce if reduce is None else reduce
        _check_steps_per_epoch(steps_per_epoch)
        if not isinstance(close_timeout, int | float) or not close_timeout >= 0:
            raise TypeError(f"close_timeout must be seconds, not {close_timeout!r}")
        if not isinstance(deadlines, Deadlines) or not isinstance(retry, Retry):
            raise TypeError("deadlines and retry must be a Deadlines and a Retry")
        if not isinstance(segment_bytes, int) or segment_bytes < 1:
            raise ValueError(f"segment_bytes must be an integer from 1, not {segment_bytes!r}")
        parse_retain(retain)
        # also where there is no sink to take them
        Sieve(None, every, None, None)
        if reduce is not None:
            Reduction(reduce)
        specs = select_sinks(sinks, every, reduce, settings)
        values = plain_config(config)
        standing = find_standing(rank, world_size)
        self.rank, self.world_size = standing.rank, standing.world_size
        run_id = _text("run_id", run_id)
        if run_id is not None and resume is not None:
            raise ValueError("run_id and resume cannot be given together: both say which run it is")
        job = find_job(run_id)
        _check_ranks(ranks, reduce_ranks, standing, job, dir is not None)
        self._record = None if record is None else Gate(record)
        # once and for all: a program may change its working directory
        base = None if dir is None else Path(os.path.abspath(dir)) / safe_name(project)
        self._base = base
        self.project = project
        quiet = self._is_a_copy or (self.rank > 0 and ranks == "main")
        joins = self.rank > 0 and not quiet and base is not None
        self._meeting = None
        if base is not None and job is not None:
            self._meeting = Meeting(base, job, f"{ranks}|{name or ''}", self.rank)
        chosen = None if job is None else job.run_id
        resumed = False
        self._where = Whereabouts(base, self._meeting if quiet else None)
        if not quiet and not joins:
            earlier = None
            if self.rank == 0 and self._meeting is not None:
                self._meeting.clear()
                earlier = self._meeting.earlier()
            found, resumed = choose_run(base, _resumed(resume), name, chosen, earlier)
            self._where.settle(found)
            if resumed and base is not None:
                was = open_log(base / found).run_info()
                name, values = name or was.name, was.config | values
                tags, group, notes = tuple(tags) or was.tags, group or was.group, notes or was.notes
            name = name or found
        elif self._meeting is None or chosen is not None:
            # nothing to be asked, or nothing to ask for
            self._where.settle(safe_name(chosen) if chosen else "")
        self.name = name or ""
        self.config = RunConfig(values, self._tell_config)
        self.summary = RunSummary({}, self._tell_summary)
        self._tags = tuple(map(redact_text, _texts("tags", tags)))
        self._group = _text("group", group)
        given = _text("notes", notes)
        self._notes = None if given is None else redact_text(given)
        self._close_timeout = close_timeout
        self._counters = Counters(steps_per_epoch)
        self._thinned = 0
        self._unplaced = False
        self._dues = Dues()
        self._status: Status | None = None
        self._report: CloseReport | None = None
        self._closing = threading.RLock()
        self._ending = False
        self._said_end = False
        self._late: list[str] = []
        self._impatient = False
        self._failed: dict[str, SinkHandle] = {}
        self._skipped = specs.skipped
        self._former: list[str] = []
        self._reduced: Reduced | None = None
        self._supervisor: Supervisor | None = None
        here, reduced, elsewhere = split_by_rank(
            specs, self.rank, reduce_ranks is not None, self.world_size
        )
        self._skipped |= elsewhere
        # before anything is made on disk: a sink that cannot be had must leave nothing behind
        made, isolated = self._make_sinks(here, on_disk=base is not None, deadline=deadlines.open)
        if retain == "delivered" and not specs:
            raise ValueError(
                "retain='delivered' needs a sink: without one nothing is delivered, and all would "
                "be removed; give sinks, or retain='all' or a size"
            )
        if retain != "all" and reduce_ranks is not None:
            raise ValueError("reduce_ranks needs retain='all': the ranks' logs are read for it")
        self._uncaught = uncaught()
        self._provenance = {} if quiet else provenance()
        self._segment_bytes = segment_bytes
        self._kit = _Kit(
            specs, made, isolated, reduced, reduce_ranks, resumed, retain, deadlines, retry
        )
        self._progress = Wake()
        self._delivered = threading.Event()
        self._joined = threading.Event()
        self._hurry = threading.Event()
        if quiet:
            self._recorder = self._silent_recorder(strict)
        else:
            # without room, each call takes the long way, which knows of thinning, of fractions and
            # of where a resumed run goes on
            inbox = Inbox()
            self._unplaced = resumed
            if record or steps_per_epoch or resumed:
                inbox.room = 0
            self._recorder = Recorder(
                None if joins else self.dir,
                run_id=self._where.id if self._where.known else "",
                project=project,
                rank=self.rank,
                attempt=self._first_attempt() if resumed else None,
                inbox=inbox,
                strict=strict,
                segment_bytes=segment_bytes,
            )
        self._counters.attempt = self._recorder.attempt
        self._inbox = self._recorder.inbox
        self._delivery = Delivery(self._recorder.source)
        # on this thread: a child that is forked while another thread imports cannot import that
        # module itself, ever
        with contextlib.suppress(ImportError):
            importlib.import_module("anyio._backends._asyncio")
        if joins:
            self._join_later(self._started())
        else:
            self._joined.set()
        if quiet:
            self._delivered.set()
        elif not joins:
            try:
                self._begin(self._recorder, self._started())
            except BaseException:
                # who mends the mistake must find the log free
                self._recorder.stop(1.0)
                raise
        open_runs.append(self)
        all_runs.add(self)
        if not quiet:
            atexit.register(self._at_exit)

    def _first_attempt(self) -> int | None:
        """Return the attempt after all that the ranks of a run have had."""
        if self.dir is None:
            return None
        return 1 + max((newest_attempt(path) for _, path in rank_directories(self.dir)), default=0)

    def _begin(self, recorder: Recorder, started: RunStarted) -> None:
        """Put together what records and what delivers, and start both."""
        kit = self._kit
        if self.dir is not None:
            self._prepare(self.dir, recorder, kit)
        delivery = Delivery(recorder.source)
        for spec, sink in kit.made:
            delivery.add(self._port(spec, sink, kit.deadlines, kit.retry))
        self._delivery = delivery
        # before all that a rank has emitted while it did not know its run
        recorder.inbox.items.appendleft(started)
        recorder.start()
        self._thread = threading.Thread(target=self._deliver, name="eventlog-delivery", daemon=True)
        self._thread.start()
        if self._supervisor is not None:
            self._supervisor.start()
        if self._reduced is not None:
            self._reduced.start()
        if self._meeting is not None and self.rank == 0:
            try:
                self._meeting.publish(self.id, recorder.attempt)
            except OSError as error:
                logger.warning("eventlog: other ranks cannot learn of run %s: %s", self.id, error)

    def _prepare(self, run_dir: Path, recorder: Recorder, kit: _Kit) -> None:
        """Keep in the run's directory what others need, and make who runs sinks elsewhere."""
        made_here = self.rank == 0 or not (run_dir / "manifest.json").exists()
        if made_here and not kit.resumed:
            self._write_manifest(run_dir)
        specs = Selected()
        specs += [spec for spec in kit.specs if spec not in kit.reduced]
        # of an earlier attempt: they may still lack something, and can have it later
        kept: list[str] = []
        if made_here:
            kept = write_plan(run_dir, specs)
            keep_terms(run_dir, kit.deadlines, kit.retry)
            recorder.on_move(partial(self._describe, run_dir, specs))
        self._former = [alias for alias in kept if all(s.alias != alias for s in specs)]
        directory = rank_directory(run_dir, self.rank)
        retain = kit.retain if kit.made or kit.isolated or self.rank == 0 else "all"
        recorder.on_rotation(Retention(directory, retain, self._aliases))
        if kit.isolated:
            self._supervisor = Supervisor(
                run_dir,
                self.rank,
                kit.isolated,
                attempt=recorder.attempt,
                options={spec.alias: spec.options for spec in specs},
                deadlines=kit.deadlines,
                retry=kit.retry,
                allowed=[spec.name for spec in specs],
            )
        if kit.reduce is not None and self.rank == 0 and self.world_size > 1:
            self._reduced = Reduced(
                run_dir,
                self._identity(),
                kit.reduce,
                self.world_size,
                kit.reduced,
                attempt=recorder.attempt,
                deadlines=kit.deadlines,
                retry=kit.retry,
            )

    def _identity(self) -> dict[str, str]:
        return {"run_id": self.id, "project": self.project, "name": self.name}

    def _write_manifest(self, run_dir: Path) -> None:
        write_manifest(run_dir, self._identity() | {"world_size": self.world_size})

    def _describe(self, run_dir: Path, specs: Selected) -> None:
        """Say again which run it is and what its sinks are, in a directory made anew."""
        try:
            self._write_manifest(run_dir)
            write_plan(run_dir, specs)
        except OSError as error:
            logger.warning("eventlog: %s cannot be described: %s", run_dir, error)

    def _started(self) -> RunStarted:
        return RunStarted(
            run_id=self.id if self._where.known else "",
            project=self.project,
            name=self.name,
            config=self.config.as_dict(),
            tags=list(self._tags),
            group=self._group,
            notes=self._notes,
            provenance=self._provenance,
            world_size=self.world_size,
            **self._axes(None, None) | ({} if self.attempt == 1 else _NOWHERE_YET),
        )

    def _deliver(self) -> None:
        try:
            anyio.run(self._delivery.run)
        except BaseException as error:
            logger.exception("eventlog: delivery ended; the log goes on")
            for port in self._delivery.ports.values():
                if not port.finished:
                    port.state, port.error = "failed", f"delivery ended: {error_text(error)}"
        self._delivered.set()
        self._progress.set()

    def _is_opening(self) -> bool:
        """Whether a sink may be importing its tracker on a thread of this process just now."""
        if self._recorder.foreign or self._delivered.is_set():
            return False
        ports = self._delivery.ports.values()
        return any(port.state in ("waiting", "opening") for port in ports)

    # -- attempts -----------------------------------------------------------------------------

    def rewind(self, step: int) -> None:
        """Say that training goes back to a step: what was logged from there on is void.

        Raises:
            ValueError: `step` is no step.
        """
        if step is None:
            raise ValueError("step must be the step that training goes back to, not None")
        place = self._counters.place(step, None, None, own_axis=True)
        if place.rejected:
            raise ValueError(place.rejected[0][2])
        self._counters.attempt += 1
        self._counters.step = place.step or 0
        self._dues.restart()
        if self._record is not None:
            self._record.restart()
        axes = self._axes(None, None) | {"batch": self._counters.batch or None}
        self._put_reserved(Rewound(to_step=self._counters.step, **axes))

    def state_dict(self) -> dict[str, Any]:
        """Return where the run is, to be kept in a checkpoint of training."""
        counters = self._counters
        return {
            "run_id": self.id,
            "attempt": self._counters.attempt,
            "step": counters.step,
            "batch": counters.batch,
            "epoch": counters.epoch,
            "epoch_step": counters.epoch_step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned: the counters are set back, as by `rewind`.

        Raises:
            ValueError: It is no such state.
        """
        names = ("step", "batch", "epoch", "epoch_step")
        known = state if isinstance(state, Mapping) else {}
        if any(not isinstance(known.get(n), int) for n in names):
            raise ValueError(f"state must be what state_dict() returned, not {state!r}")
        # asked first: on a rank that still looks for its run, the attempt is known then, too
        own = state.get("run_id") == self.id
        counters = self._counters
        fresh = (
            counters.step == 0
            and state["step"]
            and self._counters.attempt == self._recorder.attempt
        )
        counters.batch, counters.epoch = state["batch"], state["epoch"]
        counters.epoch_step = state["epoch_step"]
        if fresh and not own:
            counters.step = state["step"]
        else:
            self.rewind(state["step"])

    # -- the end ------------------------------------------------------------------------------

    def _at_exit(self) -> None:
        status, error = status_of(uncaught(), self._uncaught)
        self._close(status, error, HURRY if self._impatient else None)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        status, text = status_of(error, None)
        self._close(status, text, None)

    # -- looking ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The run's id: unique, and the directory's name; the same on all ranks.

        On a rank other than 0 this waits, a few seconds at most, until rank 0 has said it; where
        nothing tells which processes belong together, it is empty there.
        """
        return self._where.id

    @property
    def dir(self) -> Path | None:
        """The run's directory, the same on all ranks; see `id`. None where it has none."""
        return self._where.dir

    @property
    def attempt(self) -> int:
        """The attempt that is going on, from 1."""
        return self._counters.attempt


def _text(name: str, value: Any) -> Any:
    """Return a text that any log can hold; None stays None.

    Raises:
        TypeError: It is something else.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {value!r}")
    return value.encode("utf-8", "replace").decode("utf-8")


def _resumed(value: Any) -> Any:
    """Return which run to go on with: of a directory, its name is the run's id."""
    if isinstance(value, os.PathLike):
        return Path(value).name
    text = _text("resume", value)
    return text if text is None or os.sep not in text else Path(text).name


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of texts, not {values!r}")
    return tuple(_text(f"each of {name}", value) for value in values)


def _check_steps_per_epoch(value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"steps_per_epoch must be an integer from 1, not {value!r}")


def _check_ranks(
    ranks: Any, reduce: Any, standing: Standing, job: Job | None, on_disk: bool
) -> None:
    if ranks not in ("main", "all"):
        raise ValueError(f"ranks must be 'main' or 'all', not {ranks!r}")
    check_reduction(reduce)
    if reduce is not None and (ranks == "main" or not on_disk):
        raise ValueError("reduce_ranks needs ranks='all' and a run with a directory")
    if ranks == "main" or standing.world_size == 1 or not on_disk:
        return
    if job is None:
        raise EventlogError(
            "ranks='all' needs what is the same on all ranks and for no other job: give run_id=, "
            "or set EVENTLOG_RUN_ID, or MASTER_ADDR and MASTER_PORT"
        )
    if not standing.exact:
        raise EventlogError(
            "ranks='all' needs the rank of each process; on the further nodes of this job it "
            "cannot be told: give rank= and world_size=, or set LOCAL_WORLD_SIZE"
        )
