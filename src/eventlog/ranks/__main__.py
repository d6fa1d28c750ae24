"""``python -m eventlog.ranks RUN_DIR``: reduce the logs of a run's ranks, until all have ended."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from eventlog.exceptions import EventlogError
from eventlog.ranks._producer import PATIENCE, reduce_run

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the reducing process.

    Returns:
        Its exit code: 0 when all was reduced, 2 when there is nothing to reduce or it cannot be
        written, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(
        prog="python -m eventlog.ranks",
        description="Reduce the logs of a run's ranks into one, until all of them have ended.",
    )
    parser.add_argument("run_dir", type=Path)
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds that values wait for a rank"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    try:
        reduce_run(options.run_dir, patience=options.patience)
    except (EventlogError, OSError) as error:
        print(f"eventlog: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("eventlog: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
