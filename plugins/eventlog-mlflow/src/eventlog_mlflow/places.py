"""Where runs are kept: a server, a database, or files; and the experiments and runs there."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from eventlog.exceptions import RefusedError
from eventlog.sinks.locking import only_one
from eventlog_mlflow.naming import clean_file
from eventlog_mlflow.sdk import let_go

__all__ = ["Place", "RunMaker", "existing_run", "experiment_of", "has_database", "plain_uri"]

_DATABASES = ("sqlite", "mysql", "postgresql", "mssql")
_OPENED_BY = "eventlog.opened_by"
_NOT_IN_ADDRESS = re.compile(r"\?|%[0-9A-Fa-f]{2}")


def has_database() -> bool:
    """Whether MLflow can use a database here: the whole of it is installed, not only its client."""
    return all(find_spec(module) is not None for module in ("sqlalchemy", "alembic"))


def plain_uri(uri: str) -> str:
    """Return a tracking URI without its password and what may be one."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file") or parts.scheme.startswith("sqlite"):
        return uri
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Place:
    """A tracking URI, and what is to be known of its kind.

    Attributes:
        uri: As MLflow takes it.
        folder: Where a local place lies; None for a server.
        files: Whether each metric is a file.
        fold_case: Whether ``Loss`` and ``loss`` may be one name there.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        scheme, colon, _ = uri.partition(":")
        scheme = scheme if colon and "/" not in scheme else ""
        base = scheme.partition("+")[0]
        self.server = scheme in ("http", "https")
        self.files = base in ("", "file") and uri not in ("databricks", "databricks-uc")
        self.database = base in _DATABASES
        self.sqlite = _sqlite_file(uri) if base == "sqlite" else None
        self.folder: Path | None = None
        if self.sqlite is not None:
            self.folder = self.sqlite.parent
        elif self.files:
            self.folder = Path(unquote(urlsplit(uri).path) if base else uri).absolute()
        # a server may have a database that folds, such as MySQL's
        self.fold_case = not self.database or base in ("mysql", "mssql")

    @classmethod
    def in_folder(cls, folder: Path) -> Place:
        """Return a place of our own: a database where MLflow can use one, or else files."""
        folder = folder.absolute()
        if not has_database():
            return cls((folder / "mlruns").as_uri())
        return cls(_sqlite_uri(folder / "mlflow.db"))

    @property
    def exact_infinity(self) -> bool:
        """Whether it keeps infinities; databases have the largest number instead."""
        return self.files

    def artifacts(self, experiment: str) -> str | None:
        """Return where a new experiment's artifacts go; None leaves it to MLflow.

        Beside a SQLite file: MLflow's own choice is the current directory.
        """
        if self.sqlite is None:
            return None
        return (self.sqlite.parent / "artifacts" / clean_file(experiment)).as_uri()

    def page(self, experiment_id: str, run_id: str) -> str:
        """Return what a person can open."""
        if self.server:
            page = f"/#/experiments/{experiment_id}/runs/{run_id}"
            return plain_uri(self.uri).rstrip("/") + page
        if self.sqlite is not None:
            return str(self.sqlite)
        return plain_uri(self.uri) if self.folder is None else str(self.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while a local place is set up: MLflow does not, in files."""
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_one(self.folder):
            yield

    def make_database(self) -> None:
        """Make the SQLite database where there is none; others are kept out meanwhile.

        MLflow takes seconds for it, and cannot go on with half of one, which a killed process
        leaves: it gets its name once it is whole.
        """
        from mlflow import MlflowClient

        if self.sqlite is None:
            return
        mark = f"{self.sqlite.name}.eventlog-"
        try:
            if not self.sqlite.exists():
                making = self.sqlite.with_name(f"{mark}{uuid.uuid4().hex}")
                let_go(MlflowClient(_sqlite_uri(making)))
                if not self.sqlite.exists():  # a server may have made it meanwhile
                    os.replace(making, self.sqlite)
        finally:
            for path in self.sqlite.parent.iterdir():
                if path.name.startswith(mark):
                    path.unlink(missing_ok=True)


def _sqlite_uri(path: Path) -> str:
    # where a path is quoted, MLflow also makes a folder of the quoted name
    text = str(path)
    return f"sqlite:///{quote(text) if _NOT_IN_ADDRESS.search(text) else text}"


def _sqlite_file(uri: str) -> Path | None:
    path = uri.partition(":///")[2].partition("?")[0]
    if not path or path.startswith(":memory:") or path.startswith("file:"):
        return None
    return Path(os.path.abspath(unquote(path)))


def experiment_of(client: Any, place: Place, name: str) -> str:
    """Return the id of the experiment of that name, which is made if need be.

    Raises:
        RefusedError: It was deleted.
    """
    from mlflow.exceptions import MlflowException

    for _ in range(2):
        found = client.get_experiment_by_name(name)
        if found is not None:
            break
        try:
            return str(client.create_experiment(name, artifact_location=place.artifacts(name)))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            # another process was quicker
    else:
        found = None
    if found is None or found.lifecycle_stage != "active":
        raise RefusedError(
            f"the MLflow experiment {name!r} was deleted: restore it (mlflow experiments restore"
            f"{'' if found is None else f' -x {found.experiment_id}'}), or choose another one "
            "with the option experiment"
        )
    return str(found.experiment_id)


class RunMaker:
    """Makes one run, also where the answer to the first try is lost."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._tried = False

    def make(self, client: Any, experiment_id: str, name: str, start: int) -> Any:
        """Return a new run, or the one that an earlier call made without hearing of it."""
        if self._tried:
            wanted = f"tags.`{_OPENED_BY}` = '{self._mark}'"
            for run in client.search_runs([experiment_id], wanted, max_results=1):
                return run
        self._tried = True
        tags = {_OPENED_BY: self._mark}
        return client.create_run(experiment_id, start_time=start, tags=tags, run_name=name)


def existing_run(client: Any, run_id: str) -> Any:
    """Return a run that can be gone on with; None where it does not exist, or was deleted."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None
