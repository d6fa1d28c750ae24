"""The process that reads a case back, again and again, with that logger's own reader.

    python -m peers.reader CASE FOLDER [follow]

With `follow`, it reads the tracker behind the logger. It prints a line for each reading: when it
began and ended (monotonic ns) and how many steps were there, -1 where reading failed, with the
error. A line on its input ends it after one more reading, the last line.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from peers.cases import CASES

PAUSE = 0.02


def main(name: str, folder: Path, *, follow: bool) -> None:
    """Read until told that this is enough."""
    read = CASES[name].follow if follow else CASES[name].read
    assert read is not None
    print("[]", flush=True)
    pause, more = PAUSE, True
    while more:
        more = not select.select([sys.stdin], [], [], pause)[0]
        start, error = time.monotonic_ns(), ""
        try:
            count = read(folder)
        except Exception as fault:
            count, error = -1, f"{type(fault).__name__}: {fault}".replace(str(folder), ".")[:200]
        end = time.monotonic_ns()
        # a reader that reads all the time would take what the logger needs
        pause = max(PAUSE, (end - start) / 1e9)
        print(json.dumps([start, end, count, error]), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), follow=sys.argv[3:] == ["follow"])
