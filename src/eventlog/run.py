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
from typing import Any

import anyio

from eventlog._config import plain_config
from eventlog._counters import Counters
from eventlog._due import Dues
from eventlog._names import safe_name
from eventlog._provenance import provenance
from eventlog._retention import Retain, Retention, parse_retain
from eventlog._run_closing import ClosingMethods
from eventlog._run_end import all_runs, current_run, open_runs, status_of, uncaught
from eventlog._run_logging import LoggingMethods
from eventlog._run_places import choose_run, write_manifest
from eventlog._run_reports import CloseReport, RunStatistics, SinkHandle
from eventlog._run_values import RunConfig, RunSummary
from eventlog._settings import load_settings
from eventlog._sieve import Sieve
from eventlog._supervisor import Supervisor
from eventlog._terms import keep_terms
from eventlog._wake import Wake
from eventlog.cadence.gate import Gate
from eventlog.cadence.window import Reduce, Reduction
from eventlog.delivery import (
    DEADLINES,
    RETRY,
    Deadlines,
    Delivery,
    Port,
    Retry,
    SinkStatistics,
)
from eventlog.events import (
    Rewound,
    RunStarted,
    Status,
)
from eventlog.exceptions import SinkLoadError
from eventlog.keeping import DeadLetters, Keeper
from eventlog.log.archive import open_log
from eventlog.log.inbox import Inbox
from eventlog.log.writer import SEGMENT_BYTES
from eventlog.recorder import Recorder, rank_directory
from eventlog.sinks.base import RunInfo, Sink
from eventlog.sinks.plan import write_plan
from eventlog.sinks.registry import load_sink_class
from eventlog.sinks.select import Selected, Sinks, SinkSpec, select_sinks
from eventlog.subscription import Every, Subscription

__all__ = ["CloseReport", "Run", "RunStatistics", "SinkHandle", "current_run"]

logger = logging.getLogger("eventlog")


class _Default(str):
    """A default that can be told from the same text given by the user."""


_RUNS = _Default("runs")

_NOWHERE_YET = {"step": None, "batch": None, "epoch": None}
"""Where a run is that was just resumed: `load_state_dict` says, or the first step."""


