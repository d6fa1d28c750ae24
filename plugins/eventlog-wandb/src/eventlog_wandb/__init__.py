"""The Weights & Biases sink of eventlog; `WandbSink` is all there is to use."""

from __future__ import annotations

from eventlog_wandb.sink import WandbSink

__all__ = ["WandbSink"]
