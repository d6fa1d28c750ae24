"""What a user may give as ``sinks=``, and how mistakes are answered."""

from typing import Any

import pytest

from eventlog import FrequencyManager, Sink, every
from eventlog.cadence.text import CadenceError
from eventlog.events import StepEvent
from eventlog.exceptions import SinkError, SinkLoadError, SinkNotFoundError
from eventlog.sinks import select as selecting
from eventlog.sinks.console import ConsoleSink
from eventlog.sinks.select import select_sinks
from eventlog.testing import MemorySink


def function(event: object) -> None: ...


async def async_function(event: object) -> None: ...


MANAGER = FrequencyManager(100)
MEMORY = MemorySink()


@pytest.mark.parametrize(
    ("sinks", "wanted"),
    [
        (None, []),
        ([], []),
        ({}, []),
        ("console", [("console", "console", None)]),
        (["console"], [("console", "console", None)]),
        (("console", MEMORY), [("console", "console", None), ("memory", "memory", None)]),
        (iter(["console"]), [("console", "console", None)]),
        (MEMORY, [("memory", "memory", None)]),
        (function, [("function", "callback", None)]),
        ([async_function], [("async_function", "callback", None)]),
        ({"console": None}, [("console", "console", None)]),
        ({"console": {}}, [("console", "console", None)]),
        ({"console": "10 steps"}, [("console", "console", "10 steps")]),
        ({"console": every("1 epoch")}, [("console", "console", every("1 epoch"))]),
        ({"console": MANAGER}, [("console", "console", MANAGER)]),
        ({"c2": {"sink": "console", "every": "2 steps"}}, [("c2", "console", "2 steps")]),
        ({"mine": MEMORY}, [("mine", "memory", None)]),
        ({"mine": {"sink": MEMORY, "every": "3 steps"}}, [("mine", "memory", "3 steps")]),
        ({"f": function}, [("f", "callback", None)]),
        ({"f": {"sink": function, "every": "4 steps"}}, [("f", "callback", "4 steps")]),
    ],
)  # fmt: skip
def test_all_forms_are_taken(sinks: Any, wanted: list[tuple[str, str, Any]]) -> None:
    """Names, lists, mappings, instances, functions, cadences, managers, options."""
    specs = select_sinks(sinks)
    assert [(s.alias, s.name, s.every) for s in specs] == wanted


def test_what_a_sink_does_not_say_it_has_from_the_run() -> None:
    """every and reduce of the run hold for sinks without their own."""
    sinks = {
        "a": {"sink": "console"},
        "b": {"sink": "console", "every": "2 steps", "reduce": "max"},
    }
    first, second = select_sinks(sinks, "10 steps", "mean")
    assert (first.every, first.reduce) == ("10 steps", "mean")
    assert (second.every, second.reduce) == ("2 steps", "max")


def test_options_go_to_the_sink_and_the_rest_to_delivery() -> None:
    """types, keys and the like are never seen by the sink's class."""
    (spec,) = select_sinks(
        {"c": {"sink": "console", "color": True, "types": [StepEvent], "keys": ["loss"]}}
    )
    assert spec.options == {"color": True}
    assert (spec.types, spec.keys) == ([StepEvent], ["loss"])
    assert isinstance(spec.make(), ConsoleSink)


@pytest.mark.parametrize(
    ("sinks", "error", "message"),
    [
        (3, TypeError, "sinks must be a name"),
        ([3], TypeError, "sink 3 must be a name"),
        ([None], TypeError, "must be a name"),
        ([{"console": {}}], TypeError, "must be a name"),
        ([ConsoleSink], TypeError, "must be a name, a sink"),
        ({"a": True}, TypeError, "sink 'a' must be a name"),
        ({3: "10 steps"}, TypeError, "alias must be a text that is not empty, not 3"),
        ({"": "10 steps"}, TypeError, "alias must be a text that is not empty"),
        (["console", "console"], ValueError, r'such as \{"console2": \{"sink": "console"\}\}'),
        ([function, function], ValueError, r'such as \{"function2": <the object>\}'),
        ({"a": MEMORY, "b": MEMORY}, ValueError, "'a' and 'b' are the same object"),
        ({"a": {"sink": MEMORY, "color": 1}}, TypeError, "takes no options \\(color\\)"),
        ({"a": {"isolate": "yes"}}, TypeError, "isolate must be a bool, not 'yes'"),
        (
            {"a": {"ranks": "some"}},
            ValueError,
            "ranks must be 'main', 'all' or 'reduced', not 'some'",
        ),
        ({"tb2": "console"}, CadenceError, r'give \{"tb2": \{"sink": "console"\}\}'),
        ({"a": "10 steps or"}, CadenceError, "the cadence of sink 'a'"),
        ({"a": {"every": {"step": "ten steps"}}}, CadenceError, "the cadence of sink 'a'"),
        ({"a": {"every": 3}}, TypeError, "cadence must be a text"),
    ],
)
def test_mistakes_are_named(sinks: Any, error: type[Exception], message: str) -> None:
    """Before anything is loaded or opened."""
    with pytest.raises(error, match=message):
        select_sinks(sinks)


def test_a_wrong_option_names_the_right_ones() -> None:
    """Those of the sink, and those that every sink has."""
    (spec,) = select_sinks({"console": {"colour": True}})
    with pytest.raises(SinkError, match=r"'colour'; its options are: file, color, and for every"):
        spec.make()


def test_an_unknown_sink_names_those_that_are_there() -> None:
    """And what a package has to do to bring it."""
    (spec,) = select_sinks("nope")
    with pytest.raises(SinkNotFoundError, match=r"installed are: .*console.*entry point 'nope'"):
        spec.make()


def test_a_known_sink_that_is_missing_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line to paste."""
    monkeypatch.setattr("eventlog.sinks.registry.available_sinks", dict)
    (spec,) = select_sinks("comet")
    with pytest.raises(SinkNotFoundError, match="pip install eventlog-comet"):
        spec.make()


class _BadOptions(Sink):
    def __init__(self, mode: str = "x") -> None:
        raise {"value": ValueError("no such mode"), "broken": RuntimeError("boom")}.get(
            mode, SystemExit("bye")
        )


@pytest.mark.parametrize(
    ("mode", "error"),
    [("value", SinkError), ("broken", SinkLoadError), ("exit", SinkLoadError)],
)
def test_a_class_that_raises_is_the_user_s_mistake_or_a_broken_plugin(
    monkeypatch: pytest.MonkeyPatch, mode: str, error: type[SinkError]
) -> None:
    """ValueError and TypeError speak of the options, anything else of the plugin."""
    monkeypatch.setattr(selecting, "load_sink_class", lambda name: _BadOptions)
    (spec,) = select_sinks({"a": {"mode": mode}})
    with pytest.raises(SinkError, match="sink 'a'") as caught:
        spec.make()
    assert type(caught.value) is error
