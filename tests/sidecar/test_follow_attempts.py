"""A delivering process follows its own run only: the next attempt has another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest

from eventlog import Run, areplay
from eventlog.log import follow
from eventlog.log.follow import FollowSource
from eventlog.log.layout import BlockKind, Content, pack_block
from eventlog.log.segment_reader import Segment
from eventlog.log.source import Reader
from eventlog.testing import MemorySink


def attempts(tmp_path: Path) -> tuple[Path, list[int]]:
    """Make a run of three attempts; return its log's directory and where each begins."""
    run_id, starts = None, []
    for _ in range(3):
        run = Run("p", dir=tmp_path, resume=run_id)
        starts.append(run._recorder.source.end if run_id else 0)
        run.step(n=1)
        run.rewind(0)  # an attempt within the run
        run.step(n=2)
        run.close("failed")
        run_id = run.id
    assert run.dir is not None
    return run.dir / "rank-0", starts


def read_all(reader: Reader) -> int:
    """Return the seq at which a reader finds nothing more."""
    seq = 0
    while (block := reader.read(seq)) is not None:
        seq = block.end
    assert reader.read(seq) is None
    return seq


@pytest.mark.parametrize(("attempt", "end"), [(1, 5), (2, 5), (3, 10), (5, 15), (None, 15)])
async def test_a_source_ends_where_another_run_goes_on(
    tmp_path: Path, attempt: int | None, end: int
) -> None:
    """Attempts that begin with a run's start are another's; those of a rewind are not."""
    directory, starts = attempts(tmp_path)
    assert starts == [0, 5, 10]
    source = FollowSource(directory, attempt=attempt)
    reader = source.open_reader()
    assert read_all(reader) == 0  # nobody has looked yet: all readers have one end
    source.look()
    assert source.end == end
    assert read_all(reader) == end
    assert source.status == "failed"
    with anyio.fail_after(5):
        await source.watch()
    assert source.closed
    assert source.end == end


async def test_a_log_that_goes_away_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that is removed says nothing of its writer: a child asks for its parent."""
    monkeypatch.setattr(follow, "GRACE", 0.2)
    run = Run("p", dir=tmp_path)
    run.step(n=1)
    run.flush()
    assert run.dir is not None
    directory = run.dir / "rank-0"
    child = FollowSource(directory, parent=os.getppid())
    alone = FollowSource(directory)
    for source in (child, alone):
        assert source.look()
        assert source.writer_lives()
    shutil.rmtree(run.dir)
    assert child.writer_lives()
    assert alone.writer_lives()
    await anyio.sleep(0.3)
    assert child.writer_lives()
    assert not alone.writer_lives()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not child.writer_lives()
    run.close()


@pytest.mark.parametrize("flags", [Content.RUN, Content.STEP])
async def test_a_block_that_cannot_be_decoded_ends_nothing(
    tmp_path: Path, flags: Content, caplog: pytest.LogCaptureFixture
) -> None:
    """Its checksums hold and its events do not: they are lost to a sink, which has the others."""
    with Run("p", dir=tmp_path) as run:
        run.step(n=1)
    assert run.dir is not None
    (path,) = (run.dir / "rank-0").glob("*.elog")
    segment = Segment(path)
    odd = b"\xc1 no events"
    head = pack_block(
        BlockKind.EVENTS, odd, seed=segment.seed, flags=int(flags), count=2, first_seq=3
    )
    segment.close()
    with path.open("ab") as file:
        file.write(head + odd)
    memory = MemorySink()
    report = await areplay(run.dir, memory, follow=True)
    assert [e.seq for e in memory.events] == [0, 1, 2]
    assert (report.complete, report.sinks["memory"].lost) == (False, 2)
    assert (report.sinks["memory"].state, memory.statuses) == ("closed", ["finished"])
    assert "Traceback" not in caplog.text


async def test_events_at_the_end_that_cannot_be_read_are_missed(tmp_path: Path) -> None:
    """A damaged last block is no end of the log: its header says what it held."""
    with Run("p", dir=tmp_path) as run:
        run.step(n=1)
        run.flush()
        run.step(n=2)
    assert run.dir is not None
    (path,) = (run.dir / "rank-0").glob("*.elog")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"run_finished", 0, data.rindex(b"run_finished") + 12)] ^= 1
    path.write_bytes(data)
    for follow_ in (True, False):
        report = await areplay(run.dir, MemorySink(), follow=follow_)
        assert not report.complete
        assert report.sinks["memory"].lost > 0
