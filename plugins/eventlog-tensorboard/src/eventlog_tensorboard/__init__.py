"""The TensorBoard sink of eventlog; `TensorBoardSink` is all there is to use."""

from __future__ import annotations

from eventlog_tensorboard.sink import TensorBoardSink

__all__ = ["TensorBoardSink"]
