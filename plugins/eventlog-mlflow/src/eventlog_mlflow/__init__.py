"""The MLflow sink of eventlog; `MlflowSink` is all there is to use."""

from __future__ import annotations

from eventlog_mlflow.sink import MlflowSink

__all__ = ["MlflowSink"]
