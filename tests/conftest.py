"""Fixtures that every test shares."""

import signal
from typing import Any

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # as in the background of a shell without job control; programs that tests start, and send a
    # Ctrl-C, would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
