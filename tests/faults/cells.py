"""The fault matrix: its cells, and what is stated for each, by rule."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from eventlog.testing.faults import FAULTS

POINTS: Final = ("import", "open", "write", "flush", "close")
PLACES: Final = ("process", "sidecar")
ENDS: Final = (
    "return",
    "exception",
    "sys.exit(3)",
    "Ctrl-C",
    "sigterm, asked for",
    "sigterm",
    "kill -9",
)
KILLED: Final = ("sigterm", "kill -9")
"""The ends after which nothing of the training process runs: no run is closed."""
SIGNALS: Final = ("Ctrl-C", "sigterm, asked for", "sigterm", "kill -9")
RAISES: Final = (
    "exception",
    "system_exit",
    "keyboard_interrupt",
    "cancellation",
    "panic",
)
DEADLY: Final = ("exit", "kill")
OUTAGES: Final = ("busy", "down")
SLOW: Final = ("hang", "late")


class Course(Enum):
    """What becomes of the broken sink; in each case the others have everything, then or later."""

    COMPLETE = "C", "complete at the end"
    LATE = "L", "given up after its deadline; complete after a replay"
    TRIED = "T", "given up after three tries; complete after a replay"
    WAITED = "W", "tried again until the end of the run; complete after a replay"
    MENDED = "M", "the sidecar goes on trying after the end; complete once mended, without a replay"
    UNLOADED = "U", "not loaded, and the run goes on without it; complete after a replay"
    CUT = "K", "its deliveries end with the process; complete after a replay"
    RESTARTED = (
        "S",
        "the sidecar dies of it, and is started again five times while the run goes on; complete "
        "after a replay",
    )
    DIES = (
        "D",
        "the process dies of it; what it emitted is in the log, but for the last 50 ms; complete "
        "after a replay",
    )
    NO_RUN = "N", "the program ends before there is a run, as by an import of its own"

    def __init__(self, letter: str, words: str) -> None:
        self.letter = letter
        self.words = words


class Dead(Enum):
    """What is in the broken sink's dead letters at last; everything else is with the sink."""

    NONE = "", "nothing"
    REFUSED = "r", "what it refused, and nothing else, is in its dead letters"
    DOUBTED = "d", "what it did not take in three tries each may be in its dead letters"

    def __init__(self, letter: str, words: str) -> None:
        self.letter = letter
        self.words = words


class Outcome(NamedTuple):
    """What is stated for a cell, or found."""

    course: Course
    dead: Dead = Dead.NONE

    @property
    def mark(self) -> str:
        """What the table has."""
        return self.course.letter + self.dead.letter


class Cell(NamedTuple):
    """One combination."""

    fault: str
    point: str
    place: str
    end: str

    @property
    def form(self) -> str:
        """Whether the sink is called on a thread or awaited in the loop.

        Both are there for each fault, point and place, with one end and the next one.
        """
        if self.fault == "block":
            return "loop"
        if self.point == "import":
            return "thread"
        turn = POINTS.index(self.point) + ENDS.index(self.end) + PLACES.index(self.place)
        return ("thread", "loop")[turn % 2]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.fault} at {self.point}, {self.place}, {self.form}, {self.end}"


def senseless(fault: str, point: str) -> str | None:
    """Return why a fault cannot be at a point; None where it can."""
    if point == "import" and fault == "block":
        return "nothing is awaited in an import"
    if point == "import" and fault == "leak":
        return "a module is imported once"
    if point == "import" and fault == "log":
        return "there is no run yet"
    if fault == "picky" and point != "write":
        return "only write is given events"
    return None


def all_cells() -> Iterator[Cell]:
    """Yield every cell that makes sense."""
    for fault, point, place, end in itertools.product(FAULTS, POINTS, PLACES, ENDS):
        if senseless(fault, point) is None:
            yield Cell(fault, point, place, end)


def stated(cell: Cell) -> Outcome:
    """Return what is to become of the broken sink."""
    if cell.fault == "picky":
        cut = cell.place == "process" and cell.end in KILLED
        return Outcome(Course.CUT if cut else Course.COMPLETE, Dead.REFUSED)
    dead = Dead.DOUBTED if cell.fault in RAISES and cell.point == "write" else Dead.NONE
    return Outcome(_in_process(cell) if cell.place == "process" else _in_sidecar(cell), dead)


def _in_process(cell: Cell) -> Course:
    # nobody closes a sink in a process that is killed: there nothing goes wrong at that point
    strikes = cell.point != "close" or cell.end not in KILLED
    if cell.fault in DEADLY and strikes:
        return Course.NO_RUN if cell.point == "import" else Course.DIES
    if cell.end in KILLED:
        return Course.CUT
    if cell.fault in RAISES + OUTAGES:
        if cell.point == "import":
            return Course.UNLOADED
        waits = cell.fault in OUTAGES or cell.point == "write"
        return Course.WAITED if waits else Course.TRIED
    return Course.LATE if cell.fault in SLOW else Course.COMPLETE


def _in_sidecar(cell: Cell) -> Course:
    # it closes its sinks however the training process ended
    if cell.fault in DEADLY:
        return Course.RESTARTED
    if cell.fault in RAISES + OUTAGES:
        if cell.point == "import":
            return Course.UNLOADED
        waits = cell.fault in OUTAGES or cell.point == "write"
        return Course.MENDED if waits else Course.TRIED
    return Course.LATE if cell.fault in SLOW else Course.COMPLETE


def few_cells() -> list[Cell]:
    """Return some cells: any two of a point, a place and an end, and any fault in any place.

    They are chosen greedily, and always the same.
    """
    left = list(all_cells())
    wanted = set().union(*map(_pairs, left))
    used: Counter[str] = Counter()
    chosen: list[Cell] = []
    while wanted:
        best = max(left, key=lambda c: (len(_pairs(c) & wanted), -used[c.fault], -_cost(c)))
        chosen.append(best)
        used[best.fault] += 1
        left.remove(best)
        wanted -= _pairs(best)
    return chosen


def _pairs(cell: Cell) -> set[tuple[str, str]]:
    return {
        (cell.point, cell.place),
        (cell.point, cell.end),
        (cell.place, cell.end),
        (cell.fault, cell.place),
        ("course", stated(cell).course.name),
        ("form", cell.form),
    }


def _cost(cell: Cell) -> int:
    """Return what of two cells that tell the same is the dearer one."""
    return (cell.fault in DEADLY + SLOW) + (cell.place == "sidecar")
