"""Rank 0's side of what is reduced over ranks: who does it, and the sinks that follow it.

The work is done by a process of its own (`eventlog.ranks`): it reads what all ranks write, which
would take the interpreter away from the training of rank 0, and it goes on when rank 0 dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eventlog._paths import own_directory
from eventlog._run_places import write_manifest
from eventlog._supervisor import Supervisor
from eventlog._terms import Deadlines, Retry, keep_terms
from eventlog.cadence.window import Reduction
from eventlog.log.files import last_valid_seq
from eventlog.ranks import REDUCED, write_order
from eventlog.recorder import rank_directory
from eventlog.sinks.plan import write_plan
from eventlog.sinks.select import SinkSpec

__all__ = ["Reduced", "check_reduction", "split_by_rank"]

logger = logging.getLogger("eventlog")

RESTARTS = 3
PAUSE = 0.5


def check_reduction(reduce: Any) -> None:
    """Check what a user gave as ``reduce_ranks=``.

    Raises:
        ValueError, TypeError: It is no reducer's name, or mapping to such names.
    """
    if reduce is None:
        return
    rule = "reduce_ranks must be mean, min, max, sum, std or count, or a mapping of keys to these"
    if not isinstance(reduce, str | Mapping):
        raise TypeError(f"{rule}, not {reduce!r}")
    names = [reduce] if isinstance(reduce, str) else list(reduce.values())
    if "last" in names:
        raise ValueError(f"{rule}, not 'last': ranks have no order in time")
    try:
        Reduction(reduce)
    except ValueError as error:
        raise ValueError(f"{rule}, not {reduce!r}") from error


def split_by_rank(
    specs: list[SinkSpec], rank: int, reducing: bool, world_size: int
) -> tuple[list[SinkSpec], list[SinkSpec], dict[str, str]]:
    """Return the sinks for this rank's log, those for the reduced log, and why others are not here.

    Raises:
        ValueError: A sink is to follow a reduced log that there is none of, or cannot.
    """
    here: list[SinkSpec] = []
    reduced: list[SinkSpec] = []
    elsewhere: dict[str, str] = {}
    for spec in specs:
        if spec.ranks == "reduced":
            if not reducing:
                raise ValueError(
                    f"sink {spec.alias!r}: ranks='reduced' needs Run(reduce_ranks=...)"
                )
            if spec.sink is not None:
                raise ValueError(
                    f"sink {spec.alias!r}: ranks='reduced' takes a sink given by name; it runs in "
                    "a process of its own"
                )
        if rank and spec.ranks != "all":
            elsewhere[spec.alias] = "it runs on rank 0 only"
        elif spec.ranks == "reduced" and world_size > 1:
            reduced.append(spec)
        else:
            here.append(spec)
    return here, reduced, elsewhere


class Reduced:
    """The process that reduces, and the one that delivers what comes of it.

    Args:
        run_dir: The run's directory.
        identity: For the manifest of the reduced log: run_id, project, name.
        reduce: See `Run`.
        world_size: How many ranks there are to be.
        specs: The sinks that follow the reduced log.
        attempt: With which the run begins.
        deadlines, retry: For these sinks.

    Attributes:
        supervisor: Of the delivering process; None where no sink follows.
    """

    def __init__(
        self,
        run_dir: Path,
        identity: Mapping[str, str],
        reduce: str | Mapping[str, str],
        world_size: int,
        specs: list[SinkSpec],
        *,
        attempt: int,
        deadlines: Deadlines,
        retry: Retry,
    ) -> None:
        self._run_dir = run_dir
        self.directory = directory = own_directory(run_dir, REDUCED)
        directory.mkdir(exist_ok=True)
        write_order(run_dir, reduce, world_size)
        write_manifest(directory, dict(identity))
        write_plan(directory, specs)
        keep_terms(directory, deadlines, retry)
        with contextlib.suppress(OSError):
            # images and files are those of the ranks
            (directory / "blobs").symlink_to(Path("..") / "blobs", target_is_directory=True)
        self.supervisor: Supervisor | None = None
        if specs:
            self.supervisor = Supervisor(
                directory,
                0,
                [spec.alias for spec in specs],
                attempt=attempt,
                options={spec.alias: spec.options for spec in specs},
                deadlines=deadlines,
                retry=retry,
                allowed=[spec.name for spec in specs],
            )
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventlog-ranks", daemon=True)

    def start(self) -> None:
        """Start both, in the background."""
        self._thread.start()
        if self.supervisor is not None:
            self.supervisor.start()

    @property
    def pid(self) -> int | None:
        """The reducing process's id, while there is one."""
        process = self._process
        return None if process is None else process.pid

    def _run(self) -> None:
        """Start it, wait, start it again where it died: it goes on where its log ends."""
        for left in range(RESTARTS, -1, -1):
            code: int | OSError
            try:
                self._process = self._spawn()
                code = self._process.wait()
            except OSError as error:
                code = error
            if code == 0:
                break
            logger.warning(
                "eventlog: the reduction over ranks of %s died (%s); %s",
                self._run_dir,
                code,
                "it is started again"
                if left
                else f"to finish it: python -m eventlog.ranks {self._run_dir}",
            )
            time.sleep(PAUSE if left else 0)
        self._process = None
        self._gone.set()

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        command = [sys.executable, "-m", "eventlog.ranks", str(self._run_dir)]
        with (self._run_dir / f"{REDUCED}.log").open("ab") as output:
            # a session of its own: a Ctrl-C at the terminal is the trainer's affair
            return subprocess.Popen(  # noqa: S603 - our own module, arguments as a list
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def end(self, deadline: float) -> bool:
        """Wait until all ranks are reduced and delivered; False when that takes too long.

        It goes on by itself then, as the other ranks may do.
        """
        done = self._gone.wait(max(0.0, deadline - time.monotonic()))
        if not done:
            logger.warning(
                "eventlog: other ranks go on; what is reduced over ranks comes to %s as they do",
                self.directory,
            )
        if self.supervisor is not None:
            done &= self.supervisor.end(deadline)
        return done

    def lacking(self) -> dict[str, int]:
        """Return how many reduced events each sink has not flushed yet."""
        if self.supervisor is None:
            return {}
        return self.supervisor.lacking(last_valid_seq(rank_directory(self.directory, 0)))
