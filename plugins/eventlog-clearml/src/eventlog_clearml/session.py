"""ClearML's API session, with an end to its patience.

As it comes, the SDK tries a request 240 times, waits for a server in maintenance for ever, and
its tasks then begin again. Here a request ends within half a minute, and what went wrong is kept
for the sink, which lets eventlog try again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any

from eventlog.exceptions import RefusedError, UnavailableError

__all__ = ["NO_CREDENTIALS", "calls", "make_session"]

NO_CREDENTIALS = (
    "ClearML has no credentials: run `clearml-init`, or set CLEARML_API_HOST, "
    "CLEARML_API_ACCESS_KEY and CLEARML_API_SECRET_KEY, or pass offline=True"
)

_CONNECT_S, _READ_S = 4.0, 10.0
_BUSY = frozenset({408, 429})


class _Config:
    """The SDK's configuration, but for what would make a request wait for ever."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)

    def get(self, key: str, *args: Any, **options: Any) -> Any:
        if key == "api.http.wait_on_maintenance_forever":
            return False
        return self._config.get(key, *args, **options)


@functools.cache
def _session_class() -> Any:
    base: Any = importlib.import_module("clearml.backend_api.session").Session
    network: Any = importlib.import_module("requests.exceptions").RequestException
    results: Any = importlib.import_module("clearml.backend_api.session.callresult").CallResult
    metas: Any = importlib.import_module("clearml.backend_api.session.response").ResponseMeta
    login: Any = importlib.import_module("clearml.backend_api.session.session").LoginError

    class BoundedSession(base):  # type: ignore[misc]
        """A session whose requests end, and which knows what went wrong last."""

        _session_initial_timeout = (_CONNECT_S, _READ_S)
        _session_timeout = (_CONNECT_S, _READ_S)
        _write_session_timeout = (_CONNECT_S, _READ_S)
        outage: str | None = None
        retry_after: float | None = None

        def _get_retry_codes(self) -> list[int]:
            return []

        def _send_request(self, *args: Any, **options: Any) -> Any:
            response = super()._send_request(*args, **options)
            if response is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self.retry_after = float(response.headers["Retry-After"])
            return response

        def send(self, *args: Any, **options: Any) -> Any:
            try:
                result = super().send(*args, **options)
            except (network, login, OSError) as error:
                # an exception would make the SDK's tasks print it and try again without end
                self.outage = f"{type(error).__name__}: {error}"
                return results(meta=metas.from_raw_data(500, self.outage))
            code = 200 if result is None else result.meta.result_code
            if code >= 500 or code in _BUSY:
                self.outage = str(result.meta)
                return results(meta=metas.from_raw_data(500, self.outage))
            return result

    return BoundedSession


def make_session(api_server: str | None) -> Any:
    """Log in, unless the SDK is offline.

    Raises:
        UnavailableError: The server is not there.
        RefusedError: There are no credentials, or wrong ones.
    """
    module: Any = importlib.import_module("clearml.backend_api.session.session")
    wrapper: Any = importlib.import_module("clearml.config").config_obj
    names: Any = importlib.import_module("clearml.backend_api.session.defs")
    errors = (module.LoginError, ValueError)
    try:
        session = _session_class()(
            api_key=names.ENV_ACCESS_KEY.get(),
            secret_key=names.ENV_SECRET_KEY.get(),
            host=api_server,
            config=_Config(wrapper._init()),
            # more, and urllib3 would sleep as long as a busy server asks it to
            http_retries_config={"total": 0},
        )
    except module.MissingConfigError as error:
        raise RefusedError(NO_CREDENTIALS) from error
    except errors as error:
        if isinstance(error.__context__, OSError) or "(error 5" in str(error):
            raise UnavailableError(f"ClearML's server is not there: {error}") from error
        raise RefusedError(f"ClearML does not let this process in: {error}") from error
    # counted for the subclass; at 0 the SDK would make a patient session to ask for its version
    module.Session._sessions_created += 0 if module.Session._offline_mode else 1
    return session


@contextlib.contextmanager
def calls(session: Any) -> Iterator[None]:
    """Tell eventlog what went wrong in calls of the SDK: an outage, or a refusal.

    Raises:
        UnavailableError: The server could not be reached, or had an error.
        RefusedError: The server refused what it was sent.
    """
    refusal: Any = importlib.import_module("clearml.backend_interface.session").SendError
    session.outage = session.retry_after = None
    try:
        yield
    except refusal as error:
        _check_outage(session, error)
        raise RefusedError(f"ClearML refuses: {error}") from error
    except Exception as error:
        _check_outage(session, error)
        raise
    _check_outage(session, None)


def _check_outage(session: Any, error: Exception | None) -> None:
    outage, session.outage = session.outage, None
    if outage is not None:
        message = f"ClearML's server does not answer: {outage}"
        raise UnavailableError(message, retry_after=session.retry_after) from error
