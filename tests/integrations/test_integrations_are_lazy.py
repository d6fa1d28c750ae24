"""A framework is imported when one of its integration's names is used, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eventlog import integrations


def test_nothing_heavy_comes_with_the_package() -> None:
    """Not with the handler for logging records either."""
    code = (
        "import sys, eventlog.integrations as i\n"
        "i.EventlogHandler()\n"
        "heavy = {'torch', 'accelerate', 'transformers', 'lightning', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_names_are_there() -> None:
    """Each has a home, and what has none is an attribute error."""
    assert integrations.__all__ == sorted(integrations.__all__) == sorted(integrations._HOME)
    assert set(integrations.__all__) <= set(dir(integrations))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = integrations.nonsense
