"""Listing sinks."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from eventlog._settings import Settings
from eventlog.cli import sinks as command
from eventlog.cli.sinks import tracker_packages
from eventlog.sinks.registry import SinkEntry, install_command

from .conftest import Cli, install_plugin


def _requires(monkeypatch: pytest.MonkeyPatch, *requirements: str) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda package: list(requirements))


class Row(NamedTuple):
    """What is of interest of a line."""

    shows: list[str]
    runs: str
    state: str
    writes: str


def rows(text: str) -> dict[str, Row]:
    return {
        row["name"]: Row(row["shows"], row["runs"], row["state"], row["writes"])
        for row in json.loads(text)
    }


def test_the_console_is_always_there(cli: Cli) -> None:
    """The table names the package that brings a sink, its version, and what it shows."""
    result = cli("sinks")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("console")]
    version = importlib.metadata.version("eventlog-bus")
    words = line.replace(", ", ",").split()
    shows = "model_update,scalars,status,strings,summary,text"
    assert words == ["console", "eventlog-bus", version, "-", shows, "process", "ready", "-"]


PLUGIN = """
from eventlog import Sink
class Mine(Sink):
    name = "mine"
    isolation = "sidecar"
    requires = ("mine_sdk",)
    def __init__(self, *, server=""):
        self.server = server
    @classmethod
    def unready(cls, options):
        return None if options.get("server") else "no server: set MINE_URL"
    def target(self):
        return self.server
    def write(self, batch): ...
"""


def test_each_sink_says_whether_it_could_start_and_where_it_would_write(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the settings that hold here; the SDK itself is not imported unless asked."""
    install_plugin(tmp_path, "mine", "mine_plugin:Mine", PLUGIN)
    (tmp_path / "mine_sdk.py").write_text("raise RuntimeError('no\\nway')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("EVENTLOG_CONFIG", str(tmp_path / "eventlog.toml"))
    settings = tmp_path / "eventlog.toml"
    settings.write_text("")
    found = rows(cli("sinks", "--json").stdout)["mine"]
    assert found == Row(["scalars"], "sidecar", "not ready: no server: set MINE_URL", "<run>/mine")
    shown = cli("sinks").stdout
    (line,) = (line for line in shown.splitlines() if line.startswith("mine  "))
    assert "not ready  <run>/mine" in line
    assert "\n\nmine is not ready: no server: set MINE_URL\n" in shown
    settings.write_text('[options.mine]\nserver = "https://mine.example"\n')
    found = rows(cli("sinks", "--json").stdout)["mine"]
    assert (found.state, found.writes) == ("ready", "https://mine.example")
    assert "mine_sdk" not in sys.modules
    checked = cli("sinks", "--check", "--json")
    assert checked.exit_code == 1
    assert rows(checked.stdout)["mine"].state == "broken: RuntimeError: no way"


def test_a_plugin_that_does_not_import_is_broken(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The others are listed as ever; the exit code says that one is."""
    install_plugin(tmp_path, "bad", "fails:Sink", "raise RuntimeError('no\\nway')\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = cli("sinks", "--json")
    assert result.exit_code == 1
    found = rows(result.stdout)
    assert found["bad"].state.startswith("broken: sink 'bad'")
    assert "RuntimeError: no way" in found["bad"].state
    assert found["console"].state == "ready"


def test_a_name_that_two_packages_claim_is_broken(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That needs no loading to be known."""
    install_plugin(tmp_path, "twice", "a:A", package="first")
    install_plugin(tmp_path, "twice", "b:B", package="second")
    monkeypatch.syspath_prepend(tmp_path)
    result = cli("sinks")
    assert result.exit_code == 1
    assert "twice is broken: several packages bring it: " in result.stdout


def test_the_tracker_is_read_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirements called like the sink are its SDK; eventlog and extras are not."""
    entry = SinkEntry("rich", "m:C", "eventlog-rich", "1")
    _requires(monkeypatch, "eventlog-bus>=0.1", "numpy", "rich[all]>=13; python_version > '3'",
              'rich-extra; extra == "more"')  # fmt: skip
    assert tracker_packages(entry) == {"rich": importlib.metadata.version("rich")}


def test_without_a_namesake_all_requirements_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink whose SDK has another name shows what it requires."""
    entry = SinkEntry("other", "m:C", "eventlog-other", "1")
    _requires(monkeypatch, "Eventlog_Bus", "rich", "no-such-package-at-all")
    assert tracker_packages(entry) == {
        "rich": importlib.metadata.version("rich"),
        "no-such-package-at-all": None,
    }


def test_a_missing_tracker_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state says what to type."""
    monkeypatch.setattr(command, "tracker_packages", lambda entry: {"wandb": None})
    row = command._row(SinkEntry("wandb", "m:C", "eventlog-wandb", "1"), False, Settings())
    assert row.state == f"broken: wandb is missing: {install_command('wandb')}"
