"""Starts the processes of a case, and makes figures of what they say."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from peers.base import Case
from peers.child import COUNTER
from peers.mlflow_cases import TEMPLATE
from peers.offline import environment, refused
from peers.plan import Plan
from peers.usage import Tree

SETTLE = 30.0
"""Seconds for which a logger may go on with what it was given, before the next phase."""

START = 60.0
"""Seconds for which it may go on starting, beside the program, before calls are timed."""


class FailedError(Exception):
    """A case did not get to its end."""


class Child:
    """A process of `peers.child`."""

    def __init__(
        self, mode: str, case: str, folder: Path, order: dict[str, Any], seconds: float
    ) -> None:
        self._end = time.monotonic() + seconds
        self._errors = folder / "stderr"
        to, from_ = os.pipe(), os.pipe()
        command = [sys.executable, "-m", "peers.child", mode, case, str(folder)]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, str(to[0]), str(from_[1])],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=folder,
                env=environment(folder),
                pass_fds=(to[0], from_[1]),
                start_new_session=True,
            )
        os.close(to[0])
        os.close(from_[1])
        self._to, self._from, self._rest = to[1], from_[0], b""
        self.tree = Tree(self.process.pid)
        self.go(json.dumps(order))

    def go(self, text: str = "go") -> None:
        """Have it go on."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._to, text.encode() + b"\n")

    def messages(self, until: float | None = None) -> Iterator[dict[str, Any]]:
        """Yield what it says, until a time if there is one.

        Raises:
            FailedError: It ended, or its deadline has passed.
        """
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if found:
                self._rest = rest
                yield json.loads(line)
                continue
            now = time.monotonic()
            if until is not None and now >= until:
                return
            if now > self._end:
                raise FailedError("it took longer than its deadline")
            wait = min(self._end, until or self._end) - now
            if select.select([self._from], [], [], max(0.0, wait))[0]:
                data = os.read(self._from, 1 << 20)
                if not data:
                    raise FailedError(self._last_words())
                self._rest += data

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it ended without a word"

    def close(self) -> None:
        """Give it a moment to end by itself; end what is left."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1 if time.monotonic() > self._end else 10)
        self.tree.end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        os.close(self._to)
        os.close(self._from)


@contextlib.contextmanager
def place(template: Path | None) -> Iterator[Path]:
    """Yield an empty folder for one process."""
    if template is not None:
        os.environ[TEMPLATE] = str(template)
    with tempfile.TemporaryDirectory(prefix="compare-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def ask(mode: str, folder: Path, seconds: float = 240.0) -> dict[str, Any]:
    """Run a process that has one answer."""
    child = Child(mode, "nothing", folder, {}, seconds)
    try:
        result: dict[str, Any] = next(child.messages())["result"]
        return result
    finally:
        child.close()


def quantiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Return p50, p99 and max in microseconds."""
    ordered = sorted(nanoseconds)
    last = len(ordered) - 1
    return {
        "p50": statistics.median(ordered) / 1e3,
        "p99": ordered[min(last, int(len(ordered) * 0.99))] / 1e3,
        "max": ordered[last] / 1e3,
        "calls": len(ordered),
    }


