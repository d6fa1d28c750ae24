"""Two sinks of one's own: a plain one, and an asynchronous one.

python examples/own_sink.py --dir runs
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import anyio

import eventlog
from eventlog import Event, RunInfo, Sink


class CsvSink(Sink):
    """Rows of a CSV file. Its methods are called on a thread of its own, so they may block."""

    name = "csv"
    confirms = "flush"  # what was written is safe after flush()

    def open(self, run: RunInfo) -> None:
        assert run.directory is not None, "CsvSink needs a run with a directory"
        run.directory.mkdir(parents=True, exist_ok=True)
        path = run.directory / "values.csv"
        self.url = str(path)
        self._file = path.open("w", newline="")
        self._rows = csv.writer(self._file)

    def write(self, batch: Sequence[Event]) -> None:
        for event in batch:
            self._rows.writerows([event.step, key, value] for key, value in event.values.items())

    def flush(self) -> None:
        self._file.flush()

    def close(self, status: str) -> None:
        self._file.close()


class JsonLinesSink(Sink):
    """Lines of JSON. Its methods are awaited in the delivery's loop, so they must not block.

    It is how one talks to a service: an HTTP client in place of the file.
    """

    name = "json_lines"
    confirms = "flush"

    async def open(self, run: RunInfo) -> None:
        assert run.directory is not None, "JsonLinesSink needs a run with a directory"
        folder = anyio.Path(run.directory)
        await folder.mkdir(parents=True, exist_ok=True)
        self.url = str(folder / "values.jsonl")
        self._file = await anyio.open_file(self.url, "w")

    async def write(self, batch: Sequence[Event]) -> None:
        rows = [{"step": event.step} | event.values for event in batch if event.values]
        await self._file.write("".join(f"{json.dumps(row)}\n" for row in rows))

    async def flush(self) -> None:
        await self._file.flush()

    async def close(self, status: str) -> None:
        await self._file.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=Path("runs"))
    options = parser.parse_args()
    sinks = {"csv": {"sink": CsvSink(), "every": "50 steps"}, "lines": JsonLinesSink()}
    with eventlog.Run("own-sink", dir=options.dir, sinks=sinks) as run:
        for step in range(101):
            run.step(loss=1 / (step + 1), lr=0.1)
    for alias, counts in run.statistics().sinks.items():
        url = run.sink(alias).url
        lines = Path(str(url)).read_text().splitlines()
        print(f"{alias}: {counts.delivered} events in {len(lines)} lines, the last: {lines[-1]}")


if __name__ == "__main__":
    main()
