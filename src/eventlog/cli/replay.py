"""``eventlog replay``: a run's log into sinks, now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventlog.cli.arguments import (
    EpochsOption,
    EveryOption,
    KeysOption,
    RankOption,
    ReduceOption,
    StartOption,
    StepsOption,
    TimeOption,
    TypeOption,
    parse_epochs,
    parse_options,
    parse_reduce,
    parse_steps,
    parse_time,
)
from eventlog.cli.outcome import FOUND_WRONG, INTERRUPTED, note, reported, say
from eventlog.cli.output import Terminal, duration
from eventlog.cli.runs import open_run
from eventlog.clock import monotonic_ns

if TYPE_CHECKING:
    from eventlog._replay import Part, ReplayOptions, ReplayReport
    from eventlog._replay import Progress as Progressed

__all__ = ["replay"]

_LINE_EVERY = 5.0


@reported
def replay(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run's directory, or one that holds runs: the newest of them is taken; with "
            "--pending all of them are.",
            show_default=False,
        ),
    ] = None,
    sinks: Annotated[
        list[str] | None,
        typer.Option(
            "--sink", metavar="NAME", help="A sink's name; see: eventlog sinks. Repeatable."
        ),
    ] = None,
    pending: Annotated[
        bool,
        typer.Option(
            "--pending",
            help="Deliver to the run's own sinks, as it had them, what they still lack.",
        ),
    ] = False,
    patience: Annotated[
        float,
        typer.Option(
            "--patience",
            metavar="SECONDS",
            min=0,
            help="With --pending: when to give up a sink that cannot be reached.",
        ),
    ] = 60.0,
    allowed: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="MODULE:CLASS",
            help="With --pending: import this class, which the run's list of sinks names. "
            "Repeatable.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME.key=value", help="An option of a sink. Repeatable."),
    ] = None,
    every: EveryOption = None,
    reduce: ReduceOption = None,
    types: TypeOption = None,
    keys: KeysOption = None,
    start: StartOption = 0,
    steps: StepsOption = None,
    epochs: EpochsOption = None,
    time: TimeOption = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Go on with a run that is still written, until it ends."),
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="X",
            help="1 for the pace at which it was logged, 10 for ten times as fast.",
            show_default="as fast as it is taken",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where sinks put their files: DIR/<sink>.",
            show_default="RUN/replays/<n>",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            help="Go on where an earlier replay into the same --dir stopped, or begin anew.",
        ),
    ] = True,
    outside_files: Annotated[
        bool,
        typer.Option(
            "--outside-files",
            help="Let sinks read files outside of RUN that its events name: for a log of your own.",
        ),
    ] = False,
    all_attempts: Annotated[
        bool,
        typer.Option("--all-attempts", help="Also replay what a later attempt logged again."),
    ] = False,
    rank: RankOption = None,
) -> None:
    """Bring a run's log into sinks."""
    part: Part = {
        "types": types or None,
        "keys": keys or None,
        "start": start,
        "steps": parse_steps(steps),
        "epochs": parse_epochs(epochs),
        "time": parse_time(time),
        "latest": not all_attempts,
        "follow": follow,
        "speed": speed,
        "every": every,
        "reduce": parse_reduce(reduce),
    }
    if pending:
        told = {name for name, value in part.items() if value not in (None, False, 0)} - {"latest"}
        if told or options or directory or all_attempts or not resume or outside_files:
            raise ValueError("--pending takes only RUN, --sink, --rank, --patience and --allow")
        _pending(run or Path("runs"), rank, sinks or [], patience, allowed or [])
        return
    if allowed:
        raise ValueError("--allow goes with --pending: --sink names the code itself")
    if run is None or not sinks:
        missing = "RUN" if run is None else "--sink"
        raise ValueError(
            f"{missing} is missing: eventlog replay RUN --sink NAME, with a name of: eventlog "
            f"sinks; or, to the run's own sinks what they lack: eventlog replay --pending "
            f"{run or 'RUN'}"
        )
    _replay(
        run,
        rank,
        parse_options(sinks, options),
        _options(part, directory, resume, outside_files),
    )


