"""The comparison runs end to end as its users run it: measured, read back, killed, reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PNG = b"\x89PNG"


def bench(folder: Path, script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(code: str, *arguments: str, folder: Path | None = None) -> str:
    """Run a program that can import the benchmarks; return what it prints."""
    code = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout


@pytest.mark.timeout(180)
def test_what_is_measured_comes_out_as_a_page(tmp_path: Path) -> None:
    """A case is timed, read back and killed, a measure taken; tables, plots and JSON have them."""
    bench(tmp_path, "compare.py", "--tiny", "--cases", "eventlog", "--json", "compare.json")
    compare = json.loads((tmp_path / "compare.json").read_text())
    case = compare["cases"]["eventlog"]
    assert case["errors"] == []
    row: dict[str, Any] = case["summary"]
    for kind in ("between", "burst"):
        p50, p99, most = (row[kind][p][0] for p in ("p50", "p99", "max"))
        assert 0 < p50 <= p99 <= most
    assert row["logged"] > 0
    assert row["lost"][0] < row["logged"]
    assert row["hosts"] == []
    assert row["memory"][0] > 10e6
    assert row["given"] > 0
    assert row["missing"] == [0, 0, 0]

    bench(tmp_path, "scale.py", "--tiny", "--only", "events", "--json", "scale.json")
    scale = json.loads((tmp_path / "scale.json").read_text())
    assert [one["events"] for one in scale["measures"]["events"]] == [1000, 10_000]
    assert [one["processes"] for one in scale["measures"]["events"]] == [1, 1]
    assert all(50 < one["bytes"] < 500 for one in scale["measures"]["events"])

    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text(
        "# What it costs\n\n<!-- results: made by benchmarks/report.py -->\nold\n"
        "<!-- end of results -->\n\nAnd that is all.\n"
    )
    said = bench(tmp_path, "report.py", "compare.json", "scale.json", "--page", str(page))
    assert "not measured" in said  # wandb's call, for one, was not
    text = page.read_text()
    assert text.startswith("# What it costs\n")
    assert text.endswith("\n\nAnd that is all.\n")
    assert "\nold\n" not in text
    assert "| run.step, the log alone | " in text
    assert "| 10,000 | " in text
    for name in ("calls", "loop", "events"):
        plot = (page.with_suffix("") / f"{name}.png").read_bytes()
        assert plot[:4] == PNG
        assert len(plot) < 100_000
    kept = json.loads((page.with_suffix("") / "results.json").read_text())
    assert kept["compare"]["cases"]["eventlog"]["summary"] == row


@pytest.mark.timeout(180)
def test_the_tracker_behind_is_read_as_well(tmp_path: Path) -> None:
    """How soon TensorBoard has a point is a figure of its own, beside the log's."""
    case = "eventlog+tensorboard"
    bench(tmp_path, "compare.py", "--tiny", "--cases", case, "--json", "compare.json")
    found = json.loads((tmp_path / "compare.json").read_text())["cases"][case]
    assert found["errors"] == []
    assert found["summary"]["follow"]["logged"] > 0
    bench(tmp_path, "report.py", "compare.json", "--page", "performance.md")
    text = (tmp_path / "performance.md").read_text()
    assert text.count("| run.step, TensorBoard in the process | ") == 4


def test_the_readme_has_the_figures_of_the_page() -> None:
    """They come from the same results, and are written by the same command."""
    code = (
        "import json\n"
        "from reporting.headline import headline\n"
        "found = json.load(open(sys.argv[1]))['compare']\n"
        "rows = {name: case.get('summary', {}) for name, case in found['cases'].items()}\n"
        "print(headline(rows, found['machine']))\n"
    )
    root = BENCHMARKS.parent
    results = root / "docs" / "performance" / "results.json"
    out = python(code, str(results))
    assert out.strip() in (root / "README.md").read_text(), "make bench-report"


def test_rounds_of_two_runs_are_put_together(tmp_path: Path) -> None:
    """So that some cases can have more of them."""
    for name in ("one", "two"):
        bench(tmp_path, "compare.py", "--tiny", "--cases", "nothing", "--json", f"{name}.json")
    (tmp_path / "docs").mkdir()
    bench(tmp_path, "report.py", "one.json", "two.json", "--page", "docs/performance.md")
    kept = json.loads((tmp_path / "docs" / "performance" / "results.json").read_text())
    case = kept["compare"]["cases"]["nothing"]
    assert [loop["round"] for loop in case["loops"]] == [0, 1]
    assert sorted(case["summary"]["rounds"]["p50"]) == ["0", "1"]
    assert case["summary"]["processes"] == 2
    pairs = [len(loop["pairs"]["1.5"]) for loop in case["loops"]]
    assert case["summary"]["pair_count"]["1.5"] == sum(pairs)


