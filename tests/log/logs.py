"""Logs of all that there can be in one, made by hypothesis: what to do, and who does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
from hypothesis import strategies as st

from eventlog.events import (
    ArtifactEvent,
    BatchEvent,
    BlobRef,
    ConfigUpdated,
    EpochEvent,
    Event,
    FigureEvent,
    Flushed,
    HistogramEvent,
    ImageEvent,
    ModelUpdateEvent,
    Rewound,
    RunFinished,
    RunStarted,
    StepEvent,
    SummaryUpdated,
    TableEvent,
    TextEvent,
    UnknownEvent,
    Window,
)
from eventlog.log.files import FileReader
from eventlog.log.layout import BlockKind
from eventlog.log.segment_reader import Segment, list_segments
from eventlog.log.source import Block, TailCache, describe

BLOB = BlobRef("ab" * 32, 3, "image/png")


class Act(NamedTuple):
    """Something that happens to a log: what, and with which argument."""

    what: str
    argument: Any = None


def axes() -> st.SearchStrategy[dict[str, Any]]:
    """Return where an event is: sometimes nowhere, sometimes on another axis."""
    return st.fixed_dictionaries(
        {},
        optional={
            "step": st.integers(0, 40) | st.just(2**62),
            "batch": st.integers(0, 400),
            "epoch": st.integers(0, 5) | st.floats(0, 5),
            "axis": st.sampled_from(["step", "step", "val"]),
            "values": st.dictionaries(
                st.sampled_from(["loss", "acc", "val/loss"]),
                st.floats()
                | st.integers(-(2**63), 2**63 - 1)
                | st.booleans()
                | st.text(max_size=4),
                max_size=3,
            ),
        },
    )


def unknown_of(place: dict[str, Any]) -> UnknownEvent:
    """Make an event as a newer eventlog wrote it."""
    raw = msgspec.msgpack.encode({"type": "from_the_future", "mono": 0, **place, "what": [None, 1]})
    return UnknownEvent(**place, type_name="from_the_future", raw=raw)


OTHERS: tuple[Event, ...] = (
    ModelUpdateEvent(kind="pruned", summary={"sparsity": 0.5}),
    RunStarted(run_id="test", project="p", config={"lr": 0.1, "n": {"a": [1, None]}}),
    ConfigUpdated(config={"lr": 0.2}),
    SummaryUpdated(summary={"best": 1}),
    Flushed(),
    RunFinished(status="finished"),
    ImageEvent(tag="i", blobs=[BLOB], width=4, height=4),
    FigureEvent(tag="f", blob=BLOB),
    HistogramEvent(tag="h", edges=[0.0, 1.0], counts=[3], n=3, sum=1.5),
    TextEvent(tag="t", text="ELB1" * 3),
    TableEvent(tag="b", columns=["a"], rows=[[1], [None]]),
    ArtifactEvent(name="w", kind="checkpoint", path="/w", size=3),
)


def some_events() -> st.SearchStrategy[Event]:
    """Return events of all types, without a time and an attempt."""
    plain = st.sampled_from([StepEvent, StepEvent, BatchEvent, EpochEvent])
    window = st.none() | st.builds(Window, st.just(1), st.just(2.5), st.integers(1, 9))
    return st.one_of(
        st.builds(lambda kind, place: kind(**place), plain, axes()),
        st.builds(lambda kind, place: kind(**place), plain, axes()),
        st.builds(lambda place, w: StepEvent(**place, window=w), axes(), window),
        st.builds(unknown_of, axes()),
        st.builds(
            lambda event, place: msgspec.structs.replace(event, **place),
            st.sampled_from(OTHERS),
            axes(),
        ),
    )


def some_acts() -> st.SearchStrategy[list[Act]]:
    """Return what happens to a log, from its beginning to its end or its writer's death."""
    acts = st.one_of(
        st.builds(Act, st.just("emit"), st.lists(some_events(), min_size=1, max_size=8)),
        st.builds(Act, st.just("emit"), st.lists(some_events(), min_size=1, max_size=8)),
        st.just(Act("turn")),
        st.just(Act("turn")),
        st.builds(Act, st.just("set_clock"), st.sampled_from([0.0001, 0.5, -3600.0])),
        st.builds(Act, st.just("drop"), st.sampled_from(["media", "inbox_full"])),
        st.just(Act("heartbeat")),
        st.builds(Act, st.just("rewind"), st.integers(0, 40)),
        st.just(Act("reopen")),
    )
    return st.lists(acts, min_size=1, max_size=25)


