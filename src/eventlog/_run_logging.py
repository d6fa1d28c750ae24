"""The methods of a run that say what happens."""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from eventlog._config import plain_config
from eventlog._counters import Counters
from eventlog._due import Dues
from eventlog._run_loops import LoopMethods
from eventlog._run_media import MediaMethods
from eventlog._run_places import last_step
from eventlog._values import plain_in_place
from eventlog.cadence.gate import Gate
from eventlog.clock import monotonic_ns
from eventlog.events import (
    BatchEvent,
    ConfigUpdated,
    EpochEvent,
    Event,
    ModelUpdateEvent,
    StepEvent,
    SummaryUpdated,
)
from eventlog.log.inbox import Inbox
from eventlog.recorder import Recorder, rank_directory

__all__ = ["LoggingMethods"]

logger = logging.getLogger("eventlog")


class LoggingMethods(LoopMethods, MediaMethods):
    """What training code calls, beside the media. Nothing here waits or raises for a value."""

    _recorder: Recorder
    _inbox: Inbox
    _counters: Counters
    _record: Gate | None
    _dues: Dues
    _thinned: int
    _unplaced: bool
    rank: int

    @property
    def _resumed_at(self) -> int:
        """The attempt that this process began with."""
        return self._recorder.attempt

    if TYPE_CHECKING:  # what another part of `Run` brings

        def sync(self, timeout: float | None = 10.0) -> bool:
            """See `Run.sync`."""
            raise NotImplementedError

        def _at_exit(self) -> None:
            raise NotImplementedError

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
            inbox = self._inbox
            if values is None and step is None and len(inbox.items) < inbox.room:
                for value in scalars.values():
                    if type(value) is not float:
                        plain = plain_in_place(scalars)
                        break
                else:
                    plain = "epoch" not in scalars and "batch" not in scalars
                if plain:
                    counters = self._counters
                    at = counters.step
                    inbox.append(
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
            inbox = self._inbox
            if values is None and step is None and len(inbox.items) < inbox.room:
                for value in scalars.values():
                    if type(value) is not float:
                        plain = plain_in_place(scalars)
                        break
                else:
                    plain = "epoch" not in scalars and "batch" not in scalars
                if plain:
                    counters = self._counters
                    inbox.append(
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
            recorder.inbox.drop(recorder.absence)
            return
        batch, epoch = scalars.pop("batch", None), scalars.pop("epoch", None)
        every, axis = scalars.pop("every", None), scalars.pop("axis", None)
        durable, options = scalars.pop("durable", None), scalars.pop("options", None)
        place = counters.place(step, batch, epoch, own_axis=axis is not None)
        if place.rejected:
            recorder.rejections.add(place.rejected)
        if self._unplaced:
            self._go_on_at(place.step, own_axis=axis is not None)
        if (every is not None and not self.due(every)) or recorder.quiet:
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

    def _go_on_at(self, step: int | None, *, own_axis: bool) -> None:
        """Say so where a resumed run begins at step 0 again: most who do that have not meant to."""
        if own_axis:
            return
        self._unplaced = False
        if self._record is None and self._counters.steps_per_epoch is None:
            self._inbox.open_up()
        run_dir = self._recorder.run_dir
        if step != 0 or run_dir is None or self._counters.attempt != self._resumed_at:
            return
        with contextlib.suppress(OSError):
            last = last_step(rank_directory(run_dir, self.rank))
            if last > 0:
                logger.warning(
                    "eventlog: run %s was resumed, and its first step is 0 again, where it had "
                    "logged up to step %d: the steps that are logged again are superseded. To go "
                    "on instead, keep run.state_dict() in your checkpoints and load it, or give "
                    "step=; to start over without a word, call run.rewind(0)",
                    run_dir.name,
                    last,
                )

    def due(self, every: str) -> bool:
        """Whether a cadence is due at the current step: for values that are dear to compute.

        All calls with the same text at the same step get the same answer.

        Raises:
            CadenceError: The text is wrong, or counts what a run does not, such as "tokens".
        """
        return self._dues.ask(every, self._counters)

    def model_updated(
        self,
        kind: str = "update",
        /,
        *,
        values: Mapping[str, Any] | None = None,
        **summary: Any,
    ) -> None:
        """Say that the model itself changed: pruned, quantised, frozen, grown.

        Args:
            kind: What was done, in a word.
            values: Scalars of any kind, as for `Run.log`; on a device, they are not waited for.
            summary: What changed, in plain values; numbers become values of the event.
        """
        plain = plain_config(summary)
        event = ModelUpdateEvent(kind=kind, summary=plain, **self._axes(None, None))
        numbers = {k: v for k, v in plain.items() if isinstance(v, int | float)}
        self._dues.model_updated(event)
        if self._record is not None:
            self._record.model_updated(event)
        if not values:
            self._put_reserved(msgspec.structs.replace(event, values=numbers))
            return
        try:
            numbers |= dict(values)
        except (TypeError, ValueError):
            advice = f"values must be a mapping of names to values, not {type(values).__name__}"
            self._recorder.rejections.add([("values", "not_a_mapping", advice)])
        self._recorder.offer(event, numbers, reserved=True)

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
        counters = self._counters
        place = counters.place(step, None, None, own_axis=True)
        if place.rejected:
            self._recorder.rejections.add(place.rejected)
        # resumed, and nobody has said yet where training goes on: at step 0 it would stand for
        # all that was logged before
        nowhere = step is None and not counters.step and 1 < counters.attempt == self._resumed_at
        return {
            "mono": monotonic_ns(),
            "step": None if nowhere else place.step,
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

    def _abandon(self) -> None:
        """Become harmless: this is a forked child's copy."""
        self._recorder.abandon()
        atexit.unregister(self._at_exit)

    def _refuse_foreign(self) -> None:
        """Notice a fork that went past Python's own hooks: nobody would take what is put here."""
        if not self._recorder.abandoned:
            self._abandon()
