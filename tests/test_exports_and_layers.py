"""What `import eventlog` costs and brings, and which way the imports inside go."""

import ast
import subprocess
import sys
from pathlib import Path

import eventlog

SOURCE = Path(eventlog.__file__).parent

LAYERS = (
    (
        "exceptions",
        "_version",
        "clock",
        "_names",
        "_paths",
        "_platform",
        "_secrets",
        "_visible",
        "_wake",
        "_weight",
        "_config",
        "_settings",
        "_provenance",
        "_ranks",
    ),
    ("events", "_rejections"),
    ("_values", "_device", "codec", "cadence"),
    ("_counters", "_loop", "log.layout", "log.records", "log.disk", "log.blobs", "log.inbox"),
    ("_media", "log.source", "log.segment_reader", "log.index", "log.files", "log.segments"),
)
"""The lowest layers, from below: a module imports from layers below its own, or its own."""

TOP = (
    "__main__",
    "run",
    "_run_closing",
    "_run_sinks",
    "_reduction",
    "_supervisor",
    "bus",
    "_replay",
    "sidecar",
    "ranks",
    "integrations",
    "cli",
    "testing",
)
"""What nothing but these, and the package itself, may import."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: set[str]) -> set[str]:
    """Return the eventlog modules that are imported when a module is: not for types, not late."""
    found: set[str] = set()

    def visit(nodes: list[ast.stmt]) -> None:
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eventlog"):
                base = (node.module or "").removeprefix("eventlog").removeprefix(".")
                for alias in node.names:
                    full = f"{base}.{alias.name}".removeprefix(".")
                    found.add(full if full in known else base)
            elif isinstance(node, ast.Import):
                found.update(
                    alias.name.removeprefix("eventlog.")
                    for alias in node.names
                    if alias.name.startswith("eventlog.")
                )
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                visit(node.orelse)
            elif isinstance(node, ast.If | ast.Try):
                for part in ("body", "orelse", "finalbody"):
                    visit(getattr(node, part, []))

    visit(ast.parse(path.read_text(encoding="utf-8")).body)
    return found - {""}


def graph() -> dict[str, set[str]]:
    known = set(modules())
    return {name: imports(path, known) for name, path in modules().items() if name}


def test_importing_eventlog_imports_no_heavy_library() -> None:
    """Neither torch nor a tracker nor the command line's libraries nor an event loop."""
    code = (
        "import sys, eventlog\n"
        "heavy = {'torch', 'tensorboard', 'typer', 'rich', 'numpy', 'anyio', 'msgspec', 'asyncio',"
        " 'trio', 'PIL', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "eventlog.Run\n"
        "heavy = {'torch', 'tensorboard', 'typer', 'rich', 'numpy', 'trio', 'PIL', 'matplotlib',"
        " 'sniffio'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_eventlog_works_without_what_it_does_not_require() -> None:
    """No trio, sniffio, NumPy or torch is needed for a run, a bus or a replay."""
    code = (
        "import sys\n"
        "for name in ('trio', 'sniffio', 'numpy', 'torch', 'rich', 'typer', 'PIL'):\n"
        "    sys.modules[name] = None\n"
        "import anyio, eventlog, tempfile\n"
        "got = []\n"
        "with tempfile.TemporaryDirectory() as d:\n"
        "    with eventlog.Run('p', dir=d, sinks=got.append) as run:\n"
        "        run.step(x=1.0)\n"
        "    eventlog.replay(run.dir, got.append)\n"
        "async def main():\n"
        "    async with eventlog.EventBus(sinks=got.append) as bus:\n"
        "        bus.emit(eventlog.StepEvent())\n"
        "anyio.run(main)\n"
        "assert len(got) == 7, got\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_exports_are_sorted_and_resolve() -> None:
    """Each name of __all__ is there, is listed by dir(), and has a home."""
    assert eventlog.__all__ == sorted(eventlog.__all__)
    assert len(set(eventlog.__all__)) == len(eventlog.__all__)
    for name in eventlog.__all__:
        assert getattr(eventlog, name) is not None
    assert set(eventlog.__all__) <= set(dir(eventlog))
    assert set(eventlog._HOME) | {"__version__"} == set(eventlog.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As for any module."""
    assert not hasattr(eventlog, "nonsense")


def test_imports_go_one_way() -> None:
    """No module imports itself by way of others, so that any can be the first that is imported."""
    edges = graph()
    for name, targets in list(edges.items()):
        # to import a.b is to import a as well, whose __init__ imports what it does
        for target in list(targets):
            package = target.rpartition(".")[0]
            if package and not f"{name}.".startswith(f"{package}."):
                targets.add(package)
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            raise AssertionError(f"modules import each other: {cycle}")
        if name not in done:
            for target in sorted(edges.get(name, ())):
                walk(target, (*path, name))
            done.add(name)

    for name in sorted(edges):
        walk(name, ())


def test_lower_layers_know_nothing_of_higher_ones() -> None:
    """Events, cadence and codec are usable alone; only the top puts everything together."""
    edges = graph()
    level = {name: i for i, layer in enumerate(LAYERS) for name in layer}

    def level_of(name: str) -> int | None:
        return level.get(name, level.get(name.partition(".")[0]))

    wrong = []
    for name, targets in edges.items():
        own = level_of(name)
        for target in targets:
            theirs = level_of(target)
            if own is not None and (theirs is None or theirs > own):
                wrong.append(f"{name} imports {target}")
            if target.partition(".")[0] in TOP and name.partition(".")[0] not in TOP:
                wrong.append(f"{name} imports {target}, which is at the top")
    assert wrong == []
