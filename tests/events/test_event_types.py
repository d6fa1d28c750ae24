"""What all events have in common."""

import pickle

import msgspec
import pytest

from eventlog.events import Event, StepEvent, TextEvent, event_tag


def test_events_are_frozen() -> None:
    """What was emitted cannot be changed by who reads it."""
    event = StepEvent(step=1)
    with pytest.raises(AttributeError):
        event.step = 2  # type: ignore[misc]


def test_axes_that_were_not_given_are_unknown_not_zero() -> None:
    """An emitter that does not say where it is, is nowhere."""
    event = StepEvent()
    assert (event.step, event.batch, event.epoch, event.seq) == (None, None, None, -1)


def test_values_are_not_shared_between_events() -> None:
    """The default of a mapping belongs to one event."""
    assert StepEvent().values is not StepEvent().values


def test_events_survive_a_pickle() -> None:
    """Events go to other processes."""
    event = TextEvent(step=3, tag="t", text="x", values={"a": float("inf")})
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own


def test_a_tag_is_a_text() -> None:
    """A type without a tag of its own is called by its name; a number is refused."""
    assert event_tag(StepEvent) == "step"

    class Numbered(msgspec.Struct, tag=5):
        pass

    with pytest.raises(TypeError, match="must have a text as its tag, not 5"):
        event_tag(Numbered)  # type: ignore[arg-type]
    assert event_tag(Event) == "Event"
