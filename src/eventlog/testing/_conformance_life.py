"""The tests of what a tracker shows of a run's life: rewinds, resumes, its end, its replay."""

from __future__ import annotations

from eventlog.events import Status
from eventlog.testing._conformance_curves import (
    Board,
    Point,
    Verdict,
    curves_of,
    same_points,
    without,
)
from eventlog.testing._conformance_kit import check
from eventlog.testing._conformance_runs import Recorded, Runs
from eventlog.testing._conformance_values import ValueTests, board_of, undelivered
from eventlog.testing.shown import Shown

__all__ = ["LifeTests"]


class LifeTests(ValueTests):
    """Each is run with the sink in the process and in the sidecar, where it can differ."""

    def test_a_rewind(self, runs: Runs) -> None:
        """All of the latest attempt is shown, and of the former one what the sink declares."""
        fault = undelivered(runs.rewound())
        check(fault is None, f"{fault}")
        verdict = self._rewind(runs.rewound())
        check(verdict.outcome != "wrong", verdict.note)

    def _rewind(self, recorded: Recorded) -> Verdict:
        kind = self.sink_class().rewind
        match = board_of(self, recorded).match("redone")
        void, latest = match.wanted[5:10], match.wanted[10:]
        # a new run of the tracker has what came after the rewind, and may have what came before
        needed = latest if kind == "new_run" else match.wanted[:5] + latest
        lacking = without(needed, match.seen)
        if lacking:
            return Verdict("wrong", f"after a rewind {lacking} is lost: shown is {match.seen}")
        strange = without(match.seen, match.wanted)
        if strange:
            return Verdict("wrong", f"after a rewind {strange} is shown, but was never logged")
        replaced = [p for p in void if p[0] in {at for at, _ in latest}]
        still = _among(void if kind in ("purge", "new_run") else replaced, match.seen)
        if kind == "append":
            gone = without(void, match.seen)
            if gone:
                return Verdict("wrong", f"`rewind` is 'append', but {gone} of before is gone")
            return Verdict("converted", "both attempts are shown")
        if still:
            return Verdict("wrong", f"`rewind` is {kind!r}, but {still} of before is still there")
        if kind == "overwrite" and _among(void, match.seen):
            return Verdict("converted", "points of before stay until they are logged again")
        return Verdict("shown")

    def test_a_resume(self, runs: Runs) -> None:
        """A run that is resumed goes on in the same run of the tracker, each point once."""
        for recorded in (runs.interrupted(), runs.resumed()):
            fault = undelivered(recorded)
            check(fault is None, f"{fault}")
        verdict = self._resume(runs)
        check(verdict.outcome != "wrong", verdict.note)

    def _resume(self, runs: Runs) -> Verdict:
        first, second = runs.interrupted(), runs.resumed()
        one, other = first.run.tracker_id, second.run.tracker_id
        if one != other:
            return Verdict("wrong", f"the tracker's run was {one!r}, and is {other!r} now")
        board = board_of(self, second)
        for key, axis in (("part", "step"), ("small", "batch")):
            match = board.match(key, axis)
            if not match.same:
                return Verdict(
                    "wrong",
                    f"after a resume {key!r} lacks {match.missing}, and has {match.extra} too "
                    f"many: {match.seen}",
                )
        return Verdict("shown")

    def test_the_status(self, runs: Runs) -> None:
        """How a run ended is shown, in the tracker's own words."""
        verdict = self._status(runs)
        check(verdict.outcome != "wrong", verdict.note)

    def _status(self, runs: Runs) -> Verdict:
        ends: list[tuple[Status, Recorded]] = [
            ("finished", runs.everything()),
            ("failed", runs.rewound()),
            ("interrupted", runs.interrupted()),
            ("finished", runs.resumed()),
        ]
        if not self.declares("status"):
            said = {r.shown.status for _, r in ends} - {None}
            # a tracker may have a word of its own that says nothing of how the run ended
            if len(said) > 1:
                return Verdict("wrong", f"{said} are shown, but 'status' is no capability")
            return Verdict("impossible", "not declared")
        for status, recorded in ends:
            wanted, shown = self.statuses.get(status), recorded.shown.status
            if wanted != shown:
                return Verdict(
                    "wrong",
                    f"a run that is {status} is shown as {shown!r}; `statuses` has {wanted!r}",
                )
        words = {self.statuses.get(s) for s, _ in ends} | {self.statuses.get("killed")}
        if self.statuses["finished"] == self.statuses["failed"]:
            return Verdict("wrong", "a run that failed is shown like one that finished")
        return (
            Verdict("shown") if len(words) == 4 else Verdict("converted", "fewer words than four")
        )

    def test_a_replay(self, here: Runs) -> None:
        """A replay of the log into another place shows what the live run showed."""
        live, again = here.everything(), here.replayed()
        fault = undelivered(again)
        check(fault is None, f"{fault}")
        differences = _differences(live.shown, again.shown)
        check(not differences, f"a replay shows otherwise than the live run: {differences}")

    def test_a_place_that_cannot_be_written(self, here: Runs) -> None:
        """The run goes on, ends in time, and says what is wrong with the sink."""
        blocked = here.blocked()
        if blocked.state != "closed":
            check(blocked.error, f"the sink is {blocked.state}, and does not say why")
            return
        if isinstance(blocked.shown, Shown):
            board = Board(curves_of(blocked.events), blocked.shown, self.rounded)
            missing = len(board.match("blocked").missing)
        else:
            missing = sum("blocked" in event.values for event in blocked.events)
        check(
            blocked.counted >= missing,
            f"all went well, but {missing} points cannot be read back, of which "
            f"{blocked.counted} were counted: {blocked.shown}",
        )

    def test_it_twice_in_one_run(self, here: Runs) -> None:
        """Two sinks of one kind each show every point, in a run of the tracker of their own."""
        twins = here.twins()
        for recorded in twins:
            fault = undelivered(recorded)
            check(fault is None, f"{recorded.run.tracker_id}: {fault}")
            match = board_of(self, recorded).match("curve")
            # a terminal that both print on has every line twice
            whole = match.same if self.recognises else not match.missing
            check(whole, f"one of two shows {match.seen} of {match.wanted}")
        one, other = ((recorded.run.tracker_id, recorded.run.url) for recorded in twins)
        check(one != other or one[0] is None, f"both are the tracker's run {one}")

    def test_an_error_that_is_over(self, runs: Runs) -> None:
        """Where the error of a run is shown, it is gone once the run was resumed and finished."""
        first, second = runs.interrupted(), runs.resumed()
        if first.shown.error is not None:
            found = second.shown.error
            check(found is None, f"a run that finished shows an error of before: {found!r}")

    def life_cells(self, runs: Runs) -> dict[str, Verdict]:
        """Return what became of rewinds, resumes and statuses."""
        return {
            "rewind": self._rewind(runs.rewound()),
            "resume": self._resume(runs),
            "status": self._status(runs),
        }


def _among(points: list[Point], shown: list[Point]) -> list[Point]:
    return [point for point in points if not without([point], shown)]


def _differences(live: Shown, again: Shown) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted({*live.scalars, *again.scalars}):
        one, other = live.scalars.get(name, []), again.scalars.get(name, [])
        if not same_points(one, other):
            found[f"scalars {name[:40]!r}"] = f"{one[:4]} and {other[:4]}"
    for kind in ("texts", "images", "figures", "histograms", "tables", "artifacts"):
        before, after = getattr(live, kind), getattr(again, kind)
        if sorted(before) != sorted(after):
            found[kind] = f"{sorted(before)} and {sorted(after)}"
    for kind in ("config", "summary", "model_updates", "status", "error", "notes", "group", "tags"):
        before, after = getattr(live, kind), getattr(again, kind)
        if before != after:
            found[kind] = f"{before!r:.200} and {after!r:.200}"
    return found
