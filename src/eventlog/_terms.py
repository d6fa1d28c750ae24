"""What a sink is granted: how long its calls may take, and how they are tried again."""

from __future__ import annotations

import json
import logging
import math
import random
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from eventlog._paths import read_json, replace_file
from eventlog.exceptions import UnavailableError

__all__ = [
    "DEADLINES",
    "RETRY",
    "TERMS",
    "Deadlines",
    "Retry",
    "is_outage",
    "keep_terms",
    "kept_terms",
]

logger = logging.getLogger("eventlog")

TERMS = "delivery.json"


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a sink's calls may take; the delivery gives a sink up that takes longer."""

    open: float = 120.0
    write: float = 60.0
    flush: float = 60.0
    close: float = 60.0


@dataclass(frozen=True)
class Retry:
    """How long to wait before trying again: exponential, with full jitter, seconds.

    `permanent` limits how often opening, and at the end flushing and closing, are tried after a
    failure that is no outage.
    """

    first: float = 1.0
    most: float = 128.0
    permanent: int = 3

    def delay(self, failures: int, error: BaseException) -> float:
        """Return the pause after so many failures in a row; a tracker's own wish comes first."""
        wish = self.wish(error)
        if wish is not None:
            return wish
        ceiling: float = min(self.most, self.first * 2 ** min(max(failures - 1, 0), 16))
        return _jitter.uniform(0, ceiling)

    def wish(self, error: BaseException) -> float | None:
        """Return the seconds that a tracker asked to wait; None where it said nothing usable.

        Sinks hand on what a server's header says: a number, a number in a text, or anything.
        """
        if not isinstance(error, UnavailableError) or error.retry_after is None:
            return None
        try:
            seconds = float(error.retry_after)
        except (TypeError, ValueError, OverflowError):
            return None
        return seconds if math.isfinite(seconds) and seconds > 0 else None


# a generator of our own: the global one belongs to the training, which may have seeded it
_jitter = random.Random()  # noqa: S311 - jitter is not cryptography

DEADLINES = Deadlines()
RETRY = Retry()


def is_outage(error: BaseException) -> bool:
    """Whether the tracker is at fault rather than what it was given: then waiting may help."""
    return isinstance(error, UnavailableError | OSError)


def keep_terms(run_dir: Path, deadlines: Deadlines, retry: Retry) -> None:
    """Keep with a run what it grants its sinks, for whoever delivers to them after it.

    Raises:
        OSError: That cannot be written.
    """
    path = run_dir / TERMS
    if (deadlines, retry) == (DEADLINES, RETRY) and not path.exists():
        return
    text = json.dumps({"deadlines": asdict(deadlines), "retry": asdict(retry)}, indent=2)
    replace_file(path, text + "\n")


def kept_terms(run_dir: Path) -> tuple[Deadlines, Retry]:
    """Return what a run granted its sinks; the defaults where nothing was kept that can be read."""
    path = run_dir / TERMS
    try:
        # not msgspec's own parser: "no end" is Infinity
        found = read_json(path)
        return (
            msgspec.convert(found["deadlines"], Deadlines),
            msgspec.convert(found["retry"], Retry),
        )
    except FileNotFoundError:
        pass
    except (OSError, ValueError, LookupError, TypeError) as error:
        logger.warning("eventlog: %s cannot be read (%s): as by default", path, error)
    return DEADLINES, RETRY
