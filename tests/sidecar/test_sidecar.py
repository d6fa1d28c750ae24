"""The delivering process: real processes, killed at will; every point arrives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventlog
from eventlog._terms import Deadlines, Retry, kept_terms
from eventlog.exceptions import SinkError
from eventlog.log.checkpoint import list_checkpoints
from eventlog.sidecar import NICE, read_status
from eventlog.sinks.plan import read_plan, write_plan

TRAINER = """
    import sys, time
    import eventlog
    run = eventlog.Run("p", dir=sys.argv[1], close_timeout=20, sinks={
        "far": {"sink": "log", "isolate": True},
        "near": {"sink": "log", "every": "10 steps"},
    })
    print(run.dir, flush=True)
    for i in range(int(sys.argv[2])):
        run.step(loss=float(i))
        time.sleep(0.0005)
"""


def start(tmp_path: Path, steps: int, code: str = TRAINER) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), str(steps)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        return process, Path(process.stdout.readline().strip())


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def losses(log_dir: Path) -> list[float]:
    return [float(e.values["loss"]) for e in eventlog.open_log(log_dir).events(types=["step"])]


def test_everything_arrives_and_the_process_ends(tmp_path: Path) -> None:
    """At a plain end both sinks have every event, and no process is left."""
    process, run_dir = start(tmp_path, 500)
    wait_for(lambda: read_status(run_dir, 0) is not None)
    status = read_status(run_dir, 0)
    assert status is not None
    assert process.wait(30) == 0
    wait_for(lambda: not alive(status.pid))
    assert losses(run_dir / "far") == [float(i) for i in range(500)]
    assert losses(run_dir / "near") == [float(i) for i in (*range(0, 500, 10), 499)]
    assert all(c.done for c in list_checkpoints(run_dir / "rank-0"))


def test_the_training_process_does_not_run_the_sink(tmp_path: Path) -> None:
    """An isolated sink is opened in another process; its state and url are known in this one."""
    with eventlog.Run("p", dir=tmp_path, sinks={"far": {"sink": "log", "isolate": True}}) as run:
        run.step(loss=1.0)
        assert run.flush(20).complete
        handle = run.sink("far")
        assert handle.state == "open"
        assert handle.tracker is None
        assert run.dir is not None
        assert handle.url == str(run.dir / "far")
        status = read_status(run.dir, 0)
        assert status is not None
        assert status.pid != os.getpid()
    assert run.sink("far").state == "closed"
    assert run.statistics().sinks["far"].delivered == 3


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="a system without such priorities")
def test_the_process_gives_way_to_the_training(tmp_path: Path) -> None:
    """Where the processor is short, it is not the training that waits."""
    sinks = {"far": {"sink": "log", "isolate": True}}
    with eventlog.Run("p", dir=tmp_path, sinks=sinks) as run:
        run.step(loss=1.0)
        assert run.flush(30).complete
        assert run._supervisor is not None
        pid = run._supervisor.pid
        assert pid is not None
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, own + NICE)


def test_a_killed_trainer_is_delivered_for(tmp_path: Path) -> None:
    """After SIGKILL of the trainer the sidecar delivers what is in the log, and ends."""
    process, run_dir = start(tmp_path, 10**6)
    wait_for(lambda: read_status(run_dir, 0) is not None)
    status = read_status(run_dir, 0)
    assert status is not None
    wait_for(lambda: eventlog.open_log(run_dir).summary().events > 300)
    process.kill()
    process.wait()
    wait_for(lambda: not alive(status.pid))
    assert losses(run_dir / "far") == losses(run_dir)
    assert eventlog.open_log(run_dir).status() == "killed"


def test_a_killed_sidecar_is_started_again(tmp_path: Path) -> None:
    """After SIGKILL of the sidecar another one goes on: nothing is missing, nothing twice."""
    process, run_dir = start(tmp_path, 3000)
    for _ in range(2):
        wait_for(lambda: read_status(run_dir, 0) is not None)
        status = read_status(run_dir, 0)
        assert status is not None
        first = status.pid
        os.kill(first, signal.SIGKILL)

        def another(before: int = first) -> bool:
            now = read_status(run_dir, 0)
            return now is not None and now.pid != before

        wait_for(another)
    assert process.wait(40) == 0
    assert losses(run_dir / "far") == [float(i) for i in range(3000)]


def test_both_killed_and_finished_by_hand(tmp_path: Path) -> None:
    """After SIGKILL of both, the module run by hand delivers the rest."""
    process, run_dir = start(tmp_path, 10**6)
    wait_for(lambda: read_status(run_dir, 0) is not None)
    status = read_status(run_dir, 0)
    assert status is not None
    wait_for(lambda: eventlog.open_log(run_dir).summary().events > 300)
    os.kill(status.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_for(lambda: not alive(status.pid))
    command = [sys.executable, "-m", "eventlog.sidecar", str(run_dir)]
    assert subprocess.run(command, timeout=40, check=False).returncode == 0
    everything = losses(run_dir)
    assert losses(run_dir / "far") == everything
    assert losses(run_dir / "near") == sorted({*everything[::10], everything[-1]})


def test_no_log_no_traceback(tmp_path: Path) -> None:
    """By hand on something that is no run: exit code 2 and a line that says so."""
    command = [sys.executable, "-m", "eventlog.sidecar", str(tmp_path / "nothing")]
    done = subprocess.run(command, timeout=40, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_instance_cannot_be_isolated(tmp_path: Path) -> None:
    """What cannot be made again in another process is refused with the reason."""
    with pytest.raises(ValueError, match="cannot be isolated"):
        eventlog.Run("p", dir=tmp_path, sinks={"x": {"sink": print, "isolate": True}})
    with pytest.raises(ValueError, match="cannot be isolated"):
        eventlog.Run("p", dir=None, sinks={"x": {"sink": "log", "isolate": True}})


AWAY = """
import json, os, time
from pathlib import Path
from eventlog import Sink
from eventlog.exceptions import UnavailableError

