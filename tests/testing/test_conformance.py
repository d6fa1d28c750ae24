"""The conformance tests find what is wrong with a sink, and nothing where nothing is."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from eventlog.testing import FinishedRun, Shown, SinkConformance
from eventlog.testing._conformance_alone import Alone
from eventlog.testing._conformance_runs import Runs
from eventlog.testing.outcomes import compare_outcomes

HERE = Path(__file__).parent
TEMPLATE = HERE.parents[1] / "examples" / "plugin-template"

FINDS = {
    "DropsNan": "test_odd_numbers",
    "ChangesInfinity": "test_odd_numbers",
    "DropsBooleans": "test_every_kind_of_value",
    "Reorders": "test_points_come_in_order",
    "DoublesABatch": "test_a_batch_that_comes_again",
    "DropsLowerSteps": "test_a_rewind",
    "ClaimsToPurge": "test_a_rewind",
    "StartsAnew": "test_a_resume",
    "PutsEpochsAtSteps": "test_axes",
    "FoldsCase": "test_odd_names",
    "CutsNames": "test_odd_names",
    "ForgetsNames": "test_odd_names",
    "LosesLaterConfig": "test_config",
    "LosesImages": "test_media",
    "ClaimsTables": "test_media",
    "SpoilsFiles": "test_media",
    "ForgetsText": "test_media",
    "AlwaysFinished": "test_the_status",
    "LosesLateWrites": "test_nothing_is_lost_after_close",
    "RemembersAll": "test_its_state_is_small_and_plain",
    "TimesByItself": "test_wall_times",
    "RaisesInClose": "test_everything_is_delivered",
    "RaisesWhenClosedUnopened": "test_close_can_come_at_any_time",
    "NeverCloses": "test_everything_is_delivered",
    "RefusesFiles": "test_everything_is_delivered",
    "ConfirmsTooEarly": "test_what_is_confirmed_survives_a_kill",
    "BuffersItsFile": "test_what_is_confirmed_survives_a_kill",
    "WritesIntoNothing": "test_a_place_that_cannot_be_written",
    "SharesItsFolder": "test_it_twice_in_one_run",
    "KeepsTheError": "test_an_error_that_is_over",
    "Prints": "test_it_prints_nothing_and_asks_nobody",
    "Asks": "test_it_prints_nothing_and_asks_nobody",
    "HandlesSignals": "test_it_works_on_one_thread_that_is_not_the_main_one",
    "HooksExceptions": "test_it_leaves_the_process_as_it_was",
    "CallsHome": "test_it_stays_on_this_machine",
    "LeavesAThread": "test_it_leaves_nothing_behind",
    "LeavesAProcess": "test_it_leaves_nothing_behind",
    "ImportsItsSdk": "test_importing_it_imports_nothing_else",
    "ImportsAFramework": "test_opening_it_imports_no_framework",
    "NeverReady": "test_it_says_whether_it_is_ready",
}


@pytest.fixture(autouse=True)
def _broken_sinks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process and those that it starts find the broken sinks."""
    before = set(sys.modules)
    for folder in (HERE / "broken", TEMPLATE / "src"):
        monkeypatch.syspath_prepend(folder)
    yield
    for name in {"broken_sinks", "eventlog_jsonl", "eventlog_jsonl.sink"} - before:
        sys.modules.pop(name, None)


def kit_of(name: str) -> SinkConformance:
    """Return the template's own tests, for another sink."""
    spec = importlib.util.spec_from_file_location(
        "template_tests", TEMPLATE / "tests" / "test_conformance.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    base: Any = module.TestJsonl

    class Kit(base):  # type: ignore[misc]
        sink: ClassVar[str] = f"broken_sinks:{name}"
        outcomes: ClassVar[Path | None] = None
        close_seconds: ClassVar[float] = 1.0

        def read(self, run: FinishedRun) -> Shown:
            shown: Shown = super().read(run)
            page = json.loads((Path(str(run.url)) / "run.json").read_text(encoding="utf-8"))
            shown.error = page.get("error")
            return shown

    kit: SinkConformance = Kit()
    return kit


class Bench:
    """The tests of a kit, as pytest would call them."""

    def __init__(self, name: str, where: Path) -> None:
        self.kit = kit_of(name)
        runs = Runs(self.kit, where, "process")
        alone = Alone(self.kit, where)
        self._given = {"runs": runs, "here": runs, "alone": alone, "where": where}

    def names(self) -> list[str]:
        return sorted(n for n in dir(self.kit) if n.startswith("test_") and "outcomes" not in n)

    def run(self, name: str) -> None:
        test: Callable[..., None] = getattr(self.kit, name)
        test(*(self._given[p] for p in inspect.signature(test).parameters))


@pytest.mark.parametrize(("broken", "test"), FINDS.items(), ids=list(FINDS))
def test_a_broken_sink_fails(broken: str, test: str, tmp_path: Path) -> None:
    """The test that is about it fails, and says what is wrong."""
    tests = Bench(broken, tmp_path)
    with pytest.raises(AssertionError) as caught:
        tests.run(test)
    assert len(str(caught.value)) > 10


@pytest.mark.parametrize("fine", ["Fine", "AwaitsItself"])
def test_a_sink_that_is_fine_passes(fine: str, tmp_path: Path) -> None:
    """All tests pass, also with a sink whose methods are awaited."""
    tests = Bench(fine, tmp_path)
    for name in tests.names():
        tests.run(name)


@pytest.mark.parametrize(("fine", "test"), [("CountsNan", "test_odd_numbers"),
                                            ("KeepsNames", "test_odd_names")])  # fmt: skip
def test_what_is_counted_or_kept_is_no_fault(fine: str, test: str, tmp_path: Path) -> None:
    """A sink may be unable to show something, or show it under another name, if it says so."""
    Bench(fine, tmp_path).run(test)


def test_every_broken_sink_is_tried() -> None:
    """A broken sink that is added is added to these tests."""
    module = importlib.import_module("broken_sinks")
    fine = {"Fine", "AwaitsItself", "CountsNan", "KeepsNames"}
    classes = {n for n, k in vars(module).items() if getattr(k, "__module__", "") == "broken_sinks"}
    assert classes - fine == set(FINDS)


def test_outcomes_are_kept_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written when the environment says so; later, every difference is named."""
    path = tmp_path / "outcomes.json"
    monkeypatch.delenv("EVENTLOG_WRITE_OUTCOMES", raising=False)
    with pytest.raises(AssertionError, match="EVENTLOG_WRITE_OUTCOMES=1"):
        compare_outcomes(path, {"NaN": "shown"}, keep=True)
    monkeypatch.setenv("EVENTLOG_WRITE_OUTCOMES", "1")
    with pytest.raises(AssertionError, match="wrong: it is lost"):
        compare_outcomes(path, {"NaN": "wrong: it is lost"}, keep=True)
    compare_outcomes(path, {"NaN": "shown"}, keep=True)
    monkeypatch.delenv("EVENTLOG_WRITE_OUTCOMES")
    compare_outcomes(path, {"NaN": "shown"}, keep=True)
    with pytest.raises(AssertionError, match="NaN: 'impossible: NaN', kept is 'shown'"):
        compare_outcomes(path, {"NaN": "impossible: NaN"}, keep=True)
    assert json.loads(path.read_text()) == {"NaN": "shown"}
