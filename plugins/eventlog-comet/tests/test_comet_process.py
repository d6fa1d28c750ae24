"""What importing, opening and closing the sink leaves of the process: all as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = """
import json, logging, os, random, signal, socket, sys, tempfile, threading, warnings
from pathlib import Path
from eventlog.events import StepEvent
from eventlog.sinks.base import RunInfo

def no_network(*arguments, **options):
    raise AssertionError(f"network: {arguments}")

socket.getaddrinfo = socket.socket.connect = no_network

def process():
    return {
        "excepthook": sys.excepthook,
        "threads": threading.excepthook,
        "unraisable": sys.unraisablehook,
        "display": sys.displayhook,
        "stdout": sys.stdout,
        "stderr": sys.stderr,
        "signals": {s: signal.getsignal(s) for s in signal.valid_signals()},
        "environ": dict(os.environ),
        "filters": list(warnings.filters),
        "handlers": list(logging.root.handlers),
        "level": logging.root.level,
        "logger": logging.getLoggerClass(),
        "path": list(sys.path),
        "hooks": list(sys.path_hooks),
        "tempdir": tempfile.tempdir,
        "cwd": os.getcwd(),
        "random": random.getstate(),
    }

def finders():
    return [type(finder).__module__ for finder in sys.meta_path]

before, before_finders = process(), finders()
import eventlog_comet
assert "comet_ml" not in sys.modules
folder = Path(sys.argv[1])

def check(when):
    after = process()
    changed = [name for name in before if before[name] != after[name]]
    assert changed == [], (when, changed)
    assert not [name for name in finders() if name.startswith("comet_ml")], when
    assert "torch" not in sys.modules

def run(**options):
    sink = eventlog_comet.CometSink(**options)
    sink.open(RunInfo(run_id="r", project="p", directory=folder / "comet", config={"a": 1}))
    return sink

def log(sink, first=0):
    sink.write([StepEvent(step=s, values={"v": 1.0}, seq=s) for s in range(first, first + 5)])
    sink.flush()
"""


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", SETUP + code, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert child.returncode == 0, child.stderr
    return child


def test_the_process_stays_as_it_was(tmp_path: Path) -> None:
    """Hooks, streams, signals, environment and filters are untouched; there is no output."""
    child = python(
        tmp_path,
        """
check("import")
sink = run()
check("open")
log(sink)
check("write")
sink.close("finished")
check("close")
from comet_ml.config import get_global_experiment
assert get_global_experiment() is None
print(threading.active_count(), sink.unshown)
""",
    )
    assert (child.stdout, child.stderr) == ("1 {}\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["comet"]


def test_a_seeded_process_has_an_archive_for_each_run(tmp_path: Path) -> None:
    """A training that seeds Python's generator in the same way again overwrites no archive."""
    python(
        tmp_path,
        """
state = {}
for _ in range(2):
    random.seed(0)
    sink = eventlog_comet.CometSink()
    sink.open(RunInfo(run_id="r", directory=folder / "comet", state=state))
    log(sink)
    assert random.random() == 0.8444218515250481
    sink.close("finished")
    state = sink.state()
""",
    )
    assert len(list((tmp_path / "comet").glob("*.zip"))) == 2


def test_a_sink_that_is_never_closed_lets_the_process_end(tmp_path: Path) -> None:
    """Nothing of the SDK runs at exit, and what was flushed is there for the next process."""
    child = python(tmp_path, "log(run())\n")
    assert (child.stdout, child.stderr) == ("", "")
    (left,) = (tmp_path / "comet" / "unfinished").glob("*/messages.json")
    assert left.read_text().count("metric_msg") == 5


def test_an_experiment_of_the_users_goes_on(tmp_path: Path) -> None:
    """The sink neither ends nor takes over an experiment that the user runs in the process."""
    child = python(
        tmp_path,
        """
os.environ |= {"COMET_DISABLE_AUTO_LOGGING": "1", "COMET_ERROR_TRACKING_ENABLE": "false",
               "COMET_LOGGING_CONSOLE": "CRITICAL"}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import comet_ml
(folder / "own").mkdir()
own = comet_ml.OfflineExperiment(
    project_name="p", offline_directory=str(folder / "own"), log_code=False,
    log_env_details=False, log_git_metadata=False, auto_output_logging=False, parse_args=False,
)
before = process()
sink = run(project="p")
check("open")
assert sink.tracker is not own and own.alive
assert comet_ml.get_running_experiment() is own
log(sink)
sink.close("finished")
assert own.alive and comet_ml.get_running_experiment() is own
own.log_metric("mine", 1.0, step=1)
own.end()
""",
    )
    assert child.stderr == ""
    assert len(list((tmp_path / "own").glob("*.zip"))) == 1


def test_extras_can_be_switched_on(tmp_path: Path) -> None:
    """What the SDK collects by itself comes when it is asked for by the SDK's name, only then."""
    python(
        tmp_path,
        """
import zipfile
sink = run(sdk_options={"parse_args": True, "auto_output_logging": "simple"})
print("said in training")
log(sink)
sink.close("finished")
check("close")
with zipfile.ZipFile(sink.url) as file:
    text = file.read("messages.json").decode()
assert "said in training" in text
""",
    )


@pytest.mark.parametrize("module", ["comet_ml", "numpy", "requests"])
def test_the_package_is_light(module: str) -> None:
    """Importing the plugin, making a sink and asking whether it is ready imports no SDK."""
    code = (
        "import json, sys; from eventlog_comet import CometSink; CometSink(online=True); "
        "CometSink.unready({'online': True}); print(json.dumps(sorted(sys.modules)))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert module not in json.loads(child.stdout)
