"""The DVCLive sink of eventlog; `DvcliveSink` is all there is to use."""

from __future__ import annotations

from eventlog_dvclive.sink import DvcliveSink

__all__ = ["DvcliveSink"]
