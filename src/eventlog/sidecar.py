"""The delivering process: follows a run's log and runs the sinks that are isolated from training.

It is started by `Run`, one for each run and rank, or by hand::

    python -m eventlog.sidecar runs/digits/20260101-120000-abcdef

It is the same delivery, with the same subscriptions and sinks, over the same files, from the
checkpoints that are there. It ends by itself: when the run has ended and everything is delivered,
or, after the training process died, when what is in the log is delivered or `linger` is over.
"""

from __future__ import annotations

import argparse
import base64
import logging
import os
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec

from eventlog._config import redact_text
from eventlog._loop import Waker
from eventlog._paths import decode_file, replace_file
from eventlog._platform import give_way
from eventlog._secrets import remember_secrets
from eventlog._settings import load_settings
from eventlog._standstill import Standstill
from eventlog._terms import DEADLINES, RETRY, Deadlines, Retry, kept_terms
from eventlog._visible import visible
from eventlog.delivery import Delivery, Port, SinkStatistics
from eventlog.exceptions import EventlogError, SinkError
from eventlog.keeping import DeadLetters, Keeper
from eventlog.log.archive import Log, open_log
from eventlog.log.follow import FollowSource
from eventlog.recorder import rank_directory, sink_directory
from eventlog.sinks._thread import SinkThread
from eventlog.sinks._told import told_text
from eventlog.sinks.base import RunInfo, Sink
from eventlog.sinks.plan import PLAN, read_plan
from eventlog.sinks.select import SinkSpec
from eventlog.subscription import Subscription

__all__ = [
    "Orders",
    "SidecarStatus",
    "SinkReport",
    "deliver_plan",
    "main",
    "read_status",
    "status_path",
]

logger = logging.getLogger("eventlog")

NICE = 10
"""How far the process that a run starts stands back behind it, in the system's own terms."""
LINGER = 600.0
REPORT_EVERY = 0.1
REPORT_ANYWAY = 1.0
ALLOW = "EVENTLOG_ALLOW"
"""The environment variable that names, with commas, the sinks' code that may be imported."""
MARGIN = 5.0
"""Seconds that a loop may be held up beside what its sinks are granted."""
BROKEN = 70
"""Exit code after a fault of ours: it is worth another try."""
INTERRUPTED = 130


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a run hands to the process that it starts, in private: it comes by standard input.

    Secrets in it are neither in a file nor in the list of processes nor in an environment that
    other programs inherit.

    Attributes:
        options: Of the sinks, by alias, what is not kept with the run.
        deadlines, retry: What the run grants its sinks.
        allowed: Classes of sinks, as ``module:Class``, that may be imported: what was kept with
            the run alone names no code.
    """

    options: dict[str, dict[str, Any]] = {}
    deadlines: Deadlines = DEADLINES
    retry: Retry = RETRY
    allowed: list[str] = []

    def write(self) -> bytes:
        """Return them as the line that `read` takes."""
        return base64.b64encode(msgspec.msgpack.encode(self, enc_hook=str)) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Orders:
        """Return what `write` made.

        Raises:
            EventlogError: It is something else.
        """
        try:
            read = msgspec.msgpack.decode(base64.b64decode(line.strip(), validate=True), type=cls)
        except (ValueError, msgspec.MsgspecError, RecursionError):
            raise EventlogError("standard input has no orders of a run") from None
        # what a sink's SDK says must not tell them
        remember_secrets(read.options)
        return read


class SinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a sink in the delivering process is."""

    state: str = "waiting"
    url: str | None = None
    run_id: str | None = None
    error: str | None = None
    flushed_to: int = 0
    statistics: dict[str, Any] = {}


class SidecarStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the delivering process says of itself, in a file that it replaces as things change.

    Attributes:
        pid: Its own.
        token: What the run that started it chose for it; None when it was started by hand. A
            process's id would not do: in a container, each trainer's is 1.
    """

    pid: int
    token: str | None = None
    sinks: dict[str, SinkReport] = {}


def status_path(run_dir: Path, rank: int) -> Path:
    """Return where the delivering process of a rank says how it is."""
    return rank_directory(run_dir, rank) / "sidecar.json"


def read_status(run_dir: Path, rank: int) -> SidecarStatus | None:
    """Return what the delivering process said last; None when it has not yet."""
    try:
        return decode_file(status_path(run_dir, rank), SidecarStatus)
    except (OSError, ValueError):
        return None


def _kept_specs(log: Log, aliases: Collection[str] | None) -> list[SinkSpec]:
    """Return those of a run's kept sinks that are to be delivered to.

    Raises:
        LogError: What was kept cannot be read.
        EventlogError: An alias is none that was kept.
    """
    kept = read_plan(log.run_dir)
    known = [spec.alias for spec in kept]
    for alias in aliases or ():
        if alias not in known:
            have = ", ".join(known) or "none"
            raise EventlogError(f"{alias!r} is no sink in {log.run_dir / PLAN}; it has: {have}")
    if aliases is None:
        return [spec for spec in kept if not log.rank or spec.ranks == "all"]
    return [spec for spec in kept if spec.alias in aliases]


def _check_allowed(spec: SinkSpec, orders: Orders) -> None:
    """Let no file in a run's directory have code imported that was not installed as a sink.

    Raises:
        SinkError: It names code that nobody who runs this has named.
    """
    allowed = {*orders.allowed, *os.environ.get(ALLOW, "").split(",")}
    if ":" in spec.name and spec.name not in allowed:
        raise SinkError(
            f"the run's {PLAN} names code, which is imported only if you say so: "
            f"--allow {visible(spec.name)}, or the same in {ALLOW}"
        )


def _options_of(spec: SinkSpec, orders: Orders) -> dict[str, Any]:
    """Return a kept sink's options, with those that were not kept.

    Raises:
        SinkError: One of them is not to be had: the sink would write to another place.
    """
    given = orders.options.get(spec.alias, {})
    lacking = [name for name in spec.withheld if name not in given]
    said = load_settings().options.get(spec.alias, {}) if lacking else {}
    for name in lacking:
        if name not in said:
            raise SinkError(
                f"its option {name} holds a secret and was not kept with the run: give it in "
                f"[tool.eventlog.options.{spec.alias}] of pyproject.toml"
            )
    return (spec.options or {}) | {name: said[name] for name in lacking} | given


async def _make(spec: SinkSpec, orders: Orders) -> Sink:
    """Import and make a sink, on a thread: one that hangs is to hold up none but itself.

    Raises:
        Exception: It cannot be made.
    """
    _check_allowed(spec, orders)
    whole = msgspec.structs.replace(spec, options=_options_of(spec, orders))
    what = f"sink {spec.alias!r}: to import and make it"
    thread = SinkThread(spec.alias)
    try:
        return await thread.call(whole.make, what, orders.deadlines.open)
    finally:
        thread.stop()


def _port(
    log: Log,
    source: FollowSource,
    spec: SinkSpec,
    sink: Sink,
    attempt: int | None,
    orders: Orders,
) -> Port:
    """Make the port of a sink, which goes on from its checkpoint."""
    subscription = Subscription(
        source,
        types=spec.types,
        every=spec.every,
        reduce=spec.reduce,
        keys=spec.keys,
        # what was thrown away on purpose is not lost to a sink that comes later
        start=source.first,
    )
    header = log.header()
    return Port(
        spec.alias,
        sink,
        subscription,
        partial(_info, log, source, subscription, spec.alias, attempt),
        deadlines=orders.deadlines,
        retry=orders.retry,
        keeper=partial(Keeper, log.directory, spec.alias, sink),
        dead_letters=DeadLetters(
            log.run_dir,
            spec.alias,
            run_id=header.run_id if header else log.run_dir.name,
            project=header.project if header else "",
            rank=log.rank,
        ),
        rate=spec.rate,
        status=lambda: source.status,
    )


def _info(
    log: Log,
    source: FollowSource,
    subscription: Subscription,
    alias: str,
    attempt: int | None,
    state: dict[str, Any],
) -> RunInfo:
    info = log.run_info(subscription.cursor)
    if attempt is not None and subscription.cursor >= source.end:
        # the first event to come is not in the log yet
        info = msgspec.structs.replace(info, attempt=max(attempt, info.attempt))
    return msgspec.structs.replace(
        info,
        alias=alias,
        directory=sink_directory(log.run_dir, alias, log.rank),
        state=state,
        replayed=False,
        outside_files=True,
    )


async def deliver_plan(
    log: Log,
    aliases: Collection[str] | None = None,
    *,
    follow: bool = True,
    parent: int | None = None,
    attempt: int | None = None,
    linger: float = LINGER,
    orders: Orders | None = None,
    report: Callable[[dict[str, SinkReport]], None] | None = None,
    stuck: Callable[[str], None] | None = None,
) -> dict[str, SinkStatistics]:
    """Deliver a run's log to its kept sinks, from their checkpoints on, until it ends.

    Args:
        log: The run's.
        aliases: Which sinks; all that were kept when None.
        follow: Whether to wait for a run that still goes on; otherwise what is there now.
        parent, attempt: The process that writes the log, where this one is its child, and with
            which attempt it began; see `FollowSource`.
        linger: Most seconds after the end of the log.
        orders: The sinks' further options, and what they are granted; by default what the run
            granted them.
        report: Told how the sinks are, when that changes.
        stuck: Called on a thread when an async sink has blocked the loop for longer than its call
            may take, with the name of the call.

    Returns:
        What each sink took; one that could not be made took nothing and has failed.

    Raises:
        LogError: What was kept of the sinks cannot be read.
        EventlogError: An alias is none that was kept.
    """
    if orders is None:
        deadlines, retry = kept_terms(log.run_dir)
        orders = Orders(deadlines=deadlines, retry=retry)
    lives = None if follow else lambda: False
    source = FollowSource(log.directory, writer_lives=lives, parent=parent, attempt=attempt)
    source.look()
    specs = _kept_specs(log, aliases)
    ports: list[Port] = []
    failed: dict[str, str] = {}

    async def deliver_to(spec: SinkSpec) -> None:
        try:
            sink = await _make(spec, orders)
            port = _port(log, source, spec, sink, attempt, orders)
        except Exception as error:  # a sink of anybody's, and a plan that may be edited by hand
            failed[spec.alias] = redact_text(str(error)) or type(error).__name__
            logger.error("eventlog: sink %r: %s", spec.alias, failed[spec.alias])
            return
        ports.append(port)
        delivery = Delivery(source)
        delivery.add(port)
        await delivery.run()

    say = _Reporter(ports, failed, report)
    async with anyio.create_task_group() as group:
        group.start_soon(source.watch)
        group.start_soon(say.run)
        group.start_soon(_limit, source, linger, group.cancel_scope)
        if stuck is not None:
            group.start_soon(Standstill(MARGIN, stuck).watch)
        async with anyio.create_task_group() as deliveries:
            for spec in specs:
                deliveries.start_soon(deliver_to, spec)
        group.cancel_scope.cancel()
    say.now()
    taken = {port.alias: port.statistics() for port in ports}
    for alias, problem in failed.items():
        taken[alias] = SinkStatistics(state="failed", error=problem)
    return taken


async def _limit(source: FollowSource, linger: float, scope: anyio.CancelScope) -> None:
    """End everything when the log has ended and `linger` seconds have passed."""
    waker = Waker()
    unlisten = source.listen(waker)
    while not source.closed:
        await waker.wait()
    unlisten()
    await anyio.sleep(linger)
    logger.warning("eventlog: giving up after %g s; `eventlog replay --pending` goes on", linger)
    scope.cancel()


class _Reporter:
    """Says how the sinks are, ten times a second at most, when it has changed."""

    def __init__(
        self,
        ports: list[Port],
        failed: dict[str, str],
        report: Callable[[dict[str, SinkReport]], None] | None,
    ) -> None:
        self._ports = ports
        self._failed = failed
        self._report = report
        self._last: dict[str, SinkReport] | None = None
        self._said_at = 0.0

    def now(self) -> None:
        if self._report is None:
            return
        reports = {
            alias: SinkReport(state="failed", error=problem)
            for alias, problem in self._failed.items()
        }
        for port in self._ports:
            reports[port.alias] = SinkReport(
                state=port.state,
                url=told_text(port.sink, "url"),
                run_id=told_text(port.sink, "run_id"),
                error=port.error,
                flushed_to=port.flushed_to,
                statistics=msgspec.to_builtins(port.statistics()),
            )
        # also now and then without news: the file may have been removed, or be somebody else's
        if reports != self._last or time.monotonic() - self._said_at > REPORT_ANYWAY:
            self._report(reports)
            self._last = reports
            self._said_at = time.monotonic()

    async def run(self) -> None:
        while True:
            self.now()
            await anyio.sleep(REPORT_EVERY)


class _StatusFile:
    """Where the process says how it is; a disk that does not take it is mentioned once."""

    def __init__(self, path: Path, token: str | None) -> None:
        self._path = path
        self._token = token
        self._failed = False

    def write(self, sinks: dict[str, SinkReport]) -> None:
        status = SidecarStatus(pid=os.getpid(), token=self._token, sinks=sinks)
        try:
            replace_file(self._path, msgspec.json.encode(status))
        except Exception as error:  # a disk, or what a sink says of itself
            if not self._failed:
                logger.warning("eventlog: %s cannot be written: %s", self._path, error)
            self._failed = True


class _Redacting(logging.Formatter):
    """Leaves secrets out of what goes to a file in the run's directory, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record))


