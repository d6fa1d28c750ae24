"""Several sinks of one process, and what they leave outside of their folders: nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import eventlog
from eventlog.events import StepEvent, TableEvent, TextEvent
from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.reading import read_offline
from eventlog_wandb.session import _core_process


@pytest.mark.parametrize("isolate", [True, False])
def test_a_run_with_two_aliases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolate: bool
) -> None:
    """Each has a W&B run of its own with all events; nothing stays at home or with the system."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "a.bin").write_bytes(b"data")
    options = {"mode": "offline", "isolate": isolate}
    sinks = {"wandb": options, "b": {"sink": "wandb"} | options}
    with eventlog.Run("p", sinks=sinks, dir=tmp_path / "runs") as run:
        for _ in range(3):
            run.step(loss=1.0)
        run.text("note", "hello")
        run.table("t", columns=["a"], rows=[[1]])
        run.image("x", np.zeros((4, 4, 3), dtype=np.uint8))
        run.artifact(tmp_path / "a.bin")
    assert run.dir is not None
    for alias, run_id in (("wandb", run.id), ("b", f"{run.id}-b")):
        assert run.sink(alias).run_id == run_id, run.sink(alias)
        found = read_offline(str(run.dir / alias), run_id)
        assert [sum(key in row for row in found.rows) for key in ("loss", "note", "t", "x")] == [
            *(3, 1, 1, 1)
        ]
        assert len(found.folders) == 1
        assert found.exit_code == 0
        assert run.statistics().sinks[alias].unshown == {}
    assert _core_process() is None
    assert list((tmp_path / "tmp").iterdir()) == []
    home = tmp_path / "home"
    assert [path for path in home.rglob("*") if "wandb" in path.parts] == []


def test_sinks_that_start_and_end_at_once(tmp_path: Path) -> None:
    """They share wandb-core, which ends with the last of them, not with the first."""
    sinks = [WandbSink(mode="offline", dir=tmp_path) for _ in range(4)]
    begun, failed = threading.Barrier(4), []

    def runs(sink: WandbSink, alias: str, rows: int) -> None:
        try:
            begun.wait()
            sink.open(RunInfo(run_id="r", project="p", alias=alias))
            for seq in range(rows):
                sink.write([StepEvent(step=seq, values={"v": 1.0}, seq=seq)])
            sink.close("finished")
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=runs, args=(sink, f"s{number}", 10**number))
        for number, sink in enumerate(sinks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert _core_process() is None
    for number in range(4):
        assert len(read_offline(tmp_path, f"r-s{number}").rows) == 10**number


def test_a_start_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    """However often it is tried, an id that is in use leaves none, and does the other no harm."""
    first = WandbSink(mode="offline", dir=tmp_path)
    first.open(RunInfo(run_id="r", project="p"))
    second = WandbSink(mode="offline", dir=tmp_path, run_id="r")
    for _ in range(2):
        with pytest.raises(Exception, match="in use"):
            second.open(RunInfo(run_id="other", project="p"))
    first.write([StepEvent(step=0, values={"v": 1.0}, seq=0)])
    first.close("finished")
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1
    assert len(read_offline(tmp_path, "r").rows) == 1


def test_media_of_the_users_own_have_their_folder(tmp_path: Path) -> None:
    """The SDK's folder for media, which went with the last run, is there when it is needed."""
    (tmp_path / "begun").touch()
    begun = (tmp_path / "begun").stat().st_mtime
    sink = WandbSink(mode="offline", dir=tmp_path)
    sink.open(RunInfo(run_id="r", project="p"))
    table = TableEvent(tag="t", columns=["a"], rows=[[1]], step=0, seq=1)
    sink.write([TextEvent(tag="note", text="x", step=0, seq=0), table])
    sink.close("finished")
    import wandb
    from wandb.sdk.data_types._private import MEDIA_TMP

    # another test's failed batch may have left a file of its own there
    left = list(Path(vars(MEDIA_TMP)["name"]).glob("*"))
    assert left or not Path(vars(MEDIA_TMP)["name"]).exists()
    assert not [path for path in left if path.stat().st_mtime > begun]
    page = wandb.Html("<p>mine</p>")
    assert Path(str(page._path)).read_text().endswith("<p>mine</p>")
    Path(str(page._path)).unlink()
