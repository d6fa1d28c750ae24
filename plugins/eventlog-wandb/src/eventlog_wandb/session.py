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
import shutil
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eventlog_wandb.temporary import make_on_demand, remove_empty

__all__ = ["SETTINGS", "Session", "load_sdk", "staged_in", "untouched"]

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


class _Process:
    """What the SDK changes in the process, as it was."""

    def __init__(self) -> None:
        self._variables = _wandb_variables()
        self._exit, self._excepthook = sys.exit, sys.excepthook
        self._finders, self._filters = list(sys.meta_path), list(warnings.filters)
        self._modules = set(sys.modules)

    def put_back(self) -> None:
        if _is_sdk(sys.exit):
            sys.exit = self._exit
        if _is_sdk(sys.excepthook):
            sys.excepthook = self._excepthook
        for finder in list(sys.meta_path):
            if _is_sdk(finder) and finder not in self._finders:
                sys.meta_path.remove(finder)
        new = set(sys.modules) - self._modules
        _remove_filters(self._filters, {name.partition(".")[0] for name in new})
        for name in _wandb_variables():
            del os.environ[name]
        os.environ.update(self._variables)


# Sinks of one run have threads of their own, but one process, one SDK and one wandb-core.
_lock = threading.RLock()
_changing = threading.Lock()
_staging = threading.Lock()
_before: list[_Process] = []


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Put back what the SDK changes in the process, when the last that came in goes out."""
    with _changing:
        _before.append(_before[-1] if _before else _Process())
        # another process' service, if we are its child, would end with that process
        os.environ.pop("WANDB_SERVICE", None)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    try:
        yield
    finally:
        with _changing:
            process = _before.pop()
            if not _before:
                process.put_back()


@contextlib.contextmanager
def staged_in(folder: Path) -> Iterator[None]:
    """Have the SDK keep copies of files in a folder until they are sent."""
    with _staging, _variable("WANDB_DATA_DIR", folder):
        yield


@contextlib.contextmanager
def _variable(name: str, folder: Path | None) -> Iterator[None]:
    """Set a variable that the user did not set."""
    if folder is None or name in os.environ:
        yield
        return
    os.environ[name] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(name, None)


def load_sdk() -> None:
    """Import the SDK, which with the libraries that it brings changes the process, too."""
    with _lock, untouched():
        importlib.import_module("wandb.proto.wandb_internal_pb2")
        make_on_demand()
        remove_empty()


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
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_own_connection: list[Any] = []


class Session:
    """A run of W&B, and wandb-core where it was started for it or for another one of ours.

    Args:
        arguments: For `wandb.init`.

    Attributes:
        run: The SDK's own object.

    Raises:
        wandb.Error: As `wandb.init` does.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.run: Any = None
        folder = arguments["dir"] and Path(arguments["dir"])
        cache = folder and folder / "wandb" / "cache"
        with _lock, untouched(), _variable("WANDB_CACHE_DIR", cache):
            import wandb
            from wandb.analytics import get_telemetry_recorder

            self._wandb = wandb
            first, before = _connection() is None, _run_folders(folder, arguments["id"])
            try:
                # made at first use, and kept: now, when reports are switched off
                get_telemetry_recorder()
                self.run = wandb.init(**arguments)
            except BaseException:
                self._take_over(first)
                self._tear_down(20.0)
                # otherwise each further try would leave one, and none has anything in it
                for new in _run_folders(folder, arguments["id"]) - before:
                    shutil.rmtree(new, ignore_errors=True)
                raise
            self._take_over(first)
            self._core = _core_process()
            _ours.add(self.run)
            _sessions.add(self)
            if first and self._core is not None:
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
        with untouched():
            try:
                with self._killed_after(patience):
                    self.run.finish(exit_code=exit_code)
            finally:
                self._tear_down(patience)

    @property
    def _owns(self) -> bool:
        return bool(_own_connection) and _connection() is _own_connection[0]

    def _take_over(self, first: bool) -> None:
        """Note that wandb-core is ours, if there was none before."""
        if first:
            _own_connection[:] = [_connection()]

    def _tear_down(self, patience: float) -> None:
        """End wandb-core, if it is ours and nobody else's run needs it."""
        with _lock:
            # the SDK forgets a run before all of it is sent; here it is known until then
            _sessions.discard(self)
            if _sessions or any(run is not self.run for run in _active_runs()):
                return
            try:
                if self._owns and _connection() is not None:
                    self._end_core(patience)
            finally:
                remove_empty()

    def _end_core(self, patience: float) -> None:
        core = _core_process()
        with self._killed_after(patience):
            try:
                self._wandb.teardown()
            except (Exception, SystemExit):  # it was dead already, or had to be killed
                if core is None or core.poll() is None:
                    raise
            finally:
                _own_connection.clear()
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


def _run_folders(folder: Path | None, run_id: str) -> set[Path]:
    """Return the folders that the SDK has made for a run; of one second they have numbers."""
    name = re.compile(rf"(offline-)?run-\d+_\d+-{re.escape(run_id)}(-\d+)?")
    paths = () if folder is None else folder.glob("*/*run-*")
    return {
        path
        for path in paths
        if name.fullmatch(path.name)
        and all(file.name == f"run-{run_id}.wandb" for file in path.glob("*.wandb"))
    }


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
