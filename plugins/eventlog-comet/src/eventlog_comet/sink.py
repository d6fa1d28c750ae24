"""`CometSink`: from events to a Comet experiment, online or as an archive for later."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeGuard

from eventlog.events import Event, Status
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import CAPABILITIES, Confirms, Isolation, Rewind, RunInfo
from eventlog.sinks.plain import json_text
from eventlog_comet import sdk
from eventlog_comet.keys import has_api_key
from eventlog_comet.online import PointsOnline
from eventlog_comet.pages import CometPages
from eventlog_comet.spool import Spool
from eventlog_comet.values import clean_name, scalar, whole_text

__all__ = ["CometSink"]

_PATIENCE = 20.0  # seconds that a call waits for the SDK's thread
_BACKLOG = 20_000  # messages that may wait for it


class CometSink(CometPages):
    """Shows a run in Comet: offline, as archives for ``comet upload``, or online.

    Args:
        project: Comet's project; by default the run's.
        workspace: Comet's workspace; by default what Comet's own settings say.
        online: Whether the run is sent to Comet's server while it goes on; this needs an API key
            in Comet's own settings (`comet login`, or ``COMET_API_KEY``).
        dir: Where archives go; by default the place that eventlog offers, in the run's directory,
            or ``.cometml-runs`` for a run without one.
        experiment_key: The experiment to go on with, or to make: 32 to 50 letters and digits.
        server: Address of a Comet server of your own; ``COMET_URL_OVERRIDE`` has precedence.
        sdk_options: Arguments of `comet_ml.ExperimentConfig` by their names there, such as
            ``{"log_env_details": True}``. All that the SDK collects by itself is off without.

    Raises:
        ValueError: An option is not what it must be.
    """

    name: ClassVar[str] = "comet"
    capabilities: ClassVar[frozenset[str]] = CAPABILITIES
    confirms: ClassVar[Confirms] = "flush"
    rewind: ClassVar[Rewind] = "append"
    isolation: ClassVar[Isolation] = "sidecar"
    requires: ClassVar[tuple[str, ...]] = ("comet_ml",)
    call_options: ClassVar[frozenset[str]] = frozenset({"epoch", "include_context", "step"})

    def __init__(
        self,
        *,
        project: str | None = None,
        workspace: str | None = None,
        online: bool = False,
        dir: str | os.PathLike[str] | None = None,
        experiment_key: str | None = None,
        server: str | None = None,
        sdk_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        _check_text("project", project)
        _check_text("workspace", workspace)
        _check_text("server", server)
        if not isinstance(online, bool):
            raise ValueError(f"online must be True or False, not {online!r}")
        if experiment_key is not None and not _is_key(experiment_key):
            raise ValueError(
                f"experiment_key must be 32 to 50 letters and digits, not {experiment_key!r}"
            )
        options = {} if sdk_options is None else sdk_options
        if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
            raise ValueError(f"sdk_options must be a mapping of names, not {sdk_options!r}")
        self._project, self._workspace, self._server = project, workspace, server
        self._online, self._key = online, experiment_key
        self._dir = None if dir is None else Path(dir)
        self._options = dict(options)
        self._spool: Spool | None = None
        self._held = ExitStack()

    @classmethod
    def unready(cls, options: Mapping[str, Any]) -> str | None:
        """Return that there is no API key, where one is needed."""
        if not options.get("online") or has_api_key():
            return None
        return "online=True needs an API key: run `comet login`, or set COMET_API_KEY"

    def target(self) -> str:
        """Return where the experiment is kept."""
        if not self._online:
            place = "" if self._dir is None else os.path.abspath(self._dir)
            return f"offline:{place}:{self._key or ''}"
        server = os.environ.get("COMET_URL_OVERRIDE") or self._server
        parts = (server, self._workspace, self._project, self._key)
        return "online:" + ":".join(part or "" for part in parts)

    def start(self, run: RunInfo) -> None:
        """Make the experiment, or go on with it; what a killed process left becomes an archive."""
        why = self.unready({"online": self._online})
        if why is not None and not sdk.has_key():
            raise RefusedError(why)
        saved = run.state.get("run_id")
        key = self._key or (saved if _is_key(saved) else uuid.uuid4().hex)
        resumed = key == saved
        self._had_attempts = resumed or (self._key is not None and run.attempt > 1)
        home = (self._dir or run.directory or Path(".cometml-runs")).absolute()
        home.mkdir(parents=True, exist_ok=True)
        if not self._online:
            self._spool = Spool(home, key, run.rank, owned=self._dir is None)
            if resumed and not self._spool.recover(run.state):
                self.count("archive of an earlier process that is gone")
        experiment = sdk.start(
            sdk.Experiment(
                key=key,
                online=self._online,
                directory=home,
                spool=home if self._spool is None else self._spool.folder,
                project=self._project or run.project or None,
                workspace=self._workspace,
                server=self._server,
                options=self._options,
            ),
            self._held,
        )
        if self._spool is None:
            self._points_online = PointsOnline(experiment, self.count)
            self.set_up(experiment, self._points_online.put, run.directory)
            self.url = experiment.url
        else:
            self.set_up(experiment, experiment.streamer.put_message_in_q, run.directory)
            self.url = str(self._spool.adopt(experiment))
        self.run_id = key
        if not resumed:
            self._introduce(run)

    def write(self, batch: Sequence[Event]) -> None:
        """Give the batch to the SDK, unless it has lost its server."""
        self._check_started()
        if self._online and not self.tracker.streamer.has_connection_to_server():
            raise UnavailableError("Comet's server cannot be reached")
        super().write(batch)

    # -- delivery -----------------------------------------------------------------------------

    def commit(self) -> None:
        """Send points that are due, or wait where the SDK's thread is far behind."""
        self._parameters.save()
        if self._spool is None:
            self._points_online.send_due()
        queue = self.tracker.streamer.messages
        end = time.monotonic() + _PATIENCE
        while queue.qsize() > _BACKLOG:
            if time.monotonic() > end:
                raise UnavailableError("Comet's SDK does not keep up")
            time.sleep(0.01)

    def flush(self) -> None:
        """Have everything written, or sent.

        Raises:
            UnavailableError: That takes too long, or the server cannot be reached.
        """
        self._check_started()
        if self._spool is not None:
            lost = self._spool.flush(_PATIENCE)
            if lost is not None:
                self.count(f"message that Comet's SDK lost: {lost}")
            return
        self._points_online.send()
        streamer = self.tracker.streamer
        # the SDK's flush waits for ever for a thread that has ended
        if not streamer.is_alive() or not self.tracker.flush(timeout=int(_PATIENCE)):
            raise UnavailableError("Comet's SDK did not send everything in time")
        if not streamer.has_connection_to_server():
            raise UnavailableError("Comet's server cannot be reached")

    def finish(self, status: Status, error: str | None) -> None:
        """Tell the status, and end the experiment; offline, make its archive."""
        self._place(None, None)
        self._other("run/status", status)
        if error is not None:
            self._other("run/error", error)
        elif self._had_attempts:
            # Comet forgets no value: this one replaces the former attempt's
            self._other("run/error", "-")
        if status in ("failed", "killed"):
            # what makes Comet show a run as crashed; there is no call of the public interface
            with suppress(AttributeError, TypeError):
                self.tracker._report_experiment_error(error or status, has_crashed=True)
        with self._held:
            self.tracker.end()
        if self._spool is not None:
            self.url = str(self._spool.finish())

    def memory(self) -> dict[str, Any]:
        """Return where the files are that are no archive yet."""
        return {} if self._spool is None else self._spool.state()

    # -- inside -------------------------------------------------------------------------------

    def _introduce(self, run: RunInfo) -> None:
        """Tell what concerns the whole run."""
        if run.name:
            self.tracker.set_name(str(scalar(run.name, self.count, "name")))
        tags = [clean_name(whole_text(tag)) for tag in run.tags if tag]
        if tags:
            self.tracker.add_tags(tags)
        self.tracker.log_other("Created from", "eventlog")
        facts: dict[str, Any] = {"id": run.run_id, "group": run.group, "notes": run.notes}
        if run.world_size > 1:
            facts |= {"rank": run.rank, "world_size": run.world_size}
        for name, value in facts.items():
            if value is not None:
                self._other(f"run/{name}", value, name)
        if run.provenance:
            text = json_text(run.provenance).encode("utf-8", "replace")
            self._media.data("provenance.json", text)


def _check_text(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError(f"{name} must be a text that is not empty, not {value!r}")


def _is_key(key: object) -> TypeGuard[str]:
    return isinstance(key, str) and key.isascii() and key.isalnum() and 32 <= len(key) <= 50