def run_loop(case: Case, plan: Plan, sizes: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure the calls and the loop in a process of its own."""
    order = {"plan": msgspec.to_builtins(plan), "sizes": sizes}
    child = Child("loop", case.name, folder, order, plan.deadline)
    looks: dict[str, tuple[float, int]] = {}
    settled, starting, arrived = True, 0.0, None
    try:
        with child.tree.watching():
            for message in child.messages():
                at = message["at"]
                if at == "opened":
                    since = time.monotonic()
                    settled = child.tree.settle(START)
                    starting = time.monotonic() - since
                elif at == "settle":
                    settled = child.tree.settle(SETTLE) and settled
                others, memory = child.tree.look()
                looks[at] = (others + message["cpu"], memory)
                if at == "result":  # a server that it has started is still there
                    arrived = count(case, folder)
                child.go()
                if at == "result":
                    break
    finally:
        child.close()
    raw = message["result"]
    base = statistics.mean(raw["bare"])
    cpu = looks["closed"][0] - looks["whole"][0] - (looks["before"][0] - looks["bare"][0])
    return {
        "hosts": refused(folder),
        "between": quantiles(raw["between"]),
        "burst": quantiles(raw["burst"]),
        "pairs": raw["pairs"],
        "whole": raw["whole"] / base,
        "closed": (raw["whole"] + raw["closing"]) / base,
        "opening": raw["opening"],
        "starting": raw["opening"] + starting,
        "closing": raw["closing"],
        "cpu_us": cpu / raw["steps"] * 1e6,
        "memory": child.tree.peak,
        "before": looks["before"][1],
        "settled": settled,
        "given": raw["logged"],
        "arrived": arrived,
        "step_ms": base / raw["steps"] * 1e3,
    }


def count(case: Case, folder: Path) -> int | None:
    """Return how many steps a logger's reader finds once it is closed; -1 where it fails."""
    if case.read is None:
        return None
    reader = Reader(case.name, folder, follow=False)
    try:
        readings = reader.finish()
        return int(readings[-1][2]) if readings else -1
    finally:
        reader.close()


def run_kill(case: Case, plan: Plan, folder: Path, *, follow: bool = False) -> dict[str, Any]:
    """Have a paced run read back while it goes on, kill it, and read what is left.

    Args:
        case: What logs.
        plan: For how long.
        folder: Where.
        follow: Whether the tracker behind the logger is read, and not its own record.
    """
    child = Child("kill", case.name, folder, {}, plan.deadline)
    ticks: list[tuple[int, int]] = []
    reader = None
    try:
        next(child.messages())  # it is open
        if (case.follow if follow else case.read) is not None:
            reader = Reader(case.name, folder, follow=follow)
        child.go()
        for message in child.messages(time.monotonic() + plan.paced):
            ticks.append((message["count"], message["mono"]))
        child.tree.look()
        os.kill(child.process.pid, signal.SIGKILL)
        child.process.wait(10)
        (logged,) = struct.unpack("<q", (folder / COUNTER).read_bytes())
        result = {"logged": logged, "hosts": refused(folder)}
        if reader is None:
            return result | {"unread": case.unread}
        result["survivors_done"] = child.tree.settle(SETTLE, root=False)
        return result | read_back(reader.finish(), ticks, logged)
    finally:
        if reader is not None:
            reader.close()
        child.close()


class Reader:
    """A process of `peers.reader`, which has begun to read."""

    def __init__(self, case: str, folder: Path, *, follow: bool) -> None:
        self._out = folder / "read"
        with self._out.open("wb") as out, (folder / "read-errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "peers.reader", case, str(folder), *["follow"] * follow],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                cwd=folder,
                env=environment(folder),
            )
        end = time.monotonic() + 60
        while not self._out.stat().st_size and time.monotonic() < end:
            if self.process.poll() is not None:
                raise FailedError((folder / "read-errors").read_text()[-300:])
            time.sleep(0.02)

    def finish(self) -> list[list[Any]]:
        """Have it read once more; return all its readings."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        found = []
        for line in self._out.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [row for row in found if isinstance(row, list) and len(row) == 4]

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def read_back(
    readings: list[list[Any]], ticks: list[tuple[int, int]], logged: int
) -> dict[str, Any]:
    """Make figures of what the reader saw: how soon, and how much in the end."""
    if not readings:
        return {"unread": "its reader gave nothing"}
    *_, error = readings[-1]
    # what cannot be read once the process is gone is lost, whatever the reason
    readable = max(0, readings[-1][2])
    delays = []
    for count, at in ticks:
        seen = [end for _, end, found, _ in readings[:-1] if found >= count]
        if seen:
            delays.append((min(seen) - at) / 1e6)
    spent = statistics.median((end - start) / 1e6 for start, end, *_ in readings)
    return {
        "readable": readable,
        "lost": max(0, logged - readable),
        "reader_error": error,
        "reading_ms": spent,
        "delay_ms": statistics.median(delays) if delays else None,
        "seen_live": len(delays),
        "ticks": len(ticks),
    }
