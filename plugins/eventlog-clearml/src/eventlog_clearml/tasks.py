"""Opening and closing ClearML tasks, without what `Task.init` does to a process.

`Task.init` makes the process's one main task: it hooks signals, exit and forks, and starts
threads. A task that is made like those of `Task.create`, which works offline, too, does none of
that, and any number of them can be open beside the user's own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from eventlog.exceptions import RefusedError
from eventlog_clearml.hooks import environment, undisturbed
from eventlog_clearml.session import calls, make_session

__all__ = ["Opened", "Wanted", "alone", "close_task", "open_task", "status_task"]

_OFF = {
    "auto_connect_arg_parser": False,
    "auto_connect_frameworks": {"detect_repository": False},
    "auto_resource_monitoring": False,
    "auto_connect_streams": False,
}
_EXTRAS = {
    "auto_connect_arg_parser": "arguments",
    "auto_connect_frameworks": "frameworks",
    "auto_connect_streams": "streams",
}
_lock = threading.Lock()
_offline_before: list[tuple[Any, Any]] = []


class Wanted(NamedTuple):
    """What task to open.

    Attributes:
        project, name: For a new one.
        task_type: training, testing, ...
        task_id: Which one to go on with; a new one where it is gone.
        folder: Where offline tasks lie; None when online.
        api_server: The server's address; None for the SDK's own configuration.
        adopt: Whether to use the process's own task, if it has one.
        init: Arguments of `Task.init`, for a task made by it; None for one without hooks.
    """

    project: str
    name: str
    task_type: str = "training"
    task_id: str | None = None
    folder: Path | None = None
    api_server: str | None = None
    adopt: bool = False
    init: Mapping[str, Any] | None = None


class Opened(NamedTuple):
    """An open task.

    Attributes:
        task: The SDK's object.
        session: What sends.
        own: Whether it is the sink's to close.
        resumed: Whether it was there before.
        offline: Whether it keeps the SDK offline.
    """

    task: Any
    session: Any
    own: bool
    resumed: bool
    offline: bool = False


def open_task(wanted: Wanted) -> Opened:
    """Open a task: the user's own, an earlier one, or a new one.

    Raises:
        UnavailableError: The server is not there.
        RefusedError: There are no credentials, or the process's own task is in the way.
    """
    extras = frozenset(_EXTRAS[key] for key in _asked(wanted.init) if key in _EXTRAS)
    with _lock, environment(_variables(wanted)), undisturbed(extras):
        task_class: Any = importlib.import_module("clearml").Task
        current = task_class.current_task()
        if current is not None and wanted.adopt:
            return Opened(current, current.session, own=False, resumed=True)
        _check_current(current, task_class, wanted)
        if current is None:
            _configure()
        offline = wanted.folder is not None
        if offline:
            _go_offline(task_class)
        try:
            session = make_session(wanted.api_server)
            with _default_session(session, keep=not offline), calls(session):
                return _open(task_class, session, wanted)._replace(offline=offline)
        except BaseException:
            if offline:
                _leave_offline()
            raise


def close_task(opened: Opened) -> None:
    """Send what the user gave to the task itself, and let go of it; offline, make the zip."""
    if not opened.own:
        return
    # the module's own name, so that nothing else in the process loses its print
    module: Any = importlib.import_module("clearml.task")
    # the SDK gives the streams back, if it was asked to take them
    with _lock, alone(), undisturbed(frozenset({"streams"})):
        module.print = _quiet
        try:
            opened.task.close()
        finally:
            del module.print
            base = _base()
            if base._default_session is opened.session:
                base._default_session = None
            if opened.offline:
                _leave_offline()


def status_task(opened: Opened, status: str, reason: str, message: str) -> None:
    """Set the status of a task, which is closed when it is online, and open when it is not."""
    task = opened.task
    if task.is_offline():
        task._edit(status=status, status_reason=reason, status_message=message)
        return
    facts = {"force": True, "ignore_errors": False, "status_message": message}
    with calls(opened.session):
        if status == "completed":
            task.mark_completed(**facts)
        elif status == "failed":
            task.mark_failed(status_reason=reason, **facts)
        else:
            task.stopped(status_reason=reason, **facts)


def _open(task_class: Any, session: Any, wanted: Wanted) -> Opened:
    if wanted.init is not None:
        return _init(task_class, session, wanted)
    task = _existing(task_class, session, wanted)
    if task is not None:
        task.mark_started(force=True)
        return Opened(task, session, own=True, resumed=True)
    # without CLEARML_TASK_ID, which says that an agent runs this process for a task
    maker: Any = importlib.import_module("clearml.backend_interface.task").Task
    made = maker(
        session=session,
        project_name=wanted.project,
        task_name=wanted.name,
        task_type=wanted.task_type,
    )
    if wanted.folder is not None:
        made._edit()
    task = task_class.get_task(task_id=made.id)
    task.mark_started(force=True)
    return Opened(task, session, own=made.id != os.environ.get("CLEARML_TASK_ID"), resumed=False)


def _existing(task_class: Any, session: Any, wanted: Wanted) -> Any:
    """Return the task to go on with, or None where it is gone or published, and so is closed."""
    if wanted.task_id is None:
        return None
    if wanted.folder is not None:
        if not (wanted.folder / "offline" / wanted.task_id / "task.json").is_file():
            return None
        return task_class.get_task(task_id=wanted.task_id)
    if wanted.task_id.startswith("offline-"):
        return None
    services: Any = importlib.import_module("clearml.backend_api.services").tasks
    request = services.GetAllRequest(id=[wanted.task_id], only_fields=["id", "status"])
    result = session.send(request)
    if session.outage:
        raise ConnectionError(session.outage)
    found = (result.response and result.response.tasks) or []
    if not found or str(found[0].status) in ("published", "publishing"):
        return None
    return task_class.get_task(task_id=wanted.task_id)


def _init(task_class: Any, session: Any, wanted: Wanted) -> Opened:
    going_on: dict[str, Any] = {"reuse_last_task_id": False}
    if _existing(task_class, session, wanted) is not None:
        going_on = {"reuse_last_task_id": wanted.task_id, "continue_last_task": 0}
    options = {**_OFF, "task_type": wanted.task_type, **going_on, **(wanted.init or {})}
    task = task_class.init(project_name=wanted.project, task_name=wanted.name, **options)
    task_class._remove_signal_hooks()
    task_class._remove_exception_hooks()
    # forked children would take the task over and start its threads
    importlib.import_module("clearml.binding.environ_bind").PatchOsFork._current_task = None
    return Opened(task, session, own=True, resumed="continue_last_task" in going_on)


def _asked(init: Mapping[str, Any] | None) -> list[str]:
    return [] if init is None else [key for key, value in init.items() if value]


def _variables(wanted: Wanted) -> dict[str, str | None]:
    folder = {} if wanted.folder is None else {"CLEARML_CACHE_DIR": str(wanted.folder)}
    return _no_master() | folder


def alone() -> AbstractContextManager[None]:
    """Hide from the SDK that a parent process has a task, which this one would then take over."""
    return environment(_no_master())


def _no_master() -> dict[str, str | None]:
    names = ("CLEARML_PROC_MASTER_ID", "TRAINS_PROC_MASTER_ID")
    own = f"{os.getpid()}:"
    return {name: None for name in names if not os.environ.get(name, own).startswith(own)}


def _check_current(current: Any, task_class: Any, wanted: Wanted) -> None:
    offline = wanted.folder is not None
    if current is not None and wanted.init is not None:
        raise RefusedError(
            "this process has a ClearML task already, so init= cannot make another one: "
            "pass adopt=True to report to it, or leave init out"
        )
    busy = current is not None or _offline_before
    if busy and bool(task_class.is_offline()) != offline:
        raise RefusedError(
            f"ClearML is {'online' if offline else 'offline'} in this process already, and knows "
            'only one mode at a time: put the sink into the sidecar ("isolate": True)'
        )


@functools.cache
def _configure() -> None:
    """Have the SDK report from threads, not from a forked process, and give up at some time."""
    config: Any = importlib.import_module("clearml.config")
    config.config_obj.set_overrides(
        {
            "sdk": {
                "development": {"report_use_subprocess": False, "suppress_update_message": True},
                "http": {"download": {"max_retries": 1}},
            }
        }
    )
    config.config.clear_config_impl()


def _base() -> Any:
    return importlib.import_module("clearml.backend_interface.base").InterfaceBase


@contextlib.contextmanager
def _default_session(session: Any, *, keep: bool) -> Iterator[None]:
    """Have the SDK use this session, which it takes from a class."""
    base = _base()
    before, base._default_session = base._default_session, session
    try:
        yield
    except BaseException:
        base._default_session = before
        raise
    if before is not None or not keep:
        base._default_session = before


def _go_offline(task_class: Any) -> None:
    """Change the mode, and note how things were, for the last offline task to put them back."""
    base = _base()
    _offline_before.append((base._offline_mode, base._default_session))
    task_class.set_offline(True)


def _leave_offline() -> None:
    """Be as online as before, once the last offline task is closed.

    `Task.set_offline(False)` would connect all sessions that were ever made.
    """
    before = _offline_before.pop()
    if not _offline_before:
        base = _base()
        base._offline_mode, base._default_session = before
        importlib.import_module("clearml.backend_api").Session._offline_mode = before[0]


def _quiet(*args: object, **options: object) -> None:
    """Print nothing."""
