"""An environment in which no peer leaves the machine: no proxies, no keys, no telemetry.

And no host is looked up but this one, whatever a peer wants: see site/sitecustomize.py.
"""

from __future__ import annotations

import os
from pathlib import Path

KEYS = ("WANDB_", "COMET_", "CLEARML_", "MLFLOW_", "NEPTUNE_", "TRACKIO_", "SWANLAB_", "AIM_",
        "DVC", "EVENTLOG_", "HF_", "OTEL_", "ACCELERATE_", "TENSORBOARD_", "RANK", "WORLD_SIZE",
        "LOCAL_RANK")  # fmt: skip
"""Beginnings of variables that would change what a peer does."""

HOSTS = "COMPARE_HOSTS"
"""Names the file with the hosts that somebody wanted to look up."""

QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "COMET_ERROR_TRACKING_ENABLE": "false",
    "COMET_DISABLE_AUTO_LOGGING": "1",
    "COMET_LOGGING_CONSOLE": "CRITICAL",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "CLEARML_OFFLINE_MODE": "1",
    "DVC_NO_ANALYTICS": "1",
    "DVCLIVE_OPEN": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "NO_ALBUMENTATIONS_UPDATE": "1",
    "EVENTLOG_CONFIG": "",
    "OMP_NUM_THREADS": "1",
    "NO_PROXY": "127.0.0.1,localhost",
}


def environment(folder: Path) -> dict[str, str]:
    """Return this process's environment, less what leads outside, with a home in a folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(KEYS) and not name.lower().endswith("_proxy")
    }
    home = folder / "home"
    home.mkdir(exist_ok=True)
    places = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "CLEARML_CACHE_DIR": str(folder / "clearml"),
        "TRACKIO_DIR": str(folder / "trackio"),
        "SWANLAB_SAVE_DIR": str(home / "swanlab"),
        HOSTS: str(folder / "hosts"),
    }
    peers = Path(__file__).parent
    path = os.pathsep.join(
        [str(peers / "site"), str(peers.parent), *filter(None, [kept.get("PYTHONPATH")])]
    )
    return kept | QUIET | places | {"PYTHONPATH": path}


def refused(folder: Path) -> list[str]:
    """Return the hosts that a process with such an environment wanted to look up."""
    path = folder / "hosts"
    return sorted(set(path.read_text().split())) if path.exists() else []
