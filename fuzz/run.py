"""Fuzz one target, or each of them in turn, for a number of seconds.

``python fuzz/run.py 60 blocks``: with atheris, which is led by what the code does; without it, by
hypothesis for as long. What breaks is printed, and kept in ``fuzz/found/`` for a test.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
FOUND = HERE / "found"


def main(arguments: list[str]) -> int:
    """Run the targets; returns 1 when one of them found something."""
    seconds = int(arguments[0]) if arguments else 60
    sys.path.insert(0, str(HERE))
    if len(arguments) == 3 and arguments[2] == "--here":
        return _here(seconds, arguments[1])
    names = arguments[1:] or _names()
    if find_spec("atheris") is None:
        print("atheris is not installed for this Python: hypothesis looks for as long instead")
    broken = []
    for name in names:
        print(f"== {name}, {seconds} s", flush=True)
        command = [sys.executable, __file__, str(seconds), name, "--here"]
        if subprocess.run(command, check=False).returncode:
            broken.append(name)
    print("found something in: " + ", ".join(broken) if broken else "nothing found")
    return 1 if broken else 0


def _names() -> list[str]:
    from targets import TARGETS

    return list(TARGETS)


def _here(seconds: int, name: str) -> int:
    if find_spec("atheris") is None:
        return _by_hypothesis(seconds, name)
    import atheris

    with atheris.instrument_imports(include=["eventlog", "targets"]):
        from targets import TARGETS
    corpus = HERE / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    FOUND.mkdir(exist_ok=True)
    options = [sys.argv[0], str(corpus), f"-max_total_time={seconds}", "-timeout=60",
               "-rss_limit_mb=2048", "-max_len=4096", f"-artifact_prefix={FOUND}/{name}-",
               "-print_final_stats=1"]  # fmt: skip
    atheris.Setup(options, TARGETS[name])
    atheris.Fuzz()
    return 0


def _by_hypothesis(seconds: int, name: str) -> int:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
    from targets import TARGETS

    until = time.monotonic() + seconds
    runs = 0

    @settings(max_examples=10**9, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.binary(max_size=4096))
    def look(data: bytes) -> None:
        nonlocal runs
        if time.monotonic() > until:
            raise KeyboardInterrupt
        runs += 1
        try:
            TARGETS[name](data)
        except Exception:
            FOUND.mkdir(exist_ok=True)
            (FOUND / f"{name}-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    try:
        look()
    except KeyboardInterrupt:
        print(f"{runs} runs")
        return 0
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a target's threads have nothing to finish
