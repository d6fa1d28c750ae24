"""`RowSink`: what an event comes to in a run's history."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from eventlog.events import (
    ArtifactEvent,
    BlobRef,
    Event,
    HistogramEvent,
    ModelUpdateEvent,
    TableEvent,
)
from eventlog.exceptions import SinkError, UnavailableError
from eventlog.sinks.names import Names
from eventlog.sinks.plain import as_json, flatten, json_text
from eventlog.sinks.tracker import At, TrackerSink
from eventlog_wandb import media
from eventlog_wandb.naming import LONGEST_NAME, clean_name, config_name, media_key, plain
from eventlog_wandb.rows import Columns, Entry, number
from eventlog_wandb.session import Session, staged_in, untouched
from eventlog_wandb.temporary import release
from eventlog_wandb.wandb_file import Mark

__all__ = ["RowSink"]


class RowSink(TrackerSink):
    """Gathers a row for each event of a batch, and sends them in `commit`."""

    buffered: ClassVar[bool] = True
    call_options: ClassVar[frozenset[str]] = frozenset({"aliases", "commit"})

    _artifact_limit: int

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[Entry] = []
        self._session: Session | None = None
        self._mode = ""
        self._rows = 0
        self._first_row = 0
        self._sent = (0, -1)
        self._arrived: Mark | None = None
        self._dirty = False

    def prepare(self) -> None:
        """Get ready for a run that was started."""
        names = None if self.run.directory is None else self.run.directory / "names.json"
        self.names = Names(clean_name, path=names, longest=LONGEST_NAME)
        self._columns = Columns(self.names, self.tracker.define_metric, self.count)
        self._config_names = Names(config_name, longest=LONGEST_NAME)
        self._summary_names = Names(clean_name, longest=LONGEST_NAME)

    # -- what comes to cells ------------------------------------------------------------------

    def numbers(
        self, event: Event, axis: str, at: At, values: Mapping[str, int | float | bool]
    ) -> None:
        row = self._entry(event).row
        for key, value in values.items():
            if key in row and row[key] == value:
                continue  # a value that repeats an axis: {"loss": 0.1, "epoch": 2}
            name = self._columns.name(event, axis, at is not None, key, "scalar")
            row[name] = value if type(value) is float else number(value, self.count)

    def strings(self, event: Event, axis: str, at: At, values: Mapping[str, str]) -> None:
        for key, value in values.items():
            self._put(event, axis, at, key, "string", plain(value, self.count))

    def text(self, event: Event, axis: str, at: At, tag: str, text: str) -> None:
        self._put_file(event, axis, at, tag, "text", media.page(text, self.count))

    def image(
        self,
        event: Event,
        axis: str,
        at: At,
        tag: str,
        images: Sequence[tuple[Path, BlobRef]],
        caption: str | None,
    ) -> None:
        scratch = self._scratch()
        made = [
            found
            for path, blob in images
            if (found := media.image(path, blob, caption, scratch, self.count)) is not None
        ]
        for name, panel in media.panels(tag, made, self.count).items():
            self._put_file(event, axis, at, name, "image", panel)

    def histogram(self, event: HistogramEvent, axis: str, at: At) -> None:
        made = media.histogram(event, self.count)
        if made is not None:
            self._put(event, axis, at, event.tag, "histogram", made)

    def table(self, event: TableEvent, axis: str, at: At) -> None:
        self._put_file(event, axis, at, event.tag, "table", media.table(event, self.count))

    def model_update(self, event: ModelUpdateEvent, axis: str, at: At) -> None:
        text = f"{event.kind}\n\n{as_json(event.summary)}"
        self.text(event, axis, at, "model_update", text)

    def custom(self, event: Event, axis: str, at: At, fields: Mapping[str, Any]) -> None:
        tag = str(event.__struct_config__.tag)
        for key, value in flatten(fields).items():
            shown: Any
            if isinstance(value, int | float):
                shown = number(value, self.count)
            else:
                shown = plain(value if isinstance(value, str) else json_text(value), self.count)
            self._put(event, axis, at, f"{tag}/{key}", "custom", shown)

    # -- what goes beside rows ----------------------------------------------------------------

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        entry = self._entry(event)
        aliases = entry.options.get("aliases")

        def send() -> None:
            made = media.artifact(event, path, self._artifact_limit, self.count)
            with self._staged():
                self.tracker.log_artifact(made, aliases=aliases)

        entry.before.append(send)
        entry.with_files = True

    def config(self, config: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        if self._mode == "disabled":
            return
        told = {
            self._config_names(key, kind="config"): plain(value, self.count)
            for key, value in changed.items()
        }
        with self.outages():
            self.tracker.config.update(told, allow_val_change=True)
        self._dirty = True

    def summary(self, summary: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        if self._mode == "disabled":
            return
        told = {
            self._summary_names(key, kind="summary"): plain(value, self.count)
            for key, value in flatten(changed).items()
        }
        with self.outages():
            self.tracker.summary.update(told)
        self._dirty = True

    # -- sending ------------------------------------------------------------------------------

    def commit(self) -> None:
        pending, self._pending = self._pending, []
        if not pending or self._mode == "disabled":
            return
        with self.outages():
            self.check_alive()
            for entry in pending:
                if entry.here is None or entry.here > self._sent:
                    self._send(entry)
                    self._sent = entry.here or self._sent

    def discard(self) -> None:
        self._pending = []

    @contextlib.contextmanager
    def outages(self) -> Iterator[None]:
        """Tell outages from what is wrong with an event."""
        from wandb.errors import AuthenticationError, CommError

        try:
            yield
        except AuthenticationError as error:
            raise SinkError(f"W&B does not take the key: {error}") from error
        except CommError as error:
            raise UnavailableError(f"W&B cannot be reached: {error}") from error
        except (UnavailableError, TimeoutError):
            raise
        except Exception:
            self.check_alive()
            raise

    def check_alive(self) -> None:
        """Raise `UnavailableError` where the helper process has ended."""
        if self._session is not None and not self._session.alive:
            raise UnavailableError(
                "wandb-core has ended; what is missing arrives with the run's next attempt"
            )

    def _send(self, entry: Entry) -> None:
        self._dirty = True
        if not entry.with_files:
            self._log(entry)
            return
        with untouched():
            for send in entry.before:
                send()
            with self._staged():
                self._log(entry)
        release(entry.row.values())

    def _staged(self) -> AbstractContextManager[None]:
        # copies that wait for being sent: with the run's other files, not in the home directory
        return staged_in(Path(self.tracker.settings.sync_dir) / "staging")

    def _log(self, entry: Entry) -> None:
        if not entry.filled:
            return
        commit = entry.options.get("commit", True) is not False
        if self._has_arrived(entry):
            self._rows += commit
            return
        step = None
        if self._first_row:
            # the files of one offline run count on, so that the server keeps them apart
            step, self._first_row = self._first_row, 0
        self.tracker.log(entry.row, step=step, commit=commit)
        self._rows += commit

    def _has_arrived(self, entry: Entry) -> bool:
        """Whether the server has the row from an earlier process."""
        arrived = self._arrived
        if arrived is None or entry.here is None:
            return False
        return self._rows < arrived.row and entry.here <= (arrived.attempt, arrived.seq)

    def _entry(self, event: Event) -> Entry:
        if self._pending and self._pending[-1].event is event:
            return self._pending[-1]
        here = (event.attempt, event.seq) if event.seq >= 0 else None
        row = self._columns.row(event)
        entry = Entry(event, here, row, self.options(event), places=len(row))
        self._pending.append(entry)
        return entry

    def _put(self, event: Event, axis: str, at: At, key: str, kind: str, value: Any) -> None:
        name = self._columns.name(event, axis, at is not None, key, kind)
        self._entry(event).row[name] = value

    def _put_file(self, event: Event, axis: str, at: At, key: str, kind: str, value: Any) -> None:
        self._put(event, axis, at, media_key(key), kind, value)
        self._entry(event).with_files = True

    def _scratch(self) -> Path:
        return Path(self.tracker.settings.sync_dir) / "tmp" / "eventlog"
