"""Makes archives of what killed processes left: ``python -m eventlog_comet runs/...``."""

from __future__ import annotations

import sys
from pathlib import Path

from eventlog_comet.spool import UNFINISHED, archive

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Archive all unfinished experiments below some folders, and print where the archives are."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    failed = 0
    for folder in arguments:
        for found in sorted(Path(folder).rglob(f"{UNFINISHED}*/*/experiment.json")):
            spool = found.parent
            try:
                print(archive(spool, spool.parent.parent))
            except (OSError, ValueError, KeyError) as error:
                failed += 1
                print(f"{spool}: {type(error).__name__}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
