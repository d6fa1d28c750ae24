"""Functions as sinks: plain, asynchronous, and those that fail."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from eventlog import EventBus, Run, StepEvent
from eventlog.delivery import Retry
from eventlog.events import Event
from eventlog.sinks import AsyncCallbackSink, CallbackSink, RunInfo, callback_sink


def events(*steps: int) -> list[Event]:
    return [StepEvent(step=i, seq=i, values={"x": 1.0}) for i in steps]


class AsyncCallable:
    def __init__(self) -> None:
        self.got: list[int | None] = []

    async def __call__(self, event: Event) -> None:
        self.got.append(event.step)


@pytest.mark.parametrize("form", ["function", "object", "partial", "method"])
def test_an_async_callable_of_any_form_is_awaited(form: str) -> None:
    """Its events arrive: also in a run, whose delivery has a loop of its own."""
    target = AsyncCallable()

    async def function(event: Event) -> None:
        await target(event)

    async def two(extra: int, event: Event) -> None:
        await target(event)

    forms: dict[str, Callable[[Event], Any]] = {
        "function": function,
        "object": target,
        "partial": functools.partial(two, 1),
        "method": target.__call__,
    }
    assert isinstance(callback_sink(forms[form]), AsyncCallbackSink)
    with Run("p", dir=None, sinks={"cb": {"sink": forms[form], "types": [StepEvent]}}) as run:
        for _ in range(5):
            run.step(x=1.0)
    assert target.got == [0, 1, 2, 3, 4]
    assert run.statistics().sinks["cb"].state == "closed"


def test_a_plain_function_is_called_on_a_thread_for_each_event() -> None:
    """In order, one at a time."""
    got: list[Event] = []
    with Run("p", dir=None, sinks=got.append) as run:
        for _ in range(5):
            run.step(x=1.0)
    assert [e.step for e in got if isinstance(e, StepEvent)] == [0, 1, 2, 3, 4]
    assert run.sink("append").tracker == got.append


def test_a_function_that_fails_is_not_given_again_what_it_took() -> None:
    """Only the event that it fails on comes again, and is set aside after a few tries."""
    got: list[int | None] = []

    def function(event: Event) -> None:
        got.append(event.step)
        if event.step == 2:
            raise ValueError("not this one")

    spec = {"cb": {"sink": function, "types": [StepEvent]}}
    with Run("p", dir=None, sinks=spec, retry=Retry(first=0.001)) as run:
        for _ in range(5):
            run.step(x=1.0)
    assert [step for step in got if step != 2] == [0, 1, 3, 4]
    assert run.statistics().sinks["cb"].dead == 1


async def test_an_async_function_that_fails_is_not_given_again_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same in the loop."""
    monkeypatch.setattr(Retry, "delay", lambda *_: 0.0)
    got: list[int | None] = []

    async def function(event: Event) -> None:
        got.append(event.step)
        if event.step == 2:
            raise ValueError("not this one")

    async with EventBus(sinks=[function]) as bus:
        for i in range(5):
            bus.emit(StepEvent(step=i))
    assert [step for step in got if step != 2] == [0, 1, 3, 4]
    assert bus.statistics().sinks["function"].dead == 1


def test_a_plain_function_that_returns_a_coroutine_is_told() -> None:
    """It would never be awaited; that is an error, not silence."""

    async def inner(event: Event) -> None:
        raise AssertionError

    sink = CallbackSink(lambda event: inner(event))
    with pytest.raises(TypeError, match="returned a coroutine, which nobody awaits"):
        sink.write(events(1))


def test_a_sink_that_is_opened_again_begins_anew() -> None:
    """Another run counts from 0 again."""
    got: list[int | None] = []
    sink = CallbackSink(lambda event: got.append(event.step))
    for _ in range(2):
        sink.open(RunInfo(run_id="r"))
        sink.write(events(0, 1))
    assert got == [0, 1, 0, 1]


def test_what_cannot_be_called_is_refused() -> None:
    """At once, with its name."""
    with pytest.raises(TypeError, match="function must be callable, not 3"):
        CallbackSink(3)  # type: ignore[arg-type]
