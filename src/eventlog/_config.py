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

from eventlog._secrets import looks_random, redact_tokens, remember_secrets

__all__ = ["REDACTED", "error_text", "plain_config", "redact_text"]

REDACTED = "[redacted]"
_DEPTH = 16
_ITEMS = 10_000
_LONGEST_ERROR = 1000

_EDGE = r"[._\-/ ]"
_SECRETS = (
    r"api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|secret|passw(?:or)?d|pwd|"
    r"passphrase|credentials?|authorization|bearer"
)
_SECRET_KEY = re.compile(rf"(?:^|{_EDGE})(?:{_SECRETS}|token)s?(?:$|{_EDGE})", re.IGNORECASE)
# "tokens" with several values are a tokenizer's
_SECRET_GROUP = re.compile(rf"(?:^|{_EDGE})(?:{_SECRETS})s?(?:$|{_EDGE})", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# with an upper bound on each repetition before what must follow: a long text must not take
# quadratic time
_SECRET_URL = re.compile(r"\b([a-z][a-z0-9+.\-]{0,30}://[^\s/:@]{0,200}):[^\s/]{1,500}@", re.I)


def redact_text(text: str) -> str:
    """Return a text without what looks like a token, a key or a password; see `_secrets`."""
    return _SECRET_URL.sub(rf"\1:{REDACTED}@", redact_tokens(text, REDACTED))


def error_text(error: BaseException) -> str:
    """Return an exception for logs and files: what kind, and its text, without secrets.

    What an SDK raises may quote its whole configuration, the password in an address included.
    """
    text = redact_text(f"{type(error).__name__}: {error}")
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}..."


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
    return {_key(k): _hidden(_key(k), v, (id(config),)) for k, v in list(parts.items())}


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
    name = _HUMP.sub("_", key)
    if _SECRET_KEY.search(name) and issubclass(type(value), str | bytes) and value:
        # "pad_token" and its like are a tokenizer's: hidden there, and no secret in other texts
        if _SECRET_GROUP.search(name) or looks_random(str(value)):
            remember_secrets(value)
        return REDACTED
    plain = _plain(value, path)
    if type(plain) in (list, dict) and _SECRET_GROUP.search(name):
        remember_secrets(plain)
        return _masked(plain)
    return plain


def _masked(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _masked(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_masked(value) for value in plain]
    return REDACTED if isinstance(plain, str) and plain else plain


def _plain(value: Any, path: tuple[int, ...]) -> Any:
    try:
        return _as_plain(value, path)
    except Exception:  # a class that raises when it is looked at
        return _text(value)


def _as_plain(value: Any, path: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int):
        # str() of a very large one raises
        return int(value) if -(2**63) <= value < 2**63 else _large(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return redact_text(str.__str__(value).encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, PurePath):
        return _text(value)
    if id(value) in path:
        return "[cycle]"
    if len(path) > _DEPTH:
        return _text(value)
    return _compound(value, (*path, id(value)))


def _compound(value: Any, path: tuple[int, ...]) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item, path) for item in list(value)[:_ITEMS]]
        return items if len(value) <= _ITEMS else [*items, f"[{len(value) - _ITEMS} more]"]
    parts = _parts(value)
    if parts is not None:
        return {_key(k): _hidden(_key(k), v, path) for k, v in list(parts.items())}
    if hasattr(value, "dtype") and math.prod(tuple(getattr(value, "shape", (0,)))) == 1:
        device = getattr(getattr(value, "device", None), "type", "cpu")
        if device == "cpu":
            return _plain(value.item(), path)
    return _text(value)


def _large(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        return hex(value)


def _text(value: Any) -> str:
    try:
        if callable(value) and hasattr(value, "__qualname__"):
            return f"{getattr(value, '__module__', '?')}.{value.__qualname__}"
        text = str(value)
    except Exception as error:
        return f"[{type(value).__name__}, whose text raised {type(error).__name__}]"
    return redact_text(text.encode("utf-8", "replace").decode("utf-8"))
