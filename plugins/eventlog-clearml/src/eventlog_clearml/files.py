"""Images and artifacts: files that go to ClearML's file server, or into the offline folder."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from eventlog.events import ArtifactEvent, BlobRef, Event
from eventlog.exceptions import UnavailableError
from eventlog.sinks.plain import json_text
from eventlog_clearml.convert import file_name, plain_text
from eventlog_clearml.places import Place

__all__ = ["Files"]

_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/bmp": ".bmp"}


class Files:
    """The files of a task.

    Args:
        task: The SDK's task.
        writer: Part of each file's name, different for each rank.
    """

    def __init__(self, task: Any, writer: str) -> None:
        self._task = task
        self._writer = writer
        self._folder = task.get_offline_mode_folder()
        self.pending: list[tuple[Path, str]] = []

    def add(self, event: Event, place: Place, path: Path, blob: BlobRef) -> tuple[str, str]:
        """Note a file to be sent; return its address, and its key below the server's.

        The same event gives the same address, so that what is sent again is there once.
        """
        title, series, at = place[:3]
        suffix = _SUFFIXES.get(blob.mime, "")
        unique = f"{self._writer}_{at}_{event.attempt}_{event.seq}_{blob.sha256[:8]}{suffix}"
        prefix = self._task._get_output_destination_suffix("metrics")
        key = f"{prefix}/{file_name(title)}/{file_name(series)}/{unique}"
        server = self._task.output_uri or self._task._get_default_report_storage_uri()
        url = f"{str(server).rstrip('/')}/{key}"
        self.pending.append((path, url))
        return url, key

    def send(self) -> None:
        """Send what was noted.

        Raises:
            UnavailableError: The file server does not take it.
        """
        for path, url in self.pending:
            if self._folder is not None:
                target = Path(url)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                continue
            manager: Any = importlib.import_module("clearml").StorageManager
            try:
                sent = manager.upload_file(str(path), url, retries=1)
            except Exception as error:
                raise UnavailableError(f"ClearML's file server: {error}") from error
            if not sent:
                raise UnavailableError(f"ClearML's file server does not take {path.name}")
        self.clear()

    def clear(self) -> None:
        """Forget what was noted."""
        self.pending = []

    def artifact(self, event: ArtifactEvent, path: Path | None) -> None:
        """Send an artifact, or only its facts where `path` is None."""
        facts = {"kind": event.kind, "path": event.path, "size": event.size} | event.metadata
        metadata = {
            plain_text(key): plain_text(value if isinstance(value, str) else json_text(value))
            for key, value in facts.items()
        }
        name = plain_text(event.name)
        name = name if name.strip("./") else "artifact"
        if path is None:
            self._refer(name, event, metadata)
            return
        with tempfile.TemporaryDirectory() as folder:
            given = path
            if event.blob is not None:
                # a blob is named by its contents
                given = Path(folder) / (Path(event.path).name or name.replace("/", "_"))
                shutil.copyfile(path, given)
            try:
                done = self._task.upload_artifact(
                    name, artifact_object=given, metadata=metadata, wait_on_upload=True
                )
            except Exception as error:
                if path.exists():
                    raise UnavailableError(f"ClearML's file server: {error}") from error
                done = False
            if not done:
                self._refer(name, event, metadata)

    def _refer(self, name: str, event: ArtifactEvent, metadata: dict[str, str]) -> None:
        """Register where an artifact was, as the SDK does with addresses."""
        tasks: Any = importlib.import_module("clearml.backend_api.services").tasks
        uri = f"file://{event.path}" if event.path else "file://"
        artifact = tasks.Artifact(
            key=name,
            type="custom",
            uri=plain_text(uri),
            content_size=event.size,
            display_data=list(metadata.items()),
            type_data=tasks.ArtifactTypeData(preview=f"{plain_text(event.path)} (not uploaded)"),
        )
        self._task._artifacts_manager._add_artifact(artifact)
