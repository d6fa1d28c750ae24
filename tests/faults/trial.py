"""Running cells of the fault matrix: real processes, real signals, and what they leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eventlog import open_log
from eventlog.cli.places import places_of
from eventlog.exceptions import EventlogError
from eventlog.testing.faults import MENDED, STRUCK

from .cells import OUTAGES, RAISES, SIGNALS, SLOW, Cell

CHILD = Path(__file__).with_name("child")
ROOT = Path(__file__).parents[2]
PROJECT = "faults"
SINKS = {
    "import": "broken_import:ImportedSink",
    "thread": "eventlog.testing.faults:BrokenSink",
    "loop": "eventlog.testing.faults:AsyncBrokenSink",
}
PATIENCE = 60.0
"""Seconds for what has no deadline of its own, such as the start of an interpreter."""
GRACE = 15.0
"""What a busy machine may add to a deadline."""
LINGERS = 1.0
"""Seconds for which a sidecar must have got no further to count as one that goes on trying."""
_SIGNALS = {
    "Ctrl-C": signal.SIGINT,
    "sigterm, asked for": signal.SIGTERM,
    "sigterm": signal.SIGTERM,
    "kill -9": signal.SIGKILL,
}


@dataclass
class Trial:
    """One cell that was run.

    Attributes:
        said: What the training process said, by name.
        code: What it ended with.
        signalled: Whether it was still there to be sent its signal.
        closing: Seconds that it was granted for that.
        status: How the sidecar said its sinks are, when it was over, or went on trying.
        lingered: Whether it went on until its sink was mended.
        whole: The sinks that lacked nothing at that time.
        whole_mended: The same, after the broken one was mended.
        left: The processes that were left after all that.
    """

    cell: Cell
    directory: Path
    run_id: str
    said: dict[str, Any] = field(default_factory=dict)
    errors: str = ""
    code: int = 0
    signalled: bool = False
    closing: float = 0.0
    status: dict[str, Any] | None = None
    lingered: bool = False
    whole: set[str] = field(default_factory=set)
    whole_mended: set[str] = field(default_factory=set)
    left: list[int] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        """The run's directory, whether there is one or not."""
        return self.directory / PROJECT / self.run_id

    @property
    def sink_dir(self) -> Path:
        """Where the broken sink puts its files."""
        return self.run_dir / "broken"

    @property
    def switches(self) -> Path:
        """Where the files lie that say whether the fault has happened, and is mended."""
        imported = self.cell.point == "import"
        return self.directory / f"{self.run_id}-import" if imported else self.sink_dir

    @property
    def environment(self) -> dict[str, str]:
        """What the processes need to import the sinks, and to know how an import is to fail."""
        paths = [str(CHILD), os.environ.get("PYTHONPATH", "")]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "NO_COLOR": "1",
            "BROKEN_IMPORT": self.cell.fault,
            "BROKEN_IMPORT_DIR": str(self.switches),
            "BROKEN_IMPORT_SECONDS": str(_seconds(self.cell)),
        }

    def mend(self) -> None:
        """Have the broken sink be whole from now on."""
        self.switches.mkdir(parents=True, exist_ok=True)
        (self.switches / MENDED).touch()