def _pending(
    path: Path, rank: int | None, sinks: list[str], patience: float, allowed: list[str]
) -> None:
    from eventlog.cli.pending import deliver_pending

    try:
        whole = deliver_pending(path, rank, sinks, patience, allowed)
    except KeyboardInterrupt:
        note("interrupted; the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED) from None
    if not whole:
        raise typer.Exit(FOUND_WRONG)


def _options(part: Part, directory: Path | None, resume: bool, outside: bool) -> ReplayOptions:
    more: Any = {"dir": directory, "resume": resume, "outside_files": outside}
    found: ReplayOptions = more | part
    return found


def _replay(
    run: Path,
    rank: int | None,
    sinks: dict[str, dict[str, Any] | None],
    options: ReplayOptions,
) -> None:
    from eventlog import _replay as replays

    log = open_run(run, rank)
    options["dir"] = directory = options.get("dir") or replays._replay_directory(log)
    try:
        with _progress() as progress:
            options["progress"] = progress
            report = replays.replay(log, sinks, **options)
    except KeyboardInterrupt:
        note(f"interrupted; to go on where it stopped, say the same with --dir {directory}")
        raise typer.Exit(INTERRUPTED) from None
    _say(report)
    if any(sink.state != "closed" for sink in report.sinks.values()):
        note(f"to go on where it stopped, say the same with --dir {report.directory}")
    if report.trimmed:
        note(
            f"the log begins with event {report.trimmed}: those before it were removed (retain=)"
            if not options.get("start")
            else f"{report.trimmed:,} events from --start on are not in the log any more (retain=)"
        )
    if report.damage:
        note(f"{len(report.damage)} part(s) of the log cannot be read; see: eventlog verify {run}")
    if not report.complete or report.damage:
        raise typer.Exit(FOUND_WRONG)


def _say(report: ReplayReport) -> None:
    for alias, sink in report.sinks.items():
        whole = sink.state == "closed" and not sink.dead and not sink.lost
        where = report.urls.get(alias)
        say(
            f"{alias}: {'complete' if whole else 'incomplete'}, {sink.delivered:,} events"
            + (f", {sink.filtered:,} left out by the cadence or a filter" if sink.filtered else "")
            + (f", {sink.dead:,} refused" if sink.dead else "")
            + (f", {sink.lost:,} lost" if sink.lost else "")
            + (f" -> {where}" if where else "")
        )
        if sink.unshown:
            kinds = ", ".join(f"{kind} {n:,}" for kind, n in sink.unshown.items())
            note(f"{alias} cannot show: {kinds}")
        if sink.state != "closed":
            # why events were refused, the delivery has said itself
            note(f"{alias}: {' '.join((sink.error or sink.state).split())}")


@contextmanager
def _progress() -> Iterator[Callable[[Progressed], None]]:
    if sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[Callable[[Progressed], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("replay"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    begun = monotonic_ns()
    with Progress(*columns, console=Terminal(stderr=True)) as progress:
        task = progress.add_task("replay", total=None, rate="")

        def show(now: Progressed) -> None:
            rate = _rate(now, begun)
            progress.update(
                task, total=now.total, completed=now.read, rate=f"{rate:,.0f}/s" if rate else ""
            )

        yield show


class _Lines:
    """Says how far it is every few seconds, where there is no terminal to draw on."""

    def __init__(self) -> None:
        self._begun = monotonic_ns()
        self._said = self._begun
        self._last = (-1, -1)

    def __call__(self, now: Progressed) -> None:
        at = monotonic_ns()
        whole = now.read >= now.total
        if not now.total or (not whole and at - self._said < _LINE_EVERY * 1e9):
            return
        if whole and self._last == (now.read, now.total):
            return  # the sinks are closing
        self._last = (now.read, now.total)
        self._said = at
        rate = _rate(now, self._begun)
        left = "" if whole or not rate else f", {duration((now.total - now.read) / rate)} left"
        note(f"{now.read:,} of {now.total:,} events, {rate:,.0f}/s{left}")


def _rate(now: Progressed, begun: int) -> float:
    return now.read / max(1e-9, (monotonic_ns() - begun) / 1e9)
