"""A run: what training code talks to. Synchronous, never waiting, with and without `with`."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

import anyio
import msgspec

from eventlog._config import plain_config
from eventlog._counters import Counters
from eventlog._due import Dues
from eventlog._names import safe_name
from eventlog._provenance import provenance
from eventlog._retention import Retain, Retention, parse_retain
from eventlog._run_end import all_runs, current_run, open_runs, status_of, uncaught
from eventlog._run_media import MediaMethods
from eventlog._run_places import choose_run, write_manifest
from eventlog._run_reports import CloseReport, RunStatistics, SinkHandle, report_of
from eventlog._run_values import RunConfig, RunSummary
from eventlog._settings import load_settings
from eventlog._sieve import Sieve
from eventlog._supervisor import Supervisor
from eventlog._terms import keep_terms
from eventlog._values import plain_in_place
from eventlog._wake import Wake
from eventlog.cadence.gate import Gate
from eventlog.cadence.window import Reduce, Reduction
from eventlog.clock import monotonic_ns
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
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    Flushed,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    Status,
    StepEvent,
    SummaryUpdated,
)
from eventlog.exceptions import SinkLoadError
from eventlog.keeping import DeadLetters, Keeper
from eventlog.log.archive import open_log
from eventlog.log.inbox import Barrier, Inbox
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


class Run(MediaMethods):
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

    # -- logging ------------------------------------------------------------------------------

    # The signatures are for type checkers and readers. Keyword-only parameters with defaults
    # would cost each call 40 % more than finding the reserved names among the scalars does
    # where there is a chance that they are there: see benchmarks/emit.py.
    if TYPE_CHECKING:

        def step(
            self,
            values: Mapping[str, Any] | None = None,
            /,
            step: int | None = None,
            *,
            batch: int | None = None,
            epoch: float | None = None,
            every: str | None = None,
            durable: bool = False,
            options: Mapping[str, Mapping[str, Any]] | None = None,
            **scalars: Any,
        ) -> None:
            """Log values at the current step, and count the step."""

        def log(
            self,
            values: Mapping[str, Any] | None = None,
            /,
            step: int | None = None,
            *,
            batch: int | None = None,
            epoch: float | None = None,
            axis: str | None = None,
            every: str | None = None,
            durable: bool = False,
            options: Mapping[str, Mapping[str, Any]] | None = None,
            **scalars: Any,
        ) -> None:
            """Log values at the current step."""

    else:

        def step(self, values=None, /, step=None, **scalars):
            """Log values at the current step, and count the step.

            Args:
                values: A mapping; nested ones are flattened, with ``/`` between the names.
                step, batch, epoch: Where this is, if you count yourself; counting goes on from
                    there.
                every: Log only when this cadence is due; the step is counted in any case.
                durable: True waits until the event is on the disk; see `Run.sync`.
                options: What single sinks are told with it, by their alias or name, such as
                    ``{"aim": {"context": {"subset": "val"}}}``; kept in the event, in plain
                    values.
                scalars: Single values: numbers, strings, 0-d arrays and tensors, or functions
                    that are called when due. A value with the name of an argument must be given
                    in `values`.
            """
            if values is None and step is None and len(self._items) < self._inbox.room:
                for value in scalars.values():
                    if type(value) is not float:
                        plain = plain_in_place(scalars)
                        break
                else:
                    plain = "epoch" not in scalars and "batch" not in scalars
                if plain:
                    counters = self._counters
                    at = counters.step
                    self._append(
                        StepEvent(
                            monotonic_ns(),
                            at,
                            counters.batch,
                            counters.epoch,
                            scalars,
                            counters.attempt,
                        )
                    )
                    counters.step = at + 1
                    return
            self._log(StepEvent, values, step, scalars)
            self._counters.step += 1

        def log(self, values=None, /, step=None, **scalars):
            """Log values at the current step, without counting it.

            Args:
                values, step, batch, epoch, every, options, scalars: As for `Run.step`.
                axis: The name of an axis of its own that `step` counts, such as "val_step"; it
                    has no effect on the run's step.
            """
            if values is None and step is None and len(self._items) < self._inbox.room:
                for value in scalars.values():
                    if type(value) is not float:
                        plain = plain_in_place(scalars)
                        break
                else:
                    plain = "epoch" not in scalars and "batch" not in scalars
                if plain:
                    counters = self._counters
                    self._append(
                        StepEvent(
                            monotonic_ns(),
                            counters.step,
                            counters.batch,
                            counters.epoch,
                            scalars,
                            counters.attempt,
                        )
                    )
                    return
            self._log(StepEvent, values, step, scalars)

    def batch(
        self, values: Mapping[str, Any] | None = None, /, batch: int | None = None, **scalars: Any
    ) -> None:
        """Log values at the current batch, and count the batch.

        Args:
            values, batch, scalars: As for `Run.step`; the other arguments of it may be
                given, too.
        """
        if batch is not None:
            scalars["batch"] = batch
        self._log(BatchEvent, values, scalars.pop("step", None), scalars)
        self._counters.batch += 1

    def epoch(
        self, values: Mapping[str, Any] | None = None, /, epoch: float | None = None, **scalars: Any
    ) -> None:
        """Log values of the epoch that ends here, and count it.

        The event's epoch is the number of the epoch that ended, from 0.

        Args:
            values, epoch, scalars: As for `Run.step`; the other arguments of it may be
                given, too.
        """
        scalars["epoch"] = self._counters.epoch if epoch is None else epoch
        self._log(EpochEvent, values, scalars.pop("step", None), scalars)
        self._counters.end_epoch()

    def _log(
        self,
        kind: type[Event],
        values: Mapping[str, Any] | None,
        step: Any,
        scalars: dict[str, Any],
    ) -> None:
        """Log what the short way in `step` and `log` does not take."""
        recorder, counters = self._recorder, self._counters
        if recorder.foreign:
            # a fork's locks may be held for ever by threads that it does not have
            self._refuse_foreign()
            recorder.inbox.drop("forked")
            return
        batch, epoch = scalars.pop("batch", None), scalars.pop("epoch", None)
        every, axis = scalars.pop("every", None), scalars.pop("axis", None)
        durable, options = scalars.pop("durable", None), scalars.pop("options", None)
        place = counters.place(step, batch, epoch, own_axis=axis is not None)
        if place.rejected:
            recorder.rejections.add(place.rejected)
        if every is not None and not self.due(every):
            return
        event = kind(
            monotonic_ns(),
            place.step,
            place.batch,
            place.epoch,
            {},
            counters.attempt,
            axis or "step",
            options=None if options is None else self._options(options),
        )
        record = self._record
        if record is not None and kind is not EpochEvent and not record.enter(event).due:
            self._thinned += 1
            return
        if values is None:
            given: Mapping[str, Any] = scalars
        elif isinstance(values, Mapping):
            given = {**values, **scalars} if scalars else values
        else:
            advice = f"values must be a mapping of names to values, not {type(values).__name__}"
            recorder.rejections.add([("values", "not_a_mapping", advice)])
            given = scalars
        recorder.offer(event, given)
        if durable:
            self.sync()

    def due(self, every: str) -> bool:
        """Whether a cadence is due at the current step: for values that are dear to compute.

        All calls with the same text at the same step get the same answer.

        Raises:
            CadenceError: The text is wrong.
        """
        return self._dues.ask(every, self._counters)

    def model_updated(self, kind: str = "update", /, **summary: Any) -> None:
        """Say that the model itself changed: pruned, quantised, frozen, grown.

        Args:
            kind: What was done, in a word.
            summary: What changed, in plain values; numbers become values of the event.
        """
        plain = plain_config(summary)
        event = ModelUpdateEvent(kind=kind, summary=plain, **self._axes(None, None))
        numbers = {k: v for k, v in plain.items() if isinstance(v, int | float)}
        self._dues.model_updated(event)
        if self._record is not None:
            self._record.model_updated(event)
        self._put_reserved(msgspec.structs.replace(event, values=numbers))

    def emit(self, event: Event) -> bool:
        """Log an event of any type, your own included.

        Axes that it does not have are filled in, its time is now, its values are made plain.

        Returns:
            False when it was dropped; `statistics` says why.

        Raises:
            TypeError: It is no event.
        """
        if not isinstance(event, Event):
            raise TypeError(f"event must be an Event, not {type(event).__name__}")
        axes = self._axes(event.step, event.axis if event.axis != "step" else None)
        if event.batch is not None:
            axes["batch"] = event.batch
        if event.epoch is not None:
            axes["epoch"] = event.epoch
        placed = msgspec.structs.replace(event, **axes, seq=-1, wall=0)
        return self._recorder.offer(placed, dict(event.values))

    def _tell_config(self, config: dict[str, Any]) -> None:
        self._put_reserved(ConfigUpdated(config=config, **self._axes(None, None)))

    def _tell_summary(self, summary: dict[str, Any]) -> None:
        self._put_reserved(SummaryUpdated(summary=summary, **self._axes(None, None)))

    def _options(self, options: Any) -> dict[str, dict[str, Any]] | None:
        """Return what a call says for single sinks, in plain values."""
        try:
            plain = {str(sink): plain_config(mine) for sink, mine in dict(options).items()}
        except Exception as error:
            advice = f"options must be a mapping of sinks to mappings of options: {error}"
            self._recorder.rejections.add([("options", "options", advice)])
            return None
        return plain or None

    def _axes(self, step: Any, axis: str | None, options: Any = None) -> dict[str, Any]:
        place = self._counters.place(step, None, None, own_axis=True)
        if place.rejected:
            self._recorder.rejections.add(place.rejected)
        return {
            "mono": monotonic_ns(),
            "step": place.step,
            "batch": place.batch,
            "epoch": place.epoch,
            "axis": axis or "step",
            "attempt": self._counters.attempt,
            "options": None if options is None else self._options(options),
        }

    def _put_reserved(self, event: Event) -> None:
        if self._recorder.foreign:
            self._refuse_foreign()
        self._recorder.inbox.put(event, reserved=True)

    def _is_opening(self) -> bool:
        """Whether a sink may be importing its tracker on a thread of this process just now."""
        if self._recorder.foreign or self._delivered.is_set():
            return False
        ports = self._delivery.ports.values()
        return any(port.state in ("waiting", "opening") for port in ports)

    def _abandon(self) -> None:
        """Become harmless: this is a forked child's copy."""
        self._recorder.abandon()
        atexit.unregister(self._at_exit)

    def _refuse_foreign(self) -> None:
        """Notice a fork that went past Python's own hooks: nobody would take what is put here."""
        if not self._recorder.abandoned:
            self._abandon()

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

    def flush(self, timeout: float | None = 30.0) -> CloseReport:
        """Wait until what was logged by now is in the log and with every sink.

        Args:
            timeout: Seconds; the report then says what is left.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._put_reserved(Flushed(**self._axes(None, None)))
        barrier = Barrier()
        if not self._inbox.put(barrier):
            if self._recorder.foreign:
                return CloseReport(False, False, {})
            written = self._recorder.source.closed
            return self._report or report_of(self.statistics(), written, self._remaining(None))
        self._inbox.wake.set()
        if not barrier.wait(timeout):
            return report_of(self.statistics(), False, self._remaining(None))
        remaining = self._wait_delivered(barrier.seq, deadline)
        return report_of(self.statistics(), True, remaining)

    def _wait_delivered(self, seq: int, deadline: float | None) -> dict[str, int]:
        """Wait until all sinks are past `seq`, or done for; return what each lacks."""
        while True:
            self._progress.clear()
            ports = self._delivery.ports.values()
            left = None if deadline is None else deadline - time.monotonic()
            if all(port.finished or port.flushed_to >= seq for port in ports):
                break
            if (left is not None and left <= 0) or self._delivered.is_set():
                break
            # more than one thread may wait here, each clearing the mark
            self._progress.wait(0.1 if left is None else min(left, 0.1))
        if self._supervisor is not None:
            self._supervisor.wait_flushed(seq, deadline)
        return self._remaining(seq)

    def _remaining(self, end: int | None) -> dict[str, int]:
        end = self._recorder.source.end if end is None else end
        lacking = {
            alias: end - port.flushed_to
            for alias, port in self._delivery.ports.items()
            if port.flushed_to < end and port.state != "closed"
        }
        if self._supervisor is not None:
            lacking |= self._supervisor.lacking(end)
        return lacking | dict.fromkeys(self._failed, end)

    def sync(self, timeout: float | None = 10.0) -> bool:
        """Wait until everything that was logged by now is on the disk: it survives a loss of power.

        `step`, `log`, `batch` and `epoch` do this after themselves when given ``durable=True``.

        Args:
            timeout: Seconds.

        Returns:
            False when it took longer, or the disk does not take it; that is also logged.
        """
        barrier = Barrier(durable=True)
        if self._recorder.foreign or not self._inbox.put(barrier):
            return False
        self._inbox.wake.set()
        if barrier.wait(timeout) and barrier.synced:
            return True
        logger.warning("eventlog: what was logged by now could not be synced")
        return False

    def _unconfirmed(self) -> dict[str, int]:
        """Return what is not safe with sinks that keep nothing until they are closed."""
        end = self._recorder.source.end
        return {
            alias: end - port.confirmed
            for alias, port in self._delivery.ports.items()
            if port.sink.confirms == "close" and port.state != "closed" and port.confirmed < end
        }

    def close(self, status: Status = "finished", timeout: float | None = None) -> CloseReport:
        """End the run: write everything, deliver everything, close the sinks. May be called twice.

        Args:
            status: finished, failed or interrupted.
            timeout: Seconds; `close_timeout` by default. What is left then stays in the log.
        """
        return self._close(status, None, timeout)

    def _close(self, status: Status, error: str | None, timeout: float | None) -> CloseReport:
        if self._recorder.foreign:
            return CloseReport(False, False, {})
        if status not in get_args(Status) or status == "killed":
            raise ValueError(f"status must be finished, failed or interrupted, not {status!r}")
        with self._closing:
            if self._report is not None:
                return self._report
            if self._ending:
                # a signal's handler has come in between: who was interrupted goes on and ends it
                written = self._recorder.source.closed
                report = report_of(self.statistics(), written, self._remaining(None))
                return report._replace(complete=False)
            self._ending = True
            try:
                timeout = self._close_timeout if timeout is None else timeout
                self._report = report = self._end(status, error, timeout)
            finally:
                # interrupted, it can be closed again
                self._ending = False
            atexit.unregister(self._at_exit)
            if self in open_runs:
                open_runs.remove(self)
        self._say_what_is_left(report, timeout)
        return report

    def _end(self, status: Status, error: str | None, timeout: float) -> CloseReport:
        """Write and deliver everything, as far as there is time."""
        self._status = status
        deadline = time.monotonic() + timeout
        if not self._said_end:
            self._said_end = True
            self._put_reserved(
                RunFinished(
                    status=status,
                    error=error,
                    summary=self.summary.as_dict(),
                    **self._axes(None, None),
                )
            )
        written = self._recorder.stop(timeout)
        # not join(): interrupted, it takes a thread that runs for one that has ended (bpo-45274)
        self._delivered.wait(max(0.0, deadline - time.monotonic()))
        if self._supervisor is not None:
            self._supervisor.end(deadline)
        remaining = self._remaining(None) | self._unconfirmed()
        report = report_of(self.statistics(), written, remaining)
        if not self._delivered.is_set():
            # nothing of ours may go on with a sink after the end, or keep its checkpoint
            self._late = [p.alias for p in self._delivery.ports.values() if not p.finished]
            self._delivery.stop()
        return report

    def _say_what_is_left(self, report: CloseReport, timeout: float) -> None:
        for alias in self._late:
            if alias not in report.left:
                logger.warning(
                    "eventlog: sink %r has taken everything, but has not closed after %g s",
                    alias,
                    timeout,
                )
        for alias, n in report.dead.items():
            logger.warning(
                "eventlog: sink %r refused %d events for good (%s)%s",
                alias,
                n,
                self.statistics().sinks[alias].refusal,
                f"; they are in {self.dir / 'dead' / safe_name(alias)}" if self.dir else "",
            )
        for alias, problem in report.failed.items():
            logger.warning("eventlog: sink %r has not ended as it should: %s", alias, problem)
        for alias, n in report.left.items():
            logger.warning(
                "eventlog: sink %r has not taken %d events by the end (%s)%s",
                alias,
                n,
                self.sink(alias).error or f"after {timeout:g} s",
                f"; they are in the log: eventlog replay --pending {self.dir}"
                if self.dir is not None
                else "",
            )

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
