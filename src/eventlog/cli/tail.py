"""``eventlog tail``: the newest events of a run, as the console sink would have shown them."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Annotated, Any

import typer

from eventlog.cli.arguments import EveryOption, KeysOption, RankOption, RunArgument, TypeOption
from eventlog.cli.outcome import FOUND_WRONG, note, reported
from eventlog.cli.runs import open_run
from eventlog.events import Event
from eventlog.log.archive import Log
from eventlog.log.follow import FollowSource
from eventlog.sinks.base import RunInfo
from eventlog.sinks.console import ConsoleSink
from eventlog.subscription import Subscription

__all__ = ["tail"]

_PAUSE = 0.05


@reported
def tail(
    run: RunArgument,
    lines: Annotated[
        int, typer.Option("-n", "--lines", metavar="N", min=1, help="How many events.")
    ] = 10,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Go on with what comes, until the run ends or dies."),
    ] = False,
    types: TypeOption = None,
    keys: KeysOption = None,
    every: EveryOption = None,
    rank: RankOption = None,
) -> None:
    """Show the last events, one a line."""
    log = open_run(run, rank)
    sink = ConsoleSink(file=sys.stdout)
    sink.open(RunInfo(run_id=log.run_dir.name, replayed=True))
    choice = {"types": types or None, "keys": keys or None, "every": every}
    if follow:
        ended = _follow(log, sink, lines, choice)
        note(f"the run {'died without a word' if ended == 'killed' else f'has ended: {ended}'}")
        if ended != "finished":
            raise typer.Exit(FOUND_WRONG)
        return
    _, events = _last(log, lines, choice)
    _show(sink, events)


def _show(sink: ConsoleSink, events: list[Event]) -> None:
    if events:
        sink.write(events)
    sink.flush()


def _last(log: Log, n: int, choice: dict[str, Any]) -> tuple[int, list[Event]]:
    """Return the last n events, and where they were read from: further back if need be.

    A cadence is due by what came before, so that everything is read for it.
    """
    end = log.source().end
    back = end if choice["every"] is not None else n
    while True:
        start = max(0, end - back)
        found = deque(log.events(start=start, **choice), maxlen=n)
        if len(found) == n or start == 0:
            return start, list(found)
        back *= 4


def _follow(log: Log, sink: ConsoleSink, n: int, choice: dict[str, Any]) -> str:
    """Show the last events and all that come; returns how the run ended."""
    # no cadence: what it holds back at the end of what is there now may come at once
    start, _ = _last(log, n, choice)
    source = FollowSource(log.directory, start=start)
    subscription = Subscription(source, start=start, **choice)
    source.look()
    recent: deque[Event] = deque(maxlen=n)
    while (ready := subscription.pull()) is not None:
        recent += ready.events
    _show(sink, list(recent))
    while not source.closed:
        # asked before looking: what was written before a death is seen after it
        lives = source.writer_lives()
        found = source.look_safely()
        if not found and not lives:
            source.close()
        while (ready := subscription.pull()) is not None:
            _show(sink, ready.events)
        if not found and lives:
            time.sleep(_PAUSE)
    return source.status
