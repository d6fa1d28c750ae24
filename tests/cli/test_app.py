"""The program as a whole: help, exit codes, errors and pipes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import __version__, available_sinks
from eventlog.cli.app import _COMMANDS

from .conftest import Cli, MakeRun, program


def test_help_documents_the_exit_codes(cli: Cli) -> None:
    """A script's author finds the exit codes where the commands are listed."""
    shown = cli("--help")
    assert shown.exit_code == 0
    for line in ("0    all is well", "1    something was found wrong", "2    wrong usage"):
        assert line in shown.stdout


@pytest.mark.parametrize(
    "example", [line for _, _, example in _COMMANDS for line in example.splitlines()]
)
def test_each_example_in_the_help_runs(
    example: str,
    cli: Cli,
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a command's help shows can be typed as it is."""
    make_run()
    monkeypatch.chdir(tmp_path)
    words = shlex.split(example)
    if "tensorboard" in words and "tensorboard" not in available_sinks():
        pytest.skip("the tensorboard plugin is not installed")
    if "-o" in words and "plot" in words:
        pytest.importorskip("matplotlib")
    assert words[0] == "eventlog"
    assert example in cli(words[1], "--help").stdout
    result = cli(*words[1:])
    assert result.exit_code == 0, result.stderr


def test_version_is_said(cli: Cli) -> None:
    """--version needs no command."""
    assert cli("--version").stdout == f"eventlog {__version__}\n"


def test_python_m_is_the_same_program(run_dir: Path) -> None:
    """Python -m eventlog works where the script is not on the path, under its own name."""
    shown = program("ls", run_dir.parent.parent)
    assert shown.returncode == 0
    assert run_dir.name in shown.stdout
    assert "Usage: python -m eventlog" in program("--help").stdout


def test_importing_eventlog_imports_no_command_line() -> None:
    """Training code does not pay for typer and rich."""
    code = "import sys, eventlog; print({'typer', 'rich', 'eventlog.cli'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "nowhere"],
        ["cat", "nowhere"],
        ["tail", "nowhere"],
        ["verify", "nowhere"],
        ["plot", "nowhere"],
        ["compact", "nowhere"],
        ["export", "nowhere", "-o", "x.csv"],
        ["replay", "--pending", "nowhere"],
        ["tail", "-f", "nowhere"],
        ["replay", "nowhere", "--sink", "console"],
        ["ls", "nowhere"],
    ],
)
def test_no_log_is_one_line_and_2(arguments: list[str], tmp_path: Path) -> None:
    """A path without a log ends in one line on standard error and exit code 2."""
    shown = program(*arguments, cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert re.fullmatch(r"eventlog: nowhere (does not exist|is no directory)\n", shown.stderr)


def test_wrong_usage_is_2(cli: Cli, run_dir: Path) -> None:
    """Options that do not exist and values that mean nothing are wrong usage."""
    assert cli("cat", run_dir, "--nonsense").exit_code == 2
    assert cli("plot", run_dir, "--axis", "sideways").exit_code == 2
    assert cli("tail", run_dir, "-n", 0).exit_code == 2


def test_a_wrong_cadence_is_told_in_one_line(cli: Cli, run_dir: Path) -> None:
    """The column and the problem survive, the caret under the text does not."""
    result = cli("cat", run_dir, "--every", "10 steps or")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "'10 steps or'" in line
    assert "column" in line


@pytest.mark.parametrize(
    "arguments", [["cat"], ["tail", "-n", "30000"], ["cat", "--strict"]], ids=" ".join
)
def test_a_reader_that_goes_away_is_no_error(arguments: list[str], make_run: MakeRun) -> None:
    """Head may close the pipe: no traceback, and exit code 0."""
    run_dir = make_run(steps=30_000)
    command, *options = arguments
    child = subprocess.Popen(
        [sys.executable, "-m", "eventlog", command, str(run_dir), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait(timeout=50) == 0
    child.stderr.close()
