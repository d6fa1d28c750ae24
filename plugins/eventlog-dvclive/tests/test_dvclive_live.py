"""What DVCLive would do unasked, and does when it is asked: git, DVC, Studio, the process."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any, NoReturn

import pytest
from dvclive import serialize

from eventlog.events import ArtifactEvent, HistogramEvent, Rewound, StepEvent
from eventlog.sinks.base import RunInfo
from eventlog_dvclive import DvcliveSink
from eventlog_dvclive.live import untouched

WALL = 1_700_000_000_000_000_000
YAML: Any = serialize
STUDIO = {
    "DVC_STUDIO_TOKEN": "not-a-token",
    "DVC_STUDIO_REPO_URL": "git@example.invalid:a/b.git",
    "DVC_STUDIO_URL": "https://studio.invalid",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse the network; return the hosts that are asked for."""
    hosts: list[str] = []

    def refuse(host: Any, *_: Any, **__: Any) -> NoReturn:
        hosts.append(str(host))
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: refuse(address[0]))
    return hosts


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a git repository with one commit, in which the process is."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("pass\n")
    git("init", "-q")
    git("config", "user.name", "Somebody")
    git("config", "user.email", "somebody@example.invalid")
    git("add", "train.py")
    git("commit", "-q", "-m", "Train")
    return folder


def git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run(sink: DvcliveSink, **info: Any) -> None:
    sink.open(RunInfo(**({"run_id": "r1"} | info)))
    sink.write([StepEvent(step=s, values={"v": s}, wall=WALL, seq=s) for s in range(3)])
    sink.flush()
    sink.close("finished")


def test_repositories_are_left_alone_and_nothing_is_posted(
    repository: Path, tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a git repository, where DVCLive would make a DVC one, with a token, nothing happens."""
    for name, value in STUDIO.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DVCLIVE_TEST", "1")
    threads = threading.active_count()
    run(DvcliveSink(dir=tmp_path / "out"), config={"lr": 1})
    assert {path.name for path in repository.iterdir()} == {".git", "train.py"}
    assert git("status", "--porcelain") == ""
    assert asked == []
    assert threading.active_count() == threads
    assert (tmp_path / "out" / "metrics.json").is_file()


def test_studio_is_posted_to_when_asked(
    repository: Path, tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With studio=True DVCLive tries to post; that it cannot does not stop the sink."""
    for name, value in STUDIO.items():
        monkeypatch.setenv(name, value)
    run(DvcliveSink(dir=tmp_path / "out", studio=True))
    assert set(asked) == {"studio.invalid"}


def bars(step: int) -> HistogramEvent:
    return HistogramEvent(
        tag="h", edges=[0.0, 1.0], counts=[step], step=step, wall=WALL + step, seq=step
    )


def test_dvc_yaml_is_written_when_asked(tmp_path: Path) -> None:
    """DVC's own file lists params, metrics and the newest plot of a tag, also after a resume."""
    options = {"dvcyaml": str(tmp_path / "dvc.yaml")}
    sink = DvcliveSink(dir=tmp_path / "out", sdk_options=options)
    sink.open(RunInfo(run_id="r1", config={"lr": 1}))
    value = StepEvent(step=3, values={"a/b": 1.0}, wall=WALL, seq=3)
    sink.write([bars(1), bars(2), value])
    sink.close("interrupted")
    sink = DvcliveSink(dir=tmp_path / "out", sdk_options=options)
    sink.open(RunInfo(run_id="r1", config={"lr": 1}, state=sink.state() or {"run_id": "r1"}))
    sink.close("finished")
    found = YAML.load_yaml(tmp_path / "dvc.yaml")
    assert found["params"] == ["out/params.yaml"]
    assert found["metrics"] == ["out/metrics.json"]
    plots = {name: config for entry in found["plots"] for name, config in entry.items()}
    assert plots == {
        "out/plots/metrics": {"x": "step"},
        "out/plots/custom/h/2.json": {
            "template": "bar_horizontal",
            "x": "count",
            "y": "from",
            "title": "h",
        },
    }


def test_a_report_is_made_when_asked(tmp_path: Path) -> None:
    """DVCLive's report knows all plots that there are, and none that a rewind took away."""
    sink = DvcliveSink(dir=tmp_path, sdk_options={"report": "html"})
    sink.open(RunInfo(run_id="r1"))
    sink.write([bars(1), bars(2), bars(3)])
    sink.write([Rewound(to_step=3, attempt=2, wall=WALL + 4, seq=4)])
    sink.write([StepEvent(step=3, attempt=2, values={"v": 1}, wall=WALL + 5, seq=5)])
    sink.close("finished")
    assert {p.stem for p in (tmp_path / "plots/custom/h").iterdir()} == {"1", "2"}
    assert "vega" in (tmp_path / "report.html").read_text()


def test_system_metrics_are_collected_when_asked(tmp_path: Path) -> None:
    """monitor_system is DVCLive's own, and its thread ends with the run."""
    threads = set(threading.enumerate())
    sink = DvcliveSink(dir=tmp_path / "out", sdk_options={"monitor_system": True})
    sink.open(RunInfo(run_id="r1"))
    assert set(threading.enumerate()) - threads
    sink.close("finished")
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
    assert not set(threading.enumerate()) - threads


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")
def test_an_experiment_is_saved_when_asked(repository: Path) -> None:
    """With save_dvc_exp=True the run is a DVC experiment, and an artifact is tracked by DVC."""
    env = os.environ | {"DVC_NO_ANALYTICS": "1"}
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "init", "-q"], check=True, env=env)
    git("commit", "-q", "-m", "DVC")
    (repository / "model.pt").write_text("weights")
    sink = DvcliveSink(dir="dvclive", save_dvc_exp=True)
    sink.open(RunInfo(run_id="r1", name="my-experiment", config={"lr": 1}))
    sink.write(
        [
            StepEvent(step=1, values={"v": 0.5}, wall=WALL, seq=0),
            ArtifactEvent(name="model", kind="model", path=str(repository / "model.pt"), seq=1),
        ]
    )
    sink.close("finished")
    assert "my-experiment" in git("for-each-ref", "refs/exps")
    assert (repository / "model.pt.dvc").is_file()
    assert YAML.load_yaml("dvc.yaml")["artifacts"]["model"]["type"] == "model"
    shown = subprocess.run(
        [*dvc, "metrics", "show", "--json"], check=True, env=env, capture_output=True, text=True
    )
    assert '"v": 0.5' in shown.stdout


