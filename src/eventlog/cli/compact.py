"""``eventlog compact``: a run's log in less space."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from eventlog.cli.arguments import JsonOption, RankOption, RunArgument
from eventlog.cli.outcome import FOUND_WRONG, reported, say
from eventlog.cli.output import quantity, write_json
from eventlog.cli.runs import choose_run, ranks_of
from eventlog.log.seal import Compacted, compact_log

__all__ = ["compact"]

_WRONG = ("it is damaged", "its header cannot be read")
"""How the reasons begin that are no good sign, of those for which a segment is left as it is."""


class Codec(StrEnum):
    """What blocks can be compressed with."""

    ZLIB = "zlib"
    ZSTD = "zstd"


@reported
def compact(
    run: RunArgument,
    codec: Annotated[
        Codec,
        typer.Option("--codec", help="zlib is read everywhere; zstd needs the package zstandard."),
    ] = Codec.ZLIB,
    rank: RankOption = None,
    json: JsonOption = False,
) -> None:
    """Compact a run's segments."""
    done: list[Compacted] = []
    for log in ranks_of(choose_run(run), rank):
        for one in compact_log(log.directory, codec.value):
            done.append(one)
            if not json:
                say(f"{one.path}: {_said(one)}")
    if json:
        write_json([one._asdict() | {"path": str(one.path)} for one in done])
    elif len(done) > 1:
        say(f"in all: {_sizes(sum(c.before for c in done), sum(c.after for c in done))}")
    if any((one.skipped or "").startswith(_WRONG) for one in done):
        raise typer.Exit(FOUND_WRONG)


def _said(one: Compacted) -> str:
    if one.skipped is not None:
        return f"{quantity(one.before)}, left as it is: {one.skipped}"
    return _sizes(one.before, one.after)


def _sizes(before: int, after: int) -> str:
    share = f" ({after / before:.0%})" if before else ""
    return f"{quantity(before)} -> {quantity(after)}{share}"
