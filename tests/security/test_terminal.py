"""A text in a log does nothing to a terminal that it is shown on, nor to what reads JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eventlog._provenance import git_commit
from eventlog._visible import escaped_json, visible
from eventlog.cli.app import app
from eventlog.events import (
    ArtifactEvent,
    ImageEvent,
    ModelUpdateEvent,
    RunFinished,
    RunStarted,
    StepEvent,
    TextEvent,
)

from .hostile import SECRET, write_log

TRICK = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\u202ec\x7f\rd"
COMMANDS = "\x1b\x07\x9b\u202e\x7f\r"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Make a run in which every text is a command to a terminal."""
    run_dir = tmp_path / "runs" / "r"
    write_log(
        run_dir,
        [
            RunStarted(run_id=TRICK, project=TRICK, name=TRICK, config={TRICK: TRICK},
                       tags=[TRICK], group=TRICK, notes=TRICK, provenance={"host": TRICK}),
            StepEvent(step=1, values={TRICK: 1.0, "t": TRICK}, axis=TRICK),
            TextEvent(step=2, tag=TRICK, text=TRICK),
            ImageEvent(tag=TRICK),
            ArtifactEvent(name=TRICK, path=TRICK),
            ModelUpdateEvent(kind=TRICK, summary={TRICK: TRICK}),
            RunFinished(error=TRICK),
        ],
        run_id=TRICK,
        project=TRICK,
    )  # fmt: skip
    (run_dir / "manifest.json").write_text(json.dumps(dict.fromkeys(["run_id", "name"], TRICK)))
    (run_dir / "sinks.json").write_text(json.dumps({TRICK: {"name": f"{TRICK}:x"}}))
    return run_dir


@pytest.mark.parametrize(
    "command",
    ["info R", "info R --json", "ls D", "ls D --json", "tail R", "cat R", "verify R", "plot R",
     "verify R --json", "replay R --sink console", "replay R --sink log", "replay --pending R"],
)  # fmt: skip
def test_no_command_shows_what_would_command_the_terminal(run_dir: Path, command: str) -> None:
    """Escapes, C1 controls and turns of direction are written out, on both outputs."""
    places = {"R": str(run_dir), "D": str(run_dir.parent)}
    result = CliRunner().invoke(app, [places.get(word, word) for word in command.split()])
    assert result.exit_code in (0, 1), result.output
    found = set(COMMANDS) & set(result.output)
    assert not found, result.output
    if command.endswith("--json"):
        json.loads(result.stdout)
    if command == "cat R":
        assert TRICK in json.loads(result.stdout.splitlines()[2]).values()


def test_what_is_shown_is_otherwise_as_it_was() -> None:
    """Lines, tabs and every script."""
    text = "a\tb\nc \u00fc \u65e5\u672c \U0001f600 \u05e9\u05dc\u05d5\u05dd"
    assert visible(text) == text
    assert visible("\x1b[0m") == "\\x1b[0m"
    assert json.loads(escaped_json(json.dumps(TRICK, ensure_ascii=False))) == TRICK


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (SECRET.decode(), {}),
        ("ref: ../../outside", {}),
        ("ref: refs/../../../outside", {}),
        ("ref: /etc/hostname", {}),
        ("ref: refs/heads/main", {"refs/heads/main": SECRET.decode()}),
        ("ref: refs/heads/main", {"packed-refs": SECRET.decode().strip() + " refs/heads/main"}),
    ],
)
def test_a_repository_brings_no_file_into_the_log(
    tmp_path: Path, head: str, more: dict[str, str]
) -> None:
    """Its files say which file holds the commit; what is there is a commit, or is left alone."""
    (tmp_path / "outside").write_bytes(SECRET)
    git = tmp_path / "repository" / ".git"
    git.mkdir(parents=True)
    for name, text in {"HEAD": head, **more}.items():
        (git / name).parent.mkdir(parents=True, exist_ok=True)
        (git / name).write_text(text)
    assert git_commit(git.parent) is None
