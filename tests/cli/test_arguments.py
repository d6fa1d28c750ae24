"""What is written in options."""

from __future__ import annotations

import pytest

from eventlog.cli.arguments import (
    parse_epochs,
    parse_options,
    parse_reduce,
    parse_steps,
    parse_time,
)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, None),
        (["mean"], "mean"),
        (["loss=mean"], {"loss": "mean"}),
        (["last", "val/*=max"], {"val/*": "max", "*": "last"}),
        (["a=b=min"], {"a=b": "min"}),
    ],
)
def test_reduce_is_one_reducer_or_several(given: list[str] | None, meant: object) -> None:
    """The rule for all comes last: the first that matches holds."""
    found = parse_reduce(given)
    assert found == meant
    if isinstance(found, dict) and isinstance(meant, dict):
        assert list(found) == list(meant)


def test_two_reducers_for_everything_are_refused() -> None:
    """One of them would be lost."""
    with pytest.raises(ValueError, match=r"one reducer for '\*'"):
        parse_reduce(["mean", "max"])


def test_options_are_json_where_they_can_be() -> None:
    """Numbers, truth values and lists arrive as such, all else as text."""
    found = parse_options(
        ["wandb", "console"],
        ["wandb.mode=offline", "wandb.n=3", "wandb.on=true", "wandb.a-b=[1]", "wandb.url=a=b"],
    )
    assert found == {
        "wandb": {"mode": "offline", "n": 3, "on": True, "a_b": [1], "url": "a=b"},
        "console": None,
    }


@pytest.mark.parametrize("text", ["wandb", "wandb.mode", "mode=offline", ".mode=1", "wandb.=1"])
def test_an_option_of_another_form_is_refused(text: str) -> None:
    """The error shows the form."""
    with pytest.raises(ValueError, match=r"must be NAME\.key=value"):
        parse_options(["wandb"], [text])


def test_a_sink_that_is_a_class_has_dots_of_its_own() -> None:
    """The last one parts the sink from the option."""
    found = parse_options(["my.code:Sink"], ["my.code:Sink.n=1.5"])
    assert found == {"my.code:Sink": {"n": 1.5}}


def test_an_option_for_no_sink_is_refused() -> None:
    """It would be lost."""
    with pytest.raises(ValueError, match="is for no --sink; these are: wandb"):
        parse_options(["wandb"], ["aim.repo=x"])


def test_a_sink_is_named_once() -> None:
    """Twice would be one."""
    with pytest.raises(ValueError, match="each sink once"):
        parse_options(["wandb", "wandb"], None)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, None),
        ("100:200", (100, 200)),
        ("100:", (100, None)),
        (":200", (None, 200)),
        ("-5:0", (-5, 0)),
    ],
)
def test_a_range_has_two_ends_that_may_be_open(text: str | None, meant: object) -> None:
    """As in Python, the stop is left out."""
    assert parse_steps(text) == meant


def test_epochs_may_be_fractions() -> None:
    """Steps may not."""
    assert parse_epochs("0.5:2") == (0.5, 2.0)
    with pytest.raises(ValueError, match=r"--steps must be A:B, as in .* not '0\.5:2'"):
        parse_steps("0.5:2")


@pytest.mark.parametrize("text", ["", ":", "5", "a:b", "5:6:7", "5:x"])
def test_a_range_of_another_form_is_refused(text: str) -> None:
    """The error shows the form."""
    with pytest.raises(ValueError, match=r"--steps must be A:B"):
        parse_steps(text)


@pytest.mark.parametrize("text", ["5:5", "6:5"])
def test_an_empty_range_is_refused(text: str) -> None:
    """It can only be meant otherwise."""
    with pytest.raises(ValueError, match="--steps must end after it starts"):
        parse_steps(text)


def test_times_are_parted_by_dots() -> None:
    """A colon is part of them."""
    assert parse_time("2026-01-31T12:00..2026-01-31T13:00") == (
        "2026-01-31T12:00",
        "2026-01-31T13:00",
    )
    assert parse_time("2026-01-31..") == ("2026-01-31", None)
    assert parse_time("..2026-01-31") == (None, "2026-01-31")
    assert parse_time(None) is None
    for text in ("..", "2026-01-31", ""):
        with pytest.raises(ValueError, match=r"--time must be FROM\.\.TO"):
            parse_time(text)
