"""How the delivering process leaves a tracker: with the run's own status, and once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventlog
from eventlog.log.checkpoint import CheckpointFile, checkpoint_path


def statuses(run_dir: Path) -> list[str]:
    lines = (run_dir / "slow" / "batches.jsonl").read_text().split("\n")
    return [line["status"] for line in map(json.loads, filter(None, lines)) if "status" in line]


def by_hand(run_dir: Path, environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "eventlog.sidecar", str(run_dir)]
    return subprocess.run(command, timeout=50, check=False, env=environment).returncode


@pytest.mark.parametrize("status", ["finished", "failed", "interrupted"])
@pytest.mark.parametrize("types", [None, ["step"]])
def test_a_process_killed_before_it_closed_the_sink(
    children: Path, environment: dict[str, str], tmp_path: Path, status: Any, types: Any
) -> None:
    """Its successor, to which no event is left, closes with the status that the log has."""
    slow = {"sink": "slow_sink:SlowSink", "pause": 0.0, "types": types}
    run = eventlog.Run("p", dir=tmp_path, sinks={"slow": slow})
    run.step(n=1)
    run.close(status)
    assert run.dir is not None
    assert statuses(run.dir) == [status]
    path = checkpoint_path(run.dir / "rank-0", "slow", "")
    file = CheckpointFile(path)
    kept = file.load()
    assert kept is not None
    file.save(msgspec.structs.replace(kept, done=False), sync=True)
    file.close()
    assert by_hand(run.dir, environment) == 0
    assert statuses(run.dir) == [status, status]
    # now that it is done, there is nothing to open the tracker for
    assert by_hand(run.dir, environment) == 0
    assert statuses(run.dir) == [status, status]
