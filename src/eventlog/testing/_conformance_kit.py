"""What the author of a sink says about it, for the conformance tests."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import Status
from eventlog.sinks.base import Sink
from eventlog.sinks.registry import load_sink_class
from eventlog.testing.shown import FinishedRun, Shown

__all__ = ["REASONS", "SinkDescription", "check"]

REASONS: Mapping[str, str] = {
    "bool": r"bool",
    "np.bool_": r"bool",
    "str": r"string",
    # what is only shown as one of these was something else
    "text": r"^(?!.*\bas (?:a )?text).*\btext",
    "image": r"^(?!.*\bas an image).*image",
    "NaN": r"nan\b|finite",
    "infinity": r"inf|finite",
    "big integer": r"\bint|precis|round|bits|beyond",
    "tiny": r"underflow|tiny|small",
    "odd names": r"name",
    "batch axis": r"axis|batch",
    "epoch axis": r"axis|epoch",
    "named axis": r"axis",
    "config": r"config|param|hyper",
    "summary": r"summary",
    "model update": r"model",
    "custom event": r"user|custom|unknown type",
    "status": r"status",
}
"""How a reason of `Sink.unshown` is recognised, by cell of the table; the cell's name elsewhere."""


def check(holds: object, message: str) -> None:
    """Fail a test with words that say what to do.

    Raises:
        AssertionError: It does not hold.
    """
    if not holds:
        raise AssertionError(message)


class SinkDescription:
    """See `eventlog.testing.SinkConformance`."""

    sink: ClassVar[str] = ""
    statuses: ClassVar[Mapping[Status, str]] = {}
    outcomes: ClassVar[Path | None] = None
    float32: ClassVar[bool] = False
    shared_modules: ClassVar[frozenset[str]] = frozenset()
    reasons: ClassVar[Mapping[str, str]] = {}
    recognises: ClassVar[bool] = True
    tolerated: ClassVar[Mapping[str, str]] = {}
    close_seconds: ClassVar[float] = 20.0

    def options(self, where: Path) -> dict[str, Any]:
        """Return options with which the sink writes below `where`, without a network.

        Equal options for the same `where` must lead to the same place, also in another process.
        """
        raise NotImplementedError(f"{type(self).__name__} must define options(where)")

    def environment(self, where: Path) -> dict[str, str]:
        """Return environment variables that the SDK needs to stay below `where` and offline."""
        return {}

    def read(self, run: FinishedRun) -> Shown:
        """Read the run back with the tracker's own reader."""
        raise NotImplementedError(f"{type(self).__name__} must define read(run)")

    def rounded(self, value: float) -> float:
        """Return what the tracker makes of a number because of how many digits it keeps."""
        number = float(value)
        if not self.float32:
            return number
        try:
            return float(struct.unpack("<f", struct.pack("<f", number))[0])
        except OverflowError:
            return float("inf") if number > 0 else float("-inf")

    def sink_class(self) -> type[Sink]:
        """Return the class of the sink."""
        return load_sink_class(self.sink)

    def declares(self, capability: str) -> bool:
        """Whether the sink says that it can show such things."""
        return capability in self.sink_class().capabilities

    def explained(self, cell: str, unshown: Mapping[str, int]) -> tuple[str, int]:
        """Return the reasons among those that were counted which are about a cell, and how often.

        ("", 0) where there is none.
        """
        pattern = self.reasons.get(cell) or REASONS.get(cell) or re.escape(cell)
        found = {r: n for r, n in unshown.items() if re.search(pattern, r, re.IGNORECASE)}
        return "; ".join(sorted(found)), sum(found.values())
