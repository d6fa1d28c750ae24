"""The recorder: inbox, writer, cache and files of one rank's log, put together.

`EventBus` and `Run` each have one; it knows nothing of either.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from eventlog._device import DeviceError, Fetched, fetch, fetch_jax
from eventlog._media import PendingValues, Sized
from eventlog._names import safe_name
from eventlog._paths import own_directory
from eventlog._platform import FileLock
from eventlog._rejections import Rejections
from eventlog._values import Snapshot, clean_axes, snapshot
from eventlog._version import __version__
from eventlog.clock import SYSTEM_CLOCK, Clock
from eventlog.codec import decode_events
from eventlog.events import BatchEvent, EpochEvent, Event, StepEvent
from eventlog.exceptions import CodecError, LogError
from eventlog.log.blobs import BlobStore
from eventlog.log.checkpoint import highest_seq
from eventlog.log.disk import OS_FILES, Files
from eventlog.log.files import last_valid_seq
from eventlog.log.inbox import Inbox
from eventlog.log.layout import Content
from eventlog.log.live import LiveSource
from eventlog.log.segment_reader import Segment, latched_events, list_segments
from eventlog.log.source import TailCache
from eventlog.log.writer import SEGMENT_BYTES, LogWriter, Writer

__all__ = ["Recorder", "rank_directory", "sink_directory"]


def rank_directory(run_dir: Path, rank: int) -> Path:
    """Return where the log of a rank lies."""
    return run_dir / f"rank-{rank}"


def sink_directory(run_dir: Path, alias: str, rank: int) -> Path:
    """Return where a sink that follows the log of a rank may put its files.

    Raises:
        OSError: There is a link in its place, which may lead out of the run.
    """
    names = [safe_name(alias)] + ([f"rank-{rank}"] if rank else [])
    return own_directory(run_dir, *names)


class Recorder:
    """One log, open for writing; at most one process may have it open.

    Args:
        run_dir: The run's directory; None keeps everything in memory.
        run_id, project, rank: What the log says of itself.
        attempt: Of the first events; None for one more than the log has had.
        inbox, cache: With other bounds than usual.
        strict: Raise for values that cannot be recorded.
        segment_bytes: When the log goes on in another file.
        clock, files: For tests.

    Attributes:
        attempt: The attempt that begins with this recorder.
        quiet: Whether nothing is recorded, because another rank does it.
        absence: What is counted in a process that has only a copy of this.

    Raises:
        LogError: Another process has the log open, or it cannot be made.
    """

    quiet = False
    absence = "forked"

    def __init__(
        self,
        run_dir: Path | None,
        *,
        run_id: str,
        project: str = "",
        rank: int = 0,
        attempt: int | None = None,
        inbox: Inbox | None = None,
        cache: TailCache | None = None,
        strict: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Clock = SYSTEM_CLOCK,
        files: Files = OS_FILES,
    ) -> None:
        self.run_dir = run_dir
        self.inbox = inbox or Inbox()
        self.cache = cache or TailCache()
        self.clock = clock
        self.blobs: BlobStore | None = None
        self.rejections = Rejections(strict)
        self.pid = os.getpid()
        self._abandoned = False
        self._held: FileLock | None = None
        self._moved: Callable[[], None] = lambda: None
        first_seq, last_attempt = 0, 0
        latched: list[Event] = []
        log: LogWriter | None = None
        if run_dir is not None:
            directory = rank_directory(run_dir, rank)
            try:
                own_directory(run_dir, directory.name)
                directory.mkdir(parents=True, exist_ok=True)
                self._lock(directory)
                first_seq, last_attempt = _where_it_ended(directory)
                latched = _latched_at_the_end(directory)
            except OSError as error:
                if self._held is not None:
                    self._held.release()
                raise LogError(f"cannot open a log in {directory}: {error}") from error
            self.blobs = BlobStore(run_dir, files)
        self.attempt = last_attempt + 1 if attempt is None else attempt
        if run_dir is not None:
            log = LogWriter(
                rank_directory(run_dir, rank),
                run_id=run_id,
                project=project,
                rank=rank,
                attempt=self.attempt,
                files=files,
                segment_bytes=segment_bytes,
                writer=f"eventlog {__version__}",
            )
            log.moved = self._lock_again
            log.removed = self._is_unlocked
            log.before_sync = self._sync_blobs
        self._log = log
        self.writer = Writer(
            self.inbox,
            self.cache,
            log,
            clock=clock,
            first_seq=first_seq,
            attempt=self.attempt,
            rank=rank,
            latched=latched,
        )
        self.source = LiveSource(self.cache, log)
        _recorders.add(self)

    def _lock(self, directory: Path) -> None:
        self._held = FileLock(directory / "lock")
        if not self._held.acquire():
            raise LogError(
                f"{directory} is being written by another process; end it first, or choose "
                "another run"
            )

    def _is_unlocked(self) -> bool:
        """Whether the lock's file is gone: then so is the directory that the log was made in.

        It may be there again: whoever writes in it, a sink's position say, makes it.
        """
        return self._held is not None and self._held.gone

    def _lock_again(self) -> None:
        """Lock the directory that the writer had to make anew: the old lock went with the old one.

        Nothing can be done where somebody else was faster; the writer goes on.
        """
        self._moved()
        old = self._held
        if old is not None and self.run_dir is not None:
            with contextlib.suppress(OSError, LogError):
                self._lock(old.path.parent)
            if self._held is not old:
                old.release()

    def _sync_blobs(self) -> None:
        if self.blobs is not None:
            self.blobs.sync()

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that opened the log."""
        return os.getpid() != self.pid

    def offer(
        self, event: Event, values: Mapping[Any, Any] | None = None, *, reserved: bool = False
    ) -> bool:
        """Put an event in the inbox, with values of any kind made plain.

        Args:
            event: Without a place in the log.
            values: Its values as the user gave them; None when it has them already.
            reserved: See `Inbox.put`.

        Returns:
            False when it was dropped; that is counted.

        Raises:
            ValueRejectedError: In strict mode.
        """
        if self.foreign:
            # a fork that went past Python's hooks: nobody would take what is put here
            if self.inbox.room:
                self.inbox.abandon()
            self.inbox.drop(self.absence)
            return False
        event, rejected = clean_axes(event)
        if rejected:
            self.rejections.add(rejected)
        if values is None:
            size = _size_of(event)
            item = event if size <= _SMALL else Sized(event, size)
            return self.inbox.put(item, size=size, reserved=reserved)
        made = snapshot(values)
        fetched = self._fetch(made) if made.pending else []
        if made.rejected:
            self.rejections.add(made.rejected)
            if not made.values and not fetched and values and not reserved:
                self.inbox.drop("no_value")
                return False
        event = msgspec.structs.replace(event, values=made.values)
        size = _size_of(event)
        if fetched:
            pending = PendingValues(event, fetched, size)
            return self.inbox.put(pending, size=pending.size, reserved=reserved)
        if size > _SMALL:
            return self.inbox.put(Sized(event, size), size=size, reserved=reserved)
        return self.inbox.put(event, reserved=reserved)

    def _fetch(self, made: Snapshot) -> list[Fetched]:
        """Have the values copied that lie on a device; what cannot be is rejected."""
        tensors: dict[str, Any] = {}
        fetched: list[Fetched] = []
        for key, value in made.pending.items():
            if hasattr(value, "copy_to_host_async"):
                try:
                    fetched.append(fetch_jax(key, value))
                except Exception as error:  # deleted, or inside a computation that is traced
                    made.rejected.append((key, "device", f"{type(error).__name__}: {error}"))
            else:
                tensors[key] = value
        if tensors:
            try:
                fetched += fetch(tensors)
            except DeviceError as error:
                made.rejected += [(key, "graph_capture", str(error)) for key in tensors]
            except Exception as error:  # whatever a device's own library says
                problem = f"{type(error).__name__}: {error}"
                made.rejected += [(key, "device", problem) for key in tensors]
        return fetched

    def on_move(self, then: Callable[[], None]) -> None:
        """Have `then` called, on the writer's thread, after the directory had to be made again."""
        self._moved = then

    def on_rotation(self, then: Callable[[], None]) -> None:
        """Have `then` called, on the writer's thread, each time a segment was sealed."""
        if self._log is not None:
            self._log.rotated = then

    @property
    def abandoned(self) -> bool:
        """Whether this is a forked child's copy that was made harmless."""
        return self._abandoned

    def abandon(self) -> None:
        """Make a forked child's copy harmless: it takes nothing and waits for nobody."""
        self._abandoned = True
        self.inbox.abandon()
        self.rejections = Rejections()

    def start(self) -> None:
        """Start the writer's threads."""
        self.writer.start()

    def stop(self, timeout: float | None) -> bool:
        """Take nothing more, write what is left; False when that takes longer than `timeout`."""
        if self.foreign:
            return True
        self.inbox.refuse("closed")
        done = self.writer.stop(timeout)
        if done:
            self._let_go()
        else:
            # the log is free once its last event is in it, also where nobody waits for that;
            # no thread is started any more when the interpreter ends, which lets go by itself
            late = threading.Thread(target=self._let_go_late, name="eventlog-end", daemon=True)
            with contextlib.suppress(RuntimeError):
                late.start()
        return done

    def _let_go_late(self) -> None:
        self.writer.stop(None)
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.release()


