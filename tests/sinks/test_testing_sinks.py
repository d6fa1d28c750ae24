"""The sinks that tests use, which third parties use as well."""

import threading
import time
from typing import Any

import anyio
import pytest

from eventlog import Run, testing
from eventlog.events import RunStarted, StepEvent
from eventlog.exceptions import RefusedError
from eventlog.sinks import RunInfo
from eventlog.testing import AsyncFaultySink, AsyncMemorySink, Fault, FaultySink, MemorySink

BATCH = [StepEvent(step=i, seq=i, values={"x": float(i)}) for i in range(3)]


def test_the_example_in_the_module_s_docstring_holds() -> None:
    """What users copy works."""
    memory = MemorySink()
    with Run("test", dir=None, sinks={"good": memory, "bad": FaultySink(write=OSError())}) as run:
        run.step(loss=0.5)
        assert memory.wait_for(2)
        run.close(timeout=0.1)
    assert memory.values("loss") == [(0, 0.5)]
    assert memory.wait_for(lambda sink: sink.statuses == ["finished"])
    assert isinstance(memory.of(RunStarted)[0], RunStarted)


def test_exports_are_sorted_and_there() -> None:
    """One place to import from."""
    assert testing.__all__ == sorted(testing.__all__)
    assert all(hasattr(testing, name) for name in testing.__all__)


async def test_both_forms_keep_calls_batches_statuses_and_what_open_was_told() -> None:
    """With the thread of each call."""
    for sink in (MemorySink(), AsyncMemorySink(), FaultySink(), AsyncFaultySink()):
        for made in (
            sink.open(RunInfo(run_id="r")),
            sink.write(BATCH),
            sink.flush(),
            sink.close("failed"),
        ):
            if made is not None:
                await made
        assert [call.method for call in sink.calls] == ["open", "write", "flush", "close"]
        assert sink.threads == {threading.get_ident()}
        assert sink.runs == [RunInfo(run_id="r")]
        assert sink.batches == [BATCH]
        assert sink.values("x") == [(0, 0.0), (1, 1.0), (2, 2.0)]
        assert sink.statuses == ["failed"]


def outcome(sink: FaultySink) -> str:
    try:
        sink.write(BATCH)
    except BaseException as error:
        return type(error).__name__
    return "ok"


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (OSError("x"), "OSError OSError OSError OSError"),
        (SystemExit, "SystemExit SystemExit SystemExit SystemExit"),
        (Fault(OSError, times=2), "OSError OSError ok ok"),
        (Fault(OSError, times=1, after=2), "ok ok OSError ok"),
        ([Fault(OSError, times=1), Fault(KeyError, after=3)], "OSError ok ok KeyError"),
        (None, "ok ok ok ok"),
    ],
)
def test_faults_happen_in_the_calls_that_were_named(fault: Any, wanted: str) -> None:
    """Always, a number of times, after a number of good calls, or in a sequence."""
    sink = FaultySink(write=fault)
    assert " ".join(outcome(sink) for _ in range(4)) == wanted
    assert len(sink.batches) == wanted.split().count("ok")
    assert sink.count("write") == 4


def test_a_lost_answer_keeps_the_batch() -> None:
    """The tracker had it, and the caller does not know."""
    sink = FaultySink(write=Fault(OSError, kept=True))
    assert outcome(sink) == "OSError"
    assert sink.batches == [BATCH]


def test_refusals_are_for_the_whole_batch() -> None:
    """Nothing of a batch with a refused event is taken."""
    sink = FaultySink(refuse=lambda event: event.step == 1)
    with pytest.raises(RefusedError, match="1 of 3 events are refused"):
        sink.write(BATCH)
    assert sink.events == []
    sink.write(BATCH[2:])
    assert sink.events == BATCH[2:]


def test_a_call_hangs_until_it_is_released() -> None:
    """And none hangs after that."""
    sink = FaultySink(write=Fault(hang=True))
    thread = threading.Thread(target=sink.write, args=(BATCH,))
    thread.start()
    assert sink.wait_for(lambda s: s.count("write"))
    assert not sink.wait_for(1, timeout=0.01)
    sink.release()
    thread.join(10)
    assert sink.wait_for(3)
    sink.write(BATCH)


async def test_an_async_call_hangs_until_it_is_released_or_cancelled() -> None:
    """From any thread."""
    sink = AsyncFaultySink(write=Fault(hang=True))
    with anyio.move_on_after(0.02):
        await sink.write(BATCH)
    assert sink.events == []
    async with anyio.create_task_group() as group:
        group.start_soon(sink.write, BATCH)
        await anyio.to_thread.run_sync(sink.release)
    assert sink.events == BATCH


def test_a_slow_call_takes_its_time() -> None:
    """At least as long as it was told."""
    sink = FaultySink(write=Fault(sleep=0.02))
    start = time.monotonic()
    sink.write(BATCH)
    assert time.monotonic() - start >= 0.02
