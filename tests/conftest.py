"""Fixtures that every test shares."""

from typing import Any

import pytest


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
