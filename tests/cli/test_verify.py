"""Finding damage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from eventlog import Run

from .conftest import Cli, MakeRun, damage, segment_of

LIVE = """
import sys
from eventlog import Run
run = Run("p", dir=sys.argv[1])
run.step(loss=1.0)
run.flush()
print(run.dir, flush=True)
sys.stdin.read()
"""


def test_a_whole_log_is_well(cli: Cli, run_dir: Path) -> None:
    """It counts what it read."""
    result = cli("verify", run_dir)
    assert result.exit_code == 0
    assert "48 events" in result.stdout
    assert result.stdout.endswith("read, all is well\n")


def test_a_damaged_payload_is_found(cli: Cli, make_run: MakeRun) -> None:
    """Bytes, place and the events that are gone with them; exit code 1."""
    run_dir = make_run(steps=5000)
    damage(segment_of(run_dir), 0.3)
    result = cli("verify", run_dir, "--json")
    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)
    (place,) = found["damage"]
    assert place["length"] > 8
    assert 0 < place["offset"] < segment_of(run_dir).stat().st_size
    assert "damaged payload" in place["reason"]
    ((first, end),) = found["missing"]
    assert found["events"] == 5504 - (end - first)
    shown = cli("verify", run_dir)
    assert shown.exit_code == 1
    assert f"missing: {end - first:,} events, seq {first} to {end - 1}" in shown.stdout


def test_events_of_the_last_block_are_missed_too(cli: Cli, run_dir: Path) -> None:
    """A block's header says what was in it, also where nothing comes after it."""
    damage(segment_of(run_dir), 0.9)
    (found,) = json.loads(cli("verify", run_dir, "--json").stdout)
    ((first, end),) = found["missing"]
    assert (found["events"], end) == (first, 48)


def test_a_torn_tail_is_found(cli: Cli, run_dir: Path) -> None:
    """What a killed process left half written."""
    path = segment_of(run_dir)
    path.write_bytes(path.read_bytes()[:-3])
    result = cli("verify", run_dir)
    assert result.exit_code == 1
    assert "a tail that is no block" in result.stdout


def test_a_segment_without_a_header_is_found(cli: Cli, run_dir: Path) -> None:
    """One copy of it serves, with damage; without any all is lost, and said to be."""
    path = segment_of(run_dir)
    damage(path, 0.0, 64)
    (found,) = json.loads(cli("verify", run_dir, "--json").stdout)
    assert found["events"] == 48
    assert "the header's copy serves" in found["damage"][0]["reason"]
    damage(path, 0.0, path.stat().st_size)
    (found,) = json.loads(cli("verify", run_dir, "--json").stdout)
    assert found["events"] == 0
    assert found["damage"][0]["length"] == path.stat().st_size
    assert found["damage"][0]["reason"] == "no header can be read"


def test_bytes_that_are_no_block_are_found(cli: Cli, run_dir: Path) -> None:
    """Also where all blocks are whole and something was put between or after them."""
    path = segment_of(run_dir)
    path.write_bytes(path.read_bytes() + b"\0" * 500)
    (found,) = json.loads(cli("verify", run_dir, "--json").stdout)
    assert found["damage"][0]["length"] == 500
    assert found["missing"] == []


def test_what_a_living_run_writes_is_no_damage(cli: Cli, tmp_path: Path) -> None:
    """Half a block at the end of a log that is being written will become one."""
    with subprocess.Popen(
        [sys.executable, "-c", LIVE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        run_dir = Path(child.stdout.readline().strip())
        with segment_of(run_dir).open("ab") as file:
            file.write(b"half a block")
        result = cli("verify", run_dir)
        assert json.loads(cli("info", run_dir, "--json").stdout)["status"] == "running"
        child.kill()
    assert result.exit_code == 0
    assert "being written: 12 bytes" in result.stdout
    assert cli("verify", run_dir).exit_code == 1


def test_blobs_are_compared_with_their_digests(cli: Cli, tmp_path: Path) -> None:
    """A file that was changed or removed is damage like any other."""
    kept = tmp_path / "weights.bin"
    kept.write_bytes(b"weights" * 100)
    with Run("p", dir=tmp_path / "runs") as run:
        run.artifact(kept, copy=True)
    assert run.dir is not None
    (blob,) = (run.dir / "blobs").iterdir()
    assert "1 blobs" in cli("verify", run.dir).stdout
    damage(blob)
    result = cli("verify", run.dir)
    assert result.exit_code == 1
    assert "a blob that is not what was kept" in result.stdout
    blob.unlink()
    assert "a blob that is not there" in cli("verify", run.dir).stdout
