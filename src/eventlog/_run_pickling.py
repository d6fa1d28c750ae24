"""What becomes of a run that is copied, or pickled for another process: spawned workers, say."""

from __future__ import annotations

import importlib
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eventlog._counters import Counters
from eventlog._meeting import Whereabouts
from eventlog._quiet import AbsentRecorder, QuietRecorder
from eventlog._run_end import all_runs, open_runs
from eventlog._run_values import RunConfig, RunSummary
from eventlog.recorder import Recorder

if TYPE_CHECKING:
    from eventlog.run import Run

__all__ = ["PicklingMethods"]

logger = logging.getLogger("eventlog")

_PROCESS = secrets.token_hex(8)
"""This process and those forked from it."""


class _State(NamedTuple):
    """What a pickled run says of the run: plain values, secrets redacted."""

    process: str
    key: int
    quiet: bool
    project: str
    name: str
    run_id: str
    base: str | None
    rank: int
    world_size: int
    config: dict[str, Any]
    summary: dict[str, Any]
    attempt: int
    counters: dict[str, int]


class PicklingMethods:
    """A run is one thing, with threads and an open log: copies of it in its process are itself.

    A pickled run is, in its own process, that run again; in another process it is a handle that
    knows which run and rank it belongs to. All calls work there; what they give is counted, under
    "pickled", and recorded nowhere, for a log has one writer.
    """

    project: str
    name: str
    rank: int
    world_size: int
    config: RunConfig
    summary: RunSummary
    _recorder: Recorder
    _counters: Counters
    _where: Whereabouts
    _base: Path | None
    _origin: _State | None = None
    _warned = False

    @property
    def _is_a_copy(self) -> bool:
        """Whether the run itself is in another process."""
        return self._origin is not None

    def _silent_recorder(self, strict: bool) -> Recorder:
        """Return the recorder of a run that records nothing here."""
        if self._origin is not None and not self._origin.quiet:
            return AbsentRecorder()
        return QuietRecorder(strict=strict)

    def _refuse_foreign(self) -> None:
        if self._origin is None:
            super()._refuse_foreign()  # type: ignore[misc]
        elif not self._warned:
            self._warned = True
            logger.warning(
                "eventlog: this is a copy of run %s, which another process records: what is "
                "logged here is counted, and not recorded; make a Run in this process, or send "
                "the values to the other one",
                self._origin.run_id or self.name,
            )

    def __copy__(self) -> PicklingMethods:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PicklingMethods:
        return self

    def __reduce__(self) -> Any:
        return _restore, tuple(self._origin or self._state())

    def _state(self) -> _State:
        counters = self._counters
        return _State(
            process=_PROCESS,
            key=id(self),
            quiet=self._recorder.quiet,
            project=self.project,
            name=self.name,
            # on a rank that does not know it yet, asking would wait
            run_id=self._where.id if self._where.known else "",
            base=None if self._base is None else str(self._base),
            rank=self.rank,
            world_size=self.world_size,
            config=self.config.as_dict(),
            summary=self.summary.as_dict(),
            attempt=counters.attempt,
            counters={
                name: getattr(counters, name) for name in ("step", "batch", "epoch", "epoch_step")
            },
        )


def _restore(*fields: Any) -> Run:
    """Return the run that was pickled, or what stands for it in this process."""
    state = _State(*fields)
    if state.process == _PROCESS:
        for run in list(all_runs):
            # another run may lie where that one was
            if id(run) == state.key and run._state().run_id == state.run_id:
                return run
    return _handle(state)


def _handle(state: _State) -> Run:
    kind: type[Run] = importlib.import_module("eventlog.run").Run
    run = kind.__new__(kind)
    run._origin = state
    kind.__init__(
        run,
        state.project,
        state.name,
        dir=None,
        sinks=[],
        rank=state.rank,
        world_size=state.world_size,
    )
    # what is recorded elsewhere is nothing that this process could end
    open_runs.remove(run)
    run.name = state.name
    run._base = None if state.base is None else Path(state.base)
    run._where = Whereabouts(run._base)
    run._where.settle(state.run_id)
    run.config = RunConfig(dict(state.config), run._tell_config)
    run.summary = RunSummary(dict(state.summary), run._tell_summary)
    run._counters.attempt = state.attempt
    for name, value in state.counters.items():
        setattr(run._counters, name, value)
    return run
