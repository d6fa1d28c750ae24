"""What a sink says of itself may be anything: it costs nobody else, here and in the sidecar."""

from pathlib import Path
from typing import Any

import pytest

from eventlog import Run
from eventlog.testing import MemorySink

ODD = """
from pathlib import Path
from eventlog import Sink

class Odd(Sink):
    name = "odd"
    def __init__(self, *, kind):
        self.kind = kind
        if kind == "path":
            self.url = Path("/somewhere")
        elif kind == "number":
            self.run_id = 17
        elif kind == "counts":
            self.unshown = None
    def write(self, batch):
        pass

class Raises(Odd):
    @property
    def url(self):
        raise RuntimeError("not open")
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_sinks.py").write_text(ODD)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("isolate", [False, True], ids=["process", "sidecar"])
@pytest.mark.parametrize(
    ("options", "url", "run_id"),
    [
        ({"sink": "odd_sinks:Odd", "kind": "path"}, "/somewhere", None),
        ({"sink": "odd_sinks:Odd", "kind": "number"}, None, "17"),
        ({"sink": "odd_sinks:Odd", "kind": "counts"}, None, None),
        ({"sink": "odd_sinks:Raises", "kind": ""}, None, None),
    ],
    ids=["path", "number", "counts", "raises"],
)
def test_an_odd_attribute_costs_nothing(
    tmp_path: Path, options: dict[str, Any], url: str | None, run_id: str | None, isolate: bool
) -> None:
    """It is a text, or nothing; delivery goes on, and is accounted for."""
    good: Any = {"sink": "log", "isolate": True} if isolate else MemorySink()
    sinks = {"odd": options | {"isolate": isolate}, "good": good}
    with Run("p", dir=tmp_path / "runs", sinks=sinks) as run:
        for _ in range(10):
            run.step(x=1.0)
    assert run.close().complete
    assert run.url is not None
    handle = run.sink("odd")
    assert (handle.state, handle.url, handle.run_id) == ("closed", url, run_id)
    told = run.statistics().sinks
    assert (told["odd"].delivered, told["odd"].unshown) == (12, {})
    assert told["good"].delivered == 12
