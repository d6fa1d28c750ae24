"""A tracker that is down for 100,000 events: time, not points, and no memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FLAT = 8 * 1024 * 1024
"""What 100,000 events more may take: the newest 65,536 are in memory whatever a sink does."""

CACHE = 64 * 1024 * 1024


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.timeout(120)
def test_an_outage_of_100_000_events_costs_nothing_but_time(
    children: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """All arrive, in order, when the sink is up again; memory is flat; other sinks do not notice.

    One sink is down, another hangs in its first call until then: both are beyond what is in
    memory by far, and read the log.
    """
    done = subprocess.run(
        [sys.executable, str(children / "outage.py"), str(tmp_path)],
        check=True,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=110,
    )
    found = json.loads(done.stdout)
    assert found["taken"] == dict.fromkeys(("good", "down", "stalled"), found["emitted"])
    assert found["disorder"] == found["lost"] == 0
    assert found["complete"]
    assert found["behind"]["down"] <= 512
    assert found["behind"]["stalled"] <= 512
    assert found["tries"] > 20
    assert found["good_slowest"] < 1.0
    assert found["cache"] < CACHE
    assert found["growth"] < FLAT
    assert found["catching_up"] < FLAT
    print({k: round(v, 3) for k, v in found.items() if isinstance(v, int | float)})
