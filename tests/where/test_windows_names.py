"""What a run puts on disk can be copied to Windows, whatever its user calls things."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog import Run, open_log
from eventlog._names import safe_name
from eventlog.delivery import Retry
from eventlog.log.checkpoint import checkpoint_path
from eventlog.recorder import sink_directory
from eventlog.testing import FaultySink, MemorySink

QUICK = Retry(first=0.001, most=0.002)
RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³])", re.IGNORECASE)
LONGEST_PART = 120
"""Characters of one component: the systems take 255, some file systems for sharing 143."""

LONGEST = 220
"""Characters of a path below the directory for runs: Windows takes 260 in all."""

NAMES = [
    "CON",
    "nul.txt",
    "Com1",
    "lpt¹",
    "a:b",
    "a/b\\c",
    "x ",
    "x.",
    '?*<>|"',
    "tab\t",
    "é" * 300,
]


def is_taken_by_windows(name: str) -> bool:
    """Whether a file may be called so there."""
    return (
        0 < len(name) <= LONGEST_PART
        and not re.search(r'[<>:"/\\|?*\x00-\x1f]', name)
        and name[-1] not in " ."
        and not RESERVED.fullmatch(name.split(".")[0].rstrip(" "))
    )


@given(st.text(max_size=200))
@example("CON")
@example("con.tar.gz")
@example("CONIN$")
@example("COM¹")
@example("LPT9 .txt")
@example("nul ")
@example("aux..")
@example("a" * 79 + "..")
@example("a" * 79 + ".b")
@example("_CON_")
def test_any_text_has_a_name_that_windows_takes(text: str) -> None:
    """For the parts of which paths are made, also with what is put after them."""
    assert is_taken_by_windows(safe_name(text))
    assert is_taken_by_windows(checkpoint_path(Path("rank-0"), text, "target").name)
    assert is_taken_by_windows(sink_directory(Path("run"), text, 0).name)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_a_run_writes_has_a_name_of_another_kind(tmp_path: Path, name: str) -> None:
    """Its directory, its log, blobs, what a sink refused, checkpoints, TensorBoard's files."""
    pytest.importorskip("eventlog_tensorboard")
    runs, model = tmp_path / "runs", tmp_path / "model.bin"
    model.write_bytes(b"weights")
    refusing = FaultySink(write=ValueError("bad"))
    sinks = {name: MemorySink(), f"{name}2": refusing, f"{name}3": {"sink": "tensorboard"}}
    with Run(name, name, dir=runs, run_id=name, sinks=sinks, retry=QUICK) as run:
        run.step({name: 1.0, f"{name}/{name}": 2.0})
        run.log({name: 1.0}, step=3, axis=name)
        run.text(name, name)
        run.image(name, np.zeros((2, 2)))
        run.artifact(model, name, copy=True)
        assert run.flush().written
    found = list(runs.rglob("*"))
    assert {"blobs", "dead", "checkpoints", "rank-0"} <= {path.name for path in found}
    for path in found:
        inside = path.relative_to(runs)
        assert all(is_taken_by_windows(part) for part in inside.parts), inside
        assert len(str(inside)) <= LONGEST, inside


def test_a_run_is_read_under_the_directory_it_was_moved_to(tmp_path: Path) -> None:
    """No path in it is that of the system where it was written."""
    with Run("a:b", dir=tmp_path / "here") as run:
        run.step(x=1.0)
        run.image("i", np.zeros((2, 2)))
    assert run.dir is not None
    there = tmp_path / "there"
    os.rename(run.dir, there)
    log = open_log(there)
    assert log.status() == "finished"
    blobs = [e.blobs[0] for e in log.events(types=["image"])]  # type: ignore[attr-defined]
    assert [(there / "blobs" / blob.sha256).exists() for blob in blobs] == [True]
