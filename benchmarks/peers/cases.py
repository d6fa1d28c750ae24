"""All cases, in the order of the tables."""

from __future__ import annotations

from peers import frameworks, mlflow_cases, ours, plain, trackers
from peers.base import Case

CASES: dict[str, Case] = {
    case.name: case
    for module in (ours, trackers, mlflow_cases, frameworks, plain)
    for case in module.CASES
}
GROUPS = tuple(dict.fromkeys(case.group for case in CASES.values()))
