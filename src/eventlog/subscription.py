"""A subscription: a cursor on a log, a cadence and a window.

It is the one way from a log to whoever consumes it: live sinks and async iterators, catching up,
recovery, replay and the delivering process all pull from a `Subscription`. It knows no thread, no
clock and no loop; what comes out depends on the events alone, and on neither the blocks that they
came in nor how much is pulled at once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from eventlog._columns import Columns, shared_columns
from eventlog._sieve import KINDS, Every, Sieve
from eventlog.cadence.window import Reduce
from eventlog.events import BatchEvent, Event, Flushed, StepEvent
from eventlog.exceptions import CodecError
from eventlog.log.attempts import Attempts
from eventlog.log.layout import Content
from eventlog.log.source import Block, Source
from eventlog.selection import Exclusion, Selection

__all__ = ["Every", "Mark", "Ready", "Subscription"]

_STRIDE = 1024
"""How many events of a block are looked at in one go, where that is done one by one."""

# plain integers: an operation on flags takes a microsecond
_SORTED, _NO_STEP = int(Content.SORTED), int(Content.NO_STEP)
_WHAT = KINDS | int(Content.NAMED_AXIS)
_ONE_KIND: dict[int, type[Event]] = {int(Content.STEP): StepEvent, int(Content.BATCH): BatchEvent}


class Mark(msgspec.Struct, frozen=True):
    """Where a subscription may go on after what was handed out was delivered.

    Attributes:
        seq: The next event to read. Events that wait (for their window to close, or in case they
            are the last ones) are read again.
        state: The cadence's state after the last event that was read.
    """

    seq: int
    state: dict[str, Any] = {}


class Ready(NamedTuple):
    """What `Subscription.pull` hands out.

    Attributes:
        events: To be delivered, in order; may be empty when nothing of what was read passes.
        mark: Valid once these events were delivered.
        flush: The user asked for a flush of what was emitted until here.
    """

    events: list[Event]
    mark: Mark
    flush: bool


class Subscription:
    """A place in a log, and the rule by which its events pass.

    Args:
        source: The log.
        types: Event types (or their tags) to take; all when None. Model updates reach the cadence
            in any case.
        every: When step and batch events pass; see `Every`. All others pass unless a mapping
            names a cadence for them.
        reduce: What becomes of the values between two ticks; None passes due events as they are.
        keys: Glob patterns of value names to keep; events with values of which none is kept are
            left out, and so are gated events without values.
        start: The first seq to read.
        attempts: Leaves out what a later attempt has logged again.
        where: Leaves out what lies outside its ranges.

    Attributes:
        cursor: The next seq to read.
        read: Events read so far.
        delivered: Of these, the ones that were handed out; a reduced event counts as one.
        lost: Events that could not be had any more.
    """

    def __init__(
        self,
        source: Source,
        *,
        types: Collection[type[Event] | str] | None = None,
        every: Every = None,
        reduce: Reduce = None,
        keys: Collection[str] | None = None,
        start: int = 0,
        attempts: Attempts | None = None,
        where: Selection | None = None,
    ) -> None:
        self._source = source
        # a part of another log leaves seqs out on purpose
        self._sparse: bool = getattr(source, "sparse", False)
        self._reader = source.open_reader()
        self._sieve = Sieve(types, every, reduce, keys)
        self._exclusions: tuple[Exclusion, ...] = tuple(x for x in (attempts, where) if x)
        self._shared = shared_columns(source)
        self._block: Block | None = None
        # of this block: its columns, its flags, and its kind where it has one on the axis "step"
        self._columns: Columns | None = None
        self._flags = 0
        self._kind: type[Event] | None = None
        self._attempt: int | None = None
        self._restored: Mark | None = None
        self._passed_to = start
        self.cursor = start
        self.read = 0
        self.delivered = 0
        self.lost = 0

    @property
    def ticks(self) -> int:
        """How often its cadence was due."""
        return self._sieve.ticks

    @property
    def never_ticked(self) -> bool:
        """Whether it has a cadence that was never due although there was something to gate."""
        return self._sieve.never_ticked

    @property
    def open(self) -> int:
        """Events that were read and are neither handed out nor left out: those that wait."""
        return self._sieve.open

    @property
    def filtered(self) -> int:
        """Events that were read and left out, or went into a reduced event."""
        return self.read - self.delivered - self.open

    def pull(self, limit: int = 512, scan: int = 8192) -> Ready | None:
        """Read on, up to `limit` events that pass or about `scan` that are read.

        What waited for the end of an attempt or of the run may come on top of that.

        Returns:
            None when nothing could be read.

        Raises:
            OSError: The log cannot be read just now; nothing was handed out.
        """
        out: list[Event] = []
        flush = False
        start = self.cursor
        ended = self._source.closed
        while len(out) < limit and self.cursor - start < scan and not flush:
            try:
                block = self._next_block()
            except OSError:
                if self.cursor == start and not out:
                    raise
                break  # first what was read
            if block is None:
                break
            if block.attempt != self._attempt:
                if self._attempt is not None:
                    self._sieve.restart(out)
                self._attempt = block.attempt
            elif not self._pass_by(block):
                flush = self._feed(block, out, limit)
        if self.cursor == start and not out:
            if not ended:
                return None
            # the source has ended without saying so: the run was killed
            self._lose(self._source.end)
            self._sieve.finish(out)
            if not out:
                return None
        self.delivered += len(out)
        if self._sieve.keys is not None:
            out = list(map(self._sieve.keys.cut, out))
        return Ready(out, self._mark(), flush)

    def _next_block(self) -> Block | None:
        """Return the block that holds the cursor, which goes on where events cannot be had."""
        block = self._block
        if block is None or not block.first <= self.cursor < block.end:
            block = self._block = self._reader.read(self.cursor)
            if block is None:
                return None
            self._flags = int(block.flags)
            self._kind = _ONE_KIND.get(self._flags & _WHAT)
            self._columns = self._shared.of(block) if block.in_memory else None
            if self._sparse:
                self.cursor = max(self.cursor, block.first)
            else:
                self._lose(block.first)
        return block

    def _lose(self, end: int) -> None:
        if end > self.cursor:
            self.lost += end - self.cursor
            self.cursor = end

    def _advance(self, end: int) -> None:
        self.read += end - self.cursor
        self.cursor = end

    def _untouched(self, block: Block) -> bool:
        """Whether nothing in a block can be left out before its cadence is asked."""
        return all(exclusion.spares(block) for exclusion in self._exclusions)

    def _excluded(self, event: Event) -> bool:
        return any(exclusion.excludes(event) for exclusion in self._exclusions)

    def _pass_by(self, block: Block) -> bool:
        """Pass a block by, unread, where nothing in it is wanted or can be due."""
        if not block.first == self.cursor >= self._passed_to:
            return False
        sieve = self._sieve
        outside = any(exclusion.excludes_all(block) for exclusion in self._exclusions)
        if self._flags & sieve.looked_at and not outside:
            lane = None if self._kind is None else sieve.quick.get(self._kind)
            simple = self._flags & (_SORTED | _NO_STEP) == _SORTED
            if lane is None or not simple or sieve.keys is not None or not self._untouched(block):
                return False
            if not lane.pass_by(block, self._columns):
                return False
        self._advance(block.end)
        return True

    def _feed(self, block: Block, out: list[Event], limit: int) -> bool:
        """Take events of a block; returns whether there was a `Flushed`, after which it stops."""
        try:
            events = block.events()
        except CodecError:
            self._lose(block.end)
            return False
        at = self.cursor - block.first
        if self.cursor < self._passed_to:
            again = events[at : self._passed_to - block.first]
            for event in again:
                if not self._excluded(event):
                    self._sieve.take_again(event, out)
            self._advance(self.cursor + len(again))
            return False
        untouched = self._untouched(block)
        if untouched and self._sieve.keys is None:
            if not self._flags & KINDS & ~self._sieve.passing:
                passing = events[at : at + limit - len(out)]
                out += passing
                self._advance(self.cursor + len(passing))
                return False
            lane = None if self._kind is None else self._sieve.quick.get(self._kind)
            if lane is not None:
                if self._columns is None:
                    self._columns = Columns(events)
                stop = lane.take_many(events, self._columns, at, limit, out)
                if stop is not None:
                    self._advance(block.first + stop)
                    return False
        excluded = None if untouched else self._excluded
        last = self._sieve.take_each(events[at : at + _STRIDE], excluded, out, limit)
        self._advance(last.seq + 1)
        return type(last) is Flushed

    def _mark(self) -> Mark:
        """Describe where to go on, once everything handed out so far was delivered."""
        if self._restored is not None and self.cursor < self._passed_to:
            return self._restored
        if not self._sieve.gated:
            return Mark(self.cursor)
        state = {"attempt": self._attempt, "passed": self.cursor, **self._sieve.state()}
        waits = [opened for _, _, opened, _ in state["lanes"] if opened is not None]
        return Mark(min(waits, default=self.cursor), state)

    def restore(self, mark: Mark) -> None:
        """Go on from a mark: what was handed out before it does not come again.

        With other rules than those of the mark, what waited is decided anew.
        """
        self.cursor = mark.seq
        if mark.state:
            self._restored = mark
            self._attempt = mark.state["attempt"]
            self._passed_to = mark.state["passed"]
            self._sieve.load(mark.state)
