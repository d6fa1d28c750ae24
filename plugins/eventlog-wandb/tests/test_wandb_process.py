"""What the sink leaves alone in its process, and how the helper process ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eventlog.sinks.base import RunInfo
from eventlog_wandb import WandbSink
from eventlog_wandb.session import _core_process

CHECK = """
import json, logging, os, signal, socket, sys, threading, warnings
from pathlib import Path
import eventlog_wandb
assert "wandb" not in sys.modules, "importing the plugin imports the SDK"
from eventlog.events import StepEvent, TextEvent
from eventlog.sinks.base import RunInfo

asked = []
real = socket.getaddrinfo, socket.socket.connect
def looked_up(*args, **options):
    asked.append(str(args))
    return real[0](*args, **options)
def connected(self, address):
    if self.family != socket.AF_UNIX:
        asked.append(str(address))
    return real[1](self, address)
socket.getaddrinfo, socket.socket.connect = looked_up, connected

def seen():
    return {
        "exit": repr(sys.exit), "hook": repr(sys.excepthook), "out": repr(sys.stdout),
        # what six, which other libraries need, finds its own modules by; it finds no others
        "path": [repr(f) for f in sys.meta_path if type(f).__name__ != "_SixMetaPathImporter"],
        "err": repr(sys.stderr),
        "warnings": list(map(repr, warnings.filters)),
        "signals": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "root": repr(logging.getLogger().handlers), "environ": dict(os.environ),
        "except": repr(threading.excepthook), "torch": "torch" in sys.modules,
    }

before = seen()
sink = eventlog_wandb.WandbSink(mode="offline", dir=sys.argv[1])
sink.open(RunInfo(run_id="r1", project="p", config={"a": 1}))
after_open = seen()
sink.write([StepEvent(step=0, values={"v": 1.0}, seq=0), TextEvent(tag="t", text="x", seq=1)])
sink.flush()
after_write = seen()
from eventlog_wandb.session import _core_process
core = _core_process().pid
if sys.argv[2] == "close":
    sink.close("finished")
after_close = seen()
changed = [key for now in (after_open, after_write, after_close) for key in now
           if now[key] != before[key]]
threads = [thread.name for thread in threading.enumerate()]
print(json.dumps({"changed": changed, "asked": asked, "core": core, "threads": threads}))
"""


def ran(where: Path, how: str, **env: str) -> tuple[dict[str, Any], str]:
    """Run the check in a process of its own; return what it saw, and what it printed beside."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(where), how],
        env=os.environ | env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    return json.loads(last), "\n".join(printed) + done.stderr


def gone(pid: int, seconds: float = 20.0) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_the_process_stays_as_it_was(tmp_path: Path) -> None:
    """No hook, filter, handler or variable is left, no host is asked for, nothing is printed."""
    found, printed = ran(tmp_path, "close")
    assert found["changed"] == []
    assert found["asked"] == []
    assert found["threads"] == ["MainThread"]
    assert printed == ""
    assert gone(found["core"], 0.5)


def test_a_process_that_never_closes_ends_at_once(tmp_path: Path) -> None:
    """The exit does not wait for wandb-core, which then ends by itself."""
    begun = time.monotonic()
    found, printed = ran(tmp_path, "leave", WANDB_SERVICE="3-1-unix-/nowhere")
    assert time.monotonic() - begun < 30
    assert found["changed"] == []
    assert printed == ""
    assert gone(found["core"])


def test_a_close_that_takes_too_long_kills_the_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the SDK's finish hangs, wandb-core is killed after a while, and close raises."""
    monkeypatch.setattr("eventlog_wandb.sink._END_PATIENCE", 0.2)
    settings = {"finish_timeout": 0.1}
    sink = WandbSink(mode="offline", dir=tmp_path, init={"settings": settings})
    sink.open(RunInfo(run_id="r1", project="p"))
    core = _core_process()

    def hangs(exit_code: int) -> None:
        core.wait()
        raise ConnectionError("wandb-core is gone")

    monkeypatch.setattr(type(sink.tracker), "finish", lambda self, exit_code: hangs(exit_code))
    with pytest.raises(Exception, match="wandb-core has ended"):
        sink.close("finished")
    assert core.poll() is not None
    assert _core_process() is None


def test_a_run_of_the_user_s_own_goes_on(tmp_path: Path) -> None:
    """The SDK's state that a user's run needs is left alone: its settings, run and service."""
    import wandb

    quiet = wandb.Settings(silent=True, x_disable_meta=True, x_disable_stats=True, console="off")
    own = wandb.init(mode="offline", dir=tmp_path / "own", project="own", settings=quiet)
    core = _core_process()
    try:
        sink = WandbSink(mode="offline", dir=tmp_path / "ours")
        sink.open(RunInfo(run_id="r1", project="p"))
        assert wandb.run is own
        assert sink.tracker is not own
        sink.close("finished")
        assert core.poll() is None
        own.log({"a": 1})
    finally:
        own.finish()
        wandb.teardown()
    assert core.poll() is not None


def test_extras_are_off_and_can_be_switched_on(tmp_path: Path) -> None:
    """Each of the SDK's extras is off; `init` switches it on by the SDK's own name."""
    sink = WandbSink(mode="offline", dir=tmp_path / "a")
    sink.open(RunInfo(run_id="r1", project="p"))
    off = sink.tracker.settings
    assert (off.console, off.disable_git, off.disable_code) == ("off", True, True)
    assert (off.x_disable_stats, off.x_disable_meta, off.save_code) == (True, True, False)
    sink.close("finished")
    wanted = {"x_disable_stats": False, "disable_git": False, "run_tags": None}
    init = {"job_type": "train", "save_code": True, "settings": wanted}
    sink = WandbSink(mode="offline", dir=tmp_path / "b", init=init)
    sink.open(RunInfo(run_id="r1", project="p"))
    on = sink.tracker.settings
    assert (on.x_disable_stats, on.disable_git, on.save_code) == (False, False, True)
    assert sink.tracker.job_type == "train"
    sink.close("finished")
