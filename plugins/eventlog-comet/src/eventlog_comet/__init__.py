"""The Comet sink of eventlog; `CometSink` is all there is to use."""

from __future__ import annotations

from eventlog_comet.sink import CometSink

__all__ = ["CometSink"]
