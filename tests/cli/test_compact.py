"""A run's log in less space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventlog import Run, open_log

from .conftest import Cli, MakeRun, damage, segment_of


def test_a_log_takes_less_space_and_says_the_same(cli: Cli, make_run: MakeRun) -> None:
    """Bytes before and after, for each segment."""
    run_dir = make_run(steps=2000)
    before = [repr(event) for event in open_log(run_dir).events()]  # NaN is equal to nothing
    path = segment_of(run_dir)
    size = path.stat().st_size
    result = cli("compact", run_dir)
    assert result.exit_code == 0, result.stderr
    assert path.stat().st_size < size / 2
    assert result.stdout.startswith(f"{path}: ")
    assert "KiB -> " in result.stdout
    assert [repr(event) for event in open_log(run_dir).events()] == before
    assert cli("verify", run_dir).exit_code == 0


def test_what_is_compact_stays(cli: Cli, run_dir: Path) -> None:
    """A second time there is nothing to do, and nothing wrong."""
    cli("compact", run_dir)
    result = cli("compact", run_dir)
    assert result.exit_code == 0
    assert result.stdout.endswith("left as it is: it is compact already\n")


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_segments_are_added_up(codec: str, cli: Cli, tmp_path: Path) -> None:
    """In all, with either codec; the document has bytes."""
    if codec == "zstd":
        pytest.importorskip("zstandard")
    with Run("p", dir=tmp_path, segment_bytes=4096) as run:
        for i in range(100):
            run.step({f"a/rather/long/name/{i % 10}": 0.5})
            if i % 10 == 0:
                run.flush()
    paths = sorted(tmp_path.rglob("*.elog"))
    assert len(paths) > 1
    before = sum(path.stat().st_size for path in paths)
    result = cli("compact", tmp_path, "--codec", codec)
    assert result.exit_code == 0, result.stderr
    *each, total = result.stdout.splitlines()
    assert len(each) == len(paths)
    assert total.startswith("in all: ")
    after = sum(path.stat().st_size for path in paths)
    assert after < before
    found = json.loads(cli("compact", tmp_path, "--json").stdout)
    assert sum(one["before"] for one in found) == sum(one["after"] for one in found) == after
    assert {one["skipped"] for one in found} == {"it is compact already"}


def test_what_is_being_written_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    """The newest segment of a run that goes on; that is no failure."""
    with Run("p", dir=tmp_path) as run:
        run.step(loss=1.0)
        run.flush()
        result = cli("compact", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.endswith("left as it is: it is being written\n")


def test_a_damaged_segment_is_1(cli: Cli, run_dir: Path) -> None:
    """It stays as it is: something may be had from it yet."""
    path = segment_of(run_dir)
    damage(path)
    data = path.read_bytes()
    result = cli("compact", run_dir)
    assert result.exit_code == 1
    assert "left as it is: it is damaged" in result.stdout
    damage(path, 0.0, len(data))
    result = cli("compact", run_dir)
    assert result.exit_code == 1
    assert "left as it is: its header cannot be read" in result.stdout


def test_an_unknown_codec_is_wrong_usage(cli: Cli, run_dir: Path) -> None:
    """The choices are named."""
    result = cli("compact", run_dir, "--codec", "lz4")
    assert result.exit_code == 2
    assert "zstd" in result.stderr
