"""The tests of what a tracker shows of the run that has everything."""

from __future__ import annotations

from eventlog.testing import _conformance_script as script
from eventlog.testing._conformance_cells import Judge
from eventlog.testing._conformance_curves import Board, Verdict, curves_of
from eventlog.testing._conformance_kit import SinkDescription, check
from eventlog.testing._conformance_media import MEDIA
from eventlog.testing._conformance_runs import Recorded, Runs

__all__ = ["ValueTests", "undelivered"]

AXES = ("step axis", "batch axis", "epoch axis", "named axis")


def undelivered(recorded: Recorded) -> str | None:
    """Return what went wrong with the delivery of a run; None where all arrived."""
    counts = recorded.statistics
    if recorded.error is not None or counts.state != "closed":
        return f"the sink is {counts.state}: {recorded.error}"
    if counts.dead or counts.retries:
        return f"{counts.dead} events were refused ({counts.refusal}), {counts.retries} retries"
    if counts.in_flight or recorded.left or counts.read != counts.delivered + counts.filtered:
        return f"not all was delivered: {counts}"
    return None


class ValueTests(SinkDescription):
    """Each is run with the sink in the process and in the sidecar."""

    def _judge(self, runs: Runs) -> Judge:
        return Judge(self, runs.everything())

    def test_everything_is_delivered(self, runs: Runs) -> None:
        """No call fails, nothing is tried again, and nothing is left at the end."""
        fault = undelivered(runs.everything())
        check(fault is None, f"{fault}")

    def test_the_end_comes_in_time(self, runs: Runs) -> None:
        """Closing a run takes no longer than `close_seconds`."""
        seconds = runs.everything().seconds
        check(seconds <= self.close_seconds, f"the end took {seconds:.1f} s")

    def test_nothing_leaves_this_machine(self, runs: Runs) -> None:
        """With the options and the environment given, no other host is asked for."""
        outside = runs.everything().outside
        check(not outside, f"these hosts were asked for: {sorted(set(outside))}")

    def test_points_come_in_order(self, runs: Runs) -> None:
        """The points of a curve are shown in the order in which they were logged."""
        match = self._judge(runs).board.match("curve")
        check(match.same, f"{match.wanted} is shown as {match.seen}")

    def test_every_kind_of_value(self, runs: Runs) -> None:
        """Numbers of Python, NumPy and torch, bools, strings and nested values arrive."""
        judge = self._judge(runs)
        _check_all({cell: judge.kind(cell) for cell in script.KINDS})

    def test_odd_numbers(self, runs: Runs) -> None:
        """NaN, infinities, large and tiny numbers arrive, or are counted."""
        judge = self._judge(runs)
        _check_all({cell: judge.special(cell) for cell in script.SPECIALS})

    def test_odd_names(self, runs: Runs) -> None:
        """Every name has a curve of its own, whatever it is, and can be found again."""
        _check_all({"odd names": self._judge(runs).names()})

    def test_axes(self, runs: Runs) -> None:
        """Steps, batches, epochs and axes of a user's own each have their own places."""
        judge = self._judge(runs)
        _check_all({cell: judge.axis(cell) for cell in AXES})

    def test_every_number_is_that_of_the_log(self, runs: Runs) -> None:
        """No curve has a point that was not logged, and each is at its place."""
        judge = self._judge(runs)
        special = {key for key, _ in script.SPECIALS.values()}
        wrong = {
            match.curve.key[:40]: match.extra[:4]
            for match in judge.board.matches
            if match.extra and match.curve.key not in special
        }
        check(not wrong, f"points that were never logged, or not so often: {wrong}")

    def test_media(self, runs: Runs) -> None:
        """What is declared is shown; what is not is turned into something else, or counted."""
        judge = self._judge(runs)
        cells = dict(MEDIA)
        if runs.mode == "sidecar":
            # another process does not have the class of a user's event: its values arrive
            del cells["custom event"]
        _check_all({cell: judge.media(cell) for cell in cells})
        own = judge.board.match("own")
        check(own.same, f"the values of a user's event are shown as {own.seen}")

    def test_config(self, runs: Runs) -> None:
        """Hyperparameters of any shape are shown as far as the tracker can, also later ones."""
        _check_all({"config": self._judge(runs).config()})

    def test_summary(self, runs: Runs) -> None:
        """Values of the whole run are shown, or counted."""
        _check_all({"summary": self._judge(runs).summary()})

    def test_labels(self, runs: Runs) -> None:
        """Name, group, notes and tags are as they were given, where the tracker has them."""
        _check_all({"labels": self._judge(runs).labels()})

    def test_wall_times(self, runs: Runs) -> None:
        """Points have the time at which they were logged, where the tracker keeps times."""
        recorded = runs.everything()
        times = recorded.shown.wall_times
        judge = self._judge(runs)
        match = judge.board.match("curve")
        shown = times.get(match.name or "", [])
        logged = [e.wall_time for e in recorded.events if "curve" in e.values]
        if shown:
            far = [s - t for s, t in zip(shown, logged, strict=True) if not abs(s - t) < 0.01]
            check(not far, f"these points are off by so many seconds: {far[:5]}")

    def found_outcomes(self, runs: Runs) -> dict[str, str]:
        """Return what became of each kind of thing."""
        judge = self._judge(runs)
        found = {cell: judge.kind(cell) for cell in script.KINDS}
        found |= {cell: judge.special(cell) for cell in script.SPECIALS}
        found |= {cell: judge.axis(cell) for cell in AXES}
        found |= {cell: judge.media(cell) for cell in MEDIA}
        found["odd names"] = judge.names()
        found["config"], found["summary"] = judge.config(), judge.summary()
        found["labels"] = judge.labels()
        if runs.mode == "sidecar":
            del found["custom event"]
        return {cell: str(verdict) for cell, verdict in (found | self.life_cells(runs)).items()}

    def life_cells(self, runs: Runs) -> dict[str, Verdict]:
        """Return what became of rewinds, resumes and statuses."""
        raise NotImplementedError


def _check_all(verdicts: dict[str, Verdict]) -> None:
    wrong = {cell: v.note for cell, v in verdicts.items() if v.outcome == "wrong"}
    check(not wrong, "\n".join(f"{cell}: {note}" for cell, note in wrong.items()))


def board_of(kit: SinkDescription, recorded: Recorded) -> Board:
    """Return the curves of a run, and what is shown of them."""
    return Board(curves_of(recorded.events), recorded.shown, kit.rounded)
