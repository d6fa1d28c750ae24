"""Which events still hold after rewinds and resumes: the latest attempt wins, step by step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from heapq import heappop, heappush
from pathlib import Path

from eventlog.codec import decode_events
from eventlog.events import Event, Rewound
from eventlog.exceptions import CodecError
from eventlog.log.layout import MAX_STEP, BlockKind, Content, content_of
from eventlog.log.segment_reader import Scanned, Segment, list_segments
from eventlog.log.source import Block

__all__ = ["Attempts"]

_Spans = dict[tuple[int, str], tuple[int, int]]


class Attempts:
    """The attempts of a log, and what the later ones took the place of.

    On each axis an attempt takes the place of earlier ones from its first step to its last one,
    also where it logged less often; what lies after that stays. A rewind says more: what was
    logged from there on is void, as in trackers that purge, however far the new attempt gets.

    Args:
        spans: (first, last) step by (attempt, axis).
    """

    def __init__(self, spans: Mapping[tuple[int, str], tuple[int, int]]) -> None:
        self.spans = dict(spans)
        self.latest = max((attempt for attempt, _ in spans), default=1)
        by_axis: dict[str, list[tuple[int, int, int]]] = {}
        for (attempt, axis), (first, last) in spans.items():
            if first <= last:
                by_axis.setdefault(axis, []).append((first, last, attempt))
        self._cover = {axis: _cover(found) for axis, found in by_axis.items()}

    @classmethod
    def scan(cls, directory: Path) -> Attempts:
        """Read the spans off a log: off its block headers, but for named axes and rewinds."""
        spans: _Spans = {}
        for _, path in list_segments(directory):
            try:
                segment = Segment(path)
            except FileNotFoundError:  # retired between the listing and now
                continue
            if segment.header is not None:
                _scan_segment(segment, segment.header.attempt, spans)
            segment.close()
        return cls(spans)

    def spares(self, block: Block) -> bool:
        """Whether no later attempt can have logged a block's events again."""
        return block.attempt >= self.latest

    def excludes_all(self, block: Block) -> bool:
        """Whether a whole block is void, as far as its header tells."""
        return False

    def excludes(self, event: Event) -> bool:
        """Whether the event is void; see `superseded`."""
        return self.superseded(event)

    def superseded(self, event: Event) -> bool:
        """Whether a later attempt covers the step of this event again."""
        if event.attempt >= self.latest or event.step is None:
            return False
        cover = self._cover.get(event.axis)
        if cover is None or content_of(type(event)) is Content.RUN:
            return False
        starts, attempts = cover
        return attempts[bisect_right(starts, event.step)] > event.attempt


def _cover(spans: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Return where the latest attempt that covers a step changes, and which one it is.

    The second list starts with the one before the first change: 0, for none.
    """
    edges = sorted({edge for first, last, _ in spans for edge in (first, last + 1)})
    begins = sorted(spans)
    at = 0
    open_spans: list[tuple[int, int]] = []  # (-attempt, last), a heap: the latest one comes first
    latest = [0]
    for edge in edges:
        while at < len(begins) and begins[at][0] <= edge:
            _, last, attempt = begins[at]
            heappush(open_spans, (-attempt, last))
            at += 1
        while open_spans and open_spans[0][1] < edge:
            heappop(open_spans)
        latest.append(-open_spans[0][0] if open_spans else 0)
    return edges, latest


def _scan_segment(segment: Segment, attempt: int, spans: _Spans) -> None:
    for block in segment.scan():
        header = block.header
        if header.kind != BlockKind.EVENTS:
            continue
        if header.flags & Content.NAMED_AXIS or (header.flags & Content.RUN and attempt > 1):
            for event in _events(segment, block):
                _extend(spans, attempt, event)
        elif header.max_step >= 0:
            _widen(spans, (attempt, "step"), header.min_step, header.max_step)


def _events(segment: Segment, block: Scanned) -> list[Event]:
    try:
        return decode_events(segment.payload(block))
    except CodecError:
        return []


def _extend(spans: _Spans, attempt: int, event: Event) -> None:
    if isinstance(event, Rewound):
        # training never got where it had been: what lies after it is void, reached again or not
        _widen(spans, (attempt, "step"), event.to_step, MAX_STEP)
    elif event.step is not None and content_of(type(event)) is not Content.RUN:
        _widen(spans, (attempt, event.axis), event.step, event.step)


def _widen(spans: _Spans, key: tuple[int, str], first: int, last: int) -> None:
    low, high = spans.get(key, (first, last))
    spans[key] = (min(low, first), max(high, last))
