"""The commands under one roof: names, help texts and the program's entry."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import typer

from eventlog._version import __version__
from eventlog.cli.cat import cat
from eventlog.cli.compact import compact
from eventlog.cli.export import export
from eventlog.cli.info import info
from eventlog.cli.ls import ls
from eventlog.cli.plot import plot
from eventlog.cli.replay import replay
from eventlog.cli.sinks import sinks
from eventlog.cli.tail import tail
from eventlog.cli.verify import verify

__all__ = ["app", "run"]

_ABOUT = """Look at the event logs of training runs, and bring them into trackers.

RUN is a run's directory, or one that holds runs: the newest of them is taken then.

\b
Exit codes:
  0    all is well
  1    something was found wrong: an incomplete replay, a damaged log, a broken sink
  2    wrong usage, no log at the path, or something needed is not installed
  130  interrupted from the keyboard

\b
Example:
  eventlog ls runs
"""

_COMMANDS: list[tuple[Any, str, str]] = [
    (
        sinks,
        """List the installed sinks, without importing them.

        Exits with 1 when one is broken; only --check finds all that can be.""",
        "eventlog sinks --check",
    ),
    (
        ls,
        "List the runs under a directory, newest first.",
        "eventlog ls runs/mnist",
    ),
    (
        info,
        """Say what a run's log is about, what it holds, and where its sinks are.

        Metrics are counted by what the latest attempt says of each step.""",
        "eventlog info runs/mnist --no-metrics",
    ),
    (
        cat,
        """Write a run's events as JSON lines, with every field.

        NaN and infinities are Python's literals NaN, Infinity and -Infinity; see --strict.""",
        "eventlog cat runs/mnist --type step --keys 'val/*' --every '100 steps' --reduce mean",
    ),
    (
        tail,
        """Show a run's last events, as the console sink prints them.

        With -f also what comes, until the run ends, 0, or ends otherwise or dies, 1.""",
        "eventlog tail -f runs/mnist --type epoch -n 20",
    ),
    (
        verify,
        """Read a run's log whole, and its blobs, and say what is damaged.

        Exits with 1 when anything is.""",
        "eventlog verify runs/mnist",
    ),
    (
        compact,
        """Rewrite a run's log in less space, segment by segment; it is read as before.

        A segment that is being written is left as it is, and so is a damaged one: exits with 1
        then.""",
        "eventlog compact runs/mnist --codec zlib",
    ),
    (
        replay,
        """Bring a run's log into sinks, whatever the sinks of the run were.

        With --pending into the run's own sinks, what these still lack.

        Exits with 1 when a sink did not take everything, or the log is damaged.""",
        "eventlog replay runs/mnist --sink tensorboard --every '10 steps'\n"
        "eventlog replay --pending runs",
    ),
    (
        export,
        """Write a run's values into a file, as a table: .jsonl, .csv or .parquet.

        A row a value, or with --wide a row a step. NaN is NaN; what is not there is null, or
        empty. Exits with 1 when the log is damaged.""",
        "eventlog export runs/mnist -o mnist.csv --wide --type step",
    ),
    (
        plot,
        """Draw a run's metrics, with model updates as vertical lines.

        In the terminal, or with -o into a file (needs matplotlib).""",
        "eventlog plot runs/mnist --key '*loss' -o loss.png",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"eventlog {__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass


def _make() -> typer.Typer:
    made = typer.Typer(
        name="eventlog",
        help=_ABOUT,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_main)
    for command, text, example in _COMMANDS:
        shown = example.replace("\n", "\n  ")
        made.command(command.__name__, help=f"{inspect.cleandoc(text)}\n\n\b\nExample:\n  {shown}")(
            command
        )
    return made


app = _make()


def run(program: str = "eventlog") -> None:
    """Run the command that this process's arguments name, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal without braille, say: wrong characters rather than a traceback
            stream.reconfigure(errors="replace")
    app(prog_name=program)
