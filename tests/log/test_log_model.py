"""A log against a plain list: whatever is done to it, in whatever order, both hold the same.

The machine emits, writes, rotates, rewinds, lets the writer die (at times with the power: the last
file is cut where nothing was promised), opens the log again, compacts it, reads it from the start,
goes on reading it, and delivers it over restarts through checkpoints.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eventlog.events import Event, Flushed, Rewound
from eventlog.log import open_log
from eventlog.log.attempts import Attempts
from eventlog.log.checkpoint import Checkpoint, CheckpointFile, checkpoint_path
from eventlog.log.files import FileReader
from eventlog.log.layout import BlockKind, Content, content_of
from eventlog.log.log_writer import LogWriter
from eventlog.log.seal import compact_log
from eventlog.log.segment_reader import Segment, list_segments
from eventlog.log.source import Source, TailCache
from eventlog.log.stored import StoredSource
from eventlog.subscription import Mark, Subscription

from .conftest import Book
from .logs import Doer, exactly, some_events, source_of

RULES: dict[str, dict[str, Any]] = {
    "all": {},
    "steps": {"every": "3 steps"},
    "reduced": {"every": "1 epoch or 4 batches", "reduce": "mean"},
}


def superseded(events: Sequence[Event]) -> set[int]:
    """Return the seqs that a later attempt took the place of, by the rule in docs/log-format.md."""
    spans: dict[tuple[int, str], list[int]] = {}
    placed = []
    for event in events:
        if isinstance(event, Rewound):
            span = spans.setdefault((event.attempt, "step"), [event.to_step, 2**63])
            span[:] = [min(span[0], event.to_step), 2**63]
        elif content_of(type(event)) is not Content.RUN and event.step is not None:
            placed.append(event)
            span = spans.setdefault((event.attempt, event.axis), [event.step, event.step])
            span[:] = [min(span[0], event.step), max(span[1], event.step)]
    return {
        event.seq
        for event in placed
        if any(
            attempt > event.attempt and axis == event.axis and first <= (event.step or 0) <= last
            for (attempt, axis), (first, last) in spans.items()
        )
    }


class Delivered:
    """A sink that keeps its place with what it was given, in one go: nothing may come twice."""

    def __init__(self, directory: Path, alias: str) -> None:
        self.directory = directory
        self.alias = alias
        self.events: list[Event] = []
        self.passed = 0
        self.exact = True
        self.subscription: Subscription | None = None

    def open(self, source: Source) -> None:
        """Go on from the checkpoint."""
        file = self._file()
        known = file.load()
        file.close()
        self.subscription = Subscription(source, **RULES[self.alias])
        if known is not None:
            self.subscription.restore(Mark(known.seq, known.state))

    def _file(self) -> CheckpointFile:
        return CheckpointFile(checkpoint_path(self.directory, self.alias, "model"))

    def pull(self, limit: int, most: int) -> None:
        """Take some batches, each with its place."""
        assert self.subscription is not None
        for _ in range(most):
            ready = self.subscription.pull(limit, scan=limit * 3)
            if ready is None:
                break
            self.events += ready.events
            self.passed = ready.mark.state.get("passed", ready.mark.seq)
            file = self._file()
            checkpoint = Checkpoint(
                alias=self.alias, seq=ready.mark.seq, passed=self.passed, state=ready.mark.state
            )
            file.save(checkpoint, sync=False)
            file.close()


class LogMachine(RuleBasedStateMachine):
    """The log, and the list that it must be."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.book = Book(self.folder / "run")
        self.directory = self.book.directory
        self.model: list[Event] = []
        self.emitted: list[Event] = []
        self.dropped: dict[str, int] = {}
        self.unreported: dict[str, int] = {}
        self.next_seq = 0
        self.offset: int | None = None
        self.synced: tuple[Path, int] | None = None
        self.follower = FileReader(self.directory)
        self.followed: list[Event] = []
        self.sinks = {alias: Delivered(self.directory, alias) for alias in RULES}

    @initialize(
        segment_bytes=st.sampled_from([1, 4_500, 20_000]), cached=st.sampled_from([1, 10**6])
    )
    def begin(self, segment_bytes: int, cached: int) -> None:
        self.opening = {"segment_bytes": segment_bytes}
        self.cached = cached
        self.open_log()

    def open_log(self) -> None:
        self.doer = Doer(self.book, cache=TailCache(max_events=self.cached), **self.opening)
        self.offset = None
        self.synced = None
        source = self.book.recorder.source  # type: ignore[union-attr]
        for sink in self.sinks.values():
            sink.open(source)
        attempts = [e.attempt for e in self.model]
        assert self.doer.attempt > max(attempts, default=0)
        passed = max(sink.passed for sink in self.sinks.values())
        self.next_seq = max(passed, self.model[-1].seq + 1 if self.model else 0)
        assert source.end == self.next_seq

    @property
    def is_open(self) -> bool:
        return self.book.recorder is not None

    # -- what is done --

    @precondition(lambda self: self.is_open)
    @rule(events=st.lists(some_events(), min_size=1, max_size=6))
    def emit(self, events: list[Event]) -> None:
        self.emitted += self.doer.emit(events)

    @precondition(lambda self: self.is_open)
    @rule(step=st.integers(0, 40))
    def rewind(self, step: int) -> None:
        self.emitted += self.doer.rewind(step)

    @precondition(lambda self: self.is_open)
    @rule(reason=st.sampled_from(["media", "no_value"]))
    def drop(self, reason: str) -> None:
        self.doer.drop(reason)
        self.unreported[reason] = self.unreported.get(reason, 0) + 1

    @precondition(lambda self: self.is_open)
    @rule(seconds=st.sampled_from([0.0001, 60.0, -60.0]))
    def set_clock(self, seconds: float) -> None:
        self.doer.set_clock(seconds)

    @precondition(lambda self: self.is_open)
    @rule()
    def turn(self) -> None:
        self.doer.turn()
        self.take_note()

    @precondition(lambda self: self.is_open)
    @rule()
    def heartbeat(self) -> None:
        self.doer.turn()
        self.take_note()
        self.book.clock.advance(11)
        self.doer.turn()

    @property
    def log(self) -> LogWriter:
        assert self.book.recorder is not None
        log = self.book.recorder.writer._log
        assert log is not None
        return log

    def take_note(self, begun: bool = False) -> None:
        """Move what was emitted into the model, with the place that it must have got."""
        written = begun or bool(self.emitted)
        clock = self.book.clock
        offset = clock.wall_ns() - clock.monotonic_ns()
        if self.emitted:
            if self.offset is not None and abs(offset - self.offset) < 1_000_000:
                offset = self.offset
            self.offset = offset
        for event in self.emitted:
            placed = msgspec.structs.replace(event, seq=self.next_seq, wall=event.mono + offset)
            self.model.append(placed)
            self.next_seq += 1
        self.emitted = []
        if written or self.log._segment is not None:
            for reason, n in self.unreported.items():
                self.dropped[reason] = self.dropped.get(reason, 0) + n
            self.unreported = {}

    @precondition(lambda self: self.is_open)
    @rule()
    def sync(self) -> None:
        log = self.log
        log.sync()
        if log._segment is not None:
            self.synced = (log._segment.path, log._segment.size)

    @precondition(lambda self: self.is_open)
    @rule()
    def end(self) -> None:
        begun = self.log._segment is not None
        self.book.recorder.stop(10)  # type: ignore[union-attr]
        self.take_note(begun)
        self.book.recorder = None
        self.emitted, self.unreported = [], {}

    @precondition(lambda self: self.is_open)
    @rule()
    def crash(self) -> None:
        self.book.crash()
        self.emitted, self.unreported = [], {}

    @precondition(lambda self: self.is_open and bool(list_segments(self.directory)))
    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Cut the last file somewhere behind what was synced."""
        segment = self.log._segment
        self.crash()
        if segment is None:
            return
        path, size = segment.path, segment.size
        least = self.synced[1] if self.synced is not None and self.synced[0] == path else 0
        cut = data.draw(st.integers(least, size), label="cut")
        reader = Segment(path)
        kept = [b for b in reader.scan() if b.end <= cut]
        gaps = [b for b in reader.scan() if b.end > cut and b.header.kind == BlockKind.GAP]
        for block in gaps:
            for reason, n in msgspec.msgpack.decode(reader.payload(block))["dropped"].items():
                self.dropped[reason] -= n
        base = reader.header.base_seq if reader.header is not None else 0
        reader.close()
        os.truncate(path, cut)
        ends = [
            b.header.first_seq + b.header.events for b in kept if b.header.kind == BlockKind.EVENTS
        ]
        end = max(ends, default=base)
        lost = [e for e in self.model if e.seq >= end]
        self.model = [e for e in self.model if e.seq < end]
        if lost:
            # whoever followed went down with the machine
            self.follower, self.followed = FileReader(self.directory), []
            for sink in self.sinks.values():
                sink.exact &= sink.passed <= end

    @precondition(lambda self: not self.is_open)
    @rule()
    def reopen(self) -> None:
        self.open_log()

    @rule(codec=st.sampled_from(["zlib", "zstd"]))
    def compact(self, codec: str) -> None:
        before = {path: path.read_bytes() for _, path in list_segments(self.directory)}
        done = list(compact_log(self.directory, codec))
        assert [c.path for c in done] == list(before)
        if self.is_open and done:
            assert done[-1].skipped == "it is being written"
        for one in done:
            assert one.before == len(before[one.path])
            if one.skipped is not None:
                assert one.path.read_bytes() == before[one.path]

    @precondition(lambda self: self.is_open)
    @rule(alias=st.sampled_from(list(RULES)), limit=st.integers(1, 9), most=st.integers(1, 5))
    def deliver(self, alias: str, limit: int, most: int) -> None:
        self.sinks[alias].pull(limit, most)

    # -- what must hold --

    @rule()
    def read_all(self) -> None:
        """What is read is the list: all fields, places and times."""
        log = StoredSource(self.directory)
        reader = log.open_reader()
        events: list[Event] = []
        seq = 0
        while (block := reader.read(seq)) is not None:
            events += [e for e in block.events() if e.seq >= seq]
            seq = block.end
        assert exactly(events) == exactly(self.model)
        tails = {"a tail that is no block", "no header can be read"}
        assert {damage.reason for damage in log.damage} <= tails

    @precondition(lambda self: bool(self.model))
    @rule(data=st.data())
    def read_from(self, data: st.DataObject) -> None:
        """Any event is found by its seq."""
        event = data.draw(st.sampled_from(self.model), label="event")
        block = FileReader(self.directory).read(event.seq)
        assert block is not None
        assert block.first <= event.seq < block.end
        assert exactly([block.events()[event.seq - block.first]]) == exactly([event])

    @rule()
    def follow(self) -> None:
        """Who reads on from where it was sees each event once."""
        seq = self.followed[-1].seq + 1 if self.followed else 0
        while (block := self.follower.read(seq)) is not None:
            self.followed += [e for e in block.events() if e.seq >= seq]
            seq = block.end
        assert exactly(self.followed) == exactly(self.model)

    @rule()
    def replay_latest(self) -> None:
        """The latest attempts' view is that of the rule on the page."""
        if not self.model:
            return
        gone = superseded(self.model)
        attempts = Attempts.scan(self.directory)
        assert {e.seq for e in self.model if attempts.superseded(e)} == gone
        kept = list(open_log(self.book.run_dir).events(latest=True))
        # a flush is handed out to those only who ask for it
        held = [e for e in self.model if e.seq not in gone and type(e) is not Flushed]
        assert exactly(kept) == exactly(held)

    @precondition(lambda self: bool(self.model))
    @rule()
    def summarise(self) -> None:
        """The summary adds up what was dropped and what is there."""
        summary = open_log(self.book.run_dir).summary()
        assert summary.events == len(self.model)
        assert summary.dropped == {k: n for k, n in self.dropped.items() if n}
        assert summary.status == open_log(self.book.run_dir).status()

    @precondition(lambda self: self.is_open)
    @rule()
    def catch_up(self) -> None:
        """Delivery over all restarts is that of one that was never interrupted."""
        for sink in self.sinks.values():
            sink.pull(100, 10**6)
            if sink.exact:
                whole = Subscription(source_of(self.model), **RULES[sink.alias])
                expected: list[Event] = []
                while (ready := whole.pull()) is not None:
                    expected += ready.events
                assert exactly(sink.events) == exactly(expected)
            elif sink.alias == "all":
                seqs = [e.seq for e in sink.events]
                assert seqs == sorted(set(seqs))
                assert {e.seq for e in self.model if type(e) is not Flushed} <= set(seqs)

    @invariant()
    def seqs_are_given_once(self) -> None:
        seqs = [e.seq for e in self.model]
        assert seqs == sorted(set(seqs))

    @invariant()
    def the_account_is_right(self) -> None:
        if self.is_open:
            found = self.book.recorder.writer.statistics()  # type: ignore[union-attr]
            assert found.emitted == found.written + found.queued + sum(found.dropped.values())
            assert found.queued == len(self.emitted)

    def teardown(self) -> None:
        try:
            if hasattr(self, "doer"):
                if not self.is_open:
                    self.reopen()
                self.catch_up()
                self.end()
                for check in (self.read_all, self.follow, self.replay_latest):
                    check()
                self.compact("zlib")
                for check in (self.read_all, self.follow, self.replay_latest):
                    check()
        finally:
            self.book.close()
            shutil.rmtree(self.folder)


def test_a_log_is_the_list_of_what_was_emitted() -> None:
    """Over crashes, restarts, rewinds, rotations and compactions."""
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        LogMachine,
        settings=settings(
            max_examples=50,
            stateful_step_count=30,
            suppress_health_check=[HealthCheck.too_slow],
            report_multiple_bugs=False,
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_log_is_the_list_of_what_was_emitted_for_longer() -> None:
    """The same, for longer."""
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        LogMachine,
        settings=settings(
            max_examples=1_000,
            stateful_step_count=80,
            suppress_health_check=[HealthCheck.too_slow],
            report_multiple_bugs=False,
        ),
    )
