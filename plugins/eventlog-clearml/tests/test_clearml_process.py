"""What the sink does to its process: nothing that was not asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventlog_clearml import ClearmlSink

SCRIPT = """
import argparse, builtins, json, logging, os, signal, sys, threading, warnings
from multiprocessing.process import BaseProcess
from pathlib import Path
import eventlog_clearml
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo

def things():
    return {
        "stdout": sys.stdout, "stderr": sys.stderr, "excepthook": sys.excepthook,
        "exit": sys.exit, "fork": os.fork, "_exit": os._exit, "import": builtins.__import__,
        "run": BaseProcess.run, "parse": argparse.ArgumentParser.parse_args,
        "known": argparse.ArgumentParser.parse_known_args, "warnings": list(warnings.filters),
        "root": list(logging.getLogger().handlers), "environ": dict(os.environ),
        "thread hook": threading.excepthook,
        "signals": {n: signal.getsignal(n) for n in signal.valid_signals()},
    }

def changes(before):
    return sorted(key for key, value in things().items() if value != before[key])

assert "clearml" not in sys.modules, "eager"
options = json.loads(sys.argv[1])
run = RunInfo(run_id="r-1", project="proj", name="name")
before = things()
sink = eventlog_clearml.ClearmlSink(**options)
sink.open(run)
found = {"opened": changes(before)}
print("a line of the program")
sink.write([StepEvent(step=1, values={"v": 1.0}, seq=0)])
from clearml import Task
found["current"] = Task._Task__main_task is not None
sink.close("failed")
found["closed"] = changes(before)
found["threads"] = [t.name for t in threading.enumerate() if not t.daemon]
found["heavy"] = sorted({"torch", "tensorflow", "matplotlib"} & set(sys.modules))
found["status"] = json.loads((Path(sink.url) / "task.json").read_text())["status"]
log = Path(sink.url) / "log.jsonl"
found["console"] = "a line of the program" in (log.read_text() if log.exists() else "")
run_job = sys.modules["hydra.core.utils"].run_job if "hydra.core.utils" in sys.modules else None
found["hydra"] = getattr(run_job, "__module__", "hydra.core.utils")
again = eventlog_clearml.ClearmlSink(**options)
again.open(RunInfo(run_id="r-1", project="proj", name="name", state=sink.state()))
again.close("finished")
found["same"] = again.run_id == sink.run_id
print("RESULT" + json.dumps(found))
"""


def run_alone(script: str, *arguments: str, **variables: str) -> tuple[dict[str, Any], str]:
    """Run a script; return what it found, and what else it printed."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    printed, _, result = done.stdout.rpartition("RESULT")
    found: dict[str, Any] = json.loads(result)
    return found, printed


def test_the_process_stays_as_it_was(tmp_path: Path) -> None:
    """Nothing is hooked, printed or captured, and there is no main task that could be."""
    options = json.dumps({"offline": True, "dir": str(tmp_path)})
    found, printed = run_alone(SCRIPT, options)
    assert found == {
        "opened": [],
        "current": False,
        "closed": [],
        "threads": ["MainThread"],
        "heavy": [],
        "status": "failed",
        "console": False,
        "hydra": "hydra.core.utils",
        "same": True,
    }
    assert printed == "a line of the program\n"


def test_a_parent_process_with_a_task_does_not_matter(tmp_path: Path) -> None:
    """A sidecar whose parent has a main task makes its own, and leaves the variable alone."""
    options = json.dumps({"offline": True, "dir": str(tmp_path)})
    found, _ = run_alone(SCRIPT, options, CLEARML_PROC_MASTER_ID="1:somebody")
    assert (found["opened"], found["closed"], found["current"]) == ([], [], False)
    assert (found["status"], found["same"]) == ("failed", True)
    assert len(list((tmp_path / "offline").glob("*.zip"))) == 1


