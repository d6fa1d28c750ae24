"""The Aim sink of eventlog; `AimSink` is all there is to use."""

from __future__ import annotations

from eventlog_aim.sink import AimSink

__all__ = ["AimSink"]
