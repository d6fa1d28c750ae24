"""What was logged and cannot be recorded: counted by reason, named once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from eventlog.exceptions import ValueRejectedError

__all__ = ["Rejections"]

logger = logging.getLogger("eventlog")
_NAMED = 100
_LONGEST = 300
"""Characters of an advice that are said: a library's error may go on for pages."""


class Rejections:
    """Counts of rejected values.

    Args:
        strict: Raise instead, for tests of training code.
    """

    def __init__(self, strict: bool = False) -> None:
        self.counts: dict[str, int] = {}
        self._strict = strict
        self._named: set[tuple[str, str]] = set()
        self._lock = threading.RLock()

    def add(self, rejected: Iterable[tuple[str, str, str]]) -> None:
        """Count (key, reason, advice) triples, and warn of each reason and key once.

        Raises:
            ValueRejectedError: In strict mode, for the first one.
        """
        for key, reason, advice in rejected:
            shown = key if len(key) <= 80 else f"{key[:77]}..."
            said = advice.partition("\n")[0]
            said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
            text = f"{shown!r} cannot be recorded: {said}"
            if self._strict:
                raise ValueRejectedError(text)
            with self._lock:
                self.counts[reason] = self.counts.get(reason, 0) + 1
                known = (reason, key) in self._named
                if not known and len(self._named) < _NAMED:
                    self._named.add((reason, key))
                else:
                    known = True
            if not known:
                logger.warning("eventlog: %s (said once; counted as %r)", text, reason)
