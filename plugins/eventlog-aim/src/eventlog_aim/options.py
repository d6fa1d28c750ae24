"""Options of the sink and of single log calls, checked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from eventlog_aim.values import plain

__all__ = ["as_repo", "checked_sdk_options", "checked_uri", "context_of"]

_OURS = frozenset({"experiment", "read_only", "repo", "run_hash"})


def as_repo(repo: str | os.PathLike[str] | None, dir: str | os.PathLike[str] | None) -> str | None:
    """Return the repository that two options name.

    Raises:
        ValueError: Both are given, or one cannot be a repository.
        TypeError: One is no path.
    """
    if repo is not None and dir is not None:
        raise ValueError(f"repo and dir are the same: give one of them, not {repo!r} and {dir!r}")
    for option, value in (("repo", repo), ("dir", dir)):
        if value is None:
            continue
        if not isinstance(value, str | os.PathLike):
            raise TypeError(f"{option} must be a path or aim://host:port, not {value!r}")
        text = os.fspath(value)
        if not text:
            raise ValueError(f"{option} must be a path or aim://host:port, not {text!r}")
        if "://" in text:
            _check_address(option, text)
        return text
    return None


def _check_address(option: str, text: str) -> None:
    wrong = f"{option} must be aim://host:port where it is an address, not {text!r}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(wrong) from None
    if option == "dir" or parts.scheme not in ("aim", "ssh") or not parts.hostname or port == 0:
        raise ValueError(wrong)


def checked_uri(uri: str | None) -> str | None:
    """Return where artifacts go.

    Raises:
        ValueError: It is not a place that Aim knows.
    """
    if uri is not None and (not isinstance(uri, str) or urlsplit(uri).scheme not in ("file", "s3")):
        raise ValueError(f"artifacts_uri must be s3://... or file:///..., not {uri!r}")
    return uri


def checked_sdk_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return further arguments of `aim.Run`.

    Raises:
        TypeError: They are no mapping of names.
        ValueError: One of them has an option of its own.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise TypeError(f"sdk_options must be a mapping of names, not {options!r}")
    ours = sorted(_OURS & options.keys())
    if ours:
        raise ValueError(f"sdk_options must not have {', '.join(ours)}: the sink sees to that")
    return dict(options)


def context_of(
    axis: str, rank: int, own: object, count: Callable[[str], None]
) -> tuple[dict[str, Any], str]:
    """Return Aim's context and a key of it: the axis, the rank, and what a log call said."""
    context: dict[str, Any] = {}
    if isinstance(own, Mapping):
        context |= plain(own, count)
    else:
        count("option 'context' of a log call that is no mapping")
    if axis != "step":
        context["axis"] = plain(axis, count)
    if rank:
        context["rank"] = rank
    return context, json.dumps(context, sort_keys=True)
