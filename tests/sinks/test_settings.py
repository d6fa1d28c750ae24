"""What is said outside the program: EVENTLOG_SINKS and the like, pyproject.toml, eventlog.toml."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from eventlog import Event, EventlogError, Run, Sink, replay
from eventlog._settings import Settings, load_settings
from eventlog.sinks import registry
from eventlog.sinks import select as selecting
from eventlog.sinks.registry import SinkEntry
from eventlog.sinks.select import select_sinks


class Ready(Sink):
    """A sink that could start, with options."""

    name = "ready"
    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, *, team: str = "", dir: str = "", color: str = "") -> None:
        self.made.append({"team": team, "dir": dir, "color": color})

    def write(self, batch: Sequence[Event]) -> None: ...


class Keyless(Ready):
    """A sink that could not, unless it is told how."""

    name = "keyless"

    @classmethod
    def unready(cls, options: Any) -> str | None:
        return None if options.get("team") else "no key: set KEYLESS_API_KEY"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, below which nothing is said yet."""
    for name in ("EVENTLOG_SINKS", "EVENTLOG_PROJECT", "EVENTLOG_DIR", "EVENTLOG_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Ready.made.clear()
    return tmp_path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three sinks besides those that are built in: one is ready, two are not."""
    targets = {
        "broken": "no_such_module_anywhere:Sink",
        "keyless": f"{__name__}:Keyless",
        "ready": f"{__name__}:Ready",
    } | dict(registry.BUILT_IN)
    entries = {n: SinkEntry(n, t, f"pkg-{n}", "1") for n, t in sorted(targets.items())}
    classes = {"keyless": Keyless, "ready": Ready}
    load = registry.load_sink_class

    def load_one(name: str) -> type[Sink]:
        return classes[name] if name in classes else load(name)

    for module in (selecting, registry):
        monkeypatch.setattr(module, "available_sinks", lambda: entries)
    for target in ("eventlog.sinks.select", "eventlog._run_sinks"):
        monkeypatch.setattr(f"{target}.load_sink_class", load_one)


def test_nothing_said_is_nothing_found() -> None:
    """No file, no variable: no settings, and no sinks."""
    assert load_settings() == Settings()
    with Run("p", dir=None) as run:
        assert run.statistics().sinks == {}


def test_pyproject_says_what_runs_are_like(place: Path, installed: None) -> None:
    """Project, directory, sinks, cadence and each sink's options come from [tool.eventlog]."""
    (place / "pyproject.toml").write_text(
        '[tool.eventlog]\nproject = "digits"\ndir = "logs"\nsinks = ["ready"]\nevery = "5 steps"\n'
        '[tool.eventlog.options.ready]\nteam = "us"\nrate = 3\n'
    )
    below = place / "src" / "deep"
    below.mkdir(parents=True)
    settings = load_settings(below)
    assert (settings.project, settings.dir) == ("digits", str(place / "logs"))
    with Run() as run:
        run.step(loss=1.0)
    assert run.project == "digits"
    assert run.dir is not None
    assert run.dir.parent == place / "logs" / "digits"
    assert list(run.statistics().sinks) == ["ready"]
    assert Ready.made == [{"team": "us", "dir": "", "color": ""}]
    (spec,) = select_sinks("ready", "5 steps")
    assert (spec.every, spec.rate) == ("5 steps", 3)


def test_the_program_has_the_last_word(place: Path, installed: None) -> None:
    """An argument beats the environment, which beats the file; options are merged one by one."""
    (place / "eventlog.toml").write_text(
        'project = "file"\nsinks = "ready"\n[options.ready]\nteam = "file"\ncolor = "file"\n'
        'every = "1 epoch"\n'
    )
    with Run("program", dir=None, sinks={"ready": {"team": "program"}}, every="2 steps") as run:
        assert run.project == "program"
    assert Ready.made == [{"team": "program", "dir": "", "color": "file"}]
    (spec,) = select_sinks({"ready": {"every": "3 steps"}})
    assert spec.every == "3 steps"
    (spec,) = select_sinks("ready", "2 steps")
    assert spec.every == "1 epoch"


def test_the_environment_chooses_sinks(
    place: Path, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EVENTLOG_SINKS is a list of names; the file's options are theirs; none means none."""
    (place / "eventlog.toml").write_text('sinks = "console"\n[options.ready]\nteam = "us"\n')
    monkeypatch.setenv("EVENTLOG_SINKS", " ready , log ")
    monkeypatch.setenv("EVENTLOG_PROJECT", "env")
    monkeypatch.setenv("EVENTLOG_DIR", "elsewhere")
    assert load_settings().sinks == ["ready", "log"]
    monkeypatch.setenv("EVENTLOG_SINKS", "ready")
    with Run() as run:
        pass
    assert run.dir is not None
    assert (run.project, run.dir.parent) == ("env", place / "elsewhere" / "env")
    assert Ready.made == [{"team": "us", "dir": "", "color": ""}]
    for nothing in ("", "none", " , "):
        monkeypatch.setenv("EVENTLOG_SINKS", nothing)
        assert load_settings().sinks == []


def test_sinks_that_are_not_to_be(place: Path, installed: None) -> None:
    """An empty list in the program means none, whatever the file says."""
    (place / "eventlog.toml").write_text('sinks = "ready"\n')
    with Run("p", dir=None, sinks=[]) as run:
        assert run.statistics().sinks == {}


def test_a_named_file_comes_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EVENTLOG_CONFIG names it; empty, no file is read."""
    (place / "eventlog.toml").write_text('project = "here"\n')
    (place / "other.toml").write_text('project = "other"\n')
    assert load_settings().project == "here"
    monkeypatch.setenv("EVENTLOG_CONFIG", "other.toml")
    assert load_settings().project == "other"
    (place / "team.toml").write_text('[tool.eventlog]\nproject = "section"\n')
    monkeypatch.setenv("EVENTLOG_CONFIG", "team.toml")
    assert load_settings().project == "section"
    monkeypatch.setenv("EVENTLOG_CONFIG", "")
    assert load_settings() == Settings()


def test_the_search_ends_at_the_repository(place: Path) -> None:
    """What lies above the root of a repository, or above a pyproject.toml, is another's."""
    (place / "eventlog.toml").write_text('project = "above"\n')
    inner = place / "repo" / "src"
    inner.mkdir(parents=True)
    assert load_settings(inner).project == "above"
    (place / "repo" / ".git").mkdir()
    assert load_settings(inner).project is None
    (inner / "pyproject.toml").write_text("[project]\n")
    assert load_settings(inner).project is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("project = 3", "Expected `str.*project"),
        ("projekt = 'x'", "unknown field `projekt`.*it may say: project, dir, sinks"),
        ("sinks = 3", "sinks"),
        ("x = ", "is no TOML"),
    ],
)
def test_a_wrong_file_is_said(place: Path, text: str, message: str) -> None:
    """With its path, what is wrong, and what it may say."""
    (place / "eventlog.toml").write_text(text)
    with pytest.raises(EventlogError, match=rf"(?s)eventlog\.toml.*{message}"):
        Run("p", dir=None)


