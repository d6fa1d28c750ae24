"""The fault matrix: each cell run, compared with what is stated, and the table of all.

::

    python -m tests.faults.matrix            # all cells, half an hour on two cores
    python -m tests.faults.matrix --only "hang at write"
    python -m tests.faults.matrix --write    # and docs/fault-matrix.md anew, if all is as stated
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from eventlog import open_log
from eventlog.events import RunFinished, StepEvent
from eventlog.exceptions import EventlogError
from eventlog.log.segment_reader import list_segments
from eventlog.testing.faults import EXIT_CODE, REFUSED, STRUCK, taken

from .cells import DEADLY, KILLED, Cell, Course, Dead, Outcome, all_cells, stated
from .child.training import STEPS, compute
from .table import PAGE, page
from .trial import (
    Trial,
    is_endless,
    own_codes,
    replay_pending,
    run_cell,
    whole_sinks,
)

Place = tuple[int, int]
"""An event's attempt and seq."""
GROUP = 7
"""How many runs are replayed by one command."""
_OVER = ("closed", "failed")
_VALUES: list[float] = []
# once and for all: it draws from the global generator, which the threads here share
_RESULT = compute(lambda step, x: _VALUES.append(x))


def try_cells(cells: Iterable[Cell], directory: Path) -> list[str]:
    """Run cells, replay what their runs lack with one command, and compare.

    Returns:
        What is not as stated, a line for each cell.
    """
    problems = []
    trials = []
    for number, cell in enumerate(cells):
        try:
            trials.append(run_cell(cell, directory, number))
        except AssertionError as error:
            problems.append(f"{cell.name}: {error}")
    done = None
    # a process that dies at once may leave no log, and nothing to be replayed
    if any(list_segments(trial.run_dir / "rank-0") for trial in trials):
        done = replay_pending(directory, trials)
    refused = False
    for trial in trials:
        try:
            found = observe(trial)
            refused |= found.dead is not Dead.NONE
            expected = stated(trial.cell)
            assert found.course is expected.course, f"found: {found.course.words}"
            _check_dead(found.dead, expected.dead)
        except (AssertionError, EventlogError) as error:
            told = f"; it said:\n{trial.errors}" if trial.errors else ""
            problems.append(f"{trial.cell.name}: {error}; {trial.status}{told}")
    if done is not None and done.returncode not in ((0, 1) if refused else (0,)):
        problems.append(f"replay ended with {done.returncode}: {done.stdout}{done.stderr}")
    return problems


def _check_dead(found: Dead, expected: Dead) -> None:
    # how much a sink is given three times before the end comes is a matter of time: also nothing
    may_be_none = expected is Dead.DOUBTED and found is Dead.NONE
    assert found is expected or may_be_none, f"dead letters: {found.words}"


def observe(trial: Trial) -> Outcome:
    """Return what became of the broken sink, once everything else was found as it is promised.

    Raises:
        AssertionError: It was not.
    """
    cell, said = trial.cell, trial.said
    assert trial.left == [], f"processes were left: {trial.left}"
    assert said.get("result", _RESULT) == _RESULT, "training computed something else"
    for moment in ("ready", "end"):
        if moment in said:
            _check_account(said[moment])
    died = _died(trial)
    if not died:
        assert trial.code in own_codes(cell), f"it ended with {trial.code}"
        assert "result" in said, "training did not get to its end"
        assert ("end" in said) == (cell.end not in KILLED), "the end was not told"
    struck = (trial.switches / STRUCK).exists()
    spared = cell.point == "close" and cell.place == "process" and cell.end in KILLED
    assert struck != spared, "the fault has not happened" if spared is False else "it has happened"
    if died and not trial.run_dir.exists():
        return Outcome(Course.NO_RUN)
    if died and not list_segments(trial.run_dir / "rank-0"):
        return Outcome(Course.DIES)  # before the writer's first turn
    events = _check_log(trial)
    if died and not events:
        return Outcome(Course.DIES)  # in it
    _check_others(trial, events)
    return Outcome(Course.DIES if died else _course(trial), _dead(trial, events))


def _check_others(trial: Trial, events: list[Place]) -> None:
    """Check that the sinks beside the broken one have everything, once, and when they have it."""
    cell = trial.cell
    for alias in ("good", "beside")[: 1 + (cell.place == "sidecar")] if events else ():
        copied = [(e.attempt, e.seq) for e in open_log(trial.run_dir / alias).events()]
        assert copied == events, f"the sink {alias} has {len(copied)} of {len(events)} events"
    if "end" in trial.said and not is_endless(cell):
        assert "good" in trial.whole, "the sink good has not had everything at the end"
    if cell.place == "sidecar" and cell.fault not in DEADLY:
        assert "beside" in trial.whole, "the sink beside has not had everything at the end"


def _died(trial: Trial) -> bool:
    """Whether the sink has ended the training process."""
    cell = trial.cell
    if cell.fault not in DEADLY or cell.place != "process":
        return False
    # a SIGKILL of the sink's own looks like the one from outside, but comes first
    return trial.code == {"exit": EXIT_CODE, "kill": -9}[cell.fault] and not (
        cell.end == "kill -9" and trial.signalled
    )


