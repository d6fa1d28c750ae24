"""What the tests of the core and of the plugins share."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# the code of the tests' own sinks, which a list of sinks alone could not have imported
os.environ["EVENTLOG_ALLOW"] = "slow_sink:SlowSink,away:Away,away:Aside"

# machines are shared: a deadline would tell of the neighbours
settings.register_profile("eventlog", deadline=None)
settings.load_profile("eventlog")


@pytest.fixture(autouse=True)
def _hypothesis_knows_the_modules() -> None:
    """Have hypothesis look for constants in the project's modules before a test, not in it.

    It looks again whenever a module was imported meanwhile, and takes what it then draws for a
    strategy that changes its mind; there is no public switch for that.
    """
    try:
        from hypothesis.internal.conjecture import providers

        providers._get_local_constants()
    except (ImportError, AttributeError):
        pass
