"""Sinks: the interface, the registry over installed plugins, and the built-in ones."""

from __future__ import annotations

from eventlog.sinks.base import CAPABILITIES, RunInfo, Sink, is_async
from eventlog.sinks.callback import AsyncCallbackSink, CallbackSink, callback_sink
from eventlog.sinks.names import Names
from eventlog.sinks.registry import SinkEntry, available_sinks, load_sink_class
from eventlog.sinks.tracker import TrackerSink

__all__ = [
    "CAPABILITIES",
    "AsyncCallbackSink",
    "CallbackSink",
    "Names",
    "RunInfo",
    "Sink",
    "SinkEntry",
    "TrackerSink",
    "available_sinks",
    "callback_sink",
    "is_async",
    "load_sink_class",
]
