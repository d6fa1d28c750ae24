"""docs/reliability.md: each promise names a test, and each of these tests exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_\w+)`")


def written_tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        found |= {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    return found


def test_each_promise_names_tests_that_exist() -> None:
    """A test that is renamed, or taken away, is missed here."""
    named = set(NAMED.findall(PAGE))
    assert not named - written_tests()
    promises, _, figures = PAGE.partition("## Figures")
    assert len(re.findall(r"^\| .*`(?:make|python) .*`.* \|$", figures, re.MULTILINE)) > 4
    rows = [line for line in promises.splitlines() if re.match(r"\| (?!promise)[^-]", line)]
    assert len(rows) > 15
    assert [row for row in rows if not NAMED.search(row)] == []
