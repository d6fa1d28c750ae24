"""The sink interface: what delivers events to one tracker.

A sink is a cursor on the log. Delivery opens it, gives it batches in the log's order, and asks it
to flush and to close; it is the same sink whether the batches are new, caught up after an outage,
replayed from a file, or come in another process.

What a sink can rely on:

* `open`, `write`, `flush` and `close` are called one at a time, all on one thread of the sink's
  own (a synchronous sink) or in the delivery's event loop (a sink whose `write` is ``async``, and
  whose other methods may be).
* A batch is never empty; its events are in the order of the log and have `seq` and `wall`.
* A batch is given again when `write` raised, or when the process died before the batch was
  confirmed. (run, rank, attempt, seq) recognises an event that came before.
* What it raises reaches nobody but the delivery: `UnavailableError` and `OSError` are tried again
  with backoff, `RefusedError` makes it halve the batch and set the culprit aside, anything else
  is tried again a few times and then treated as refused.

What it must not do: block for ever (each call has a deadline; a thread that passes it is given
up; an ``async`` method must not block at all, since it would hold up the other sinks), patch or
hook anything that its user did not ask for, or keep a reference to events' dicts in order to
change them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import msgspec

from eventlog.events import Event, ModelUpdateEvent, Status
from eventlog.log.blobs import blob_file

__all__ = ["CAPABILITIES", "Confirms", "Isolation", "Rewind", "RunInfo", "Sink", "is_async"]

Confirms = Literal["write", "flush", "close"]
Rewind = Literal["purge", "overwrite", "append", "new_run"]
Isolation = Literal["process", "sidecar"]

CAPABILITIES = frozenset(
    {
        "scalars",
        "strings",
        "config",
        "summary",
        "text",
        "image",
        "histogram",
        "table",
        "figure",
        "artifact",
        "model_update",
        "status",
        "custom",
    }
)


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink is told about its run when it is opened, also in the middle of the run.

    Attributes:
        run_id: Unique and stable over attempts.
        alias: What the user calls this sink.
        project, name: As the user gave them; `name` defaults to `run_id`.
        config: Hyperparameters known by now: plain, flattened by nobody yet, secrets redacted.
        tags, group, notes: As given.
        provenance: See `RunStarted`.
        rank, world_size: The process whose log this is.
        attempt: The one that the first event of the first batch belongs to.
        started: When the run began first: wall-clock nanoseconds since 1970, 0 where not known.
        run_dir: The run's directory, or None where the run keeps nothing on disk. Blobs lie in
            ``run_dir / "blobs"``; use `blob_path`.
        directory: Where the sink may put its files; not made yet. None when `run_dir` is.
        model_update: The last model update before the first event to come.
        state: What this sink's `state` was when it was last confirmed, empty at first: the
            tracker's own run id and whatever else it needs to go on with the same tracker run.
        replayed: True when the events come from an earlier run's log.
        outside_files: Whether files that events name, and that lie outside of the run's
            directory, may be read. A replay says no unless its user does: a log may come from
            anybody, and a tracker may be open to many.
    """

    run_id: str
    alias: str = ""
    project: str = ""
    name: str = ""
    config: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    group: str | None = None
    notes: str | None = None
    provenance: dict[str, Any] = {}
    rank: int = 0
    world_size: int = 1
    attempt: int = 1
    started: int = 0
    run_dir: Path | None = None
    directory: Path | None = None
    model_update: ModelUpdateEvent | None = None
    state: dict[str, Any] = {}
    replayed: bool = False
    outside_files: bool = True

    def blob_path(self, sha256: str) -> Path:
        """Return where the blob with that digest lies.

        Raises:
            ValueError: `sha256` is no digest, what lies there is not a file of the run (but a
                link, a device, ...), or the run has no directory.
        """
        if self.run_dir is None:
            raise ValueError("the run has no directory (dir=None), so it keeps no blobs")
        return blob_file(self.run_dir, sha256)


class Sink:
    """Base of all sinks; see the module for the contract.

    Subclasses take their options as keyword arguments of ``__init__``, which must be cheap and
    must not touch the tracker: that is for `open`.

    Class attributes that a sink declares:
        name: What users call it; equals its entry point.
        capabilities: What it can show, of `CAPABILITIES`; the rest is counted as unsupported
            when it arrives. Everything arrives: a sink skips what it cannot show.
        confirms: The call after which what was written is safe: write, flush or close.
        rewind: What happens to points of an earlier attempt after a rewind.
        isolation: Where it runs unless the user says otherwise.
        requires: Modules that must be importable for it, for listings and errors.
    """

    name: ClassVar[str] = ""
    capabilities: ClassVar[frozenset[str]] = frozenset({"scalars"})
    confirms: ClassVar[Confirms] = "write"
    rewind: ClassVar[Rewind] = "append"
    isolation: ClassVar[Isolation] = "process"
    requires: ClassVar[tuple[str, ...]] = ()

    url: str | None = None
    """Where a person can look at the run: an address or a path; known after `open`."""

    run_id: str | None = None
    """The run's id in the tracker; known after `open`."""

    tracker: Any = None
    """The SDK's own object, for what eventlog does not cover."""

    unshown: Mapping[str, int] = MappingProxyType({})
    """What it was given and could not show, counted by reason; for `statistics`."""

    def open(self, run: RunInfo) -> Awaitable[None] | None:
        """Start the tracker's run, or go on with it (see `RunInfo.state`)."""

    def write(self, batch: Sequence[Event]) -> Awaitable[None] | None:
        """Take the batch, whole."""
        raise NotImplementedError(f"{type(self).__name__} must define write(batch)")

    def flush(self) -> Awaitable[None] | None:
        """Bring what was written to where it is safe."""

    def close(self, status: Status) -> Awaitable[None] | None:
        """End the tracker's run with its status and let go of everything."""

    def state(self) -> dict[str, Any]:
        """Return plain values that a later `open` needs; at most 1 KiB as msgpack."""
        return {} if self.run_id is None else {"run_id": self.run_id}

    def target(self) -> str:
        """Return what identifies the place this sink writes to, beside the run's own id.

        Delivery keeps a sink's position for a target: another target starts at the beginning.
        """
        return ""

    @classmethod
    def unready(cls, options: Mapping[str, Any]) -> str | None:
        """Return why the sink cannot work as things stand, and what to do; None when it can.

        Asked before a sink is taken because of ``sinks="all"``, and for listings: without a
        network, without importing the tracker, and without asking anybody.

        Args:
            options: Those that it would be made with.
        """
        return None


def is_async(sink: Sink) -> bool:
    """Whether a sink's `write` is to be awaited in the loop instead of called on a thread."""
    return inspect.iscoroutinefunction(sink.write)