def _check_account(account: dict[str, Any]) -> None:
    log = account["log"]
    assert log["emitted"] == log["written"] + sum(log["dropped"].values()) + log["queued"], log
    for alias, s in account["sinks"].items():
        parts = s["delivered"] + s["filtered"] + s["dead"] + s["in_flight"]
        assert s["read"] == parts, f"{alias}: {s}"
        assert s["lost"] == 0, f"{alias}: {s}"


def _check_log(trial: Trial) -> list[Place]:
    """Check that the log has what was emitted; return its events."""
    log = open_log(trial.run_dir)
    events = list(log.events())
    assert [e.seq for e in events] == list(range(len(events))), "the log has gaps"
    x = [e.values["x"] for e in events if type(e) is StepEvent and "x" in e.values]
    assert x == _VALUES[: len(x)], "the log has other values"
    if "end" in trial.said:
        account = trial.said["end"]["log"]
        assert set(account["dropped"]) <= {"closed"}, account
        assert (account["written"], account["queued"]) == (len(events), 0), account
        # a sink that is still called after the end may log, in vain
        assert type(events[-1]) is RunFinished, events[-1]
    if "ready" in trial.said:
        assert len(events) >= trial.said["ready"]["log"]["written"], "synced events are missing"
    if "end" in trial.said or "ready" in trial.said:
        assert len(x) == STEPS
    return [(e.attempt, e.seq) for e in events]


def _dead(trial: Trial, events: list[Place]) -> Dead:
    """Check that each event is with the broken sink, or set aside; return what is set aside."""
    assert "broken" in whole_sinks(trial), "incomplete after the replay"
    took = set(taken(trial.sink_dir))
    letters = trial.run_dir / "dead" / "broken"
    dead = {(e.attempt, e.seq) for e in open_log(letters).events()} if letters.exists() else set()
    lacking = sorted(set(events) - took - dead)
    assert not lacking, f"{len(lacking)} events were never taken: {lacking[:3]}..."
    assert took | dead == set(events), "there are events that the log does not have"
    if trial.cell.fault != "picky":
        return Dead.DOUBTED if dead else Dead.NONE
    refused = {(attempt, seq) for attempt, seq in events if seq % 1000 == REFUSED}
    assert dead == refused, f"{dead} are set aside, not {refused}"
    return Dead.REFUSED


def _course(trial: Trial) -> Course:
    if "broken" in trial.whole:
        return Course.COMPLETE
    if trial.lingered:
        assert "broken" in trial.whole_mended, "incomplete after it was mended"
        return Course.MENDED
    if trial.cell.place == "process" and trial.cell.end in KILLED:
        return Course.CUT
    sinks = trial.status if trial.cell.place == "sidecar" else trial.said["end"]["sinks"]
    report = (sinks or {}).get("broken")
    if report is None or (trial.status is not None and report["state"] not in _OVER):
        return Course.RESTARTED
    error = report["error"] or ""
    if "took longer" in error:
        return Course.LATE
    if "does not load" in error or "cannot be made" in error:
        return Course.UNLOADED
    # what it is like in the sidecar is in a field of its own there
    retries = report.get("statistics", report)["retries"]
    assert retries >= 2, f"given up, and nobody knows why: {report}"
    return Course.TRIED if retries == 2 else Course.WAITED


def main(arguments: Sequence[str]) -> int:
    """Run the matrix, or a part of it; return 1 where something is not as stated."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.matrix")
    parser.add_argument("--only", default="", help="cells whose name has this text in it")
    parser.add_argument("--part", default="1/1", help="the first of four parts of them: 1/4")
    parser.add_argument("--jobs", type=int, default=2, help="how many groups of cells at a time")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}, if all agrees")
    options = parser.parse_args(arguments)
    first, _, of = options.part.partition("/")
    chosen = list(all_cells())[int(first) - 1 :: int(of)]
    cells = [cell for cell in chosen if options.only in cell.name]
    if not cells:
        parser.error(f"no cell has {options.only!r} in its name")
    groups = [cells[at : at + GROUP] for at in range(0, len(cells), GROUP)]
    begun = time.monotonic()

    def try_group(group: list[Cell]) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            problems = try_cells(group, Path(directory))
        seconds = time.monotonic() - begun
        print(f"{seconds:6.0f} s  {group[0].name} to {group[-1].name}")
        print("".join(f"!! {problem}\n" for problem in problems), end="", flush=True)
        return problems

    with ThreadPoolExecutor(options.jobs) as pool:
        problems = list(itertools.chain(*pool.map(try_group, groups)))
    print(f"{len(cells)} cells in {time.monotonic() - begun:.0f} s, {len(problems)} not as stated")
    if options.write and not problems:
        PAGE.write_text(page(), encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    # the children are to import what this process has, wherever it was found
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    raise SystemExit(main(sys.argv[1:]))
