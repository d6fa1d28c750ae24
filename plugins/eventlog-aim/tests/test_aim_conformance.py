"""The conformance kit, on a repository on disk."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from eventlog.events import Status
from eventlog.testing import SinkConformance
from eventlog.testing.shown import FinishedRun, Shown

Read = Callable[[Any, "str | None"], Shown]

_reader: list[Read] = []


@pytest.fixture(scope="module", autouse=True)
def _take_reader(read_back: Read) -> None:
    """Keep the reader for a class that pytest makes anew for each test."""
    _reader[:] = [read_back]


class TestAim(SinkConformance):
    """Every kind of thing, read back with Aim's own reader."""

    sink = "aim"
    statuses: ClassVar[Mapping[Status, str]] = {
        "finished": "finished",
        "failed": "failed",
        "interrupted": "interrupted",
        "killed": "killed",
    }
    tolerated: ClassVar[Mapping[str, str]] = {
        "sys.meta_path": "dateutil, which Aim needs, imports six, whose modules come by an importer"
    }
    outcomes = Path(__file__).with_name("outcomes.json")

    def options(self, where: Path) -> dict[str, Any]:
        """Write into one repository below `where`."""
        return {"repo": str(where / "repo")}

    def read(self, run: FinishedRun) -> Shown:
        """Read with `aim.Repo`."""
        return (_reader[0] if _reader else _load_reader())(run.url, run.tracker_id)


def _load_reader() -> Read:
    """Load it where the class is used outside of this folder's tests."""
    found: Read = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["read_run"]
    return found
