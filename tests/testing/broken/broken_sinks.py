"""The template's sink, broken in one way each: what the conformance tests must find."""

from __future__ import annotations

import math
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from eventlog_jsonl import JsonlSink

from eventlog.events import ArtifactEvent, EpochEvent, Event, ImageEvent, Status, StepEvent
from eventlog.sinks.base import Rewind, RunInfo
from eventlog.sinks.names import Names
from eventlog.sinks.tracker import At

Numbers = Mapping[str, int | float | bool]


class Fine(JsonlSink):
    """Not broken."""

    name: ClassVar[str] = "broken_sinks"


class DropsNan(Fine):
    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        super().numbers(event, axis, at, {k: v for k, v in values.items() if not math.isnan(v)})


class CountsNan(Fine):
    """Not broken: it cannot show NaN, and says so."""

    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        kept = {k: v for k, v in values.items() if not math.isnan(v)}
        self.count("NaN", len(values) - len(kept))
        super().numbers(event, axis, at, kept)


class ChangesInfinity(Fine):
    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        limit = sys.float_info.max
        super().numbers(event, axis, at, {k: max(-limit, min(limit, v)) for k, v in values.items()})


class DropsBooleans(Fine):
    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        kept = {k: v for k, v in values.items() if not isinstance(v, bool)}
        super().numbers(event, axis, at, kept)


class Reorders(Fine):
    def commit(self) -> None:
        self._lines.reverse()
        super().commit()


class DoublesABatch(Fine):
    def write(self, batch: Sequence[Event]) -> None:
        self._done = (0, -1)
        super().write(batch)


class DropsLowerSteps(Fine):
    highest = -1

    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        if axis == "step" and isinstance(at, int):
            if at < self.highest:
                return
            self.highest = at
        super().numbers(event, axis, at, values)


class ClaimsToPurge(Fine):
    rewind: ClassVar[Rewind] = "purge"


class StartsAnew(Fine):
    def start(self, run: RunInfo) -> None:
        super().start(run)
        self.run_id = uuid.uuid4().hex


class PutsEpochsAtSteps(Fine):
    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        super().numbers(event, axis, event.step if isinstance(event, EpochEvent) else at, values)


class FoldsCase(Fine):
    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        super().numbers(event, axis, at, {key.lower(): v for key, v in values.items()})


class CutsNames(Fine):
    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        super().numbers(event, axis, at, {key[:200]: v for key, v in values.items()})


class ForgetsNames(Fine):
    """Names are unique, but nobody can tell what they were."""

    def numbers(self, event: Event, axis: str, at: At, values: Numbers) -> None:
        super().numbers(event, axis, at, {self.names(k, axis): v for k, v in values.items()})

    def start(self, run: RunInfo) -> None:
        super().start(run)
        self.names = Names(lambda name: name.replace("/", "."), longest=100)


class KeepsNames(ForgetsNames):
    """Not broken: a table says what they were."""

    def start(self, run: RunInfo) -> None:
        super().start(run)
        path = self._folder / "names.json"
        self.names = Names(lambda name: name.replace("/", "."), path, longest=100)


class LosesLaterConfig(Fine):
    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        if config is changed:
            super().config(config, changed)


class LosesImages(Fine):
    def _show_images(self, event: ImageEvent, axis: str, at: At) -> None:
        """Show none."""


class ClaimsTables(Fine):
    capabilities: ClassVar[frozenset[str]] = Fine.capabilities | {"table"}


class SpoilsFiles(Fine):
    def _copy(self, path: Path, name: str) -> str:
        super()._copy(path, name)
        (self._folder / "files" / name).write_bytes(b"something else")
        return name


class ForgetsText(Fine):
    capabilities: ClassVar[frozenset[str]] = Fine.capabilities - {"text"}

    def count(self, reason: str, n: int = 1) -> None:
        """Count nothing."""


class AlwaysFinished(Fine):
    def finish(self, status: Status, error: str | None) -> None:
        super().finish("finished", error)


class LosesLateWrites(Fine):
    def write(self, batch: Sequence[Event]) -> None:
        if self._started:
            super().write(batch)


class RemembersAll(Fine):
    def memory(self) -> dict[str, Any]:
        return {"everything": "x" * 1000}


