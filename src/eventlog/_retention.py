"""How much of its log a run keeps while it goes on."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from eventlog.log.checkpoint import confirmed_seqs
from eventlog.log.seal import retire_segments

__all__ = ["Retain", "Retention", "parse_retain"]

logger = logging.getLogger("eventlog")

Retain = Literal["all", "delivered"] | int | str
"""All of it, what not every sink has confirmed yet, or so many bytes ("10 GB")."""

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*$", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_retain(retain: Retain) -> Literal["all", "delivered"] | int:
    """Check what a user gave.

    Raises:
        ValueError: It is none of these.
    """
    if retain == "all" or retain == "delivered":
        return "all" if retain == "all" else "delivered"
    if isinstance(retain, str):
        match = _SIZE.match(retain)
        if match:
            return int(float(match.group(1)) * _UNITS[match.group(2).lower()])
    elif isinstance(retain, int) and not isinstance(retain, bool) and retain > 0:
        return retain
    raise ValueError(
        f"retain must be 'all', 'delivered', or a size such as '10 GB', not {retain!r}"
    )


class Retention:
    """Removes the oldest segments of a log when another one was sealed.

    Nothing goes that a sink has not confirmed, so that a tracker's outage keeps what it lacks.

    Args:
        directory: Of the rank's log.
        retain: See `Retain`.
        aliases: The sinks of the run, asked anew each time.
    """

    def __init__(self, directory: Path, retain: Retain, aliases: Callable[[], list[str]]) -> None:
        self._directory = directory
        self._retain = parse_retain(retain)
        self._aliases = aliases

    def __call__(self) -> None:
        """Remove what may go."""
        if self._retain == "all":
            return
        keep = self._retain if isinstance(self._retain, int) else None
        try:
            seqs = confirmed_seqs(self._directory)
            floor = min((seqs.get(alias, 0) for alias in self._aliases()), default=2**63)
            removed = retire_segments(self._directory, floor, keep)
        except OSError as error:
            logger.warning("eventlog: old segments of %s stay: %s", self._directory, error)
        else:
            if removed:
                logger.info("eventlog: %d old segments removed", len(removed))
