"""W&B's run and its helper process, wandb-core, from their start to their end.

Whatever the SDK hooks into the process at its start is taken out again: ``sys.exit``,
``sys.excepthook``, a finder on ``sys.meta_path``, environment variables, and a function at exit
that waits for wandb-core. The process is ended with the run, or killed when it takes too long.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["SETTINGS", "Session", "load_sdk", "untouched"]

SETTINGS: Mapping[str, Any] = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "label_disable": True,
    "quiet": True,
    "sagemaker_disable": True,
    "save_code": False,
    "silent": True,
    "symlink": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    # how soon what was logged is in the file; `flush` waits for it
    "x_transaction_log_flush_interval": 0.25,
    "init_timeout": 30.0,
    "finish_timeout": 40.0,
    "finish_timeout_raises": True,
}
"""What is told to the SDK unless the user says otherwise: its extras off, and limits to waiting."""

_ENVIRONMENT = {
    # looked for by settings of the process' own, whatever a run's say
    "WANDB_DISABLE_GIT": "true",
    # error reports and usage figures, which look up a host of W&B's also in offline mode
    "WANDB_ERROR_REPORTING": "false",
    # otherwise an imported weave is started, too
    "WANDB_DISABLE_WEAVE": "true",
    # lines about the login, which are not the run's own
    "WANDB_SILENT": "true",
}


@contextlib.contextmanager
def untouched(**environment: str) -> Iterator[None]:
    """Put back what the SDK changes in the process; set variables that the user did not set."""
    saved = _wandb_variables()
    before = sys.exit, sys.excepthook, list(sys.meta_path)
    filters, modules = list(warnings.filters), set(sys.modules)
    # another process' service, if we are its child, would end with that process
    os.environ.pop("WANDB_SERVICE", None)
    for name, value in {**_ENVIRONMENT, **environment}.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if _is_sdk(sys.exit):
            sys.exit = before[0]
        if _is_sdk(sys.excepthook):
            sys.excepthook = before[1]
        for finder in list(sys.meta_path):
            if _is_sdk(finder) and finder not in before[2]:
                sys.meta_path.remove(finder)
        _remove_filters(filters, {name.partition(".")[0] for name in set(sys.modules) - modules})
        for name in _wandb_variables():
            del os.environ[name]
        os.environ.update(saved)


def load_sdk() -> None:
    """Import the SDK, which with the libraries that it brings changes the process, too."""
    with untouched():
        importlib.import_module("wandb.proto.wandb_internal_pb2")


def _wandb_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("WANDB_")}


def _remove_filters(before: list[Any], libraries: set[str]) -> None:
    """Remove the warning filters that libraries have added which were imported since."""
    for each in list(warnings.filters):
        message, category = each[1], each[2]
        origin = message.pattern if isinstance(message, re.Pattern) else category.__module__
        if each not in before and str(origin).partition(".")[0] in libraries:
            warnings.filters.remove(each)  # type: ignore[attr-defined]


def _is_sdk(thing: object) -> bool:
    owner = getattr(thing, "__self__", thing)
    return type(owner).__module__.startswith("wandb.")


_ours: weakref.WeakSet[Any] = weakref.WeakSet()


class Session:
    """A run of W&B, and wandb-core where it was started for it.

    Args:
        arguments: For `wandb.init`.

    Attributes:
        run: The SDK's own object.

    Raises:
        wandb.Error: As `wandb.init` does.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.run: Any = None
        with untouched():
            import wandb
            from wandb.analytics import get_telemetry_recorder

            self._wandb = wandb
            self._owns = _connection() is None
            try:
                # made at first use, and kept: now, when reports are switched off
                get_telemetry_recorder()
                self.run = wandb.init(**arguments)
            except BaseException:
                self._tear_down(20.0)
                raise
            self._core = _core_process()
            _ours.add(self.run)
            if self._owns and self._core is not None:
                _leave_at_exit()
                _forget_settings()

    @property
    def alive(self) -> bool:
        """Whether wandb-core still runs, where that can be known."""
        return self._core is None or self._core.poll() is None

    def end(self, exit_code: int, patience: float) -> None:
        """Finish the run and end wandb-core; kill it when that takes too long.

        Raises:
            TimeoutError: Not everything could be sent.
            wandb.Error: Something else went wrong; so may other exceptions of the SDK's say.
        """
        with self._killed_after(patience), untouched():
            try:
                self.run.finish(exit_code=exit_code)
            finally:
                self._tear_down(patience)

    def _tear_down(self, patience: float) -> None:
        """End wandb-core, if it is ours and nobody else's run needs it."""
        if not self._owns or _connection() is None:
            return
        if any(run is not self.run for run in _active_runs()):
            return
        core = _core_process()
        with self._killed_after(patience):
            try:
                self._wandb.teardown()
            except (Exception, SystemExit):  # it was dead already, or had to be killed
                if core is None or core.poll() is None:
                    raise
            finally:
                if core is not None and core.poll() is None:
                    core.kill()
                    core.wait()

    @contextlib.contextmanager
    def _killed_after(self, patience: float) -> Iterator[None]:
        """Kill wandb-core after so many seconds, so that no call of the SDK waits for ever."""
        core = _core_process() if self._owns else None
        if core is None:
            yield
            return
        timer = threading.Timer(patience, core.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


# What follows has no public name in the SDK; where one is missing, less is known.


def _singleton() -> Any:
    setup = sys.modules.get("wandb.sdk.wandb_setup")
    return getattr(setup, "_singleton", None)


def _connection() -> Any:
    return getattr(_singleton(), "_connection", None)


def _active_runs() -> list[Any]:
    return list(getattr(_singleton(), "_active_runs", ()))


def _core_process() -> Any:
    """Return wandb-core's `subprocess.Popen`, if this process started it."""
    return getattr(getattr(_connection(), "_proc", None), "_process", None)


def _leave_at_exit() -> None:
    """Let the process end without waiting for wandb-core, which then ends by itself.

    The SDK waits for it at exit, without a limit. That stays so for runs which the user started
    and did not finish.
    """
    connection = _connection()
    cleanup = getattr(connection, "_cleanup", None)
    if cleanup is None:
        return
    cleanup()

    def tear_down() -> None:
        if any(run not in _ours for run in _active_runs()):
            connection.teardown(0)

    connection._cleanup = lambda: atexit.unregister(tear_down)
    atexit.register(tear_down)


def _forget_settings() -> None:
    """Let a run of the user's, should there be one, find its own settings in the environment."""
    vars(_singleton())["_settings"] = None
