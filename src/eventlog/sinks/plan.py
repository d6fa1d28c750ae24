"""Which sinks a run has, kept beside its log: what another process needs to deliver to them.

Sinks that were given by name can be made again anywhere; an instance or a function lives in its
own process only, and is left out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from eventlog._config import REDACTED, plain_config
from eventlog._paths import decode_file, replace_file
from eventlog.cadence.frequency import FrequencyManager
from eventlog.cadence.terms import Cadence
from eventlog.events import Event, event_tag
from eventlog.exceptions import LogError
from eventlog.sinks.select import SinkSpec

__all__ = ["PLAN", "read_plan", "unkept_options", "write_plan"]

logger = logging.getLogger("eventlog")

PLAN = "sinks.json"


def write_plan(run_dir: Path, specs: Iterable[SinkSpec]) -> list[str]:
    """Keep the specifications of those sinks that can be made again elsewhere.

    Those of an earlier attempt stay, unless the alias is used again: what they still lack can be
    brought to them. Secrets are left out: a tracker's own environment variables are the place
    for them.

    Returns:
        The aliases that are kept now.
    """
    specs = list(specs)
    try:
        former = read_plan(run_dir)
    except LogError:
        former = []
    used = {spec.alias for spec in specs}
    specs = [*specs, *(spec for spec in former if spec.alias not in used)]
    kept = {spec.alias: _encode(spec) for spec in specs if spec.sink is None}
    replace_file(run_dir / PLAN, json.dumps(kept, indent=2) + "\n")
    return list(kept)


def unkept_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a sink's options that hold secrets, however deep, and so are not kept."""
    plain = plain_config(options)
    return {
        key: value
        for key, value in options.items()
        if REDACTED in json.dumps(plain.get(key), ensure_ascii=False)
    }


def _encode(spec: SinkSpec) -> dict[str, Any]:
    options = plain_config(spec.options or {})
    hidden = unkept_options(spec.options or {})
    if hidden:
        logger.warning(
            "eventlog: sink %r: %s looks secret and is not kept with the run; delivery after the "
            "run needs it from the tracker's environment variable, or from the settings file",
            spec.alias,
            ", ".join(hidden),
        )
    return {
        "name": spec.name,
        "options": {key: value for key, value in options.items() if key not in hidden},
        "every": _encode_every(spec.every),
        "reduce": dict(spec.reduce) if isinstance(spec.reduce, Mapping) else spec.reduce,
        "types": None if spec.types is None else [_tag(kind) for kind in spec.types],
        "keys": None if spec.keys is None else list(spec.keys),
        "isolate": spec.isolate,
        "rate": spec.rate,
        "ranks": spec.ranks,
        # the rest of it said where to write: without it, the sink would write elsewhere
        "withheld": sorted({*spec.withheld, *(key for key in hidden if options[key] != REDACTED)}),
    }


def _tag(kind: type[Event] | str) -> str:
    return kind if isinstance(kind, str) else event_tag(kind)


def _encode_every(every: Any) -> Any:
    if every is None or isinstance(every, str):
        return every
    if isinstance(every, Cadence):
        return str(every)
    if isinstance(every, FrequencyManager):
        return {
            "log_frequency": every.log_frequency,
            "mode": every.mode,
            "frequency_type": every.frequency_type,
            "anchor": every.anchor,
            "state": every.state_dict(),
        }
    return {"by_type": {_tag(kind): _encode_every(rule) for kind, rule in every.items()}}


def _decode_every(every: Any) -> Any:
    if every is None or isinstance(every, str):
        return every
    if "by_type" in every:
        return {tag: _decode_every(rule) for tag, rule in every["by_type"].items()}
    manager = FrequencyManager(
        every["log_frequency"], every["mode"], every["frequency_type"], anchor=every["anchor"]
    )
    manager.load_state_dict(every["state"])
    return manager


class _Kept(msgspec.Struct):
    """One entry of the file, as it must be."""

    name: str
    options: dict[str, Any] = {}
    every: Any = None
    reduce: str | dict[str, str] | None = None
    types: list[str] | None = None
    keys: list[str] | None = None
    isolate: bool | None = None
    rate: float | None = None
    ranks: str = "main"
    withheld: list[str] = []


def read_plan(run_dir: Path) -> list[SinkSpec]:
    """Return the sinks of a run; none where it kept none.

    Raises:
        LogError: The file is damaged.
    """
    path = run_dir / PLAN
    try:
        kept = decode_file(path, dict[str, _Kept])
    except FileNotFoundError:
        return []
    except (ValueError, OSError) as error:
        raise LogError(f"{path} cannot be read: {error}") from None
    try:
        return [_decode(alias, one) for alias, one in kept.items()]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LogError(f"{path} cannot be read: a cadence in it is none ({what})") from None


def _decode(alias: str, one: _Kept) -> SinkSpec:
    return SinkSpec(
        alias=alias,
        name=one.name,
        options=one.options,
        every=_decode_every(one.every),
        reduce=one.reduce,
        types=one.types,
        keys=one.keys,
        isolate=one.isolate,
        rate=one.rate,
        ranks=one.ranks,
        withheld=tuple(one.withheld),
    )
