"""Importing and making a sink: whatever it does there, the program and other sinks go on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventlog import EventBus, Run, Sink, areplay, open_log
from eventlog.delivery import Deadlines, Delivery, Port, Retry
from eventlog.events import Event, StepEvent
from eventlog.exceptions import SinkLoadError, SinkTimeoutError
from eventlog.log.inbox import Inbox
from eventlog.log.source import TailCache
from eventlog.log.writer import Writer
from eventlog.sinks.base import RunInfo
from eventlog.sinks.registry import load_sink_class
from eventlog.subscription import Subscription
from eventlog.testing import MemorySink

SINK = """
from eventlog import Sink
class Late(Sink):
    def __init__(self, **options):
        {body}
    def write(self, batch):
        pass
"""


def module(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module that can be imported; return its name, which no other test has."""
    name = f"made_{folder.name}"
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.mark.parametrize("where", ["import", "__init__", "unready"])
def test_what_hangs_while_a_sink_is_made_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Run() returns after the deadline for opening, and the run goes on without it."""
    hang = "import threading; threading.Event().wait()"
    text = SINK.format(body=hang if where == "__init__" else "pass")
    if where == "import":
        text = f"{hang}\n{text}"
    if where == "unready":
        text += f"    @classmethod\n    def unready(cls, options):\n        {hang}\n"
    name = module(tmp_path, text, monkeypatch)
    good = MemorySink()
    sinks = {"late": {"sink": f"{name}:Late"}, "good": good}
    before = time.monotonic()
    # an open() of the good one has as long
    with Run("p", dir=tmp_path, sinks=sinks, deadlines=Deadlines(open=5.0)) as run:
        assert time.monotonic() - before < 30
        run.step(x=1.0)
    assert good.values("x") == [(0, 1.0)]
    assert run.sink("late").state == "failed"
    assert "to import and make it took longer than 5 s" in str(run.sink("late").error)
    assert run.close().left.keys() == {"late"}


@pytest.mark.parametrize("where", ["import", "__init__"])
def test_what_hangs_while_a_sink_is_made_ends_a_replay_and_a_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, anyio_backend_name: str
) -> None:
    """Both say which sink it is, after the deadline; a loop goes on meanwhile."""
    hang = "import threading; threading.Event().wait()"
    text = SINK.format(body=hang if where == "__init__" else "pass")
    name = module(tmp_path, f"{hang}\n{text}" if where == "import" else text, monkeypatch)
    late: dict[str, Any] = {"late": {"sink": f"{name}:Late"}}
    with Run("p", dir=tmp_path, sinks=[]) as run:
        run.step(x=1.0)
    assert run.dir is not None
    log = open_log(run.dir)
    beats = 0

    async def main() -> None:
        async def beat() -> None:
            nonlocal beats
            while True:
                await anyio.sleep(0.01)
                beats += 1

        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            with pytest.raises(SinkTimeoutError, match="sink 'late': to import and make it took"):
                await areplay(log, late, deadlines=Deadlines(open=0.5))
            group.cancel_scope.cancel()

    anyio.run(main, backend=anyio_backend_name)
    assert beats > 1
    monkeypatch.setattr("eventlog.bus.DEADLINES", Deadlines(open=0.2))
    with pytest.raises(SinkTimeoutError, match="sink 'late': to import and make it took"):
        EventBus(sinks=late)


@pytest.mark.parametrize(
    "error", ["SystemExit(7)", "asyncio.CancelledError()", "GeneratorExit()", "KeyboardInterrupt()"]
)
@pytest.mark.parametrize("where", ["import", "__init__", "unready"])
def test_what_would_end_a_program_while_a_sink_is_made_costs_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: str
) -> None:
    """The run goes on without it; where it is only asked whether it is ready, with it."""
    fail = f"import asyncio; raise {error}"
    text = SINK.format(body=fail if where == "__init__" else "pass")
    if where == "import":
        text = f"import asyncio\n{text}\nraise {error}\n"
    if where == "unready":
        text += f"    @classmethod\n    def unready(cls, options):\n        {fail}\n"
    name = module(tmp_path, text, monkeypatch)
    with Run("p", dir=tmp_path, sinks={"late": {"sink": f"{name}:Late"}}) as run:
        run.step(x=1.0)
    assert run.sink("late").state == ("closed" if where == "unready" else "failed")
    assert run.dir is not None
    assert open_log(run.dir).status() == "finished"


def test_a_cancellation_on_import_is_an_error_of_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for who imports on the main thread; there an interruption is the user's."""
    name = module(tmp_path, "import asyncio\nraise asyncio.CancelledError('x')\n", monkeypatch)
    with pytest.raises(SinkLoadError, match="does not load: CancelledError: x"):
        load_sink_class(f"{name}:Late")
    (tmp_path / f"{name}.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_sink_class(f"{name}:Late")


def test_a_run_may_begin_within_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the sink's module needs the one that is being imported, as from a script."""
    text = f"""
import eventlog
class Base(eventlog.Sink):
    def write(self, batch):
        pass
options = eventlog.delivery.Deadlines(open=20.0)
sinks = {{"late": {{"sink": "needs_it:Late"}}}}
run = eventlog.Run("p", dir={str(tmp_path)!r}, sinks=sinks, deadlines=options)
run.close()
"""
    name = module(tmp_path, f"import eventlog.delivery\n{text}", monkeypatch)
    (tmp_path / "needs_it.py").write_text(f"import {name}\nclass Late({name}.Base): pass\n")
    monkeypatch.delitem(sys.modules, "needs_it", raising=False)
    loaded: Any = __import__(name)
    assert loaded.run.sink("late").state == "closed"


class Raising(Sink):
    """Raises where it is not called by the rules, but asked."""

    def __init__(self, error: BaseException, where: str) -> None:
        self._error = error
        self._where = where

    def write(self, batch: Sequence[Event]) -> None:
        pass

    def target(self) -> str:
        if self._where == "target":
            raise self._error
        return ""

    def state(self) -> dict[str, Any]:
        if self._where == "state":
            raise self._error
        return {}


@pytest.mark.parametrize("where", ["target", "state"])
@pytest.mark.parametrize(
    "error", [SystemExit(7), asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()]
)
def test_what_a_sink_raises_when_it_is_asked_ends_no_delivery(
    tmp_path: Path, where: str, error: BaseException
) -> None:
    """The other sinks have everything."""
    good = MemorySink()
    sinks = {"raising": Raising(error, where), "good": good}
    with Run("p", dir=tmp_path, sinks=sinks) as run:
        run.step(x=1.0)
    assert good.values("x") == [(0, 1.0)]
    assert good.statuses == ["finished"]
    statistics = run.statistics().sinks["raising"]
    if where == "state":
        assert statistics.state == "closed"
        assert statistics.unkept > 0
    else:
        assert statistics.state == "failed"


class Interrupting(Sink):
    """Raises an interruption of its own, in the loop."""

    async def write(self, batch: Sequence[Event]) -> None:
        raise KeyboardInterrupt


def test_an_async_sinks_interruption_ends_no_loop_of_the_main_thread() -> None:
    """As in the sidecar: a Ctrl-C comes to asyncio's tasks as a cancellation."""
    source, inbox = TailCache(), Inbox()
    writer = Writer(inbox, source, None)
    inbox.put(StepEvent(step=0, mono=1, values={"x": 0.0}))
    writer.turn()
    writer.stop(None)
    good = MemorySink()
    delivery = Delivery(source)
    for alias, sink in (("bad", Interrupting()), ("good", good)):
        info = RunInfo(run_id="r")
        port = Port(alias, sink, Subscription(source), lambda _, info=info: info,  # type: ignore[misc]
                    retry=Retry(first=0.001, most=0.002))  # fmt: skip
        delivery.add(port)
    anyio.run(delivery.run)
    assert [event.step for event in good.events] == [0]
    assert delivery.ports["bad"].statistics().dead == 1
