"""What is written in options."""

from __future__ import annotations

import pytest

from eventlog.cli.arguments import parse_options, parse_reduce


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
