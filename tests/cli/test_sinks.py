"""Listing sinks."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from eventlog.cli import sinks as command
from eventlog.cli.sinks import tracker_packages
from eventlog.sinks.registry import SinkEntry, install_command

from .conftest import Cli, install_plugin


def _requires(monkeypatch: pytest.MonkeyPatch, *requirements: str) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda package: list(requirements))


def test_the_console_is_always_there(cli: Cli) -> None:
    """The table names the package that brings a sink and its version."""
    result = cli("sinks", "--check")
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("console")]
    assert line.split() == ["console", "eventlog-bus", importlib.metadata.version("eventlog-bus"),
                            "-", "ok"]  # fmt: skip


def test_nothing_is_loaded_unless_asked(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A plugin that does not import is only found broken by --check, which exits with 1."""
    install_plugin(tmp_path, "bad", "fails:Sink", "raise RuntimeError('no\\nway')\n")
    monkeypatch.syspath_prepend(tmp_path)
    plain = cli("sinks", "--json")
    assert plain.exit_code == 0
    states = {row["name"]: row["state"] for row in json.loads(plain.stdout)}
    assert states["bad"] == states["console"] == "installed"
    assert "fails" not in sys.modules
    checked = cli("sinks", "--check", "--json")
    assert checked.exit_code == 1
    found = {row["name"]: row for row in json.loads(checked.stdout)}
    assert found["bad"]["package"] == "eventlog-bad"
    assert found["bad"]["version"] == "1.2"
    assert found["bad"]["state"].startswith("broken: sink 'bad'")
    assert "RuntimeError: no way" in found["bad"]["state"]
    assert found["console"]["state"] == "ok"


def test_a_name_that_two_packages_claim_is_broken(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That needs no loading to be known."""
    install_plugin(tmp_path, "twice", "a:A", package="first")
    install_plugin(tmp_path, "twice", "b:B", package="second")
    monkeypatch.syspath_prepend(tmp_path)
    result = cli("sinks")
    assert result.exit_code == 1
    assert "broken: several packages bring it" in result.stdout


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
    row = command._row(SinkEntry("wandb", "m:C", "eventlog-wandb", "1"), check=False)
    assert row.state == f"broken: wandb is missing: {install_command('wandb')}"