class TimesByItself(Fine):
    def _put(
        self, event: Event, axis: str, at: At, kind: str, key: str, value: Any, **more: Any
    ) -> None:
        late = StepEvent(wall=event.wall + 5_000_000_000, attempt=event.attempt)
        super()._put(late, axis, at, kind, key, value, **more)


class RaisesInClose(Fine):
    def finish(self, status: Status, error: str | None) -> None:
        super().finish(status, error)
        raise RuntimeError("it went wrong at the very end")


class RaisesWhenClosedUnopened(Fine):
    def close(self, status: Status) -> None:
        assert self._file is not None
        super().close(status)


class NeverCloses(Fine):
    def finish(self, status: Status, error: str | None) -> None:
        super().finish(status, error)
        time.sleep(3.0)


class RefusesFiles(Fine):
    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        raise ValueError("no files here")


class ConfirmsTooEarly(Fine):
    def commit(self) -> None:
        """Write nothing yet."""

    def finish(self, status: Status, error: str | None) -> None:
        super().commit()
        super().finish(status, error)


class BuffersItsFile(Fine):
    """What is written waits in Python's file, which writes it when it is closed or collected."""

    def start(self, run: RunInfo) -> None:
        super().start(run)
        assert self._file is not None
        self._file.close()
        self._file = (self._folder / "events.jsonl").open("ab")


class WritesIntoNothing(Fine):
    def start(self, run: RunInfo) -> None:
        try:
            super().start(run)
        except OSError:
            self._folder = Path("/dev/null")

    def _write_page(self) -> None:
        try:
            super()._write_page()
        except OSError:
            return


class SharesItsFolder(Fine):
    """Two of them in one process write into one folder."""

    shared: ClassVar[dict[str, str]] = {}

    def start(self, run: RunInfo) -> None:
        assert self._dir is not None
        self._dir = self.shared.setdefault(run.run_id, self._dir)
        super().start(run)


class KeepsTheError(Fine):
    def finish(self, status: Status, error: str | None) -> None:
        former = None
        path = self._folder / "error"
        if path.exists():
            former = path.read_text(encoding="utf-8")
        elif error:
            path.write_text(error, encoding="utf-8")
        super().finish(status, error or former)


class Prints(Fine):
    def start(self, run: RunInfo) -> None:
        super().start(run)
        print("view the run at http://localhost")


class Asks(Fine):
    def start(self, run: RunInfo) -> None:
        super().start(run)
        try:
            input("Enter the key: ")
        except EOFError:
            return


class HandlesSignals(Fine):
    def start(self, run: RunInfo) -> None:
        import signal

        super().start(run)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class HooksExceptions(Fine):
    def start(self, run: RunInfo) -> None:
        super().start(run)
        sys.excepthook = lambda *_: None
        warnings.simplefilter("ignore")


class CallsHome(Fine):
    def start(self, run: RunInfo) -> None:
        super().start(run)
        try:
            socket.create_connection(("telemetry.invalid", 80), timeout=0.1)
        except OSError:
            return


class LeavesAThread(Fine):
    def start(self, run: RunInfo) -> None:
        super().start(run)
        threading.Thread(target=time.sleep, args=(1.5,), daemon=False).start()


class LeavesAProcess(Fine):
    def start(self, run: RunInfo) -> None:
        super().start(run)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)"])


class ImportsItsSdk(Fine):
    requires: ClassVar[tuple[str, ...]] = (sqlite3.__name__,)


class ImportsAFramework(Fine):
    def start(self, run: RunInfo) -> None:
        import matplotlib

        super().start(run)
        self.version = matplotlib.__version__


class NeverReady(Fine):
    @classmethod
    def unready(cls, options: Mapping[str, Any]) -> str | None:
        return "set SOME_KEY"


class AwaitsItself(Fine):
    """Not broken: its methods are awaited."""

    async def open(self, run: RunInfo) -> None:  # type: ignore[override]
        super().open(run)

    async def write(self, batch: Sequence[Event]) -> None:  # type: ignore[override]
        super().write(batch)

    async def flush(self) -> None:  # type: ignore[override]
        super().flush()

    async def close(self, status: Status) -> None:  # type: ignore[override]
        if self._started:
            self._started = False
            self.finish(status, None)
