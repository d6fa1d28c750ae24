"""How a kernel ends, and what an interrupted cell leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog import open_log

manager: Any = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]


class Kernel:
    """A real kernel, and one client of it."""

    def __init__(self, folder: Path) -> None:
        self.manager, self.client = manager.start_new_kernel(
            kernel_name="python3", cwd=str(folder), startup_timeout=60
        )

    def begin(self, code: str) -> str:
        """Begin a cell; wait until it prints or ends; return what it printed or raised."""
        message = self.client.execute(code)
        while True:
            reply = self.client.get_iopub_msg(timeout=60)
            if reply["parent_header"].get("msg_id") != message:
                continue
            content = reply["content"]
            if reply["msg_type"] == "stream":
                return str(content["text"]).strip()
            if reply["msg_type"] == "error":
                return str(content["ename"])
            if content.get("execution_state") == "idle":
                return ""

    def ending(self) -> str:
        """Wait until the cell that was begun ends; return the exception that it raised."""
        name = ""
        while True:
            reply = self.client.get_iopub_msg(timeout=60)
            if reply["msg_type"] == "error":
                name = reply["content"]["ename"]
            if reply["content"].get("execution_state") == "idle":
                return name


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path)
    yield made
    made.client.stop_channels()
    if made.manager.is_alive():
        made.manager.shutdown_kernel(now=True)
    made.manager.cleanup_resources()
    made.manager.context.destroy()


def the_log(folder: Path) -> Any:
    (run_dir,) = (folder / "runs" / "notebook").glob("*/")
    return open_log(run_dir)


def test_an_interrupted_cell_does_not_end_the_run_but_its_block_does(
    tmp_path: Path, kernel: Kernel
) -> None:
    """As the stop button: a run that has no block goes on in the next cell."""
    training = (
        "import eventlog, time\n"
        "run = eventlog.Run('notebook')\n"
        "run.step(x=1)\n"
        "print('training', flush=True)\n"
        "while True: time.sleep(0.01)"
    )
    assert kernel.begin(training) == "training"
    kernel.manager.interrupt_kernel()
    assert kernel.ending() == "KeyboardInterrupt"
    assert kernel.begin("run.step(x=2); print(run.flush().complete)") == "True"
    assert the_log(tmp_path).status() == "running"
    block = "with run:\n    print('in', flush=True)\n    while True: time.sleep(0.01)"
    kernel.ending()
    assert kernel.begin(block) == "in"
    kernel.manager.interrupt_kernel()
    assert kernel.ending() == "KeyboardInterrupt"
    log = the_log(tmp_path)
    assert log.status() == "interrupted"
    assert [e.values["x"] for e in log.events(types=["step"])] == [1, 2]


def test_a_kernel_that_is_shut_down_ends_its_run(tmp_path: Path, kernel: Kernel) -> None:
    """Nobody closed it, and a cell had failed: all of it is there, and it has not failed."""
    cell = "import eventlog\nrun = eventlog.Run('notebook')\nrun.step(x=1)"
    assert kernel.begin(cell) == ""
    assert kernel.begin("1 / 0") == "ZeroDivisionError"
    kernel.ending()
    assert kernel.begin("run.step(x=2)") == ""
    kernel.client.shutdown()
    deadline = time.monotonic() + 60
    while kernel.manager.is_alive():
        assert time.monotonic() < deadline, "the kernel has not ended"
        time.sleep(0.02)
    log = the_log(tmp_path)
    assert log.status() == "finished"
    assert [e.values["x"] for e in log.events(types=["step"])] == [1, 2]
