"""The ClearML sink of eventlog; `ClearmlSink` is all there is to use."""

from __future__ import annotations

from eventlog_clearml.sink import ClearmlSink

__all__ = ["ClearmlSink"]
