"""`Artifacts`: references to files, and copies of them where there is a place for these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.events import ArtifactEvent
from eventlog.sinks.names import Names
from eventlog_aim.values import file_name, plain

__all__ = ["Artifacts"]


class Artifacts:
    """Shows artifacts: the facts in ``run.artifacts``, copies in Aim's ARTIFACTS tab.

    Args:
        run: The `aim.Run`.
        directory: Where the table of names is kept, or None.
        uri: Where copies go; None for those that eventlog has, beside a repository on disk.
        count: Counts what is not shown as it is.
    """

    def __init__(
        self, run: Any, directory: Path | None, uri: str | None, count: Callable[[str], None]
    ) -> None:
        self._run = run
        self._all = uri is not None
        if uri is None and not run.repo.is_remote_repo:
            folder = str(Path(run.repo.root_path).absolute() / "artifacts")
            # Aim takes the path of an address as it is, and reads on only up to these
            uri = None if set(folder) & set("#?;") else f"file://{folder}"
        self._uri = uri
        self._count = count
        path = None if directory is None else directory / "artifact-names.json"
        self._names = Names(file_name, path, nested=True, fold_case=True, longest=1000)

    def add(self, event: ArtifactEvent, path: Path | None) -> None:
        """Show an artifact; a file that is there is copied, if it is to be."""
        name = self._names(event.name)
        self._names.save()
        facts: dict[str, Any] = {"kind": event.kind, "path": event.path, "size": event.size}
        if event.blob is not None:
            facts["sha256"] = event.blob.sha256
        if event.metadata:
            facts["metadata"] = event.metadata
        copied = path is not None and (self._all or event.blob is not None)
        if copied and self._uri is None:
            self._count("artifact without a place for copies (artifacts_uri): only where it is")
        elif copied and path is not None and self._uri is not None:
            if self._run.artifacts_uri is None:
                self._run.set_artifacts_uri(self._uri)
            facts["uri"] = f"{self._run.artifacts_uri}/{name}"
            if path.is_dir():
                self._run.log_artifacts(str(path), name, block=True)
            else:
                self._run.log_artifact(str(path), name, block=True)
        self._run["artifacts", name] = plain(facts, self._count)
