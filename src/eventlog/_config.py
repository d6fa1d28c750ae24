"""Hyperparameters of any shape, made plain for the log, with secrets left out."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec

__all__ = ["REDACTED", "plain_config", "redact_text"]

REDACTED = "[redacted]"
_DEPTH = 16
_ITEMS = 10_000

_SECRET_KEY = re.compile(
    r"(?:^|[._\-/ ])(?:api[_-]?key|apikey|access[_-]?key|secret|token|passw(?:or)?d|passphrase|"
    r"credentials?|authorization|private[_-]?key)s?(?:$|[._\-/ ])",
    re.IGNORECASE,
)
# the shapes that providers document for theirs, and passwords in addresses
_SECRET_TEXT = re.compile(
    r"\b(?:sk-[A-Za-z0-9_\-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|"
    r"github_pat_[A-Za-z0-9_]{20,}|AKIA[A-Z0-9]{16}|xox[abprs]-[A-Za-z0-9\-]{10,}|"
    r"eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,})"
)
_SECRET_URL = re.compile(r"(\b[a-z][a-z0-9+.\-]*://[^\s/:@]*):[^\s/@]+@", re.IGNORECASE)


def redact_text(text: str) -> str:
    """Return a text without what looks like a token or a password in an address."""
    return _SECRET_URL.sub(rf"\1:{REDACTED}@", _SECRET_TEXT.sub(REDACTED, text))


def plain_config(config: Any) -> dict[str, Any]:
    """Return a configuration as plain values: whole, but for secrets and what has no values.

    Mappings, dataclasses, msgspec Structs, namespaces (argparse) and objects with ``to_dict()``
    are taken apart; a type that is not known becomes its text.

    Raises:
        TypeError: `config` itself is none of these.
    """
    if config is None:
        return {}
    parts = _parts(config)
    if parts is None:
        raise TypeError(
            "config must be a mapping, a dataclass, a namespace or an object with to_dict(), "
            f"not {type(config).__name__}"
        )
    return {_key(k): _hidden(_key(k), v, (id(config),)) for k, v in parts.items()}


def _parts(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {f: getattr(value, f) for f in value.__struct_fields__}
    if hasattr(value, "to_dict") and callable(value.to_dict):
        made = value.to_dict()
        return made if isinstance(made, Mapping) else None
    if type(value).__name__ in ("Namespace", "SimpleNamespace") and hasattr(value, "__dict__"):
        return dict(vars(value))
    return None


def _key(key: Any) -> str:
    text = key if isinstance(key, str) else _text(key)
    return text.encode("utf-8", "replace").decode("utf-8")


def _hidden(key: str, value: Any, path: tuple[int, ...]) -> Any:
    if isinstance(value, str) and value and _SECRET_KEY.search(key):
        return REDACTED
    return _plain(value, path)


def _plain(value: Any, path: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return redact_text(str(value).encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, PurePath):
        return str(value)
    if id(value) in path:
        return "[cycle]"
    if len(path) > _DEPTH:
        return _text(value)
    return _compound(value, (*path, id(value)))


def _compound(value: Any, path: tuple[int, ...]) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)[:_ITEMS]
        return [_plain(item, path) for item in items]
    try:
        parts = _parts(value)
    except Exception:
        parts = None
    if parts is not None:
        return {_key(k): _hidden(_key(k), v, path) for k, v in list(parts.items())[:_ITEMS]}
    if hasattr(value, "dtype") and math.prod(tuple(getattr(value, "shape", (0,)))) == 1:
        device = getattr(getattr(value, "device", None), "type", "cpu")
        if device == "cpu":
            return _plain(value.item(), path)
    return _text(value)


def _text(value: Any) -> str:
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', '?')}.{value.__qualname__}"
    try:
        text = str(value)
    except Exception as error:
        return f"[{type(value).__name__}, whose text raised {type(error).__name__}]"
    return redact_text(text.encode("utf-8", "replace").decode("utf-8"))