def test_the_process_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC's streams and its libraries' filters go; what the user changed meanwhile stays."""

    class Library(Warning):
        """A category that is not Python's own."""

    Wrapped = type("StreamWrapper", (io.StringIO,), {"__module__": "colorama.ansitowin32"})
    mine, before = io.StringIO(), sys.stdout
    with warnings.catch_warnings():
        with untouched():
            monkeypatch.setattr(sys, "stdout", Wrapped())
            monkeypatch.setattr(sys, "stderr", mine)
            warnings.filterwarnings("ignore", "the user's own")
            warnings.simplefilter("once", Library)
        assert sys.stdout is before
        assert sys.stderr is mine
        assert not [f for f in warnings.filters if f[2] is Library]
        assert any(getattr(f[1], "pattern", None) == "the user's own" for f in warnings.filters)
    monkeypatch.undo()


def test_importing_the_package_imports_no_sdk() -> None:
    """Only opening the sink imports DVCLive and DVC."""
    code = """
import sys
import eventlog_dvclive
eventlog_dvclive.DvcliveSink(dir="x").close("finished")
assert not [name for name in sys.modules if name.startswith(("dvc", "git", "pandas", "numpy"))]
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_misuse_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of a wrong type, and those of DVCLive's that are options here, are told apart."""
    monkeypatch.chdir(tmp_path)
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, "dir must be a path, not 3", {"dir": 3}),
        (TypeError, "studio must be True or False, not 'no'", {"studio": "no"}),
        (TypeError, "sdk_options must be a mapping, not 'x'", {"sdk_options": "x"}),
        (ValueError, "must not have 'dir'", {"sdk_options": {"dir": "x"}}),
        (ValueError, "must not have 'save_dvc_exp'", {"sdk_options": {"save_dvc_exp": True}}),
    ]
    for kind, text, options in cases:
        with pytest.raises(kind, match=text):
            DvcliveSink(**options)
    assert DvcliveSink.unready({}) is None
    sink = DvcliveSink(sdk_options={"nonsense": 1})
    with pytest.raises(TypeError, match="nonsense"):
        sink.open(RunInfo(run_id="r1"))
    assert sink.state() == {}
    with pytest.raises(RuntimeError, match="must be open"):
        DvcliveSink().write([StepEvent(seq=0)])


def test_resume_goes_on_with_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With resume=True what is in the folder stays, as with DVCLive's own resume=True."""
    monkeypatch.chdir(tmp_path)
    run(DvcliveSink(dir="out"))
    sink = DvcliveSink(dir="out", resume=True)
    sink.open(RunInfo(run_id="r2"))
    sink.write([StepEvent(step=3, values={"v": 3}, wall=WALL + 10**9, seq=0)])
    sink.close("finished")
    assert len((tmp_path / "out/plots/metrics/v.tsv").read_text().splitlines()) == 5


def test_dvclives_own_object_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user logs by the object of the SDK is kept beside what the sink writes."""
    monkeypatch.chdir(tmp_path)
    sink = DvcliveSink(dir="out")
    sink.open(RunInfo(run_id="r1"))
    sink.tracker.log_metric("own/metric", 5)
    sink.write([StepEvent(step=1, values={"v": 1}, wall=WALL, seq=0)])
    sink.close("finished")
    text = (tmp_path / "out" / "metrics.json").read_text()
    assert '"metric": 5' in text
    assert '"v": 1' in text
