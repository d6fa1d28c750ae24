"""A notebook: a real kernel, whose loop is running while its cells do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELLS = [
    """
import asyncio
assert asyncio.get_running_loop().is_running()
import eventlog
seen = []
async def watch(event):
    seen.append(event.step)
run = eventlog.Run("notebook", sinks={"watch": {"sink": watch, "types": ["step"]}})
for step in range(10):
    run.step(loss=1 / (step + 1))
""",
    """
await asyncio.sleep(0)
for step in range(5):
    run.step(loss=0.0)
report = run.flush()
print(report.complete, len(seen))
""",
    "1 / 0",
    """
run.step(loss=0.5)
report = run.close()
log = eventlog.open_log(run.dir)
print(report.complete, log.status(), sum(1 for _ in log.events(types=["step"])))
""",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(120)
def test_cells_of_a_notebook_share_a_run(tmp_path: Path) -> None:
    """It goes on from cell to cell, also after one that raised, and ends when it is told to."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    client = nbclient.NotebookClient(
        notebook, timeout=90, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [
        "".join(out.get("text", out.get("ename", "")) for out in cell.outputs).strip()
        for cell in notebook.cells
    ]
    assert outputs == ["", "True 15", "ZeroDivisionError", "True finished 16"]
