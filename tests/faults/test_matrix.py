"""What becomes of broken sinks is what docs/fault-matrix.md states; `make faults` tries it all."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventlog.testing.faults import FAULTS

from .cells import ENDS, PLACES, POINTS, all_cells, few_cells, senseless, stated
from .matrix import try_cells
from .table import PAGE, page


def test_the_page_says_what_is_stated() -> None:
    """It is made by `make faults`, and agrees with what that compares with."""
    assert PAGE.read_text(encoding="utf-8") == page(), "out of date: make faults"


def test_no_cell_is_without_an_outcome() -> None:
    """Each combination has one, or a reason why it cannot be."""
    made = set(all_cells())
    for fault, point, place, end in itertools.product(FAULTS, POINTS, PLACES, ENDS):
        there = (fault, point, place, end) in made
        assert there is (senseless(fault, point) is None)
    assert all(stated(cell).mark for cell in made)


def test_the_few_that_are_tried_each_time_have_everything_in_them() -> None:
    """Each fault in each place and form, and any two of a point, a place and an end."""
    few = few_cells()
    assert {c.fault for c in few} == set(FAULTS)
    assert {c.form for c in few} == {"thread", "loop"}
    for one, other in (("fault", "place"), ("point", "place"), ("point", "end"), ("place", "end")):
        found = {(getattr(c, one), getattr(c, other)) for c in few}
        assert found == {(getattr(c, one), getattr(c, other)) for c in all_cells()}
    assert {stated(c).course for c in few} == {stated(c).course for c in all_cells()}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")
@pytest.mark.timeout(400)
def test_broken_sinks_do_as_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the cells, with real processes and signals; see docs/fault-matrix.md."""
    # the children are to import what this process has, wherever it was found
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    few = few_cells()
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(2) as pool:
        problems = itertools.chain(*pool.map(try_cells, (few[::2], few[1::2]), folders))
    assert list(problems) == []
