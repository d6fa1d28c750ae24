"""`MlflowSink`: a run of MLflow, from its start to its end."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from eventlog.clock import wall_ns
from eventlog.events import Event, Status
from eventlog.exceptions import RefusedError, UnavailableError
from eventlog.sinks.base import CAPABILITIES, Confirms, Isolation, Rewind, RunInfo
from eventlog_mlflow import media
from eventlog_mlflow.bulk import fast_way
from eventlog_mlflow.naming import Tables
from eventlog_mlflow.options import check_mapping, check_text
from eventlog_mlflow.outbox import File, Outbox
from eventlog_mlflow.places import (
    Place,
    RunMaker,
    existing_run,
    experiment_of,
    has_database,
    plain_uri,
)
from eventlog_mlflow.repeats import Repeats
from eventlog_mlflow.sdk import calls, let_go, system_monitor
from eventlog_mlflow.shows import Shows, plain_text

__all__ = ["MlflowSink"]

_STATUSES: Mapping[Status, str] = {
    "finished": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
    "killed": "KILLED",
}
_ERROR = "eventlog.error"
_END_SECONDS = 10.0
_LONGEST_NAME = 250  # a run's name is a column of that width in a database
_OWN_OPTIONS = ("log_system_metrics", "resolve_tags")


class MlflowSink(Shows):
    """Shows a run in MLflow: in a server, in a database, or in files.

    Args:
        tracking_uri: Where, as MLflow takes it. By default ``MLFLOW_TRACKING_URI``, or else a
            SQLite database in `dir`; files there, where only ``mlflow-skinny`` is installed.
        dir: The folder for a local place; by default the one that eventlog offers, in the run's
            directory, or ``mlruns`` for a run without one.
        experiment: By default the run's project, or ``eventlog``.
        run_id: An MLflow run to go on with.
        parent_run_id: An MLflow run to show this one below.
        tags: Tags beside those of the run, by name; also MLflow's own, ``mlflow.user``.
        direct: Whether points go into a local SQLite database by one statement for a batch,
            which is five times faster than `MlflowClient.log_batch`.
        sdk_options: For ``MlflowClient``, by its own names, and two that are off otherwise:
            ``log_system_metrics`` and ``resolve_tags``, which adds MLflow's own tags of who
            runs what, the git commit among them.

    Raises:
        ValueError: An option is not what it must be.
    """

    name: ClassVar[str] = "mlflow"
    capabilities: ClassVar[frozenset[str]] = CAPABILITIES - {"histogram"}
    confirms: ClassVar[Confirms] = "write"
    rewind: ClassVar[Rewind] = "append"
    isolation: ClassVar[Isolation] = "sidecar"
    requires: ClassVar[tuple[str, ...]] = ("mlflow",)
    buffered: ClassVar[bool] = True

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        dir: str | os.PathLike[str] | None = None,
        experiment: str | None = None,
        run_id: str | None = None,
        parent_run_id: str | None = None,
        tags: Mapping[str, Any] | None = None,
        direct: bool = True,
        sdk_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._uri = check_text("tracking_uri", tracking_uri)
        self._dir = check_text("dir", None if dir is None else os.fspath(dir))
        self._experiment = check_text("experiment", experiment)
        self._wanted = check_text("run_id", run_id)
        self._parent = check_text("parent_run_id", parent_run_id)
        self._own_tags = check_mapping("tags", tags)
        self._sdk_options = check_mapping("sdk_options", sdk_options)
        self._direct = direct
        self._begun: tuple[tuple[str, int], str] | None = None
        self._maker: tuple[tuple[str, int], RunMaker] | None = None
        self._repeats: Repeats | None = None
        self._monitor: Any = None
        self._wall = self._kept_unstepped = 0
        self._former_error = False

    # -- start --------------------------------------------------------------------------------

    def start(self, run: RunInfo) -> None:
        """Find the place, the experiment and the run, or make them."""
        with warnings.catch_warnings(), calls():
            warnings.simplefilter("ignore")  # the SDK's own: of its modules, of its databases
            self._start(run)

    def _start(self, run: RunInfo) -> None:
        from mlflow import MlflowClient

        place = self._place(run)
        own = {k: v for k, v in self._sdk_options.items() if k not in _OWN_OPTIONS}
        with place.locked():
            place.make_database()
            client = MlflowClient(place.uri, **own)
            found = self._find(client, run)
            experiment_id = None if found else experiment_of(client, place, self._project(run))
        resumed = found is not None
        if experiment_id is not None:
            found = self._make(client, experiment_id, run)
        elif found.info.status != "RUNNING":
            client.update_run(found.info.run_id, status="RUNNING")
        self.tracker, self.run_id = client, str(found.info.run_id)
        self.url = place.page(found.info.experiment_id, self.run_id)
        self._begun = ((run.run_id, run.rank), self.run_id)
        self._prepare(place, run, found.data, resumed)
        self._label(run, resumed)
        if self._sdk_options.get("log_system_metrics"):
            self._monitor = system_monitor(self.run_id, place.uri, resumed)

    def _place(self, run: RunInfo) -> Place:
        uri = self._uri or (None if self._dir else os.environ.get("MLFLOW_TRACKING_URI"))
        if uri:
            return Place(uri)
        return Place.in_folder(Path(self._dir) if self._dir else run.directory or Path("mlruns"))

    def _project(self, run: RunInfo) -> str:
        return self._experiment or run.project or "eventlog"

    def _find(self, client: Any, run: RunInfo) -> Any:
        """Return the run to go on with; None where there is none."""
        begun = self._begun
        again = begun[1] if begun and begun[0] == (run.run_id, run.rank) else None
        wanted = self._wanted or run.state.get("run_id") or again
        found = existing_run(client, wanted) if wanted else None
        if found is None and self._wanted:
            raise RefusedError(f"MLflow has no run {self._wanted!r}, or it was deleted")
        return found

    def _make(self, client: Any, experiment_id: str, run: RunInfo) -> Any:
        key = (run.run_id, run.rank)
        if self._maker is None or self._maker[0] != key:
            self._maker = (key, RunMaker())
        name = (run.name or run.run_id) + (f" rank {run.rank}" if run.rank else "")
        name = plain_text(name)[:_LONGEST_NAME]
        return self._maker[1].make(
            client, experiment_id, name, (run.started or wall_ns()) // 1_000_000
        )

    def _prepare(self, place: Place, run: RunInfo, known: Any, resumed: bool) -> None:
        """Set up what takes the events."""
        from mlflow.utils import validation

        self._longest_param = validation.MAX_PARAM_VAL_LENGTH
        self._longest_tag = validation.MAX_TAG_VAL_LENGTH
        self._exact_infinity = place.exact_infinity
        longest = validation.MAX_ENTITY_KEY_LENGTH
        self._tables = Tables(run.directory, longest, files=place.files, fold_case=place.fold_case)
        self.names = self._tables.metrics
        fast = fast_way(self.tracker, str(self.run_id)) if self._direct else None
        self._out = Outbox(self.tracker, str(self.run_id), known.params, fast, self.count)
        self._repeats = Repeats(self.tracker, str(self.run_id)) if resumed and place.files else None
        self._unstepped = self._kept_unstepped = run.state.get("unstepped", 0)
        self._wall = 0
        self._former_error = _ERROR in known.tags
        self.go_on_with(known.tags)

    def _label(self, run: RunInfo, resumed: bool) -> None:
        """Tell MLflow what the run is called and what it belongs to."""
        tags: dict[str, Any] = {"eventlog.run_id": run.run_id}
        if run.world_size > 1 or run.rank:
            tags |= {"rank": run.rank, "world_size": run.world_size}
        if run.group is not None:
            tags["group"] = run.group
        if run.notes is not None:
            tags["mlflow.note.content"] = run.notes
        if self._parent is not None:
            tags["mlflow.parentRunId"] = self._parent
        commit = run.provenance.get("git_commit")
        if commit:
            tags["mlflow.source.git.commit"] = commit
        if self._sdk_options.get("resolve_tags"):
            from mlflow.tracking.context.registry import resolve_tags

            tags |= resolve_tags()
        for name, value in (tags | self._own_tags).items():
            self._tag(self._tables.tags(name, kind="label"), value)
        for tag in run.tags:
            # MLflow's own tags begin so, and change what its pages show
            key = f"_{tag}" if tag.startswith("mlflow.") else tag
            self._tag(self._tables.tags(key, kind="tag"), "true")
        if run.provenance and not resumed:
            contents = media.json_bytes(run.provenance)
            self._out.files.append(File("eventlog/provenance.json", contents))

    # -- batches ------------------------------------------------------------------------------

    def write(self, batch: Sequence[Event]) -> None:
        """Take a batch; see `TrackerSink`."""
        if batch:
            self._wall = max(self._wall, batch[-1].wall)
        super().write(batch)

    def commit(self) -> None:
        """Send what was gathered, in as few calls as MLflow allows."""
        with calls():
            self.gather(max(0, self._wall or wall_ns()) // 1_000_000)
            if self._repeats is not None:
                self._out.points = self._repeats.without(self._out.points)
            self._out.send()
        self._kept_unstepped = self._unstepped
        self._tables.save()

    def discard(self) -> None:
        """Forget what was gathered."""
        self._unstepped = self._kept_unstepped
        self.ungather()
        self._out.clear()

    def memory(self) -> dict[str, Any]:
        """Return how many events had no step."""
        return {"unstepped": self._kept_unstepped} if self._kept_unstepped else {}

    # -- end ----------------------------------------------------------------------------------

    def finish(self, status: Status, error: str | None) -> None:
        """End the run with its status, at the time of its last event."""
        until = time.monotonic() + _END_SECONDS
        try:
            if self._monitor is not None:
                self._monitor.finish()
            self._tag("eventlog.status", status)
            if error:
                self._tag(_ERROR, error)
                self._former_error = False
            originals = self._tables.originals()
            if originals:
                contents = media.json_bytes(originals)
                self._out.files.append(File("eventlog/names.json", contents))
            while True:
                try:
                    self._end(_STATUSES[status])
                    break
                except UnavailableError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.5)
        finally:
            self._monitor = self._begun = self._maker = None
            let_go(self.tracker)

    def _end(self, status: str) -> None:
        with calls():
            self._out.send()
            if self._former_error:
                self.tracker.delete_tag(self.run_id, _ERROR)
                self._former_error = False
            ended = max(0, self._wall or wall_ns()) // 1_000_000
            self.tracker.set_terminated(self.run_id, status, ended)

    # -- without the tracker ------------------------------------------------------------------

    def target(self) -> str:
        """Return which place, experiment and run were asked for."""
        uri = self._uri or (None if self._dir else os.environ.get("MLFLOW_TRACKING_URI"))
        place = plain_uri(uri) if uri else os.path.abspath(self._dir) if self._dir else ""
        return " ".join(filter(None, (place, self._experiment, self._wanted)))

    @classmethod
    def unready(cls, options: Mapping[str, Any]) -> str | None:
        """Return why it cannot work; a place of its own is always there."""
        if find_spec("mlflow") is None:
            return "mlflow is not installed: pip install eventlog-mlflow"
        uri = options.get("tracking_uri")
        if uri is None and options.get("dir") is None:
            uri = os.environ.get("MLFLOW_TRACKING_URI")
        if isinstance(uri, str) and Place(uri).database and not has_database():
            return f"{plain_uri(uri)} needs the whole of MLflow: pip install mlflow"
        return None
