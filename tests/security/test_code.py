"""Nothing that is read is executed, and nothing is imported that nobody named."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")])

FORBIDDEN = {
    "eval", "exec", "compile", "pickle.load", "pickle.loads", "marshal.load", "marshal.loads",
    "shelve.open", "dill.load", "dill.loads", "joblib.load", "torch.load", "yaml.load",
    "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen", "numpy.load", "np.load",
    "tarfile.open", "shutil.unpack_archive", "cloudpickle.loads",
}  # fmt: skip


def calls(path: Path) -> list[tuple[int, str, ast.Call]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            found.append((node.lineno, ast.unparse(node.func), node))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_has_a_call_that_executes_data(path: Path) -> None:
    """No pickle, no eval, no unsafe YAML, no shell: in the core and in the plugins."""
    for line, name, call in calls(path):
        assert name not in FORBIDDEN, f"{path}:{line}: {name}"
        assert not any(k.arg == "shell" for k in call.keywords), f"{path}:{line}: a shell"


def test_the_check_finds_what_it_looks_for(tmp_path: Path) -> None:
    """A call that is forbidden, if there was one."""
    path = tmp_path / "x.py"
    path.write_text("import pickle\npickle.loads(b'')\n")
    assert [name for _, name, _ in calls(path)] == ["pickle.loads"]
    assert "pickle.loads" in FORBIDDEN


POISON = """
import pathlib
pathlib.Path(r"{mark}").write_text(__name__)
raise SystemExit("poisoned")
"""

PROGRAM = """
import sys
import eventlog
from eventlog.sinks.registry import available_sinks
assert "poison" in available_sinks()
with eventlog.Run("p", dir=sys.argv[1], sinks={"copy": {"sink": "log"}, "tensorboard": {}}) as run:
    run.step(loss=1.0)
eventlog.replay(run.dir, {"copy": {"sink": "log"}})
from typer.testing import CliRunner
from eventlog.cli.app import app
place = str(run.dir)
for command in (["info", place], ["verify", place], ["replay", "--pending", place],
                ["replay", place, "--sink", "log"], ["ls", sys.argv[1]]):
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, (command, result.output)
assert "poison_code" not in sys.modules
"""


def test_an_entry_point_that_nobody_named_is_never_imported(tmp_path: Path) -> None:
    """Listing what is installed, runs, replays and every command leave it alone."""
    site, mark = tmp_path / "site", tmp_path / "mark"
    info = site / "poison-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: poison\nVersion: 1.0\n")
    groups = ["eventlog.sinks", "pytest11x", "console_scripts"]
    lines = [f"[{group}]\npoison = poison_code:Sink\n" for group in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (site / "poison_code.py").write_text(POISON.format(mark=mark))
    program = f"import sys; sys.path.insert(0, {str(site)!r})\n" + PROGRAM
    command = [sys.executable, "-c", program, str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    assert not mark.exists()
    named = f"import sys; sys.path.insert(0, {str(site)!r})\n" + (
        "from eventlog.sinks.registry import load_sink_class\nload_sink_class('poison')"
    )
    subprocess.run([sys.executable, "-c", named], capture_output=True, timeout=55, check=False)
    assert mark.read_text() == "poison_code"


def test_every_exception_to_the_security_rules_says_why() -> None:
    """A noqa of an S rule is followed by its reason."""
    folders = [ROOT / "src", ROOT / "tests", ROOT / "examples", ROOT / "benchmarks", ROOT / "fuzz"]
    paths = [p for folder in folders for p in folder.rglob("*.py")]
    for path in [*paths, *(ROOT / "plugins").glob("*/*/**/*.py")]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            _, mark, rest = line.partition("# noqa" + ": S")
            if mark:
                _, _, reason = rest.partition(" - ")
                assert len(reason) > 5, f"{path}:{number}: {line.strip()}"
    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)
    lint = settings["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert not [rule for rule in lint["ignore"] if rule.startswith("S") and rule != "SIM"]