@pytest.mark.slow
def test_extras_are_those_of_task_init(tmp_path: Path) -> None:
    """With `init` the task is the main one; what is asked for is captured, no more is hooked."""
    extras = {"auto_connect_streams": True, "task_type": "testing"}
    options = json.dumps({"offline": True, "dir": str(tmp_path), "init": extras})
    found, _ = run_alone(SCRIPT, options)
    assert found["opened"] == ["stderr", "stdout"]
    assert found["current"] is True
    assert found["console"] is True
    assert (found["status"], found["same"]) == ("failed", True)
    assert set(found["closed"]) <= {"stderr", "stdout"}


ADOPT = """
import json, sys
from clearml import Task
from eventlog.events import StepEvent
from eventlog.exceptions import RefusedError
from eventlog.sinks.base import RunInfo
from eventlog_clearml import ClearmlSink

run = RunInfo(run_id="r-1", project="proj", name="name")
alone = ClearmlSink(adopt=True, offline=True, dir=sys.argv[1])
alone.open(run)
found = {"without": alone.run_id is not None}
alone.close("finished")
Task.set_offline(True)
task = Task.init("mine", "theirs", auto_connect_frameworks={"detect_repository": False},
                 auto_connect_streams=False, auto_resource_monitoring=False)
sink = ClearmlSink(adopt=True)
sink.open(run)
sink.write([StepEvent(step=1, values={"v": 1.0}, seq=0)])
found["same"] = sink.tracker is task
sink.close("failed")
found["open"] = Task.current_task() is task and task.name == "theirs"
beside = ClearmlSink(offline=True, dir=sys.argv[1])
beside.open(run)
found["beside"] = beside.run_id != task.id
beside.close("finished")
found["still"] = Task.current_task() is task and Task.is_offline()
errors = []
for options in ({"offline": True, "init": {}}, {"offline": False}):
    try:
        ClearmlSink(**options).open(run)
    except RefusedError as error:
        errors.append(str(error))
found["errors"] = errors
found["point"] = "training_stats_scalar" in open(sink.url + "/metrics.jsonl").read()
task.close()
print("RESULT" + json.dumps(found))
"""


@pytest.mark.slow
def test_the_users_own_task_is_adopted_or_left_alone(tmp_path: Path) -> None:
    """An adopted task stays open; beside the user's own the sink has another one."""
    found, _ = run_alone(ADOPT, str(tmp_path), CLEARML_CACHE_DIR=str(tmp_path / "theirs"))
    errors = found.pop("errors")
    assert all(found.values()), found
    assert "adopt=True" in errors[0]
    assert "one mode at a time" in errors[1]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without credentials the sink says how to get some; offline it needs none."""
    for name in [name for name in os.environ if name.startswith("CLEARML_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "clearml-init" in str(ClearmlSink.unready({}))
    assert ClearmlSink.unready({"offline": True}) is None
    (tmp_path / "clearml.conf").write_text("api {}")
    assert ClearmlSink.unready({}) is None
    (tmp_path / "clearml.conf").unlink()
    monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "key")
    assert ClearmlSink.unready({}) is not None
    monkeypatch.setenv("CLEARML_API_SECRET_KEY", "secret")
    assert ClearmlSink.unready({}) is None
    monkeypatch.delenv("CLEARML_API_SECRET_KEY")
    monkeypatch.setenv("CLEARML_OFFLINE_MODE", "1")
    assert ClearmlSink.unready({}) is None
    assert ClearmlSink.unready({"offline": False}) is not None
    assert ClearmlSink(dir=tmp_path).target() == f"offline:{tmp_path}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"project": ""}, "project must be a text"),
        ({"task_id": 3}, "task_id must be a text"),
        ({"offline": "yes"}, "offline must be True, False or None"),
        ({"dir": 3}, "dir must be a path"),
        ({"adopt": 1}, "adopt must be True or False"),
        ({"upload_artifacts": None}, "upload_artifacts must be True or False"),
        ({"task_type": "trainig"}, "task_type must be one of training"),
        ({"init": [1]}, "init must be a mapping"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    """What cannot be an option is refused when the sink is made."""
    with pytest.raises((TypeError, ValueError), match=message):
        ClearmlSink(**options)
