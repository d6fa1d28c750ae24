"""``eventlog plot``: a run's metrics, in the terminal or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from eventlog._visible import visible
from eventlog.cli.arguments import RankOption, RunArgument
from eventlog.cli.outcome import note, reported, say
from eventlog.cli.output import Terminal
from eventlog.cli.runs import manifest, open_run
from eventlog.cli.series import Axis, Metrics, read_metrics
from eventlog.log.archive import Log

__all__ = ["plot"]

_MOST_CHARTS = 12
_MOST_PANELS = 30
_PIPE_WIDTH = 100


@reported
def plot(
    run: RunArgument,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key", "--keys", metavar="GLOB", help="Only metrics that match this glob. Repeatable."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Draw into this file: .png, .svg or .pdf."
        ),
    ] = None,
    axis: Annotated[Axis, typer.Option("--axis", help="What to draw them over.")] = Axis.STEP,
    terminal: Annotated[
        bool,
        typer.Option("--terminal", help="Draw with characters; as it is where -o is not given."),
    ] = False,
    rank: RankOption = None,
) -> None:
    """Draw a run's metrics."""
    log = open_run(run, rank)
    metrics = read_metrics(log, axis, keys or ())
    if not metrics.series:
        wanted = f" that match {', '.join(keys)}" if keys else ""
        raise ValueError(f"{log.run_dir} has no metrics{wanted} on the axis {axis.value!r}")
    title = _title(log)
    if output is not None:
        from eventlog.cli.figure import save_figure

        save_figure(_at_most(metrics, _MOST_PANELS), output, title)
        say(str(output))
    if terminal or output is None:
        _show(_at_most(metrics, _MOST_CHARTS), title)


def _title(log: Log) -> str:
    known = manifest(log.run_dir)
    project = known.get("project") or log.run_dir.parent.name
    return f"{project} / {known.get('name') or log.run_dir.name}"


def _at_most(metrics: Metrics, most: int) -> Metrics:
    if len(metrics.series) > most:
        note(f"{most} of {len(metrics.series)} metrics are drawn; choose others with --key")
    return metrics._replace(series=metrics.series[:most])


def _show(metrics: Metrics, title: str) -> None:
    from eventlog.cli.chart import charts

    console: Console = Terminal()
    width = console.width if console.is_terminal else _PIPE_WIDTH
    console.print(Text(visible(title), style="bold underline"))
    console.print()
    console.print(charts(metrics, width))
    if metrics.updates:
        said = ", ".join(f"{u.kind} at {u.x:g}" for u in metrics.updates[:_MOST_CHARTS])
        more = ", ..." if len(metrics.updates) > _MOST_CHARTS else ""
        console.print(Text(visible(f"┊ model updates: {said}{more}"), style="magenta"))
