"""A sink's module that fails while it is imported, as the environment says, until it is mended."""

import os
from pathlib import Path

from eventlog.testing.faults import MENDED, STRUCK, BrokenSink, strike

__all__ = ["ImportedSink"]

_directory = Path(os.environ["BROKEN_IMPORT_DIR"])
if not (_directory / MENDED).exists():
    (_directory / STRUCK).touch()
    strike(os.environ["BROKEN_IMPORT"], float(os.environ["BROKEN_IMPORT_SECONDS"]))


class ImportedSink(BrokenSink):
    """One that is whole, once it is there."""

    def __init__(self) -> None:
        super().__init__(at="close", fault="slow", seconds=0.0)
