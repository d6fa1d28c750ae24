"""A log that is opened again: another attempt, the next seq, and nothing of the old one touched."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from eventlog import _platform
from eventlog.events import StepEvent
from eventlog.exceptions import LogError
from eventlog.log import open_log
from eventlog.log.layout import BlockKind
from eventlog.log.segment_reader import Segment
from eventlog.recorder import Recorder


def test_a_torn_tail_is_left_as_it_is(book: Any) -> None:
    """After a crash in the middle of a write the log goes on in a new segment."""
    book.open()
    book.blocks(3, 10)
    book.crash()
    (path,) = book.segments()
    os.truncate(path, path.stat().st_size - 5)
    torn = path.read_bytes()
    recorder = book.open()
    assert recorder.attempt == 2
    book.offered = 20
    book.blocks(2, 10)
    first, second = book.segments()
    assert first.read_bytes() == torn
    header = Segment(second).header
    assert header is not None
    assert (header.attempt, header.base_seq) == (2, 20)
    events = book.events()
    assert [e.seq for e in events] == list(range(40))
    assert [e.attempt for e in events] == [1] * 20 + [2] * 20


def test_a_process_that_died_before_its_first_event_leaves_no_mark(book: Any) -> None:
    """Opening a log writes nothing; only events do."""
    book.open()
    book.turn()
    book.crash()
    assert book.segments() == []
    recorder = book.open()
    assert recorder.attempt == 1
    book.blocks(1, 5)
    assert [e.seq for e in book.events()] == list(range(5))


@pytest.mark.parametrize("size", [0, 3, 100, 400, None])
def test_a_segment_without_events_is_taken_over(book: Any, size: int | None) -> None:
    """A process that died while it wrote a segment's beginning does not stop the next one."""
    book.open()
    book.blocks(1, 5)
    book.crash()
    book.open()
    book.recorder.writer._log.leave_segment()
    book.offered = 5
    book.blocks(1, 5)
    book.crash()
    beginning = book.segments()[1]
    segment = Segment(beginning)
    os.truncate(beginning, segment.start if size is None else size)
    segment.close()
    for _ in range(2):
        book.open()
        book.crash()
    book.open()
    book.offered = 5
    book.blocks(1, 5)
    assert [e.seq for e in book.events()] == list(range(10))
    assert len(book.segments()) == 2


def test_torn_events_of_a_process_that_wrote_no_whole_block_are_kept(book: Any) -> None:
    """A segment that must give up its name keeps its bytes under another one."""
    book.open()
    book.blocks(1, 5)
    book.crash()
    (path,) = book.segments()
    segment = Segment(path)
    (end,) = (b.end for b in segment.scan() if b.header.kind == BlockKind.EVENTS)
    segment.close()
    os.truncate(path, end - 5)
    torn = path.read_bytes()
    book.open()
    book.offered = 0
    book.blocks(1, 5)
    (kept,) = (p for p in book.directory.iterdir() if p.name.startswith(f"{path.name}."))
    assert kept.read_bytes() == torn
    assert [e.seq for e in book.events()] == list(range(5))


def test_attempts_go_on_counting(book: Any) -> None:
    """Each opening that wrote something is an attempt of its own."""
    for attempt in range(1, 5):
        recorder = book.open()
        assert recorder.attempt == attempt
        book.blocks(1, 2)
        book.crash()
    assert [e.attempt for e in book.events()] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_log_is_written_by_one_at_a_time(book: Any) -> None:
    """A second writer in the same process is refused, and looking does not let go of the lock."""
    book.open()
    book.blocks(1, 1)
    for _ in range(2):
        with pytest.raises(LogError, match="is being written"):
            Recorder(book.run_dir, run_id="again")
        assert open_log(book.run_dir).status() == "running"
    book.recorder.stop(10)
    second = Recorder(book.run_dir, run_id="again")
    assert second.attempt == 2
    second.stop(10)


def test_another_process_is_refused(book: Any) -> None:
    """The lock holds between processes, also after this one has looked at the log."""
    book.open()
    book.blocks(1, 1)
    assert open_log(book.run_dir).status() == "running"
    script = textwrap.dedent(f"""
        from pathlib import Path
        from eventlog.exceptions import LogError
        from eventlog.log import open_log
        from eventlog.recorder import Recorder
        run_dir = Path({str(book.run_dir)!r})
        assert open_log(run_dir).status() == "running"
        try:
            Recorder(run_dir, run_id="other")
        except LogError as error:
            print("refused", error)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.startswith("refused"), done.stderr
    book.crash()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "AssertionError" in done.stderr  # nobody writes it now: killed


def test_a_log_that_cannot_be_made_is_a_log_error(tmp_path: Path) -> None:
    """A directory that is a file, or may not be written, is named."""
    (tmp_path / "run").write_text("not a directory")
    with pytest.raises(LogError, match="cannot open a log in"):
        Recorder(tmp_path / "run", run_id="r")


def test_a_failed_opening_lets_go_of_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opening that fails half way does not lock out the next one."""

    def fail(*_: object) -> int:
        raise OSError("no")

    monkeypatch.setattr("eventlog.recorder.last_valid_seq", fail)
    (tmp_path / "rank-0").mkdir()
    with pytest.raises(LogError):
        Recorder(tmp_path, run_id="r")
    monkeypatch.undo()
    Recorder(tmp_path, run_id="r").stop(10)


def test_looking_for_a_lock_that_is_not_there(tmp_path: Path) -> None:
    """No file, no lock; and a file alone is none."""
    assert not _platform.lock_is_held(tmp_path / "lock")
    (tmp_path / "lock").touch()
    assert not _platform.lock_is_held(tmp_path / "lock")


def test_a_fork_never_reaches_its_parent_s_log(tmp_path: Path) -> None:
    """What a forked child emits, flushes or closes changes nothing in the log of its parent."""
    script = textwrap.dedent(f"""
        import os
        from pathlib import Path
        from eventlog import Run, StepEvent
        from eventlog.recorder import Recorder
        run = Run("p", dir={str(tmp_path)!r})
        alone = Recorder(Path({str(tmp_path / "alone")!r}), run_id="alone")
        alone.offer(StepEvent(mono=1), {{"parent": 1}})
        for i in range(1000):
            run.step(parent=i)
        children = []
        for _ in range(3):
            child = os.fork()
            if not child:
                for i in range(1000):
                    run.step(child=i)
                    run.step({{"child": i}})
                assert not alone.offer(StepEvent(mono=1), {{"child": 1}})
                assert alone.stop(5)
                assert alone.inbox.waiting == 0
                run.close()
                os._exit(7)
            children.append(child)
        for i in range(1000, 2000):
            run.step(parent=i)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        run.close()
        alone.stop(5)
        print(run.dir, codes)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run_dir, codes = done.stdout.split(" ", 1)
    assert codes.strip() == "[7, 7, 7]", done.stderr
    events = list(open_log(run_dir).events())
    assert [e.seq for e in events] == list(range(len(events)))
    steps = [e for e in events if type(e) is StepEvent]
    assert [e.values for e in steps] == [{"parent": i} for i in range(2000)]
    assert [e.values for e in open_log(tmp_path / "alone").events()] == [{"parent": 1}]