class Away(Sink):
    name = "away"
    confirms = "flush"

    def __init__(self, at, api_key="", pause=0.0):
        self.at, self.api_key, self.pause = Path(at), api_key, pause

    def open(self, run):
        update = None if run.model_update is None else run.model_update.kind
        self.say("open", key=self.api_key, attempt=run.attempt, update=update)

    def write(self, batch):
        time.sleep(self.pause)
        if self.at.with_name("down").exists():
            raise UnavailableError("http://bob:SECRET1@host is down")
        self.say("write", steps=[e.step for e in batch if e.values], seqs=[e.seq for e in batch])

    def say(self, what, **more):
        with self.at.open("a") as file:
            file.write(json.dumps({"what": what, "pid": os.getpid(), **more}) + "\\n")

class Aside(Away):
    isolation = "sidecar"

    @classmethod
    def unready(cls, options):
        return "no key: set AWAY_KEY" if options.get("api_key") == "none" else None
"""


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a sink ``away:Away`` that says what it is given in a file; returns that file."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "away.py").write_text(AWAY)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "said.jsonl"


def said(path: Path, what: str) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if line["what"] == what]


def steps_said(path: Path) -> list[int]:
    return [step for line in said(path, "write") for step in line["steps"]]


def isolated(at: Path, **options: Any) -> dict[str, Any]:
    return {"far": {"sink": "away:Away", "isolate": True, "at": str(at), **options}}


def test_what_an_earlier_attempt_s_process_said_is_not_taken_for_this_one_s(
    tmp_path: Path, away: Path
) -> None:
    """Also within one process: flush() waits for what this attempt's sidecar delivers."""
    with eventlog.Run("p", dir=tmp_path, sinks=isolated(away)) as run:
        for _ in range(100):
            run.step(loss=1.0)
    for attempt in (2, 3):
        with eventlog.Run("p", dir=tmp_path, sinks=isolated(away), resume=run.id) as run:
            assert run.sink("far").state == "waiting"
            for _ in range(20):
                run.step(loss=1.0)
            assert run.flush(20).complete
            assert len(steps_said(away)) == 100 + 20 * (attempt - 1)
            assert [line["attempt"] for line in said(away, "open")][-1] == attempt
    (tmp_path / "down").touch()
    run = eventlog.Run("p", dir=tmp_path, sinks=isolated(away), resume=run.id)
    run.step(loss=1.0)
    report = run.flush(1)
    assert (report.complete, set(report.left)) == (False, {"far"})
    (tmp_path / "down").unlink()
    assert run.close().complete


