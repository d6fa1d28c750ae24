"""The process of one measure.

python -m scaling.child MEASURE SIZE EVENTS FOLDER
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scaling import emitting, storing


def main(name: str, size: int, events: int, folder: Path) -> None:
    """Measure, and print the figures as the last line."""
    measures: dict[str, Callable[[int, Path], dict[str, Any]]] = {
        "events": emitting.events,
        "subscriptions": emitting.subscriptions,
        "keys": emitting.keys,
        "threads": emitting.threads,
        "images": emitting.images,
        "log_mb": storing.log_size,
        "ranks": storing.ranks,
        "replay_sinks": functools.partial(storing.replay, events=events),
    }
    print(json.dumps(measures[name](size, folder)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
