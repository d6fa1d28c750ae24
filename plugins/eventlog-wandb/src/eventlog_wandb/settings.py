"""What W&B would do as things stand: its mode, its server and its key, without importing it."""

from __future__ import annotations

import configparser
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["DEFAULT_SERVER", "MODES", "mode_of", "server_of", "why_unready"]

MODES = ("online", "offline", "disabled")
DEFAULT_SERVER = "https://api.forge.coreweave.com"

# the SDK's own older words
_ALIASES = {"run": "online", "dryrun": "offline"}
# the same service by its older name, under which keys may be stored
_SAME_HOST = {"api.forge.coreweave.com": "api.wandb.ai"}


def mode_of(option: str | None) -> str:
    """Return the mode that an option, WANDB_MODE or the SDK's settings files ask for.

    It may be one that is not in `MODES`.
    """
    mode = option or os.environ.get("WANDB_MODE") or _stored().get("mode") or "online"
    return _ALIASES.get(mode, mode)


def server_of(option: str | None) -> str:
    """Return the address of the server."""
    found = option or os.environ.get("WANDB_BASE_URL") or _stored().get("base_url")
    return (found or DEFAULT_SERVER).rstrip("/")


def why_unready(options: Mapping[str, Any]) -> str | None:
    """Return why a run could not start without asking, and the ways out; None if it can."""
    mode = mode_of(options.get("mode"))
    if mode not in MODES:
        return f"mode must be one of {', '.join(MODES)}, not {mode!r} (WANDB_MODE)"
    if mode != "online" or _has_key(server_of(options.get("server"))):
        return None
    host = urlsplit(server_of(options.get("server"))).netloc
    return (
        f"there is no W&B key for {host}: run `wandb login`, or set WANDB_API_KEY, "
        "or write offline with mode='offline' (WANDB_MODE=offline)"
    )


def _has_key(server: str) -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    if _stored().get("api_key"):
        return True
    host = urlsplit(server).netloc
    return any(_netrc_has(name) for name in (host, _SAME_HOST.get(host)) if name)


def _netrc_has(host: str) -> bool:
    given = os.environ.get("NETRC")
    home = Path.home()
    path = Path(given).expanduser() if given else home / ".netrc"
    if not given and not path.exists():
        path = home / "_netrc"
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return False
    return found is not None and bool(found[2])


def _stored() -> dict[str, str]:
    """Return what the SDK's commands (`wandb login`, `wandb offline`) left in its files."""
    folder = os.environ.get("WANDB_CONFIG_DIR")
    shared = Path(folder).expanduser() if folder else Path.home() / ".config" / "wandb"
    found: dict[str, str] = {}
    for path in (shared / "settings", Path("wandb") / "settings"):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            if parser.read(path, encoding="utf-8") and parser.has_section("default"):
                found |= dict(parser.items("default"))
        except (OSError, ValueError, configparser.Error):
            continue
    return found
