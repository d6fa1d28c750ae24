"""Arguments that several commands have, and what is written in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

__all__ = [
    "EpochsOption",
    "EveryOption",
    "JsonOption",
    "KeysOption",
    "RankOption",
    "ReduceOption",
    "RunArgument",
    "StartOption",
    "StepsOption",
    "TimeOption",
    "TypeOption",
    "parse_epochs",
    "parse_options",
    "parse_reduce",
    "parse_steps",
    "parse_time",
]

N = TypeVar("N", int, float)

RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run's directory, or one that holds runs: the newest of them is taken.",
        show_default=False,
    ),
]
RankOption = Annotated[
    int | None,
    typer.Option("--rank", metavar="N", min=0, help="Which rank's log.", show_default="the lowest"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write a JSON document.")]
TypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Only events of this type: step, epoch, image, ... Repeatable.",
    ),
]
KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keys",
        "--key",
        metavar="GLOB",
        help="Only values whose names match this glob. Repeatable.",
    ),
]
EveryOption = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="CADENCE", help='When step and batch events pass, as "10 steps or 30 s".'
    ),
]
ReduceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reduce",
        metavar="HOW",
        help="What becomes of the values in between: mean, or KEY=max for some. Repeatable.",
    ),
]
StepsOption = Annotated[
    str | None,
    typer.Option(
        "--steps", metavar="A:B", help="Only steps from A on and before B; either may be left out."
    ),
]
EpochsOption = Annotated[
    str | None,
    typer.Option("--epochs", metavar="A:B", help="Only epochs from A on and before B; likewise."),
]
TimeOption = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="FROM..TO",
        help="Only what was logged from FROM on and before TO: 2026-01-31T12:00, local time unless "
        "it says otherwise; either may be left out.",
    ),
]
StartOption = Annotated[int, typer.Option("--start", metavar="SEQ", min=0, help="The first seq.")]


def parse_reduce(given: list[str] | None) -> str | dict[str, str] | None:
    """Return what ``--reduce`` says: a reducer for all, or reducers by key or glob.

    Raises:
        ValueError: Two reducers are meant for all keys.
    """
    if not given:
        return None
    rules: dict[str, str] = {}
    for text in given:
        key, equals, name = text.rpartition("=")
        if not equals:
            key = "*"
        if key in rules:
            raise ValueError(f"--reduce must name one reducer for {key!r}, not {given!r}")
        rules[key] = name
    everything = rules.pop("*", None)
    if not rules:
        return everything
    # the first rule that matches holds, so the one for all comes last
    return rules if everything is None else rules | {"*": everything}


def parse_steps(text: str | None) -> tuple[int | None, int | None] | None:
    """Return what ``--steps A:B`` says, the open ends as None.

    Raises:
        ValueError: It is no range, or an empty one.
    """
    return _parse_range("--steps", text, int)


def parse_epochs(text: str | None) -> tuple[float | None, float | None] | None:
    """Return what ``--epochs A:B`` says; see `parse_steps`."""
    return _parse_range("--epochs", text, float)


def _parse_range(
    name: str, text: str | None, number: Callable[[str], N]
) -> tuple[N | None, N | None] | None:
    if text is None:
        return None
    first, colon, stop = text.partition(":")
    try:
        if not colon or text == ":":
            raise ValueError
        low, high = (number(end) if end else None for end in (first, stop))
    except ValueError:
        example = "A:B, as in 100:200, 100: or :200"
        raise ValueError(f"{name} must be {example}, not {text!r}") from None
    if low is not None and high is not None and not low < high:
        raise ValueError(f"{name} must end after it starts, not {text!r}")
    return low, high


def parse_time(text: str | None) -> tuple[str | None, str | None] | None:
    """Return what ``FROM..TO`` says, the open ends as None.

    Raises:
        ValueError: It is no range.
    """
    if text is None:
        return None
    first, dots, stop = text.partition("..")
    if not dots or text == "..":
        raise ValueError(
            "--time must be FROM..TO, as in 2026-01-31T12:00..2026-01-31T13:00, or one of them "
            f"with the dots, not {text!r}"
        )
    return first.strip() or None, stop.strip() or None


def parse_options(sinks: list[str], given: list[str] | None) -> dict[str, dict[str, Any] | None]:
    """Return the sinks with what ``--option NAME.key=value`` says of them.

    Args:
        sinks: Names, each once.
        given: Values that are JSON (numbers, true, null, lists) are taken as that, others as text.

    Raises:
        ValueError: An option has another form, or is for no sink that was named.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in sinks:
        if name in found:
            raise ValueError(f"--sink must name each sink once, not {name!r} twice")
        found[name] = {}
    for text in given or ():
        place, equals, value = text.partition("=")
        # from the right: a sink that is given as module:Class has dots of its own
        name, dot, key = place.rpartition(".")
        if not (equals and dot and name and key):
            raise ValueError(f"--option must be NAME.key=value, not {text!r}")
        if name not in found:
            raise ValueError(f"--option {text!r} is for no --sink; these are: {', '.join(sinks)}")
        found[name][key.replace("-", "_")] = _plain(value)
    return {name: options or None for name, options in found.items()}


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
