"""A delivering process follows its own run only: the next attempt has another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest

from eventlog import Run
from eventlog.log import follow
from eventlog.log.follow import FollowSource
from eventlog.log.source import Reader


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
        assert source._writer_lives()
    shutil.rmtree(run.dir)
    assert child._writer_lives()
    assert alone._writer_lives()
    await anyio.sleep(0.3)
    assert child._writer_lives()
    assert not alone._writer_lives()
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not child._writer_lives()
    run.close()