class Logbook(Protocol):
    """What of `conftest.Book` is used here."""

    recorder: Any
    clock: Any
    directory: Path

    def open(self, **more: Any) -> Any: ...
    def crash(self) -> None: ...
    def turn(self) -> None: ...


class Doer:
    """Does what is to be done, in a log that is open.

    Attributes:
        attempt: Of the events that come next.
    """

    def __init__(self, book: Logbook, **opening: Any) -> None:
        self.book = book
        self._opening = opening
        self.attempt: int = book.open(**opening).attempt

    def do(self, act: Act) -> None:
        """Do one thing."""
        getattr(self, act.what)(*(() if act.argument is None else (act.argument,)))

    def emit(self, events: Sequence[Event]) -> list[Event]:
        """Emit events, each a millisecond after the one before."""
        placed = [self._placed(event) for event in events]
        for event in placed:
            self.book.recorder.inbox.put(event)
        return placed

    def _placed(self, event: Event) -> Event:
        clock = self.book.clock
        clock.advance(0.001)
        mono = clock.monotonic_ns()
        if isinstance(event, UnknownEvent):
            fields = msgspec.msgpack.decode(event.raw) | {"mono": mono, "attempt": self.attempt}
            raw = msgspec.msgpack.encode(fields)
            return msgspec.structs.replace(event, mono=mono, attempt=self.attempt, raw=raw)
        return msgspec.structs.replace(event, mono=mono, attempt=self.attempt)

    def turn(self) -> None:
        """Let the writer write."""
        self.book.turn()

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock."""
        self.book.clock.step_wall(seconds)

    def drop(self, reason: str) -> None:
        """Have an event dropped: a GAP block."""
        self.book.recorder.inbox.drop(reason)

    def heartbeat(self) -> None:
        """Let time pass while nothing comes: a CLOCK block."""
        self.book.turn()
        self.book.clock.advance(11)
        self.book.turn()

    def rewind(self, step: int) -> list[Event]:
        """Begin another attempt."""
        self.attempt += 1
        return self.emit([Rewound(to_step=step)])

    def reopen(self) -> None:
        """Let the writer die, and another one come."""
        self.book.crash()
        self.attempt = self.book.open(**self._opening).attempt


def stored_events(directory: Path) -> list[Event]:
    """Read a log, as far as it goes."""
    reader = FileReader(directory)
    events: list[Event] = []
    seq = 0
    while (block := reader.read(seq)) is not None:
        events += [e for e in block.events() if e.seq >= seq]
        seq = block.end
    return events


def exactly(events: Sequence[Event]) -> list[tuple[type[Event], bytes]]:
    """Return events so that equal ones are equal to the bit: a NaN to a NaN, an int to no bool."""
    return [(type(e), msgspec.msgpack.encode(msgspec.structs.astuple(e))) for e in events]


def stored_blocks(directory: Path, *kinds: BlockKind) -> list[tuple[int, bytes]]:
    """Return (seq, payload) of the blocks of some kinds."""
    found = []
    for _, path in list_segments(directory):
        segment = Segment(path)
        found += [
            (block.header.first_seq, segment.payload(block))
            for block in segment.scan()
            if block.header.kind in kinds
        ]
        segment.close()
    return found


def source_of(events: Sequence[Event]) -> TailCache:
    """Return a source of events that have their place, in one block for each attempt."""
    cache = TailCache(10**9, 10**9)
    part: list[Event] = []

    def end() -> None:
        if part:
            flags, steps = describe(part)
            first = part[0]
            cache.append(
                Block(
                    first.seq, len(part), flags, steps, attempt=first.attempt,
                    first_time=first.wall, size=1, events=list(part),
                )
            )  # fmt: skip
            part.clear()

    for event in events:
        if part and (event.attempt != part[-1].attempt or event.seq != part[-1].seq + 1):
            end()
        part.append(event)
    end()
    return cache