class Run(LoggingMethods, ClosingMethods):
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
        resume: A run's id, "must" or "allow": go on with that run, or with the newest one of
            this project (and name), as another attempt.
        steps_per_epoch: Makes the epoch axis fractional: "0.1 epochs" works then.
        retain: How much of the log stays: "all", "delivered" (what some sink has not confirmed),
            or a size such as "10 GB"; nothing goes that a sink has not confirmed.
        segment_bytes: Where a file of the log ends and the next one starts.
        strict: Raise `ValueRejectedError` for what cannot be recorded: for tests.
        deadlines, retry: How long sinks may take, and how they are tried again.
        close_timeout: Seconds that the end of the run may take.

    Attributes:
        id: Unique; also the directory's name.
        dir: The run's directory, or None.
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
        resume: str | None = None,
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
        self._record = None if record is None else Gate(record)
        # once and for all: a program may change its working directory
        base = None if dir is None else Path(os.path.abspath(dir)) / safe_name(project)
        self.project = project
        self.id, resumed = choose_run(base, _text("resume", resume), name)
        if resumed and base is not None:
            was = open_log(base / self.id).run_info()
            name, values = name or was.name, was.config | values
            tags, group, notes = tuple(tags) or was.tags, group or was.group, notes or was.notes
        self.name = name or self.id
        self.dir = None if base is None else base / self.id
        self.config = RunConfig(values, self._tell_config)
        self.summary = RunSummary({}, self._tell_summary)
        self._tags = _texts("tags", tags)
        self._group = _text("group", group)
        self._notes = _text("notes", notes)
        self._close_timeout = close_timeout
        self._counters = Counters(steps_per_epoch)
        self._thinned = 0
        self._dues = Dues()
        self._status: Status | None = None
        self._report: CloseReport | None = None
        self._closing = threading.RLock()
        self._ending = False
        self._said_end = False
        self._late: list[str] = []
        self._failed: dict[str, SinkHandle] = {}
        self._skipped = specs.skipped
        self._former: list[str] = []
        # before anything is made on disk: a sink that cannot be had must leave nothing behind
        made, isolated = self._make_sinks(specs)
        if retain == "delivered" and not specs:
            raise ValueError(
                "retain='delivered' needs a sink: without one nothing is delivered, and all would "
                "be removed; give sinks, or retain='all' or a size"
            )
        self._uncaught = uncaught()
        self._provenance = provenance()
        # without room, each call takes the long way, which knows of thinning and of fractions
        inbox = Inbox()
        if record or steps_per_epoch:
            inbox.room = 0
        self._recorder = recorder = Recorder(
            self.dir,
            run_id=self.id,
            project=project,
            inbox=inbox,
            strict=strict,
            segment_bytes=segment_bytes,
        )
        if self.dir is not None:
            retention = Retention(rank_directory(self.dir, 0), retain, self._aliases)
            recorder.on_rotation(retention)
        try:
            self._set_up(specs, made, isolated, resumed, deadlines, retry)
        except BaseException:
            # who mends the mistake must find the log free
            recorder.stop(1.0)
            raise

    def _set_up(
        self,
        specs: Selected,
        made: list[tuple[SinkSpec, Sink]],
        isolated: list[str],
        resumed: bool,
        deadlines: Deadlines,
        retry: Retry,
    ) -> None:
        """Put together what records and what delivers, and start both."""
        recorder = self._recorder
        self._counters.attempt = recorder.attempt
        self._inbox = recorder.inbox
        self._items = recorder.inbox.items
        self._append = self._items.append
        if self.dir is not None and not resumed:
            self._write_manifest(self.dir)
        self._delivery = Delivery(recorder.source)
        self._progress = Wake()
        self._delivered = threading.Event()
        self._supervisor: Supervisor | None = None
        if self.dir is not None:
            kept = write_plan(self.dir, specs)
            keep_terms(self.dir, deadlines, retry)
            # of an earlier attempt: they may still lack something, and can have it later
            self._former = [alias for alias in kept if all(s.alias != alias for s in specs)]
            recorder.on_move(partial(self._describe, self.dir, specs))
            if isolated:
                self._supervisor = Supervisor(
                    self.dir,
                    0,
                    isolated,
                    attempt=recorder.attempt,
                    options={spec.alias: spec.options for spec in specs},
                    deadlines=deadlines,
                    retry=retry,
                )
        for spec, sink in made:
            self._delivery.add(self._port(spec, sink, deadlines, retry))
        self._put_reserved(self._started())
        recorder.start()
        # on this thread: a child that is forked while another thread imports cannot import that
        # module itself, ever
        with contextlib.suppress(ImportError):
            importlib.import_module("anyio._backends._asyncio")
        self._thread = threading.Thread(target=self._deliver, name="eventlog-delivery", daemon=True)
        self._thread.start()
        if self._supervisor is not None:
            self._supervisor.start()
        open_runs.append(self)
        all_runs.add(self)
        atexit.register(self._at_exit)

    def _make_sinks(self, specs: list[SinkSpec]) -> tuple[list[tuple[SinkSpec, Sink]], list[str]]:
        """Make the sinks that run here; return the aliases of those that do not, too."""
        made: list[tuple[SinkSpec, Sink]] = []
        isolated: list[str] = []
        for spec in specs:
            try:
                if not self._is_isolated(spec):
                    made.append((spec, spec.make()))
                elif self.dir is not None and spec.sink is None:
                    isolated.append(spec.alias)
                elif spec.isolate is None:
                    made.append((spec, spec.make()))
                else:
                    raise ValueError(
                        f"sink {spec.alias!r} cannot be isolated: that takes a sink given by name "
                        "and a run with a directory"
                    )
            except SinkLoadError as error:
                self._fail(spec.alias, error)
        return made, isolated

    def _write_manifest(self, run_dir: Path) -> None:
        names = {"run_id": self.id, "project": self.project, "name": self.name}
        write_manifest(run_dir, names)

    def _describe(self, run_dir: Path, specs: list[SinkSpec]) -> None:
        """Say again which run it is and what its sinks are, in a directory made anew."""
        try:
            self._write_manifest(run_dir)
            write_plan(run_dir, specs)
        except OSError as error:
            logger.warning("eventlog: %s cannot be described: %s", run_dir, error)

    def _aliases(self) -> list[str]:
        isolated = () if self._supervisor is None else self._supervisor.aliases
        return [*self._delivery.ports, *isolated, *self._failed, *self._former]

    def _fail(self, alias: str, error: Exception) -> None:
        """Go on without a sink: a plugin that is broken costs its own points, not the training."""
        logger.warning("eventlog: %s; the run goes on without it", error)
        self._failed[alias] = SinkHandle(alias, "failed", None, None, None, str(error))

    def _is_isolated(self, spec: SinkSpec) -> bool:
        if spec.isolate is not None:
            return spec.isolate
        return spec.sink is None and load_sink_class(spec.name).isolation == "sidecar"

    def _port(self, spec: SinkSpec, sink: Sink, deadlines: Deadlines, retry: Retry) -> Port:
        source = self._recorder.source
        subscription = Subscription(
            source, types=spec.types, every=spec.every, reduce=spec.reduce, keys=spec.keys
        )
        keeper = dead_letters = None
        if self.dir is not None:
            keeper = partial(Keeper, rank_directory(self.dir, 0), spec.alias, sink)
            dead_letters = DeadLetters(
                self.dir, spec.alias, run_id=self.id, project=self.project, rank=0
            )
        return Port(
            spec.alias,
            sink,
            subscription,
            partial(self._info, spec.alias),
            deadlines=deadlines,
            retry=retry,
            keeper=keeper,
            dead_letters=dead_letters,
            rate=spec.rate,
            progress=self._progress.set,
            status=lambda: self._status or "killed",
        )

    def _info(self, alias: str, state: dict[str, Any]) -> RunInfo:
        return RunInfo(
            state=state,
            run_id=self.id,
            alias=alias,
            project=self.project,
            name=self.name,
            config=self.config.as_dict(),
            tags=self._tags,
            group=self._group,
            notes=self._notes,
            provenance=self._provenance,
            attempt=self._counters.attempt,
            run_dir=self.dir,
            directory=None if self.dir is None else self.dir / safe_name(alias),
        )

    def _started(self) -> RunStarted:
        return RunStarted(
            run_id=self.id,
            project=self.project,
            name=self.name,
            config=self.config.as_dict(),
            tags=list(self._tags),
            group=self._group,
            notes=self._notes,
            provenance=self._provenance,
            **self._axes(None, None) | ({} if self.attempt == 1 else _NOWHERE_YET),
        )

    def _deliver(self) -> None:
        try:
            anyio.run(self._delivery.run)
        except Exception:
            logger.exception("eventlog: delivery ended; the log goes on")
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
        if any(not isinstance(state.get(n), int) for n in names):
            raise ValueError(f"state must be what state_dict() returned, not {state!r}")
        counters = self._counters
        fresh = (
            counters.step == 0
            and state["step"]
            and self._counters.attempt == self._recorder.attempt
        )
        counters.batch, counters.epoch = state["batch"], state["epoch"]
        counters.epoch_step = state["epoch_step"]
        if fresh and state.get("run_id") != self.id:
            counters.step = state["step"]
        else:
            self.rewind(state["step"])

    # -- the end ------------------------------------------------------------------------------

    def _at_exit(self) -> None:
        status, error = status_of(uncaught(), self._uncaught)
        self._close(status, error, None)

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

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Run cannot be pickled: it has threads and an open log. Give the other process "
            "run.dir, or let it make a Run of its own"
        )

    # -- looking ------------------------------------------------------------------------------

    @property
    def attempt(self) -> int:
        """The attempt that is going on, from 1."""
        return self._counters.attempt

    @property
    def url(self) -> str | None:
        """Where to look at the run: the first sink's address or path, or the directory."""
        for port in self._delivery.ports.values():
            if port.sink.url is not None:
                return port.sink.url
        return None if self.dir is None else str(self.dir)

    def sink(self, alias: str) -> SinkHandle:
        """Return how a sink is.

        Raises:
            KeyError: There is none of that alias.
        """
        if alias in self._failed:
            return self._failed[alias]
        supervisor = self._supervisor
        isolated = () if supervisor is None else supervisor.aliases
        if supervisor is not None and alias in isolated:
            report = supervisor.report(alias)
            return SinkHandle(alias, report.state, report.url, report.run_id, None, report.error)
        port = self._delivery.ports.get(alias)
        if port is None:
            if alias in self._skipped:
                return SinkHandle(alias, "skipped", None, None, None, self._skipped[alias])
            known = ", ".join([*self._delivery.ports, *isolated, *self._failed]) or "none"
            raise KeyError(f"this run has no sink {alias!r}; its sinks: {known}")
        sink = port.sink
        return SinkHandle(alias, port.state, sink.url, sink.run_id, sink.tracker, port.error)

    def statistics(self) -> RunStatistics:
        """Account for everything that was logged and delivered."""
        sinks = {alias: port.statistics() for alias, port in self._delivery.ports.items()}
        if self._supervisor is not None:
            for alias in self._supervisor.aliases:
                sinks[alias] = self._supervisor.statistics(alias)
        for alias, handle in self._failed.items():
            sinks[alias] = SinkStatistics(state="failed", error=handle.error)
        return RunStatistics(
            self._recorder.writer.statistics(),
            sinks,
            dict(self._recorder.rejections.counts),
            self._thinned,
        )


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


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of texts, not {values!r}")
    return tuple(_text(f"each of {name}", value) for value in values)


def _check_steps_per_epoch(value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"steps_per_epoch must be an integer from 1, not {value!r}")
