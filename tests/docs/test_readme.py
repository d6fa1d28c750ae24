"""What the README and the documents show is run, and what they print is compared.

Each file is one session in an empty folder. Its blocks run in order: ```python blocks share their
names, and the lines of a ```console block that begin with ``$ `` and all lines of a ```sh block go
to a shell. Output that is shown must be what comes out: the rest of a ```console block, and a
```text block that follows a ```python block. Runs of blanks are alike, and ``...`` stands for
anything.

Comments in the Markdown steer that:

``<!-- setup: CODE -->``
    Python that runs in the same session, for what a reader has and the page does not show.
``<!-- not run: REASON -->``
    The block that follows cannot run here. The reason is not optional.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_PIECE = re.compile(
    r"^<!-- (?P<mark>setup|not run):(?P<note>.*?)-->$|^```(?P<kind>\w*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_RUN = ("python", "console", "sh")


class Piece(NamedTuple):
    """A block to run, or to compare with, and where it is."""

    kind: str
    text: str
    line: int


def pieces_of(text: str) -> list[Piece]:
    """Return what is to be run of a page, in order."""
    found: list[Piece] = []
    skip, before = False, ""
    for match in _PIECE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["mark"] == "setup":
            found.append(Piece("python", match["note"].strip() + "\n", line))
        elif match["mark"] == "not run":
            assert len(match["note"].split()) >= 3, f"line {line}: say why the block is not run"
            skip = True
        else:
            kind = match["kind"]
            if not skip and (kind in _RUN or (kind == "text" and before == "python")):
                found.append(Piece(kind, match["body"], line + 1))
            before = "" if skip else kind
            skip = False
    return found


def commands_of(block: str) -> list[tuple[str, str | None]]:
    """Return the commands of a console block with what they are said to print."""
    commands: list[tuple[str, str | None]] = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        shown = "\n".join(lines[count:])
        commands.append(("\n".join(lines[:count]), shown if shown.strip() else None))
    return commands


def is_shown(shown: str, printed: str) -> bool:
    """Whether what was printed is what the page shows."""
    parts = [re.escape(" ".join(part.split())) for part in shown.split("...")]
    pattern = r"\s*" + r"\s*.*\s*".join(parts) + r"\s*"
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


# Runs in the session's own process: it must see the blocks' names, and survive their end.
SESSION = """
import contextlib, io, json, os, sys
names = {"__name__": "__main__"}
results = os.fdopen(os.dup(1), "w")
for request in sys.stdin:
    code, where = json.loads(request)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, where, "exec"), names)
    results.write(json.dumps(out.getvalue()) + "\\n")
    results.flush()
"""


class Session:
    """One Python process and one folder, in which a page is gone through."""

    def __init__(self, folder: Path) -> None:
        programs = str(Path(sys.executable).parent)
        self._folder = folder
        self._environment = os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._errors = folder.with_name("errors").open("w+")
        self._python = subprocess.Popen(
            [sys.executable, "-c", SESSION],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def python(self, code: str, where: str) -> str:
        """Run a block; returns what it printed."""
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps([code, where]) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        if not answer:
            pytest.fail(f"{where} ended the session")
        printed: str = json.loads(answer)
        return printed

    def shell(self, command: str, where: str) -> str:
        """Run a command; returns what it printed."""
        done = subprocess.run(
            ["bash", "-c", command],  # noqa: S607 - wherever bash is
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{where}: {command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def close(self) -> None:
        """End the process."""
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.close()
        code = self._python.wait(30)
        self._python.stdout.close()
        self._errors.seek(0)
        errors = self._errors.read()
        self._errors.close()
        assert code == 0, errors


@contextmanager
def open_session(folder: Path) -> Iterator[Session]:
    """Yield a session, and end it."""
    session = Session(folder)
    try:
        yield session
    finally:
        session.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_a_page_shows_is_so(page: Path, tmp_path: Path) -> None:
    """Every block runs, and prints what the page says."""
    folder = tmp_path / "here"
    folder.mkdir()
    with open_session(folder) as session:
        go_through(page, session)


def go_through(page: Path, session: Session) -> None:
    """Run a page's blocks, and compare what they print."""
    printed = ""
    for piece in pieces_of(page.read_text()):
        where = f"{page.name}:{piece.line}"
        if piece.kind == "python":
            printed = session.python(piece.text, where)
        elif piece.kind == "text":
            assert is_shown(piece.text, printed), f"{where} shows\n{piece.text}\nnot\n{printed}"
        elif piece.kind == "sh":
            for command in piece.text.replace("\\\n", "").splitlines():
                session.shell(command, where)
        else:
            for command, shown in commands_of(piece.text):
                printed = session.shell(command, where)
                if shown is not None:
                    message = f"{where}, $ {command}\nshows\n{shown}\nnot\n{printed}"
                    assert is_shown(shown, printed), message


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file that is there, and a heading where it has one."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        file = page if not path else (page.parent / path)
        assert file.exists(), f"{page.name} links to {target}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
            assert heading in slugs, f"{page.name} links to {target}; there are {sorted(slugs)}"


def test_a_block_is_left_out_with_a_reason_only() -> None:
    """The mark leaves out one block, and not without a word."""
    text = "<!-- not run: it needs a tracker -->\n```sh\nfalse\n```\n```python\nx = 1\n```\n"
    assert pieces_of(text) == [Piece("python", "x = 1\n", 6)]
    with pytest.raises(AssertionError, match="line 1: say why"):
        pieces_of("<!-- not run: -->\n```sh\nfalse\n```\n")


def test_output_is_compared_but_for_blanks_and_dots() -> None:
    """Blanks are alike, dots stand for anything, and anything else differs."""
    assert is_shown("a  b\n", "a b")
    assert is_shown("seq 1 ... end", "seq 1 and more\nend\n")
    assert not is_shown("a b", "a c")
    assert commands_of("$ one \\\n  two\nout\n$ three\n") == [
        ("one \\\n  two", "out"),
        ("three", None),
    ]
