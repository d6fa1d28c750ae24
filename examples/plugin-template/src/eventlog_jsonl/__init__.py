"""A sink of eventlog that writes JSON lines: a template for a plugin."""

from __future__ import annotations

from eventlog_jsonl.sink import JsonlSink

__all__ = ["JsonlSink"]