def _wait_for_log(run_dir: Path, rank: int, seconds: float) -> Log:
    """Open a log that its writer may be about to make."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            log = open_log(run_dir, rank)
            if log.header() is not None:
                return log
        except EventlogError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise EventlogError(f"{run_dir} has no log of rank {rank} that can be read")
        time.sleep(0.01)


def main(arguments: list[str] | None = None) -> int:
    """Run the delivering process.

    Returns:
        Its exit code: 0 when every sink took everything, 1 when one did not, 2 when the log or
        the plan cannot be read or has no such sink, 130 after Ctrl-C, `BROKEN` after a fault of
        ours.
    """
    parser = argparse.ArgumentParser(
        prog="python -m eventlog.sidecar",
        description="Deliver a run's log to its sinks, from where they are, until the run ends.",
    )
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--sink", action="append", help="an alias; all that were kept by default")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="MODULE:CLASS", help="code of a sink that "
        "the run's list of sinks names and that may be imported"
    )  # fmt: skip
    parser.add_argument("--linger", type=float, default=LINGER, help="seconds after the run's end")
    # for the run that starts this process
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attempt", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--token", help=argparse.SUPPRESS)
    parser.add_argument("--orders", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    output = logging.StreamHandler()
    output.setFormatter(_Redacting("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[output])
    if options.parent is not None:
        give_way(NICE)  # the training's data loaders have a better use for the processor
    try:
        orders = _take_orders() if options.orders else None
        if options.allow and orders is None:
            deadlines, retry = kept_terms(options.run_dir)
            orders = Orders(deadlines=deadlines, retry=retry, allowed=options.allow)
        # a run that starts this process is about to make its log
        patience = 0.0 if options.parent is None else 10.0
        log = _wait_for_log(options.run_dir, options.rank, patience)
        status = _StatusFile(status_path(log.run_dir, log.rank), options.token)
        statistics = anyio.run(
            partial(
                deliver_plan,
                log,
                options.sink,
                parent=options.parent,
                attempt=options.attempt,
                linger=options.linger,
                orders=orders,
                report=status.write,
                stuck=_end_stuck,
            )
        )
    except EventlogError as error:
        print(f"eventlog: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("eventlog: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return INTERRUPTED
    except BaseException:
        logger.exception("eventlog: the sidecar failed")
        return BROKEN
    return 0 if all(s.state == "closed" for s in statistics.values()) else 1


def _end_stuck(what: str) -> None:
    """End a process whose loop does not turn: nothing else in it could, and it would stay."""
    logger.error(
        "eventlog: the sidecar is ended: an async sink blocks its loop, and so all others, in %s",
        what,
    )
    os._exit(BROKEN)


def _take_orders() -> Orders:
    """Read what the run says, and leave nothing of it for a tracker that reads standard input."""
    # a line, not all: a process that the trainer forked may hold the other end open for long
    line = sys.stdin.buffer.readline()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return Orders.read(line)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # a tracker's own exit hooks have had their turn in close(); nothing may hold the process up
    os._exit(code)
