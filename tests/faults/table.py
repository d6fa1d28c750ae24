"""The page of the fault matrix, made of what is stated."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from eventlog.testing.faults import FAULTS

from .cells import ENDS, PLACES, POINTS, Cell, Course, Dead, senseless, stated

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "fault-matrix.md"

_HEAD = """\
# The fault matrix

What becomes of a sink that fails, for each way to fail, each call that it fails in, each place
where it runs, and each way in which the training process ends. `make faults` runs every cell with
real processes and signals, compares what it finds with what is stated here, and writes this page
anew if all of it agrees. `make test` runs a part of them, and checks that this page says what is
stated.

In **every** cell:

- training computes what it computes without a log;
- the process ends by itself, with its own exit code, within `close_timeout` (where the sink ends
  the process, with the sink's);
- no process is left;
- emitted = written + dropped + queued, and for each sink
  read = delivered + filtered + dead + in flight;
- the log has what was emitted, in order; after a kill, all but the last 50 ms;
- the other sinks, in the same process and in the sidecar, have each event once: by then, where the
  run was closed and there was time, or else after one `eventlog replay --pending`;
- once the broken sink is mended, it has each event at least once, or its dead letters have it,
  after one `eventlog replay --pending` at most.

What differs is how the broken sink gets there:

"""

_MIDDLE = """
Deadlines (`Deadlines`) are such that a sink that is called late here, or that never returns, passes
them, and the others do not. Sinks are called on a thread and in the loop by turns. A process that
is killed closes no sink, so that nothing goes wrong in `close` there. A sink that logs to the
current run finds none in the sidecar.
"""


def page() -> str:
    """Return the page, whole."""
    parts = [_HEAD]
    parts += [f"- **{course.letter}**: {course.words}.\n" for course in Course]
    parts += [f"- **{dead.letter}** with it: {dead.words}.\n" for dead in Dead if dead.letter]
    parts.append(_MIDDLE)
    for place in PLACES:
        parts.append(f"\n## In the {place}\n\n")
        parts.append(f"| the sink | in | {' | '.join(ENDS)} |\n")
        parts.append(f"|---|---|{'---|' * len(ENDS)}\n")
        parts += [_row(fault, point, place) for fault in FAULTS for point in POINTS]
    return "".join(parts)


def _row(fault: str, point: str, place: str) -> str:
    problem = senseless(fault, point)
    if problem is not None:
        cells = [f"({problem})"] + ["-"] * (len(ENDS) - 1)
    else:
        cells = [stated(Cell(fault, point, place, end)).mark for end in ENDS]
    return f"| {FAULTS[fault]} | {point} | {' | '.join(cells)} |\n"
