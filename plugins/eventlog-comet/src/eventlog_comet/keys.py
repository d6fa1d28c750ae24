"""Where Comet's SDK looks for a key, without importing it."""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path

__all__ = ["has_api_key"]


def has_api_key() -> bool:
    """Whether the environment or one of Comet's files has an API key."""
    if os.environ.get("COMET_API_KEY"):
        return True
    if _in_env_file(Path(".env")):
        return True
    given = os.environ.get("COMET_CONFIG")
    files = [Path(".comet.config"), Path("~/.comet.config").expanduser()]
    if given:
        path = Path(given).expanduser()
        files.insert(0, path / ".comet.config" if path.is_dir() else path)
    return any(map(_in_config_file, files))


def _in_env_file(path: Path) -> bool:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    pairs = (line.removeprefix("export ").partition("=") for line in map(str.strip, lines))
    return any(name.strip() == "COMET_API_KEY" and value.strip() for name, _, value in pairs)


def _in_config_file(path: Path) -> bool:
    parser = ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ConfigError):
        return False
    return bool(parser.get("comet", "api_key", fallback=""))