def test_a_secret_option_reaches_the_process_and_nobody_else(tmp_path: Path, away: Path) -> None:
    """It is in no file of the run, no list of processes and no environment."""
    secret = "s3cr3t-v4lue"  # noqa: S105 - not one
    sinks = isolated(away, api_key=secret)
    with eventlog.Run("p", dir=tmp_path / "runs", sinks=sinks) as run:
        run.step(loss=1.0)
        assert run.flush(20).complete
        (opened,) = said(away, "open")
        assert opened["key"] == secret
        for part in ("cmdline", "environ"):
            assert secret.encode() not in Path(f"/proc/{opened['pid']}/{part}").read_bytes()
        assert os.readlink(f"/proc/{opened['pid']}/fd/0") == os.devnull
        # also the one that takes its place has it
        os.kill(opened["pid"], signal.SIGKILL)
        wait_for(lambda: len(said(away, "open")) == 2)
        assert said(away, "open")[1]["key"] == secret
    for path in (tmp_path / "runs").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()


def test_what_the_run_grants_its_sinks_holds_in_the_process_too(tmp_path: Path, away: Path) -> None:
    """A write that takes longer than its deadline is given up there as it would be here."""
    run = eventlog.Run(
        "p", dir=tmp_path, sinks=isolated(away, pause=30.0), deadlines=Deadlines(write=0.2)
    )
    run.step(loss=1.0)
    wait_for(lambda: run.sink("far").state == "failed")
    assert "write() took longer than 0.2 s" in str(run.sink("far").error)
    assert "far" in run.close().left
    assert run.dir is not None
    # and for who delivers later
    assert kept_terms(run.dir) == (Deadlines(write=0.2), Retry())


def test_a_sink_is_told_where_the_run_stands(tmp_path: Path, away: Path) -> None:
    """The attempt of the first event to come, and the last model update before it."""
    with eventlog.Run("p", dir=tmp_path, sinks=isolated(away)) as run:
        run.step(loss=1.0)
        run.model_updated("prune")
        run.step(loss=1.0)
    with eventlog.Run("p", dir=tmp_path, sinks=isolated(away), resume=run.id) as run:
        run.step(loss=1.0)
    (tmp_path / "down").touch()
    sinks = {"far": {"sink": "away:Away", "at": str(away)}}
    run = eventlog.Run("p", dir=tmp_path, sinks=sinks, resume=run.id)
    run.model_updated("grow")
    run.close(timeout=0.1)
    port = run._delivery.ports["far"]
    wait_for(lambda: port.finished)
    (tmp_path / "down").unlink()
    with eventlog.Run("p", dir=tmp_path, sinks=isolated(away), resume=run.id) as run:
        run.step(loss=1.0)
    told = [(line["attempt"], line["update"]) for line in said(away, "open")]
    # the last one goes on with what the one before it could not deliver
    assert told[:2] == [(1, None), (2, "prune")]
    assert told[-1] == (3, "prune")


