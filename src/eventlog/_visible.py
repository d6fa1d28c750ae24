"""Texts from a log on a terminal: what would command the terminal is shown instead of obeyed."""

from __future__ import annotations

import re

__all__ = ["escaped_json", "visible"]

# C0 but for tab and newline, DEL, C1 (some terminals take it for an escape), and what turns the
# direction of what follows
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return a text with control characters written as Python does; lines and tabs stay."""
    if _COMMANDS.search(text) is None:
        return text
    return _COMMANDS.sub(lambda found: ascii(found[0])[1:-1], text)


def escaped_json(text: str) -> str:
    """Return a JSON document with those characters escaped that JSON itself lets stand."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