def test_a_case_that_fails_is_named_and_ends_nothing(tmp_path: Path) -> None:
    """A deadline that nothing can meet fails the case, with the reason, and not the run."""
    code = (
        "import compare, msgspec; from peers.plan import PLANS, TINY\n"
        "PLANS['tiny'] = msgspec.structs.replace(TINY, deadline=0.0)\n"
        "compare.main(['--tiny', '--cases', 'nothing', '--json', 'out.json'])\n"
    )
    python(code, folder=tmp_path)
    case = json.loads((tmp_path / "out.json").read_text())["cases"]["nothing"]
    assert case["errors"] == ["loop: it took longer than its deadline"]


def test_the_pass_marks_say_what_an_interval_allows() -> None:
    """A loop is within its mark when the whole interval is, beyond it when none of it is."""
    code = (
        "from reporting.marks import marks\n"
        "quiet = {'pairs': {'1.5': (1.0, 0.995, 1.005)}}\n"
        "loud = {'pairs': {'1.5': (1.0, 0.95, 1.05)}}\n"
        "for pair in ((1.0, 0.99, 1.005), (1.02, 1.015, 1.03), (1.0, 0.98, 1.03)):\n"
        "    row = {'pairs': {'1.5': pair}, 'pair_count': {'1.5': 100}, 'processes': 9,\n"
        "           'whole_interval': pair}\n"
        "    for nothing in (quiet, loud):\n"
        "        found = marks({'eventlog': row, 'nothing': nothing}, {})\n"
        "        print([m.verdict for m in found if m.what == 'loop with the log alone'])\n"
    )
    out = python(code)
    verdicts = ["['met']", "['**missed**']", "['not decided']"]
    assert out.split("\n")[:6:2] == verdicts
    # where two loops that log nothing differ by more than the mark is about
    assert out.split("\n")[1:6:2] == ["['not decided']"] * 3


def test_rounds_that_differ_decide_nothing() -> None:
    """A ratio is met when each round has it, missed when none has, and else not decided."""
    code = (
        "from reporting.marks import marks\n"
        "def row(*calls):\n"
        "    middle = sorted(calls)[1]\n"
        "    rounds = {'p50': dict(zip('012', calls))}\n"
        "    return {'between': {'p50': [middle, min(calls), max(calls)]}, 'rounds': rounds}\n"
        "for theirs in ((90, 100, 120), (30, 40, 50), (30, 90, 120)):\n"
        "    found = marks({'eventlog': row(4, 4, 4), 'trackio': row(*theirs)}, {})\n"
        "    print([m.verdict for m in found if 'Trackio' in m.what])\n"
    )
    out = python(code)
    assert out.split("\n")[:3] == ["['met']", "['**missed**']", "['not decided']"]


def test_processes_that_differ_widen_an_interval() -> None:
    """Many pairs of one process say little, where another process says something else."""
    code = (
        "from peers.figures import interval\n"
        "pooled = interval([[1.0] * 50 + [1.1] * 51])\n"
        "apart = interval([[1.0] * 50, [1.1] * 51])\n"
        "print(apart[1:], pooled[0] == apart[0])\n"
    )
    out = python(code)
    assert out == "(1.0, 1.1) True\n"


def test_a_peer_that_is_not_installed_is_skipped_and_named(tmp_path: Path) -> None:
    """The cases of what is missing are left out, and the results say what that is."""
    code = (
        "sys.modules['loguru'] = None\n"
        "import compare\n"
        "compare.main(['--tiny', '--cases', 'loguru', '--json', 'out.json'])\n"
    )
    out = python(code, folder=tmp_path)
    assert "skipped: loguru, not installed: loguru" in out


def test_no_process_of_it_looks_up_another_host(tmp_path: Path) -> None:
    """A name is refused before anybody is asked, and noted; the loopback is as it was."""
    code = (
        "import subprocess; from pathlib import Path; from peers.offline import *\n"
        "look = 'import socket; socket.getaddrinfo(\"127.0.0.1\", 80)\\n'\n"
        "look += 'socket.getaddrinfo(\"peer.invalid\", 80)'\n"
        "done = subprocess.run([sys.executable, '-c', look], env=environment(Path.cwd()),\n"
        "    capture_output=True, text=True)\n"
        "print('is not looked up' in done.stderr, refused(Path.cwd()))\n"
    )
    out = python(code, folder=tmp_path)
    assert out == "True ['peer.invalid']\n"
