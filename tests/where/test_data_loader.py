"""Workers of a DataLoader whose data set holds the run that training logs to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import open_log

pytest.importorskip("torch")

PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch.utils.data
import eventlog


class Numbers(torch.utils.data.Dataset):
    def __init__(self, run):
        self.run = run

    def __len__(self):
        return 64

    def __getitem__(self, n):
        self.run.step(worker=n)
        self.run.image("worker", lambda: 1 / 0)
        dropped = self.run.statistics().log.dropped
        return n, sum(dropped.values())


if __name__ == "__main__":
    eventlog.close_on_sigterm()
    with eventlog.Run("p", dir=sys.argv[1], sinks="tensorboard") as run:
        loader = torch.utils.data.DataLoader(
            Numbers(run), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[2]
        )
        counted = 0
        for epoch in run.epochs(int(sys.argv[3])):
            for n, dropped in loader:
                run.step(first=n[0])
                counted = max(counted, int(dropped.max()))
        # workers that are left in the middle are ended by a signal
        next(iter(loader))
        report = run.flush()
    print(json.dumps([str(run.dir), report.complete, counted]))
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("method", "epochs"), [("fork", 3), ("spawn", 1)])
def test_workers_log_nothing_and_hold_nothing_up(tmp_path: Path, method: str, epochs: int) -> None:
    """What they are given is counted there; the parent's log and tracker have all of its own."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), method, str(epochs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    run_dir, complete, counted = json.loads(done.stdout)
    assert complete
    # each of two workers has 32 items an epoch, and logs two things for each
    assert counted == 64
    events = list(open_log(run_dir).events())
    assert not [e for e in events if "worker" in e.values or getattr(e, "tag", "") == "worker"]
    firsts = [e.values["first"] for e in events if "first" in e.values]
    assert firsts == list(range(0, 64, 4)) * epochs
    assert open_log(run_dir).status() == "finished"
