"""The short form of ``make soak``: rotation, resumes, two sinks that fail, everything counted."""

import subprocess
import sys
from pathlib import Path


def test_nothing_grows_and_nothing_is_lost() -> None:
    """Over four attempts every sink gets every event that it does not refuse."""
    script = Path(__file__).with_name("soak.py")
    options = ["--seconds", "6", "--rate", "2000", "--attempts", "4", "--segment-bytes", "65536"]
    done = subprocess.run(
        [sys.executable, str(script), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all is accounted for" in done.stdout
