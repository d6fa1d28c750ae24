"""Names of files made from any text, and what is recorded of where a run ran."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog._names import new_run_id, safe_name
from eventlog._provenance import git_commit, provenance

ODD = [
    "", "timing(s)/gen", "val/AR@100", "n:estimators", "../../x", "..", ".", "a\\b", "CON",
    "con.txt", "nul", "COM1", "x" * 10_000, "x" * 9_999, "emoji 😀", "emoji 😁", "\ud800",
    "\ud801", "?", "_", "a b", "a_b", "a  b", "a\0b", "a\nb", ".hidden", "trailing.",
    "trailing", "unnamed", " ", "é", "e",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_any_text_has_a_safe_name(tmp_path: Path, text: str) -> None:
    """It is one component of a path on every system, and a file can have it."""
    name = safe_name(text)
    assert name
    assert len(name) <= 100
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert name not in (".", "..")
    assert name.partition(".")[0].upper() not in {"CON", "NUL", "PRN", "AUX", "COM1", "LPT1"}
    (tmp_path / name).write_text("x")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_other_texts_have_other_names() -> None:
    """What is changed to be safe stays distinct."""
    assert len({safe_name(text) for text in ODD}) == len(ODD)


@given(st.text(), st.text())
def test_random_texts_have_names_of_their_own(one: str, other: str) -> None:
    """The same text always has the same name, another one another."""
    assert (safe_name(one) == safe_name(other)) == (one == other)


@pytest.mark.parametrize("text", ["mnist", "ResNet-50", "run_1.2", "a" * 80])
def test_names_that_are_safe_stay(text: str) -> None:
    """People recognise their projects."""
    assert safe_name(text) == text


def test_run_ids_are_unique_and_safe() -> None:
    """Many runs may start in the same second."""
    ids = {new_run_id() for _ in range(1_000)}
    assert len(ids) > 990
    assert all(safe_name(run_id) == run_id for run_id in ids)


def test_provenance_holds_neither_environment_nor_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What may hold secrets is not looked at."""
    monkeypatch.setenv("SOME_API_KEY", "hunter2")
    monkeypatch.setattr(sys, "argv", ["train.py", "--key=hunter2"])
    found = provenance()
    assert "hunter2" not in repr(found)
    assert {"python", "system", "machine", "host", "cpus"} <= set(found)


def test_provenance_survives_a_missing_directory_and_broken_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run starts wherever it is started."""

    class Broken:
        def __getattr__(self, name: str) -> str:
            raise RuntimeError(name)

    monkeypatch.setitem(sys.modules, "jax", Broken())
    monkeypatch.chdir(tmp_path)
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    found = provenance()
    assert "git_commit" not in found
    assert "jax" not in found.get("packages", {})


def git(*arguments: str, cwd: Path) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def test_the_commit_is_read_from_git_s_files(tmp_path: Path) -> None:
    """In a repository, below it, detached, packed, and in a worktree: as git says."""
    repository = tmp_path / "repository"
    repository.mkdir()
    assert git_commit(repository) is None
    git("init", "-q", cwd=repository)
    assert git_commit(repository) is None
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=repository)
    head = git("rev-parse", "HEAD", cwd=repository).strip()
    below = repository / "a" / "b"
    below.mkdir(parents=True)
    assert git_commit(repository) == git_commit(below) == head
    git("worktree", "add", "-q", "../other", "-b", "other", cwd=repository)
    git("commit", "-q", "--allow-empty", "-m", "second", cwd=tmp_path / "other")
    other = git("rev-parse", "HEAD", cwd=tmp_path / "other").strip()
    assert git_commit(tmp_path / "other") == other != head
    git("pack-refs", "--all", cwd=repository)
    assert git_commit(repository) == head
    assert git_commit(tmp_path / "other") == other
    git("checkout", "-q", "--detach", cwd=repository)
    assert git_commit(repository) == head


@pytest.mark.parametrize("head", [b"", b"ref: refs/heads/none", b"\xff\xfe", b"ref: ../../x\0"])
def test_a_broken_repository_is_no_repository(tmp_path: Path, head: bytes) -> None:
    """Whatever lies in .git, a run starts."""
    (tmp_path / ".git").mkdir()
    assert git_commit(tmp_path) is None
    (tmp_path / ".git" / "HEAD").write_bytes(head)
    assert git_commit(tmp_path) is None
