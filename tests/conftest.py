"""Fixtures that every test shares."""

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import settings

import eventlog

# hypothesis draws constants from the project's modules that are imported by then; one that is
# imported in the middle of a test would change what is drawn
for module in pkgutil.walk_packages(eventlog.__path__, "eventlog."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

# machines are shared: a deadline would tell of the neighbours
settings.register_profile("eventlog", deadline=None)
settings.load_profile("eventlog")


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"debug": True}), id="asyncio"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run each async test on asyncio, in debug mode, and on trio."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend
