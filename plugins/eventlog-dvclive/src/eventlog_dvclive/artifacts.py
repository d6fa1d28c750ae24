"""Artifacts: where they are, copies of them, and DVC's own record of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eventlog.events import ArtifactEvent
from eventlog_dvclive.files import copy_into
from eventlog_dvclive.layout import utf8
from eventlog_dvclive.media import Media
from eventlog_dvclive.page import RunPage

__all__ = ["Artifacts"]


class Artifacts:
    """Keeps artifacts on the run's page, and with DVC where it may.

    Args:
        page: Holds what is known of each.
        media: Knows where copies go.
        live: DVCLive's object, where it may use a repository.
    """

    def __init__(self, page: RunPage, media: Media, live: Any) -> None:
        self._page, self._media, self._live = page, media, live

    def take(self, event: ArtifactEvent, path: Path | None, options: Mapping[str, Any]) -> None:
        """Keep one; a later one of the same name takes its place.

        Args:
            event: What is known of it.
            path: Where it is; None when it is gone.
            options: Of the log call, as `dvclive.Live.log_artifact` has them.

        Raises:
            OSError: It cannot be copied.
        """
        facts: dict[str, Any] = {
            "type": event.kind,
            "path": event.path,
            "size": event.size,
            "step": event.step,
            "sha256": None if event.blob is None else event.blob.sha256,
            "desc": options.get("desc"),
            "labels": options.get("labels"),
            "meta": event.metadata,
        }
        if path is not None and (event.blob is not None or options.get("copy")):
            target = self._media.folder(self._media.name("artifacts", event.name, "artifact"))
            copy_into(path, target)
            facts["copy"] = target.relative_to(self._page.folder).as_posix()
            path = target
        known = {key: value for key, value in facts.items() if value not in (None, {}, "")}
        self._page.artifacts[utf8(event.name)] = known
        self._page.stale = True
        if path is not None and self._live is not None and self._live._dvc_repo is not None:
            more = {k: v for k, v in options.items() if k in ("desc", "labels", "cache")}
            meta = event.metadata or None
            self._live.log_artifact(path, type=event.kind, name=event.name, meta=meta, **more)
