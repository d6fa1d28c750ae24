"""What the integrations have in common: a run that is opened when needed and ends as it should."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from eventlog._run_end import status_of
from eventlog.events import Status
from eventlog.run import Run

__all__ = ["RunKeeper", "list_images"]


class RunKeeper:
    """Opens a run when it is first needed, and logs at the steps that a framework counts.

    Frameworks name a step in each call, so that a run's own counter stays at the last one. What
    training goes on with after a checkpoint is the step behind it: `state_dict` says that one.

    Args:
        project, options: For `Run`.
        run: One that the user has made, and ends.
        reopens: Whether a call after the end opens another run.

    Attributes:
        last: The run that was opened last; None before the first one.

    Raises:
        TypeError: Both are given, `run` is no run, or there is no such option.
    """

    def __init__(
        self,
        project: str | None,
        options: Mapping[str, Any],
        run: Run | None = None,
        *,
        reopens: bool = False,
    ) -> None:
        if run is not None and (project is not None or options):
            names = ", ".join([*(() if project is None else ("the project",)), *options])
            raise TypeError(f"run= is a run that is open already: {names} cannot be given with it")
        if run is not None and not isinstance(run, Run):
            raise TypeError(f"run must be a Run that is open, not {run!r}")
        # said here, where the name stands, and not when training begins
        known = inspect.signature(Run.__init__).parameters
        for option in options:
            if option not in known:
                near = difflib.get_close_matches(option, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"Run has no argument {option!r}{hint}")
        self.project = project
        self.options = dict(options)
        self.given = run
        self.last: Run | None = run
        self.is_open = run is not None
        self._reopens = reopens
        self._before: BaseException | None = None
        self._next: int | None = None

    @property
    def run(self) -> Run:
        """The run; opened now where there is none."""
        if self.last is None or (self._reopens and not self.is_open):
            return self.open()
        return self.last

    def open(self, **more: Any) -> Run:
        """Open a run, with options beside those that the user gave."""
        if self.given is not None:
            self.is_open = True
            return self.given
        self._before = sys.exc_info()[1]
        self.last = Run(self.project, **(more | self.options))
        self.is_open = True
        self._next = None
        return self.last

    def close(self, status: Status | None = None, error: str | None = None) -> None:
        """End the run, unless the user does.

        Args:
            status: None for what the exception says that is being handled now, if there is one.
            error: The exception that ended it, in a line.
        """
        run = self.last
        if not self.is_open or run is None:
            return
        self.is_open = False
        if run is self.given:
            return
        if status is None:
            status, error = status_of(sys.exc_info()[1], self._before)
        run._close(status, error, None)

    def log(self, values: Any, step: Any, **named: Any) -> None:
        """Log values at a step; None for the run's own."""
        run = self.run
        run.log(values, step, **named)
        if step is not None and named.get("axis") is None:
            self._next = run._counters.step + 1

    def state_dict(self) -> dict[str, Any]:
        """Return where the run is; its step is the one that training goes on with."""
        state = self.run.state_dict()
        if self._next is not None and self._next > state["step"]:
            state["step"] = self._next
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            ValueError: It is no such state.
        """
        self.run.load_state_dict(state)
        self._next = None


def list_images(value: Any) -> tuple[list[Any], str | None]:
    """Return images in all shapes that frameworks take them in, and the caption that is with them.

    Args:
        value: An image, a list of these, an array or tensor of shape (images, ...), or a pair of
            an image and its caption.
    """
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):
        return [value[0]], value[1]
    if isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 4:
        return list(value), None
    return [value], None
