"""What a user may give as ``sinks=``, turned into one list of specifications."""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from eventlog._settings import Settings, load_settings
from eventlog.cadence.frequency import FrequencyManager
from eventlog.cadence.gate import as_rule
from eventlog.cadence.terms import Cadence
from eventlog.cadence.text import CadenceError
from eventlog.cadence.window import Reduce
from eventlog.exceptions import SinkError, SinkLoadError
from eventlog.sinks._thread import is_users_own
from eventlog.sinks.base import Sink
from eventlog.sinks.callback import callback_sink
from eventlog.sinks.registry import BUILT_IN, available_sinks, load_sink_class
from eventlog.subscription import Every

__all__ = ["Selected", "SinkSpec", "Sinks", "select_sinks", "unready"]

logger = logging.getLogger("eventlog")

Sinks: TypeAlias = (
    "str | Sink | Callable[..., Any] | Iterable[str | Sink | Callable[..., Any]] "
    "| Mapping[str, Any] | None"
)

_OURS = ("every", "reduce", "types", "keys", "isolate", "ranks", "rate", "sink")


_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""How a class is named: ``module:Class``."""


class SinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One sink, as the user wants it.

    Attributes:
        alias: Unique in the run; the sink's name unless the user chose another.
        name: The sink's name in the registry, or its class's.
        options: For its class; None when `sink` was made already.
        sink: The instance, where the user gave one.
        every, reduce, types, keys: For its subscription.
        isolate: Whether it runs in a process of its own; None for the sink's own wish.
        ranks: Which logs it follows: that of the main rank, that of each rank (all), or the one of
            what was reduced over ranks (reduced).
        rate: Most calls of its `write` a second; None for no limit.
        withheld: Options that were not kept with the run, though it was made with them.
    """

    alias: str
    name: str
    options: dict[str, Any] | None = None
    sink: Any = None
    every: Any = None
    reduce: Any = None
    types: Any = None
    keys: Any = None
    isolate: bool | None = None
    ranks: str = "main"
    rate: float | None = None
    withheld: tuple[str, ...] = ()

    @property
    def making(self) -> str:
        """What `make` does, for the error that says that it took too long."""
        return f"sink {self.alias!r}: to import and make it"

    def make(self) -> Sink:
        """Return the sink, made now where it was not yet.

        Raises:
            SinkNotFoundError: It is not installed.
            SinkLoadError: It is broken: it does not load, or cannot be made.
            SinkError: Its options are wrong.
        """
        if isinstance(self.sink, Sink):
            return self.sink
        kind = load_sink_class(self.name)
        options = self.options or {}
        try:
            return kind(**options)
        except TypeError as error:
            accepted = list(inspect.signature(kind).parameters)
            raise SinkError(
                f"sink {self.alias!r}: {error}; its options are: {', '.join(accepted) or 'none'}, "
                f"and for every sink: {', '.join(_OURS)}"
            ) from error
        except ValueError as error:
            raise SinkError(f"sink {self.alias!r}: {error}") from error
        except BaseException as error:
            if is_users_own(error):
                raise
            raise SinkLoadError(
                f"sink {self.alias!r} cannot be made: {type(error).__name__}: {error}"
            ) from error


