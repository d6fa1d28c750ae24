"""``eventlog tail``: the newest events of a run, as the console sink would have shown them."""

from __future__ import annotations

import sys
from collections import deque
from typing import Annotated

import typer

from eventlog.cli.arguments import RankOption, RunArgument
from eventlog.cli.outcome import reported
from eventlog.cli.runs import open_run
from eventlog.events import Event
from eventlog.log.archive import Log
from eventlog.sinks.base import RunInfo
from eventlog.sinks.console import ConsoleSink

__all__ = ["tail"]


@reported
def tail(
    run: RunArgument,
    lines: Annotated[
        int, typer.Option("-n", "--lines", metavar="N", min=1, help="How many events.")
    ] = 10,
    rank: RankOption = None,
) -> None:
    """Show the last events, one a line."""
    log = open_run(run, rank)
    sink = ConsoleSink(file=sys.stdout)
    sink.open(RunInfo(run_id=log.run_dir.name, replayed=True))
    events = _last(log, lines)
    if events:
        sink.write(events)
    sink.flush()


def _last(log: Log, n: int) -> list[Event]:
    """Return the last n events, reading from further back where that was too few."""
    end = log.source().end
    back = n
    while True:
        start = max(0, end - back)
        found = deque(log.events(start=start), maxlen=n)
        if len(found) == n or start == 0:
            return list(found)
        back *= 4
