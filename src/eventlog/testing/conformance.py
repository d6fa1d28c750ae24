"""`SinkConformance`: the tests that every sink must pass, as a class for pytest to subclass.

::

    class TestMySink(SinkConformance):
        sink = "mine"                                   # its entry point
        statuses = {"finished": "done", "failed": "error"}

        def options(self, where):
            return {"dir": where}                       # where it writes, without a network

        def read(self, run):
            return Shown(scalars=read_my_files(run.where))
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eventlog.testing._conformance_alone import Alone, AloneTests
from eventlog.testing._conformance_life import LifeTests
from eventlog.testing._conformance_runs import Runs
from eventlog.testing.outcomes import compare_outcomes

__all__ = ["SinkConformance"]


class SinkConformance(LifeTests, AloneTests):
    """Subclass it, say how to read the tracker back, and pytest runs all its tests.

    Tests run with the sink in the process and in the sidecar, in a handful of runs that they
    share: one has everything there is to log, others are rewound, resumed, or go wrong.

    Attributes:
        sink: Its name, as its entry point has it, or ``module:Class``.
        statuses: The tracker's own word for each status that it can show.
        outcomes: Where the results are kept that the table in the documentation is made of: a
            JSON file, compared with each run's and written when ``EVENTLOG_WRITE_OUTCOMES=1`` is
            set; None keeps none.
        float32: Whether the tracker keeps 32 bits of a number; see `rounded`, too.
        shared_modules: Modules of `requires` that may be there before the sink is opened, and
            frameworks, such as ``pandas``, that opening it may import because the SDK cannot do
            without.
        reasons: Patterns that find a cell's reasons in the sink's `unshown`, by cell, where the
            kit does not recognise them.
        recognises: Whether a batch that is given twice is shown once; a terminal cannot.
        tolerated: What the sink may change in its process although it should not, such as
            ``os.environ``, with the reason why it cannot be helped.
        close_seconds: Most seconds that the end of a run may take.
    """

    @pytest.fixture(scope="class", name="where")
    @classmethod
    def _where(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return the folder for all that the tests of a sink write."""
        return tmp_path_factory.mktemp("conformance")

    @pytest.fixture(scope="class", name="here")
    @classmethod
    def _here(cls, where: Path) -> Runs:
        """Return the runs in this process, which are made when they are asked for."""
        return Runs(cls(), where, "process")

    @pytest.fixture(scope="class", name="runs", params=["process", "sidecar"])
    @classmethod
    def _runs(cls, request: pytest.FixtureRequest, where: Path, here: Runs) -> Runs:
        """Return the runs of one way, which are made when they are asked for."""
        return here if request.param == "process" else Runs(cls(), where, request.param)

    @pytest.fixture(scope="class", name="alone")
    @classmethod
    def _alone(cls, where: Path) -> Alone:
        """Return what a sink did alone in a process of its own."""
        return Alone(cls(), where)

    def test_the_outcomes_are_those_that_are_kept(self, runs: Runs) -> None:
        """What became of each kind of thing is what the file of outcomes says."""
        if self.outcomes is None:
            pytest.skip("`outcomes` names no file")
        compare_outcomes(self.outcomes, self.found_outcomes(runs), keep=runs.mode == "process")
