"""The part of a run that has to do with its sinks: made, told of the run, asked how they are."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from eventlog._care import CARE
from eventlog._counters import Counters
from eventlog._reduction import Reduced
from eventlog._run_reports import RunStatistics, SinkHandle
from eventlog._run_values import RunConfig
from eventlog._supervisor import Supervisor
from eventlog._wake import Wake
from eventlog.delivery import Deadlines, Delivery, Port, Retry, SinkStatistics
from eventlog.events import Status
from eventlog.exceptions import SinkLoadError, SinkTimeoutError
from eventlog.keeping import DeadLetters, Keeper
from eventlog.recorder import Recorder, rank_directory, sink_directory
from eventlog.sinks._thread import call_apart
from eventlog.sinks._told import told_text
from eventlog.sinks.base import RunInfo, Sink
from eventlog.sinks.registry import load_sink_class
from eventlog.sinks.select import SinkSpec, unready
from eventlog.subscription import Subscription

__all__ = ["SinkMethods"]

logger = logging.getLogger("eventlog")

_MOMENT = 1.0


def _say_what_is_missing(spec: SinkSpec) -> None:
    """Warn at once of a sink that cannot start as things are: it is tried all the same."""
    if spec.sink is not None or spec.isolate:
        return
    problem = unready(spec)
    if problem is not None:
        logger.warning("eventlog: sink %r is not ready: %s", spec.alias, problem)


class SinkMethods:
    """What a run does for its sinks, and what it says of them."""

    project: str
    name: str
    rank: int
    world_size: int
    config: RunConfig
    _recorder: Recorder
    _delivery: Delivery
    _supervisor: Supervisor | None
    _reduced: Reduced | None
    _counters: Counters
    _progress: Wake
    _status: Status | None
    _failed: dict[str, SinkHandle]
    _skipped: dict[str, str]
    _former: list[str]
    _tags: tuple[str, ...]
    _group: str | None
    _notes: str | None
    _provenance: dict[str, Any]
    _thinned: int

    @property
    def id(self) -> str:
        """See `Run`."""
        raise NotImplementedError

    @property
    def dir(self) -> Path | None:
        """See `Run`."""
        raise NotImplementedError

    def _make_sinks(
        self, specs: list[SinkSpec], *, on_disk: bool, deadline: float
    ) -> tuple[list[tuple[SinkSpec, Sink]], list[str]]:
        """Make the sinks that run here; return the aliases of those that do not, too."""
        made: list[tuple[SinkSpec, Sink]] = []
        isolated: list[str] = []
        end = time.monotonic() + deadline
        for spec in specs:
            # of all that hang, the first takes the time; the others have a moment
            left = max(_MOMENT, end - time.monotonic())
            try:
                sink = call_apart(
                    partial(self._make_sink, spec, on_disk), spec.making, min(left, deadline)
                )
            except (SinkLoadError, SinkTimeoutError) as error:
                self._fail(spec.alias, error)
                continue
            if sink is None:
                isolated.append(spec.alias)
            else:
                made.append((spec, sink))
        return made, isolated

    def _make_sink(self, spec: SinkSpec, on_disk: bool) -> Sink | None:
        """Make a sink; return None for one that is made in another process.

        Raises:
            SinkError, ValueError: It cannot be had.
        """
        isolated = self._is_isolated(spec)
        if isolated and spec.isolate and not (on_disk and spec.sink is None):
            raise ValueError(
                f"sink {spec.alias!r} cannot be isolated: that takes a sink given by name "
                "and a run with a directory"
            )
        # also where only its class wants to be isolated: a mistake in its options is said
        sink = None if isolated and spec.isolate else spec.make()
        _say_what_is_missing(spec)
        return None if isolated and on_disk and spec.sink is None else sink

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
            keeper = partial(Keeper, rank_directory(self.dir, self.rank), spec.alias, sink)
            dead_letters = DeadLetters(
                self.dir, spec.alias, run_id=self.id, project=self.project, rank=self.rank
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
            # what memory alone holds would be lost by whoever takes his time
            care=CARE if self.dir is not None else replace(CARE, duty=1.0),
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
            rank=self.rank,
            world_size=self.world_size,
            attempt=self._recorder.attempt,
            run_dir=self.dir,
            directory=None if self.dir is None else sink_directory(self.dir, alias, self.rank),
        )

    # -- looking ------------------------------------------------------------------------------

    @property
    def url(self) -> str | None:
        """Where to look at the run: the first sink's address or path, or the directory."""
        for port in self._delivery.ports.values():
            url = told_text(port.sink, "url")
            if url is not None:
                return url
        return None if self.dir is None else str(self.dir)

    def sink(self, alias: str) -> SinkHandle:
        """Return how a sink is.

        Raises:
            KeyError: There is none of that alias.
        """
        if alias in self._failed:
            return self._failed[alias]
        isolated: list[str] = []
        for supervisor in self._supervisors:
            isolated += supervisor.aliases
            if alias in supervisor.aliases:
                report = supervisor.report(alias)
                return SinkHandle(
                    alias, report.state, report.url, report.run_id, None, report.error
                )
        port = self._delivery.ports.get(alias)
        if port is None:
            if alias in self._skipped:
                return SinkHandle(alias, "skipped", None, None, None, self._skipped[alias])
            known = ", ".join([*self._delivery.ports, *isolated, *self._failed]) or "none"
            raise KeyError(f"this run has no sink {alias!r}; its sinks: {known}")
        sink = port.sink
        url, run_id = told_text(sink, "url"), told_text(sink, "run_id")
        return SinkHandle(alias, port.state, url, run_id, sink.tracker, port.error)

    @property
    def _supervisors(self) -> list[Supervisor]:
        reduced = None if self._reduced is None else self._reduced.supervisor
        return [s for s in (self._supervisor, reduced) if s is not None]

    def statistics(self) -> RunStatistics:
        """Account for everything that was logged and delivered."""
        sinks = {alias: port.statistics() for alias, port in self._delivery.ports.items()}
        for supervisor in self._supervisors:
            for alias in supervisor.aliases:
                sinks[alias] = supervisor.statistics(alias)
        for alias, handle in self._failed.items():
            sinks[alias] = SinkStatistics(state="failed", error=handle.error)
        return RunStatistics(
            self._recorder.writer.statistics(),
            sinks,
            dict(self._recorder.rejections.counts),
            self._thinned,
        )