def test_by_hand_a_sink_that_the_run_has_not_is_wrong_usage(tmp_path: Path, away: Path) -> None:
    """The aliases that there are are named, and nothing is delivered."""
    with eventlog.Run("p", dir=tmp_path, sinks={"copy": {"sink": "log"}}) as run:
        run.step(loss=1.0)
    command = [sys.executable, "-m", "eventlog.sidecar", str(run.dir), "--sink", "nosuch"]
    done = subprocess.run(command, timeout=40, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'nosuch' is no sink in" in done.stderr
    assert "it has: copy" in done.stderr
    assert "Traceback" not in done.stderr


def test_by_hand_ctrl_c_ends_it_cleanly(tmp_path: Path, away: Path) -> None:
    """With 130 and a line; the same command goes on."""
    sinks = {"far": {"sink": "away:Away", "at": str(away)}}
    (tmp_path / "down").touch()
    run = eventlog.Run("p", dir=tmp_path, sinks=sinks)
    run.step(loss=1.0)
    run.close(timeout=0.1)
    port = run._delivery.ports["far"]
    wait_for(lambda: port.finished)
    opened = len(said(away, "open"))
    command = [sys.executable, "-m", "eventlog.sidecar", str(run.dir)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as child:
        wait_for(lambda: len(said(away, "open")) > opened)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=30) == 130
        assert child.stderr is not None
        told = child.stderr.read()
    assert "Traceback" not in told
    assert "eventlog: interrupted; the same command goes on where it stopped" in told
    (tmp_path / "down").unlink()
    assert subprocess.run(command, timeout=40, check=False, env=environment).returncode == 0
    assert steps_said(away) == [0]


def test_one_sink_that_cannot_be_made_leaves_the_others(tmp_path: Path, away: Path) -> None:
    """Whatever a plan that was edited by hand says of it: exit code 1, and a line."""
    with eventlog.Run("p", dir=tmp_path, sinks={"copy": {"sink": "log"}}) as run:
        run.step(loss=1.0)
    assert run.dir is not None
    plan = json.loads((run.dir / "sinks.json").read_text())
    plan["none"] = plan["copy"] | {"rate": 0}
    plan["other"] = plan["copy"]
    (run.dir / "sinks.json").write_text(json.dumps(plan))
    command = [sys.executable, "-m", "eventlog.sidecar", str(run.dir)]
    done = subprocess.run(command, timeout=40, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "sink 'none': rate must be above 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert losses(run.dir / "other") == [1.0]


def test_a_mistake_in_the_options_is_said_at_once(
    tmp_path: Path, away: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of a sink that runs elsewhere; and what is missing is said before days have passed."""
    with pytest.raises(
        SinkError, match=r"sink 'away:Aside': .*'att'.*its options are: at, api_key"
    ):
        eventlog.Run("p", dir=tmp_path / "runs", sinks={"away:Aside": {"att": "x"}})
    assert not (tmp_path / "runs").exists()
    sinks = {"far": {"sink": "away:Aside", "at": str(away), "api_key": "none"}}
    with eventlog.Run("p", dir=tmp_path / "runs", sinks=sinks) as run:
        assert "sink 'far' is not ready: no key: set AWAY_KEY" in caplog.text
        run.step(loss=1.0)
    assert run.close().complete


def test_what_goes_wrong_there_is_said_here(
    tmp_path: Path, away: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, while the run goes on, in its statistics, too; and nowhere with a secret."""
    (tmp_path / "down").touch()
    with eventlog.Run("p", dir=tmp_path / "runs", sinks=isolated(away)) as run:
        run.step(loss=1.0)
        wait_for(lambda: "sink 'far': UnavailableError" in caplog.text)
        assert "is down" in str(run.statistics().sinks["far"].error)
        assert caplog.text.count("sink 'far': UnavailableError") == 1
        assert "SECRET1" not in caplog.text
        (tmp_path / "down").unlink()
    assert run.close().complete
    for path in (tmp_path / "runs").rglob("*"):
        assert path.is_dir() or b"SECRET1" not in path.read_bytes()


def test_an_option_that_was_not_kept_whole_is_asked_for(
    tmp_path: Path, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place with a password in it is neither guessed nor used without: the settings have it."""
    at = tmp_path / "said.jsonl"
    plan_at = f"http://bob:SECRET1@host{at}"
    with eventlog.Run("p", dir=tmp_path / "runs", sinks=isolated(at)) as run:
        run.step(loss=1.0)
    assert run.dir is not None
    (spec,) = read_plan(run.dir)
    write_plan(run.dir, [msgspec.structs.replace(spec, options={"at": plan_at, "pause": 0.0})])
    assert b"SECRET1" not in (run.dir / "sinks.json").read_bytes()
    (kept,) = read_plan(run.dir)
    assert (kept.options, kept.withheld) == ({"pause": 0.0}, ("at",))
    command = [sys.executable, "-m", "eventlog.sidecar", str(run.dir)]
    monkeypatch.setenv("EVENTLOG_CONFIG", str(tmp_path / "eventlog.toml"))
    (tmp_path / "eventlog.toml").write_text("")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def by_hand() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, timeout=40, check=False, capture_output=True, text=True, env=environment
        )

    done = by_hand()
    assert done.returncode == 1
    assert "its option at holds a secret and was not kept" in done.stderr
    assert "[tool.eventlog.options.far]" in done.stderr
    (tmp_path / "eventlog.toml").write_text(f'[options.far]\nat = "{at}"\n')
    assert by_hand().returncode == 0
