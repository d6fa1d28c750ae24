"""What a task's pages show of the whole run: parameters, properties, tags and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eventlog.sinks.base import RunInfo
from eventlog.sinks.plain import flatten, json_text, short_text
from eventlog_clearml.convert import LONGEST_NAME, as_parameters, clean_name, plain_text

__all__ = ["Page"]

_LONGEST_PROPERTY = 16_384


class Page:
    """What is to be told about a run, kept until ClearML took it.

    Attributes:
        single_values: Numbers of the summary that are not sent yet.
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self._config: dict[str, Any] | None = None
        self._cut: set[str] = set()
        self._properties: dict[str, str] = {}
        self.single_values: dict[str, float] = {}

    @property
    def stale(self) -> bool:
        """Whether there is something to send."""
        return self._config is not None or bool(self._properties)

    def describe(self, run: RunInfo) -> None:
        """Tell the task at once what its run is."""
        if run.tags:
            # add_tags would lose their order
            tags = [*(self._task.get_tags() or []), *map(plain_text, run.tags)]
            self._task.set_tags(list(dict.fromkeys(tags)))
        if run.notes:
            self._task.set_comment(plain_text(run.notes))
        facts = {"run_id": run.run_id, "group": run.group}
        if run.world_size > 1 or run.rank:
            facts |= {"rank": str(run.rank), "world_size": str(run.world_size)}
        self.properties({key: value for key, value in facts.items() if value})
        self._set_properties()
        if run.provenance:
            self._set_configuration("provenance", run.provenance)

    def config(self, config: Mapping[str, Any]) -> None:
        """Note hyperparameters."""
        self._config = dict(config)

    def summary(self, changed: Mapping[str, Any]) -> None:
        """Note values of the whole run: numbers for the summary, the rest as properties."""
        for key, value in flatten(changed).items():
            name = clean_name(plain_text(key))[:LONGEST_NAME]
            if isinstance(value, int | float) and -1e308 < value < 1e308:
                self.single_values[name] = float(value)
            else:
                text = value if isinstance(value, str) else json_text(value)
                self.properties({f"summary/{name}": text})

    def properties(self, properties: Mapping[str, str]) -> None:
        """Note properties, which the task's page lists as the user's."""
        for name, value in properties.items():
            self._properties[name] = short_text(plain_text(value), _LONGEST_PROPERTY)

    def blank(self, name: str) -> None:
        """Note that a property which the task may have from before says nothing now."""
        sections = self._task.data.hyperparams or {}
        if name in (sections.get("properties") or {}):
            self.properties({name: ""})

    def send(self, count: Callable[[str, int], None]) -> None:
        """Send what was noted.

        Args:
            count: Told what could not be shown whole, and how much.
        """
        if self._config is not None:
            parameters, cut = as_parameters(flatten(self._config), "General")
            self._task.update_parameters(parameters)
            self._set_configuration("config", self._config)
            count("parameter of over 16,384 characters: cut", len(cut - self._cut))
            self._cut |= cut
            self._config = None
        self._set_properties()

    def _set_properties(self) -> None:
        if self._properties:
            items = [{"name": name, "value": text} for name, text in self._properties.items()]
            self._task.set_user_properties(*items)
            self._properties = {}

    def _set_configuration(self, name: str, value: Mapping[str, Any]) -> None:
        text = plain_text(json_text(value))
        self._task.set_configuration_object(name, config_text=text, config_type="json")
