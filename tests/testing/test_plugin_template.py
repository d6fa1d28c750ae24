"""The template of a plugin passes its own tests as it stands, without being installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).parents[2] / "examples" / "plugin-template"


def declared(folder: Path) -> None:
    """Write what an installation of the template would have written of it."""
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head)
    lines = ["[eventlog.sinks]"]
    lines += [f"{k} = {v}" for k, v in project["entry-points"]["eventlog.sinks"].items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.timeout(120)
def test_the_template_passes_as_it_stands(tmp_path: Path) -> None:
    """Its tests find the sink by its entry point, in the process and in the sidecar."""
    declared(tmp_path / "installed")
    path = [str(tmp_path / "installed"), str(TEMPLATE / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
         "--rootdir", TEMPLATE, "--basetemp", tmp_path / "pytest", TEMPLATE / "tests"],
        cwd=tmp_path,
        env=os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "skipped" not in done.stdout
