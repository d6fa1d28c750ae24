"""Loggers of text and dispatchers of events, which people use for the same three numbers."""

from __future__ import annotations

import logging
import logging.handlers
import queue
from collections import deque
from pathlib import Path
from typing import Any

from peers.base import Case, Opened, sdk

TEXT = "step=%d loss=%r accuracy=%r lr=%r"


def queue_handler(folder: Path) -> Opened:
    """Hand records to a thread that writes them, as the cookbook of `logging` has it."""
    file = logging.FileHandler(folder / "lines.log")
    records: queue.Queue[Any] = queue.Queue(-1)
    listener = logging.handlers.QueueListener(records, file)
    logger = logging.getLogger("bench")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.handlers.QueueHandler(records))
    listener.start()

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        logger.info(TEXT, step, loss, accuracy, lr)

    return Opened(log, listener.stop)


def loguru(folder: Path) -> Opened:
    logger = sdk("loguru").logger
    logger.remove()
    logger.add(folder / "lines.log", enqueue=True)

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        logger.info("step={} loss={} accuracy={} lr={}", step, loss, accuracy, lr)

    return Opened(log, logger.remove)


def structlog(folder: Path) -> Opened:
    module = sdk("structlog")
    file = (folder / "lines.log").open("w")
    module.configure(
        processors=[module.processors.TimeStamper(), module.processors.JSONRenderer()],
        logger_factory=module.WriteLoggerFactory(file),
        cache_logger_on_first_use=True,
    )
    logger = module.get_logger()

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        logger.info("lr", step=step, loss=loss, accuracy=accuracy, lr=lr)

    return Opened(log, file.close)


def blinker(folder: Path) -> Opened:
    """Send to three receivers that keep what they get."""
    signal = sdk("blinker").Signal()
    kept: list[deque[object]] = [deque(maxlen=10_000) for _ in range(3)]
    receivers = [lambda sender, mine=mine, **values: mine.append(values) for mine in kept]
    for receiver in receivers:
        signal.connect(receiver)

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        signal.send(receivers, step=step, loss=loss, accuracy=accuracy, lr=lr)

    return Opened(log)


def opentelemetry(folder: Path) -> Opened:
    """Emit log records through the batch processor, with the exporter that writes to a file."""
    logs, export = sdk("opentelemetry.sdk._logs"), sdk("opentelemetry.sdk._logs.export")
    record = sdk("opentelemetry._logs").LogRecord
    file = (folder / "lines.log").open("w")
    exporter = export.ConsoleLogRecordExporter(
        out=file, formatter=lambda one: one.to_json(indent=None) + "\n"
    )
    provider = logs.LoggerProvider()
    provider.add_log_record_processor(export.BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("bench")

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        values = {"step": step, "loss": loss, "accuracy": accuracy, "lr": lr}
        logger.emit(record(body="step", attributes=values))

    return Opened(log, provider.shutdown)


def read_lines(folder: Path) -> int:
    """Count whole lines."""
    lines = (folder / "lines.log").read_bytes().splitlines(keepends=True)
    return sum(line.endswith(b"\n") and b"accuracy" in line for line in lines)


CASES = [
    Case("logging-queue", "plain", "logging, QueueHandler to a file", queue_handler, read_lines),
    Case("loguru", "plain", "loguru, enqueue=True, to a file", loguru, read_lines,
         needs=("loguru",)),
    Case("structlog", "plain", "structlog, JSON to a file", structlog, read_lines,
         needs=("structlog",)),
    Case("blinker", "plain", "blinker, three receivers", blinker,
         unread="it keeps what it has in memory", needs=("blinker",)),
    Case("opentelemetry", "plain", "OpenTelemetry's batch processor, to a file", opentelemetry,
         read_lines, needs=("opentelemetry.sdk",)),
]  # fmt: skip
