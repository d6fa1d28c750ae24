"""Values reduced over the ranks of a run: a producer that follows their logs.

It reads what each rank has written, puts together what belongs to one place, and writes the result
into a log of its own in ``<run>/reduced``, a log like any other. No rank waits for another, and
nothing is sent between them. `Run(ranks="all", reduce_ranks="mean")` starts it in a process of its
own; by hand, for a run that is over::

    python -m eventlog.ranks runs/digits/20260101-120000-abcdef
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from eventlog._paths import decode_file, replace_file
from eventlog.exceptions import EventlogError

__all__ = ["RANKS", "REDUCED", "Order", "read_order", "write_order"]

REDUCED = "reduced"
"""The name of the reduced log's run directory, in that of the run."""

RANKS = "ranks/n"
"""The value of a reduced event that says how many ranks it holds."""

_ORDER = "reduction.json"


class Order(msgspec.Struct, frozen=True):
    """What is to be done.

    Attributes:
        reduce: A reducer's name, or names by key (or glob pattern).
        world_size: How many ranks there are to be.
    """

    reduce: str | dict[str, str]
    world_size: int


def write_order(run_dir: Path, reduce: str | Mapping[str, str], world_size: int) -> None:
    """Keep with the run what is to be done.

    Raises:
        OSError: It cannot be written.
    """
    order = Order(reduce if isinstance(reduce, str) else dict(reduce), world_size)
    path = run_dir / REDUCED / _ORDER
    replace_file(path, msgspec.json.encode(order) + b"\n")


def read_order(run_dir: Path) -> Order:
    """Return what is to be done for a run.

    Raises:
        EventlogError: Nothing was kept, or it is damaged.
    """
    path = run_dir / REDUCED / _ORDER
    try:
        return decode_file(path, Order)
    except FileNotFoundError:
        raise EventlogError(f"{run_dir} has nothing to reduce: no {REDUCED}/{_ORDER}") from None
    except (OSError, ValueError) as error:
        raise EventlogError(f"{path} cannot be read: {error}") from None
