"""Names of files and directories made from what users call things."""

from __future__ import annotations

import hashlib
import re
import secrets
import time

__all__ = ["new_run_id", "safe_name"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_RESERVED = re.compile(r"^(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)", re.IGNORECASE)
_LONGEST = 80


def safe_name(text: str, default: str = "unnamed") -> str:
    """Return a name that is one path component everywhere, and another one for another text."""
    name = _UNSAFE.sub("_", text.encode("utf-8", "replace").decode()).strip(".")[:_LONGEST]
    if name == text and name and not _RESERVED.match(name):
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    stem = name.strip("_") or default
    return f"{'_' if _RESERVED.match(stem) else ''}{stem}-{digest}"


def new_run_id() -> str:
    """Return an id that sorts by the time of the start, to the second, and is unique."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