_SMALL = 4096
_SCALARS = (StepEvent, BatchEvent, EpochEvent)
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _abandon_recorders() -> None:
    """Make a forked child's copies of its parent's recorders harmless."""
    for recorder in list(_recorders):
        recorder.inbox.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_recorders)


def _size_of(event: Event) -> int:
    """Return the bytes that an event takes over those of a small one, about."""
    values = event.values
    size = sum(len(v) for v in values.values() if type(v) is str) + 60 * max(0, len(values) - 6)
    if len(values) > 6:
        size += sum(map(len, values))
    if type(event) not in _SCALARS:
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, str | bytes):
                size += len(value)
            elif isinstance(value, list | dict) and value is not values:
                size += 64 * len(value)
    return size


def _latched_at_the_end(directory: Path) -> list[Event]:
    """Return what said how the run stood when the log ended: for the next segment's header."""
    latched: list[Event] = []
    for _, path in reversed(list_segments(directory)):
        segment = Segment(path)
        try:
            if segment.header is None:
                continue
            latched = latched_events(segment)
            for block in segment.scan():
                if block.header.flags & (Content.RUN | Content.MODEL):
                    with contextlib.suppress(CodecError):
                        latched += decode_events(segment.payload(block))
            break
        finally:
            segment.close()
    return latched


def _where_it_ended(directory: Path) -> tuple[int, int]:
    """Return the seq after the last event of a log, and its last attempt; (0, 0) for a new one."""
    attempt = 0
    for _, path in list_segments(directory):
        segment = Segment(path)
        if segment.header is not None:
            attempt = max(attempt, segment.header.attempt)
        segment.close()
    # events that a sink was given, but that a loss of power took from the log, keep their seq
    return max(last_valid_seq(directory), highest_seq(directory)), attempt
