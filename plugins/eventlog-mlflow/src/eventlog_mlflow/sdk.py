"""How the SDK is called: quiet, within bounds, and with its failures told as a sink tells them."""

from __future__ import annotations

import email.utils
import importlib
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eventlog.exceptions import RefusedError, SinkError, UnavailableError

__all__ = ["REQUEST_SECONDS", "calls", "let_go", "system_monitor"]

REQUEST_SECONDS = 10
"""How long a server may take to accept a connection, and how long it may say nothing."""

# of these, a user's own choice counts
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "GIT_PYTHON_REFRESH": "quiet",
}
# of these, it does not: the delivery tries again by itself, and gives up a call that takes long
_FORCED = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(REQUEST_SECONDS),
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",
}

# what the SDK sets, or takes away from its parent's, when it is imported
_ITS_OWN = ("_MLFLOW_TELEMETRY_SESSION_ID",)

_lock = threading.Lock()
_depth = 0
_before: dict[str, str | None] = {}


@contextmanager
def calls() -> Iterator[None]:
    """Let the SDK work as it should; what it raises becomes a sink's error.

    Raises:
        UnavailableError: The server or the database cannot take anything for the time being.
        RefusedError: It will never take this.
    """
    _enter()
    try:
        yield
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        raise told from error
    finally:
        _leave()


def _enter() -> None:
    """Set the SDK's switches, which it only reads from the environment."""
    global _depth
    with _lock:
        _depth += 1
        if _depth > 1:  # another sink's thread is at it
            return
        _before.update((name, os.environ.get(name)) for name in _ITS_OWN)
        for name, value in (_DEFAULTS | _FORCED).items():
            _before[name] = os.environ.get(name)
            if name in _FORCED or name not in os.environ:
                os.environ[name] = value


def _leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth:
            return
        for name, value in _before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _before.clear()


def _told(error: Exception) -> SinkError | None:
    """Return what a failure is to the delivery; None for one that only it can judge."""
    if isinstance(error, SinkError):
        return None
    text = f"{type(error).__name__}: {error}"
    answer = _answer(error)
    if answer is not None:
        status, headers, body = answer
        # a missing right is the user's to mend: meanwhile the log keeps what is to be shown
        if status in (401, 403, 408, 429) or status >= 500 or _is_cut(headers, body):
            return UnavailableError(text, retry_after=_retry_after(headers))
        return RefusedError(text)
    code = getattr(error, "error_code", None)
    if not isinstance(code, str):  # not MLflow's own
        return None
    if code == "TEMPORARILY_UNAVAILABLE" or _is_connection(error):
        return UnavailableError(text)
    if code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "BAD_REQUEST"):
        return RefusedError(text)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_connection(error: BaseException) -> bool:
    """Whether a server could not be reached, or said nothing that makes sense."""
    return any(isinstance(cause, OSError) for cause in _chain(error)) or "API request" in str(error)


def _is_cut(headers: Any, body: Any) -> bool:
    """Whether an answer ended amid its headers: its status is not all that the server said."""
    return not body and "Content-Length" not in headers and "Transfer-Encoding" not in headers


def _answer(error: BaseException) -> tuple[int, Any, Any] | None:
    """Return the status, the headers and the body of the response that an error is about.

    The SDK keeps neither; only the frames of the call that failed still have the response.
    """
    for cause in _chain(error):
        found = [getattr(cause, "response", None)]
        frames = reversed(list(traceback.walk_tb(cause.__traceback__)))
        found += [frame.f_locals.get("response") for frame, _ in frames]
        for response in found:
            status = getattr(response, "status_code", None) or getattr(response, "status", None)
            if isinstance(status, int) and status >= 400:
                return status, getattr(response, "headers", {}), getattr(response, "content", "?")
    return None


def _retry_after(headers: Any) -> float | None:
    """Return the seconds that a server asks to wait: it gives a number, or a date."""
    text = headers.get("Retry-After")
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def system_monitor(run_id: str, uri: str, resumed: bool) -> Any:
    """Start MLflow's own thread that watches the machine."""
    module: Any = importlib.import_module("mlflow.system_metrics.system_metrics_monitor")
    monitor = module.SystemMetricsMonitor(run_id, resume_logging=resumed, tracking_uri=uri)
    monitor.start()
    return monitor


def let_go(client: Any) -> None:
    """Close a database's connections: the SDK keeps its stores for ever."""
    store = getattr(getattr(client, "_tracking_client", None), "store", None)
    engine = getattr(store, "engine", None)
    if engine is not None:
        engine.dispose()
