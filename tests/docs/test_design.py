"""The module map in docs/design.md is complete, and imports go down it."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "eventlog"
ANYWHERE = {"__init__", "__main__", "_version"}


def layers() -> list[list[str]]:
    """Return the modules of each layer, the highest one first, as the page has them."""
    text = (ROOT / "docs" / "design.md").read_text()
    table = text.partition("## Modules")[2].partition("\n## ")[0]
    found = []
    for row in re.findall(r"^\| [^|]+ \| (.*?) \|", table, flags=re.MULTILINE):
        names: list[str] = []
        for name in re.findall(r"`([\w.*]+)`", row):
            package = names[-1].rpartition(".")[0] if names else ""
            names.append(f"{package}{name}" if name.startswith(".") else name)
        if names:
            found.append(names)
    return found


def layer_of(module: str) -> int | None:
    """Return how high a module is: the larger the lower; None where it is not on the page."""
    for number, names in enumerate(layers()):
        if any(is_in(module, name) for name in names):
            return number
    return None


def is_in(module: str, name: str) -> bool:
    """Whether a name on the page stands for a module: its own, its package's, or a pattern."""
    return fnmatch.fnmatchcase(module, name) or module.startswith(f"{name}.")


def modules() -> dict[str, Path]:
    """Return the modules of the package, by name below ``eventlog``; packages' own are left out."""
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "__init__.py" and path.stem not in ANYWHERE
    }


def imports_of(path: Path) -> Iterator[str]:
    """Yield what a module imports of eventlog when it is loaded, by name below ``eventlog``."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "eventlog":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eventlog."):
            yield str(node.module).removeprefix("eventlog.")
        waiting += ast.iter_child_nodes(node)


def test_every_module_is_on_the_map() -> None:
    """A module that is added gets a place, and one that is gone loses it."""
    known = modules()
    names = [name for layer in layers() for name in layer]
    assert [m for m in known if layer_of(m) is None and not m.startswith("testing.")] == []
    assert [n for n in names if not any(is_in(m, n) for m in known)] == []


def test_imports_go_down_the_map() -> None:
    """No module imports one of a layer above its own."""
    wrong = []
    for module, path in modules().items():
        if module.startswith("testing."):
            continue
        for other in imports_of(path):
            own, theirs = layer_of(module), layer_of(other)
            if own is not None and theirs is not None and theirs < own:
                wrong.append(f"{module} imports {other}")
    assert wrong == []
