"""Make the tiny log that docs/log-format.md takes apart.

python tests/docs/tiny_log.py             write tests/docs/tiny.elog
python tests/docs/tiny_log.py --dump      print it as the page shows it
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from eventlog.events import RunFinished, RunStarted, StepEvent
from eventlog.log.layout import HEADER_SIZE, BlockKind
from eventlog.recorder import Recorder

STORED = Path(__file__).with_name("tiny.elog")
SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND


class Clock:
    """A clock that stands still: 5 s after the machine's start, 1,700,000,000 s after 1970."""

    def monotonic_ns(self) -> int:
        return 5 * SECOND

    def wall_ns(self) -> int:
        return WALL


def make(folder: Path) -> bytes:
    """Return the bytes of a segment with four events, alike each time but for its schema."""
    with (
        mock.patch("os.urandom", lambda n: bytes(range(n))),
        mock.patch("socket.gethostname", return_value="host"),
        mock.patch("os.getpid", return_value=42),
    ):
        recorder = Recorder(folder, run_id="tiny", project="docs", clock=Clock())
        put = recorder.inbox.put
        put(RunStarted(run_id="tiny", project="docs", mono=2 * SECOND, config={"lr": 0.1}))
        put(StepEvent(mono=3 * SECOND, step=0, values={"loss": 0.5}))
        put(StepEvent(mono=4 * SECOND, step=1, batch=2, values={"loss": math.nan, "ok": False}))
        put(RunFinished(mono=5 * SECOND, step=2))
        recorder.writer.turn()
        recorder.stop(None)
    (segment,) = (folder / "rank-0").glob("*.elog")
    return segment.read_bytes()


def dump_lines(data: bytes) -> Iterator[str]:
    """Yield lines of 16 bytes, anew at each header and payload.

    The second copy of the HEADER block is left out, and the payload of the SCHEMA block.
    """
    yield from hex_lines(data, 0, 8)
    at = 8
    while at < len(data):
        kind, length = data[at + 4], int.from_bytes(data[at + 8 : at + 12], "little")
        start, end = at + HEADER_SIZE, at + HEADER_SIZE + length
        if kind == BlockKind.HEADER and at > 8:
            yield f"-- HEADER: once more, {HEADER_SIZE + length} bytes"
            at = end
            continue
        yield f"-- {BlockKind(kind).name}: header"
        yield from hex_lines(data, at, start)
        yield f"-- {BlockKind(kind).name}: payload, {length} bytes"
        if kind != BlockKind.SCHEMA:
            yield from hex_lines(data, start, end)
        at = end


def hex_lines(data: bytes, start: int, end: int) -> Iterator[str]:
    """Yield lines of an offset, up to 16 bytes in hexadecimal, and these as text."""
    for at in range(start, end, 16):
        line = data[at : min(at + 16, end)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{at:04x}  {line.hex(' '):<47}  {text}"


if __name__ == "__main__":
    if "--dump" in sys.argv[1:]:
        print("\n".join(dump_lines(STORED.read_bytes())))
    else:
        with tempfile.TemporaryDirectory() as name:
            STORED.write_bytes(make(Path(name)))