def run_cell(cell: Cell, directory: Path, number: int) -> Trial:
    """Run a cell, up to where its sinks lack nothing but what a replay is to bring; mend it.

    Raises:
        AssertionError: A process did not end.
    """
    trial = Trial(cell, directory, f"cell-{number}")
    if cell.point == "import":
        trial.switches.mkdir(parents=True)
    options = _options(trial)
    trial.closing = options["close_timeout"]
    with (directory / f"errors-{number}").open("w+b") as errors:
        process = subprocess.Popen(
            [sys.executable, str(CHILD / "training.py"), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=trial.environment,
            start_new_session=True,
        )
        try:
            _attend(trial, process)
        except BaseException:
            process.kill()
            process.wait()
            end_processes_of(trial.run_dir)
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()
            errors.seek(0)
            trial.errors = errors.read().decode(errors="replace")
    try:
        _see_sidecar_off(trial)
    finally:
        end_processes_of(trial.run_dir)
    trial.mend()
    return trial


def _seconds(cell: Cell) -> float:
    return 3.2 if cell.fault == "late" else 0.1


def is_endless(cell: Cell) -> bool:
    """Whether the sink is waited for to the end, however late that is."""
    return cell.fault in OUTAGES or (cell.fault in RAISES and cell.point == "write")


def _options(trial: Trial) -> dict[str, Any]:
    """Return what the training process is told: deadlines are short where they pass, only."""
    cell = trial.cell
    isolate = cell.place == "sidecar"
    if cell.point == "import":
        broken: dict[str, Any] = {"sink": SINKS["import"]}
    else:
        broken = {
            "sink": SINKS[cell.form],
            "at": cell.point,
            "fault": cell.fault,
            "seconds": _seconds(cell),
            "confirms": cell.point if cell.point in ("flush", "close") else "write",
        }
    sinks = {"broken": broken | {"isolate": isolate}, "good": {"sink": "log"}}
    if isolate:
        sinks["beside"] = {"sink": "log", "isolate": True}
    # the others are to have time, on a machine that is busy, wherever that can be
    called = "open" if cell.point == "import" else cell.point
    passed = {called: 2.5} if cell.fault in SLOW else {}
    return {
        "dir": str(trial.directory),
        "run_id": trial.run_id,
        "end": cell.end,
        "sinks": sinks,
        "deadlines": {"open": 20.0, "write": 20.0, "flush": 20.0, "close": 20.0} | passed,
        "close_timeout": 1.5 if is_endless(cell) else 30.0,
        "struck": str(trial.switches / STRUCK),
        # what is wrong with close() does not show before the end
        "strikes_within": 0.0 if cell.point == "close" else PATIENCE,
    }


def _attend(trial: Trial, process: subprocess.Popen[bytes]) -> None:
    """Listen to the process, send it its signal when it is ready, and wait for its end."""
    assert process.stdout is not None
    cell = trial.cell
    deadline = time.monotonic() + PATIENCE
    rest, ended = b"", False
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            assert left > 0, f"{cell.name}: the process has not ended; it said {trial.said}"
            if not selector.select(left):
                continue
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                trial.said |= json.loads(line)
            if "ready" in trial.said and not trial.signalled:
                trial.signalled = True
                process.send_signal(_SIGNALS[cell.end])
            ending = trial.signalled or (cell.end not in SIGNALS and "result" in trial.said)
            if ending and not ended:
                ended = True
                deadline = time.monotonic() + trial.closing + GRACE
    try:
        trial.code = process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise AssertionError("the process has closed its output, and has not ended") from None


def _see_sidecar_off(trial: Trial) -> None:
    """Wait until the sidecar is gone, or goes on trying; in that case mend its sink, and wait."""
    if trial.cell.place != "sidecar":
        trial.left = processes_of(trial.run_dir)
        trial.whole = whole_sinks(trial)
        return
    _wait(lambda: not processes_of(trial.run_dir) or _is_stuck(trial), "the sidecar")
    trial.status = sidecar_status(trial)
    trial.whole = whole_sinks(trial)
    if processes_of(trial.run_dir):
        trial.lingered = True
        trial.mend()
        with contextlib.suppress(AssertionError):
            _wait(lambda: not processes_of(trial.run_dir), "the end of the sidecar")
    trial.whole_mended = whole_sinks(trial)
    trial.left = processes_of(trial.run_dir)


def _is_stuck(trial: Trial) -> bool:
    """Whether a sink has been tried again and again while the others have all."""

    def look() -> list[Any]:
        return sorted((a, s["state"]) for a, s in (sidecar_status(trial) or {}).items())

    def idle() -> bool:
        states = [state for _, state in look()]
        return "retrying" in states and set(states) <= {"retrying", "open", "closed", "failed"}

    since = time.monotonic()
    while time.monotonic() < since + LINGERS:
        if not idle() or not processes_of(trial.run_dir):
            return False
        time.sleep(0.05)
    return True


def whole_sinks(trial: Trial) -> set[str]:
    """Return the sinks that lack nothing, as `eventlog info` shows it."""
    try:
        places = places_of(open_log(trial.run_dir))
    except EventlogError:
        return set()
    return {place.alias for place in places if place.whole}


def sidecar_status(trial: Trial) -> dict[str, Any] | None:
    """Return how the sidecar said its sinks are; None where it said nothing."""
    path = trial.run_dir / "rank-0" / "sidecar.json"
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_bytes())["sinks"]
        return found
    return None


def _wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} took longer than {PATIENCE:g} s"
        time.sleep(0.02)


def processes_of(run_dir: Path) -> list[int]:
    """Return the living processes that have a run's directory on their command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                if os.fsencode(run_dir) in command:
                    found.append(int(entry))
    return found


def end_processes_of(run_dir: Path) -> None:
    """End what a failed trial has left."""
    for pid in processes_of(run_dir):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def replay_pending(directory: Path, trials: Sequence[Trial]) -> subprocess.CompletedProcess[str]:
    """Bring to all sinks of the runs in a directory what they lack, by the command."""
    mended = directory / "mended-import"
    mended.mkdir(exist_ok=True)
    (mended / MENDED).touch()
    environment = trials[0].environment | {
        "BROKEN_IMPORT_DIR": str(mended),
        "EVENTLOG_ALLOW": ",".join(SINKS.values()),
    }
    return subprocess.run(
        [sys.executable, "-m", "eventlog", "replay", "--pending", str(directory / PROJECT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE + 5 * len(trials),
        env=environment,
    )


def own_codes(cell: Cell) -> set[int]:
    """Return what the training process ends with, when it ends by itself."""
    return {
        "return": {0},
        "exception": {1},
        "sys.exit(3)": {3},
        # the interpreter forgets that it was interrupted when a thread calls exec() meanwhile
        "Ctrl-C": {-signal.SIGINT, 1},
        "sigterm, asked for": {-signal.SIGTERM},
        "sigterm": {-signal.SIGTERM},
        "kill -9": {-signal.SIGKILL},
    }[cell.end]
