"""When to log: the published `FrequencyManager` and the stateless `log_ready`.

All that can change the answer (a log, a model update, the frequency) changes it once, so the
manager keeps one number for each of its two questions: the smallest step that is ready.
`FrequencyManager.log_ready` compares with it.

Integers are compared as integers, whatever their size. Floats are granted the error that their
arithmetic makes (see ``_threshold``): with ``n`` steps in an epoch and a frequency of ``1 / n``
each step is logged once.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeAlias, cast

from eventlog.cadence._arguments import choice, not_a_step, plain, valid_frequency, valid_step
from eventlog.cadence._threshold import after, grid_after

LogStepType: TypeAlias = int | float | None
LoggingModeType: TypeAlias = Literal["exact", "on_change", "on_update"]
FrequencyType: TypeAlias = Literal["epoch", "step", "batch"]
AnchorType: TypeAlias = Literal["last", "grid"]

_MODES = {"exact": "exact", "on_change": "on_change", "on_update": "on_update"}
_MODES |= {mode.replace("_", "-"): mode for mode in _MODES}
_TYPES = {"epoch": "epoch", "step": "step", "batch": "batch"}
_TYPES |= {"epochs": "epoch", "steps": "step", "batches": "batch"}
_ANCHORS = {"last": "last", "grid": "grid"}

_ALWAYS = -math.inf
_NEVER = math.inf


class FrequencyManager:
    """Decide when to log, by the steps since the last log and the last model update.

    `log_ready` asks and changes nothing; `log_written` and `model_updated` say what happened.

    Args:
        log_frequency: Steps from one log to the next, greater than 0, or None for never.
        mode: ``exact``: at the frequency. ``on_change``: at the frequency, if the model was updated
            at or after the last log and the update is one frequency old. ``on_update``: the same
            without waiting for the update to settle (with an update on every step, ``on_change``
            never logs again).
        frequency_type: What a step is: ``epoch`` (integers or floats), ``step`` or ``batch``
            (integers).
        anchor: ``last``: due one frequency after the last log. ``grid``: due when a multiple of the
            frequency is crossed, once for a jump over several; at a stride of 7, frequency 10 logs
            0, 14, 21, 35, 42.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: An unknown mode, type or anchor, or a frequency that is not above 0 and finite.
    """

    __slots__ = (
        "_after_log",
        "_anchor",
        "_due",
        "_due_checked",
        "_frequency",
        "_integral",
        "_last",
        "_mode",
        "_type",
        "_update",
    )

    _after_log: int | float
    _due: int | float
    _due_checked: int | float
    _frequency: LogStepType
    _last: LogStepType
    _update: LogStepType

    def __init__(
        self,
        log_frequency: LogStepType = None,
        mode: LoggingModeType = "exact",
        frequency_type: FrequencyType = "epoch",
        *,
        anchor: AnchorType = "last",
    ) -> None:
        self._mode = choice("logging mode", mode, _MODES)
        self._type = choice("frequency type", frequency_type, _TYPES)
        self._integral = self._type != "epoch"
        self._frequency = valid_frequency(log_frequency, self._integral)
        self._anchor = choice("anchor", anchor, _ANCHORS)
        self._last = None
        self._update = None
        self._refresh()

    def __repr__(self) -> str:
        anchor = "" if self._anchor == "last" else f", anchor={self._anchor}"
        return (
            f"{type(self).__name__}(log_frequency={self._frequency}, "
            f"mode={self._mode}, frequency_type={self._type}{anchor})"
        )

    def log_ready(self, current_log_step: LogStepType, check_model_update: bool = False) -> bool:
        """Return whether a log is due at ``current_log_step``, and change nothing.

        The step is compared and not validated, for speed: a negative one is merely not due (or the
        first), and a float is welcome whatever the frequency type.

        Args:
            current_log_step: The step to ask about; None is ready unless the frequency is None.
            check_model_update: Apply the rule of mode ``on_change`` as well. False does not switch
                a mode off.

        Raises:
            TypeError: The step cannot be compared with a number.
            ValueError: The step is NaN or infinite.
        """
        if current_log_step is None:
            return self._frequency is not None
        if current_log_step < (self._due_checked if check_model_update else self._due):
            return False
        if not current_log_step < _NEVER:  # NaN or infinity
            raise not_a_step(current_log_step)
        return True

    def log_written(self, step: LogStepType = None) -> None:
        """Record that a log was written at ``step``; None forgets the last one."""
        self.last_log_step = step

    def model_updated(self, step: LogStepType = None) -> None:
        """Record that the model changed at ``step``; None forgets the last update."""
        self.last_model_update_step = step

    def next_due(self) -> int | float | None:
        """Return the smallest step at which `log_ready` is True, or None if no step makes it so.

        For floats it lies below the nominal step by the error granted to them.
        """
        if self._due == _ALWAYS:
            return 0
        return None if self._due == _NEVER else self._due

    def copy(self, *, fresh: bool = False) -> Self:
        """Return a manager with the same settings and state; ``fresh`` leaves the state behind."""
        twin = type(self)(
            self._frequency,
            cast(LoggingModeType, self._mode),
            cast(FrequencyType, self._type),
            anchor=cast(AnchorType, self._anchor),
        )
        if not fresh:
            twin.load_state_dict(self.state_dict())
        return twin

    def state_dict(self) -> dict[str, LogStepType]:
        """Return the last log and the last model update; settings belong to the constructor."""
        return {
            "last_log_step": self._last,
            "last_model_update_step": self._update,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; a state that is refused changes nothing.

        Raises:
            TypeError: A step is of the wrong type for this manager.
            ValueError: A key is missing, or a step is negative, NaN or infinite.
        """
        missing = [key for key in self.state_dict() if key not in state]
        if missing:
            raise ValueError(f"state must hold {' and '.join(missing)}, given {state!r}")
        last, update = (valid_step(state[key], self._integral) for key in self.state_dict())
        self._last, self._update = last, update
        self._refresh()

    @property
    def log_frequency(self) -> LogStepType:
        """The steps from one log to the next, or None for never."""
        return self._frequency

    @log_frequency.setter
    def log_frequency(self, log_frequency: LogStepType) -> None:
        self._frequency = valid_frequency(log_frequency, self._integral)
        self._refresh()

    _log_frequency = log_frequency  # the published LoggerManager sets it by this name

    @property
    def mode(self) -> str:
        """One of ``exact``, ``on_change``, ``on_update``."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._mode = choice("logging mode", mode, _MODES)
        self._refresh()

    _logging_mode = mode  # the published attribute

    @property
    def frequency_type(self) -> str:
        """One of ``epoch``, ``step``, ``batch``."""
        return self._type

    @frequency_type.setter
    def frequency_type(self, frequency_type: str) -> None:
        chosen = choice("frequency type", frequency_type, _TYPES)
        integral = chosen != "epoch"
        valid_frequency(self._frequency, integral)
        valid_step(self._last, integral)
        valid_step(self._update, integral)
        self._type, self._integral = chosen, integral
        self._refresh()

    @property
    def anchor(self) -> str:
        """One of ``last``, ``grid``."""
        return self._anchor

    @property
    def last_log_step(self) -> LogStepType:
        """The step of the last log, or None."""
        return self._last

    @last_log_step.setter
    def last_log_step(self, step: LogStepType) -> None:
        self._last = valid_step(step, self._integral)
        self._refresh()

    @property
    def last_model_update_step(self) -> LogStepType:
        """The step of the last model update, or None."""
        return self._update

    @last_model_update_step.setter
    def last_model_update_step(self, step: LogStepType) -> None:
        self._update = valid_step(step, self._integral)
        self._refresh_update()

    @property
    def is_epoch_frequency_manager(self) -> bool:
        """Whether a step is an epoch."""
        return self._type == "epoch"

    @property
    def is_optim_frequency_manager(self) -> bool:
        """Whether a step is an optimizer step."""
        return self._type == "step"

    def _refresh(self) -> None:
        """Work out the smallest step that is ready if updates do not count, then the others."""
        if self._frequency is None:
            self._after_log = _NEVER
        elif self._last is None:
            self._after_log = _ALWAYS
        else:
            threshold = after if self._anchor == "last" else grid_after
            self._after_log = threshold(self._last, self._frequency, self._integral)
        self._refresh_update()

    def _refresh_update(self) -> None:
        """Work out the smallest ready step, by the mode alone and with updates checked."""
        changed = settled = self._after_log
        update, last, frequency = self._update, self._last, self._frequency
        if update is not None and last is not None and frequency is not None:
            if update < last:
                changed = settled = _NEVER
            else:
                settled = max(settled, after(update, frequency, self._integral))
        self._due_checked = settled
        if self._mode == "exact":
            self._due = self._after_log
        else:
            self._due = settled if self._mode == "on_change" else changed


def log_ready(
    current_log_step: LogStepType,
    last_log_step: LogStepType,
    log_frequency: LogStepType,
    last_model_update_step: LogStepType = None,
    check_model_update: bool = False,
) -> bool:
    """Return whether a log is due: `FrequencyManager.log_ready` with the state as arguments.

    Args:
        current_log_step: The step to ask about; None is ready unless the frequency is None.
        last_log_step: The step of the last log; None is ready unless the frequency is None.
        log_frequency: Steps from one log to the next; None is never ready.
        last_model_update_step: The step of the last model update, or None.
        check_model_update: Ask also that the model was updated at or after the last log, one
            frequency ago or more.

    Raises:
        ValueError: A step is NaN or infinite, or the frequency is not above 0.
    """
    if current_log_step is None:
        return log_frequency is not None
    due: int | float
    if log_frequency is None:
        due = _NEVER
    elif last_log_step is None:
        due = _ALWAYS
    else:
        exact = type(current_log_step) is int
        due = _threshold(last_log_step, log_frequency, exact)
        if check_model_update and last_model_update_step is not None:
            if last_model_update_step < last_log_step:
                due = _NEVER
            else:
                due = max(due, _threshold(last_model_update_step, log_frequency, exact))
    if current_log_step < due:
        return False
    if not current_log_step < _NEVER:
        raise not_a_step(current_log_step)
    return True


def _threshold(last: int | float, frequency: int | float, exact: bool) -> int | float:
    """Return `after` for numbers that nothing has validated."""
    if not frequency > 0:
        raise ValueError(f"log frequency must be greater than 0, given {frequency}")
    if exact and type(last) is int and type(frequency) is int:
        return last + frequency
    if not last < _NEVER:
        raise not_a_step(last)
    if type(last) is not float or type(frequency) is not float:
        last, frequency = plain(last), plain(frequency)
    return after(last, frequency, exact)
