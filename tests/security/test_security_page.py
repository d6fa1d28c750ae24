"""SECURITY.md: each promise names the test that holds it, and the figures are the code's."""

import ast
import re
from pathlib import Path

from eventlog import _weight
from eventlog._paths import SMALL_FILE
from eventlog.log.checkpoint import SLOT
from eventlog.log.layout import MAX_EVENTS, MAX_PAYLOAD, MAX_SEQ

from .test_memory import MOST_MEMORY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_\w+)`")
PROMISES = ("Nothing that is read is executed", "Nothing that is read leads out of the run",
            "Lengths are checked before memory is taken", "Secrets")  # fmt: skip


def written_tests() -> set[str]:
    found = set()
    for folder in ("security", "fuzz"):
        for path in (ROOT / "tests" / folder).glob("test_*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return found


def test_each_test_that_the_page_names_exists() -> None:
    """And it names many."""
    named = set(NAMED.findall(PAGE))
    assert len(named) > 30
    assert not named - written_tests()


def test_each_promise_names_a_test() -> None:
    """Every item of a list, and every row of the table of figures."""
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
    for title in PROMISES:
        items = re.findall(r"^(?:- .+?(?=^- |^\n|\Z)|\| .+?$)", sections[title],
                           re.DOTALL | re.MULTILINE)  # fmt: skip
        items = [item for item in items if not item.startswith("| | at most")]
        assert items, title
        for item in items:
            assert NAMED.search(item), item


def test_the_figures_are_those_of_the_code() -> None:
    """A limit that is changed is changed on the page."""
    assert f"| {MAX_PAYLOAD >> 20} MiB |" in PAGE
    assert f"| {_weight.MOST_WEIGHT >> 30} GiB, told" in PAGE
    assert f"| {MAX_EVENTS:,} |" in PAGE
    assert MAX_EVENTS == _weight.MOST_ITEMS
    assert MAX_SEQ == 2**63 - 1
    assert f"| {SMALL_FILE >> 20} MiB |" in PAGE
    assert f"| a checkpoint | {SLOT >> 10} KiB |" in PAGE
    assert f"| {MOST_MEMORY / 2**30} GiB |" in PAGE
