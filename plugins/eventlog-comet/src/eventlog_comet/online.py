"""Points on their way to a server, and what a server's answers mean.

The SDK's own thread sends points, too, but forgets those that are answered with an error other
than 429, an outage of the server's among them. So they are sent here, by the SDK's connection, and
kept until the server has them. Everything else goes the SDK's way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from eventlog.exceptions import RefusedError, UnavailableError

__all__ = ["PointsOnline", "of_response"]

_AT_ONCE = 1000  # points; as the SDK does
_INTERVAL = 2.0  # seconds; as the SDK does
_FAULTY = frozenset({400, 413, 422})


def of_response(error: Any) -> UnavailableError | RefusedError:
    """Return what an answer with an error means."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", 0)
    if status != 429 and 400 <= status < 500:
        return RefusedError(f"Comet answered {status}: {error}")
    wait: float | None = None
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        wait = float(response.headers["Retry-After"])  # type: ignore[union-attr]
    return UnavailableError(f"Comet answered {status}: {error}", retry_after=wait)


class PointsOnline:
    """Sends points in batches, a batch whenever there are enough or some time has passed.

    Args:
        experiment: The SDK's.
        count: Told the reason for points that the server will never take.
    """

    def __init__(self, experiment: Any, count: Callable[[str], None]) -> None:
        self._connection = experiment.connection
        self._count = count
        self._waiting: list[Any] = []
        self._sent_at = 0.0
        self._item = import_module("comet_ml.batch_utils").MessageBatchItem
        self._answered = import_module("comet_ml.exceptions").CometRestApiException
        self._failed = import_module("requests").RequestException

    def put(self, message: Any) -> None:
        """Take a point."""
        self._waiting.append(message)

    def send_due(self) -> None:
        """Send what waits, if it is time.

        Raises:
            UnavailableError: The server does not take it now; it waits on.
        """
        if len(self._waiting) >= _AT_ONCE or time.monotonic() - self._sent_at >= _INTERVAL:
            self.send()

    def send(self) -> None:
        """Send all that waits.

        Raises:
            UnavailableError: The server does not take it now; it waits on.
        """
        while self._waiting:
            batch = self._waiting[:_AT_ONCE]
            self._send(batch)
            del self._waiting[: len(batch)]
        self._sent_at = time.monotonic()

    def _send(self, batch: list[Any]) -> None:
        try:
            self._connection.log_metrics_batch([self._item(message) for message in batch])
        except self._answered as error:
            if getattr(error.response, "status_code", 0) not in _FAULTY:
                known = of_response(error)
                wait = getattr(known, "retry_after", None)
                raise UnavailableError(str(known), retry_after=wait) from error
            if len(batch) == 1:
                self._count("point that Comet refuses")
                return
        except (self._failed, OSError) as error:
            raise UnavailableError(f"Comet cannot be reached: {error}") from error
        else:
            return
        half = len(batch) // 2
        self._send(batch[:half])
        self._send(batch[half:])
