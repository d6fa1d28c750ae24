"""What the tests of the integrations share: TensorBoard's reader, and programs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# the frameworks import every tracker that is installed, and Comet's reports errors to a server of
# its own unless it is told before
os.environ.setdefault("COMET_ERROR_TRACKING_ENABLE", "false")

Points = dict[str, list[tuple[int, float]]]


@pytest.fixture
def points() -> Callable[[Path], Points]:
    """Read the curves in a folder with TensorBoard's own reader, in the order of the file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder: Path) -> Points:
        reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        reader.Reload()
        return {
            tag: [(point.step, point.value) for point in reader.Scalars(tag)]
            for tag in reader.Tags()["scalars"]
        }

    return read


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python in an empty folder: a file with its arguments, or ``"-c"`` and a text."""

    def run(*arguments: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
        return done

    return run
