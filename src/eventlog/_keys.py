"""Which values of an event a subscription keeps, by the patterns of their names."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

import msgspec

from eventlog.events import Event

__all__ = ["KeyFilter"]

_KNOWN = 10_000


class KeyFilter:
    """Glob patterns of the names of values to keep."""

    def __init__(self, patterns: Collection[str]) -> None:
        self._patterns = tuple(patterns)
        # events of a kind mostly have the same names, in the same order
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def _kept(self, event: Event) -> tuple[str, ...]:
        names = tuple(event.values)
        kept = self._known.get(names)
        if kept is None:
            kept = tuple(n for n in names if any(fnmatch.fnmatchcase(n, p) for p in self._patterns))
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[names] = kept
        return kept

    def matches(self, event: Event) -> bool:
        """Whether any of its values is kept."""
        return bool(self._kept(event))

    def cut(self, event: Event) -> Event:
        """Return the event with the values that are kept."""
        kept, values = self._kept(event), event.values
        if len(kept) == len(values):
            return event
        return msgspec.structs.replace(event, values={name: values[name] for name in kept})