class Selected(list[SinkSpec]):
    """The sinks that were chosen.

    Attributes:
        skipped: Those that "all" leaves out, each with what is missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.skipped: dict[str, str] = {}


def select_sinks(
    sinks: Sinks, every: Every = None, reduce: Reduce = None, settings: Settings | None = None
) -> Selected:
    """Return what the user asked for, checked but not loaded.

    Args:
        sinks: A name, a sink, a function, "all", a list of these, or a mapping of aliases to
            options, cadences, sinks or functions.
        every, reduce: For those sinks that do not say.
        settings: What is said outside the program, of which the sinks' options count here; looked
            for when None.

    Raises:
        TypeError: It is none of these.
        ValueError: Two sinks have the same alias, or one sink has two.
        CadenceError: A cadence is wrong.
        EventlogError: The settings cannot be read.
    """
    specs = Selected()
    if sinks is None:
        return specs
    settings = load_settings() if settings is None else settings
    if isinstance(sinks, Mapping):
        items: Iterable[tuple[str | None, Any]] = sinks.items()
    elif isinstance(sinks, str | Sink) or callable(sinks):
        items = [(None, sinks)]
    elif isinstance(sinks, Iterable):
        items = [(None, item) for item in sinks]
    else:
        raise TypeError(
            "sinks must be a name, a sink, a function, a list of these or a mapping of aliases, "
            f"not {sinks!r}"
        )
    rest: list[Any] = []
    for alias, what in items:
        if alias == "all" or (alias is None and what == "all"):
            rest.append({} if alias is None else what)
        else:
            specs.append(_with_settings(_one(alias, what, every, reduce), settings, every, reduce))
    for what in rest:  # what is named is so, wherever in the list "all" stands
        _add_all(specs, what, settings, every, reduce)
    _check(specs)
    _check_settings(specs, settings)
    return specs


def unready(spec: SinkSpec) -> str | None:
    """Return why a sink that is given by name cannot start as things are; None when it can."""
    try:
        return load_sink_class(spec.name).unready(spec.options or {})
    except SinkError as error:
        return str(error)
    except BaseException as error:  # a plugin of anybody's
        if is_users_own(error):
            raise
        return f"{type(error).__name__}: {error}"


def _check_settings(specs: Selected, settings: Settings) -> None:
    """Warn of options that are for no sink: a name with a mistake in it, most likely."""
    if not settings.options:
        return
    known = {*available_sinks(), *(spec.alias for spec in specs)}
    unknown = sorted(settings.options.keys() - known)
    if unknown:
        logger.warning(
            "eventlog: the settings have options for %s, which is neither an alias of this run nor "
            "an installed sink; these are: %s",
            ", ".join(unknown),
            ", ".join(sorted(known)),
        )


def _add_all(specs: Selected, what: Any, settings: Settings, every: Every, reduce: Reduce) -> None:
    """Add every tracker that is installed and could start now, and say which could not."""
    for name in available_sinks():
        if name in BUILT_IN or any(spec.alias == name for spec in specs):
            continue
        spec = _with_settings(_one(name, what, every, reduce), settings, every, reduce)
        problem = unready(spec)
        if problem is None:
            specs.append(spec)
        else:
            specs.skipped[name] = problem
    if specs.skipped:
        left_out = "; ".join(f"{name} ({problem})" for name, problem in specs.skipped.items())
        taken = ", ".join(spec.alias for spec in specs) or "none"
        logger.warning('eventlog: sinks="all" takes %s and skips %s', taken, left_out)


def _with_settings(spec: SinkSpec, settings: Settings, every: Every, reduce: Reduce) -> SinkSpec:
    """Return the sink with what the settings say of its alias, where the program says nothing."""
    said = settings.options.get(spec.alias)
    if not said or spec.sink is not None:
        return spec
    other = _with_options(spec.alias, {"sink": spec.name} | said, every, reduce)
    changes: dict[str, Any] = {"options": (other.options or {}) | (spec.options or {})}
    for name in ("types", "keys", "isolate", "rate"):
        if getattr(spec, name) is None:
            changes[name] = getattr(other, name)
    if spec.every is every:
        changes["every"] = other.every
    if spec.reduce is reduce:
        changes["reduce"] = other.reduce
    if spec.ranks == "main":
        changes["ranks"] = other.ranks
    return msgspec.structs.replace(spec, **changes)


def _check(specs: list[SinkSpec]) -> None:
    seen: set[str] = set()
    objects: dict[int, str] = {}
    for spec in specs:
        if spec.alias in seen:
            second = f'{{"sink": "{spec.name}"}}' if spec.sink is None else "<the object>"
            raise ValueError(
                f"two sinks have the alias {spec.alias!r}; give a mapping with other aliases, "
                f'such as {{"{spec.alias}2": {second}}}'
            )
        seen.add(spec.alias)
        if spec.sink is not None:
            other = objects.setdefault(id(spec.sink), spec.alias)
            if other != spec.alias:
                raise ValueError(
                    f"{other!r} and {spec.alias!r} are the same object; a sink is open once at a "
                    "time, so make two of them"
                )
        _check_every(spec)


def _check_every(spec: SinkSpec) -> None:
    """Find a wrong cadence before anything is opened."""
    every = spec.every
    for rule in every.values() if isinstance(every, Mapping) else [every]:
        try:
            _ = None if rule is None else as_rule(rule)
        except CadenceError as error:
            problem = f"{error.problem} (the cadence of sink {spec.alias!r}"
            if rule in available_sinks() or (isinstance(rule, str) and _CLASS.fullmatch(rule)):
                problem += f'; to name the sink, give {{"{spec.alias}": {{"sink": "{rule}"}}}}'
            raise CadenceError(error.text, error.column, f"{problem})") from None


def _one(alias: str | None, what: Any, every: Every, reduce: Reduce) -> SinkSpec:
    if alias is not None and (not isinstance(alias, str) or not alias):
        raise TypeError(f"a sink's alias must be a text that is not empty, not {alias!r}")
    if isinstance(what, str) and alias is None:
        return SinkSpec(alias=what, name=what, every=every, reduce=reduce)
    if isinstance(what, Sink):
        name = what.name or type(what).__name__
        return SinkSpec(alias=alias or name, name=name, sink=what, every=every, reduce=reduce)
    if isinstance(what, str | Cadence | FrequencyManager) and alias is not None:
        return SinkSpec(alias=alias, name=alias, every=what, reduce=reduce)
    if isinstance(what, Mapping) and alias is not None:
        return _with_options(alias, what, every, reduce)
    if what is None and alias is not None:
        return SinkSpec(alias=alias, name=alias, every=every, reduce=reduce)
    if callable(what) and not isinstance(what, type):
        sink = callback_sink(what)
        label = alias or str(getattr(what, "__name__", "callback"))
        return SinkSpec(alias=label, name="callback", sink=sink, every=every, reduce=reduce)
    raise TypeError(
        f"sink {alias or what!r} must be a name, a sink, a function, a cadence or a mapping of "
        f"options, not {what!r}"
    )


def _check_rate(alias: str, rate: Any) -> None:
    if rate is None:
        return
    number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not number or not 0 < rate < math.inf:
        raise ValueError(
            f"sink {alias!r}: rate must be a number of calls a second above 0, not {rate!r}"
        )


def _with_options(alias: str, what: Mapping[str, Any], every: Every, reduce: Reduce) -> SinkSpec:
    options = {key: value for key, value in what.items() if key not in _OURS}
    ours: dict[str, Any] = {"every": every, "reduce": reduce}
    ours |= {key: what[key] for key in _OURS if key in what and key != "sink"}
    inner: Any = what.get("sink", alias)
    if ours.get("isolate") not in (None, True, False):
        raise TypeError(f"sink {alias!r}: isolate must be a bool, not {ours['isolate']!r}")
    if ours.get("ranks", "main") not in ("main", "all", "reduced"):
        raise ValueError(
            f"sink {alias!r}: ranks must be 'main', 'all' or 'reduced', not {ours['ranks']!r}"
        )
    _check_rate(alias, ours.get("rate"))
    if isinstance(inner, str):
        return SinkSpec(alias=alias, name=inner, options=options, **ours)
    if options:
        raise TypeError(
            f"sink {alias!r} is given as an object, so it takes no options "
            f"({', '.join(options)}); give them when you make it"
        )
    made = _one(alias, inner, None, None)
    return msgspec.structs.replace(made, alias=alias, **ours)
