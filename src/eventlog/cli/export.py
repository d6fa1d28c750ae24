"""``eventlog export``: a run's values as a table in a file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from eventlog._export import (
    LONG,
    PLACE,
    Columns,
    Keys,
    long_chunks,
    read,
    wide_chunks,
    wide_keys,
)
from eventlog.cli.arguments import (
    EveryOption,
    KeysOption,
    RankOption,
    ReduceOption,
    RunArgument,
    TypeOption,
    parse_reduce,
)
from eventlog.cli.outcome import FOUND_WRONG, note, reported, say
from eventlog.cli.output import quantity
from eventlog.cli.runs import open_run
from eventlog.cli.table_files import FORMATS, open_table
from eventlog.log.attempts import Attempts

__all__ = ["export"]

_TEXTS = ("axis", "type", "key", "text")


@reported
def export(
    run: RunArgument,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="Where to: .jsonl, .csv or .parquet."),
    ],
    wide: Annotated[
        bool,
        typer.Option("--wide", help="A row a step and a column a key, instead of a row a value."),
    ] = False,
    types: TypeOption = None,
    keys: KeysOption = None,
    every: EveryOption = None,
    reduce: ReduceOption = None,
    latest: Annotated[
        bool,
        typer.Option(
            "--latest/--all-attempts",
            help="What the latest attempt says of each step, or also what it logged again.",
        ),
    ] = True,
    rank: RankOption = None,
) -> None:
    """Write a run's values into a file."""
    if output.suffix not in FORMATS:
        raise ValueError(f"-o must end in {', '.join(FORMATS)}, not {output.name!r}")
    log = open_run(run, rank)
    # of one moment, also where it is read twice and the run goes on
    source = log.source()
    events = partial(
        read,
        source,
        types=types or None,
        every=every,
        reduce=parse_reduce(reduce),
        keys=keys or None,
        attempts=Attempts.scan(log.directory) if latest else None,
    )
    chunks: Iterator[Columns]
    if wide:
        columns = wide_keys(events(), keys or None)
        texts = _wide_texts(columns)
        chunks = wide_chunks(events(), columns, keys or None)
    else:
        texts = {name: name in _TEXTS for name in LONG}
        chunks = long_chunks(events(), keys or None)
    rows = 0
    with open_table(output, texts) as table:
        for chunk in chunks:
            table.write(chunk)
            rows += len(chunk["step"])
    say(f"{output}: {rows:,} rows, {quantity(output.stat().st_size)}")
    if source.damage:
        note(f"{len(source.damage)} part(s) of the log cannot be read; see: eventlog verify {run}")
        raise typer.Exit(FOUND_WRONG)


def _wide_texts(columns: Keys) -> dict[str, bool]:
    texts = {name: name in _TEXTS for name in PLACE}
    return texts | dict(columns.values())