def test_another_tools_broken_file_is_its_own_matter(place: Path) -> None:
    """A pyproject.toml without our section is not even parsed; with it, its faults are said."""
    (place / "pyproject.toml").write_text("{{ cookiecutter }}")
    assert load_settings() == Settings()
    (place / "pyproject.toml").write_bytes(b"\xff\xfe")
    assert load_settings() == Settings()
    (place / "pyproject.toml").write_text("{{ x }}\n[tool.eventlog]\n")
    with pytest.raises(EventlogError, match="is no TOML"):
        load_settings()


def test_a_run_without_a_project_says_where_it_could_come_from() -> None:
    """All three places."""
    with pytest.raises(TypeError, match=r"EVENTLOG_PROJECT, or project in \[tool.eventlog\]"):
        Run(dir=None)


def test_all_takes_what_could_start(
    place: Path, installed: None, caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves out, with the reason, what is broken or not configured, and what is no tracker."""
    with caplog.at_level(logging.WARNING), Run("p", dir=None, sinks="all") as run:
        assert list(run.statistics().sinks) == ["ready"]
        handle = run.sink("keyless")
        assert (handle.state, handle.error) == ("skipped", "no key: set KEYLESS_API_KEY")
    (record,) = caplog.records
    assert 'sinks="all" takes ready and skips broken (' in record.message
    assert "keyless (no key: set KEYLESS_API_KEY)" in record.message
    (place / "eventlog.toml").write_text('[options.keyless]\nteam = "us"\n')
    assert [spec.alias for spec in select_sinks("all")] == ["keyless", "ready"]


def test_all_beside_others(installed: None) -> None:
    """What is named is not taken twice, wherever it stands; options of "all" are for each."""
    for sinks in (["console", "ready", "all"], ["all", "console", "ready"]):
        assert [spec.alias for spec in select_sinks(sinks)] == ["console", "ready"]
    (spec,) = select_sinks({"all": {"every": "3 steps"}})
    assert (spec.alias, spec.every) == ("ready", "3 steps")


def test_options_for_no_sink_are_said(
    place: Path, installed: None, caplog: pytest.LogCaptureFixture
) -> None:
    """A name with a mistake in it would go unnoticed; those of sinks not chosen are no mistake."""
    (place / "eventlog.toml").write_text('[options.redy]\nteam = "x"\n[options.keyless]\n')
    with Run("p", dir=None, sinks="ready"):
        pass
    assert "the settings have options for redy, which is neither" in caplog.text
    assert "options for keyless" not in caplog.text


def test_a_replay_knows_the_options_but_not_the_choice(place: Path, installed: None) -> None:
    """The sinks of a replay are named by whoever replays; how they are reached is in the file."""
    with Run("p", dir="runs") as run:
        run.step(loss=1.0)
    assert run.dir is not None
    (place / "eventlog.toml").write_text(
        'sinks = "console"\nevery = "2 steps"\n[options.ready]\nteam = "us"\n'
    )
    report = replay(run.dir, "ready")
    assert Ready.made == [{"team": "us", "dir": "", "color": ""}]
    assert report.sinks["ready"].delivered == 3
